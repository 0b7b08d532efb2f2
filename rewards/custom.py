"""Rewards that users write: functions in TRL's signature, named in the configuration.

    def short_code(prompts, completions, code, **columns):      # or async def
        return [1.0 if len(program) < 500 else 0.0 for program in code]

    rewards: {custom: ["my_rewards:short_code"]}

Functions are called with keywords whose values are lists of length one, because completions are scored
one by one: ``prompts``, ``completions`` and the columns ``task_id``, ``entry_point``, ``code`` (the
extracted program), ``source``, ``family``, ``difficulty`` and ``reference``. They return a list with one
number, or None for no opinion. What a function does wrong is reported by its name. Isolates nothing: the
functions are the user's own and run in the process of their caller.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import ModuleType

from configs.errors import ConfigError, Problem, wrong_value
from curriculum.task import Task

DEFAULT_TIMEOUT_S = 30.0
_FIELD = "rewards.custom"
# How long an event loop may take to answer after a call on it was cancelled.
_GRACE_S = 1.0
# Threads that may hang in calls that came too late; a thread cannot be ended from outside.
_MAX_LOST_THREADS = 4

RewardFunction = Callable[..., object]


class CustomRewardError(RuntimeError):
    """A custom reward gave no verdict; the message names the function and says why."""


class CustomReward:
    """One function of the user's with the deadline of a call, ``timeout_s``.

    Calls run one at a time on a thread with an event loop, the same one for all calls, so that an async
    function may keep a client open between calls. Not for several threads at once.
    """

    def __init__(self, spec: str, function: RewardFunction, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.spec = spec
        self.name = spec.rpartition(":")[2]
        self._function = function
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lost_threads: list[threading.Thread] = []

    @property
    def fingerprint(self) -> str:
        """The function's name with a digest of its module's source, where it has one."""
        return f"{self.spec}@{_source_digest(self._function)}"

    def score(self, task: Task, text: str, code: str) -> float | None:
        """What the function gives for ``text`` (prefill and completion), whose program is ``code``.

        None is no opinion: it leaves this reward out. Raises CustomRewardError when the function raises,
        returns anything but one finite number or None, or takes longer than the deadline.
        """
        loop = self._running_loop()
        future = asyncio.run_coroutine_threadsafe(self._call(_columns(task, text, code)), loop)
        try:
            returned = future.result(self._timeout_s)
        except TimeoutError:
            self._give_up(future)
            fault = f"no answer in {self._timeout_s:g} s (rewards.custom_timeout_s)"
            raise self._error(fault, task) from None
        except CancelledError:
            raise self._error("its call was cancelled from within", task) from None
        return self._read(returned, task)

    def close(self) -> None:
        """End the thread; one that hangs in a call stays until the process ends. Safe to call twice."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    async def _call(self, columns: Mapping[str, list[object]]) -> object:
        """What the function returns; an exception is returned too, so that none ends the loop's thread."""
        try:
            returned = self._function(**columns)
            return await returned if inspect.isawaitable(returned) else returned
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return _Raised(error)

    def _read(self, returned: object, task: Task) -> float | None:
        if isinstance(returned, _Raised):
            raise self._error(f"raised {returned}", task) from returned.error
        try:
            values = list(returned)  # type: ignore[call-overload]
        except TypeError:
            raise self._error(f"returned {_shown(returned)}, not a list", task) from None
        if len(values) != 1:
            raise self._error(f"returned {len(values)} rewards for 1 completion", task)
        (value,) = values
        if value is None:
            return None
        number = _as_number(value)
        if number is None:
            raise self._error(f"returned [{_shown(value)}], not a number or None", task)
        if not math.isfinite(number):
            raise self._error(f"returned [{number}], not a finite number", task)
        return number

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._lost_threads = [thread for thread in self._lost_threads if thread.is_alive()]
            if len(self._lost_threads) >= _MAX_LOST_THREADS:
                fault = f"{len(self._lost_threads)} calls of it hang; it is not called until one returns"
                raise CustomRewardError(f"{_FIELD}: {self.spec}: {fault}")
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name=self.spec, daemon=True)
            self._thread.start()
        return self._loop

    def _give_up(self, future: Future[object]) -> None:
        """Cancel a call; a thread that does not come back from it is left to itself."""
        future.cancel()
        assert self._loop is not None and self._thread is not None
        has_answered = threading.Event()
        self._loop.call_soon_threadsafe(has_answered.set)
        if not has_answered.wait(_GRACE_S):
            self._lost_threads.append(self._thread)
            self.close()

    def _error(self, fault: str, task: Task) -> CustomRewardError:
        return CustomRewardError(f"{_FIELD}: {self.spec}: {fault} (task {task.task_id})")


class _Raised:
    """An exception that a function raised, on its way between two threads."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        last = traceback.extract_tb(self.error.__traceback__)[-1]
        return f"{type(self.error).__name__}: {self.error} at {os.path.basename(last.filename)}:{last.lineno}"


def load_custom(specs: Sequence[str], timeout_s: float = DEFAULT_TIMEOUT_S) -> tuple[CustomReward, ...]:
    """The custom rewards that ``specs`` name, each as ``package.module:function``.

    Modules are imported from the installed packages and then from the working directory, which is put at
    the end of the import path. Raises ConfigError that lists every one that cannot be loaded or called.
    """
    if specs and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    found = [(spec, _load(spec)) for spec in specs]
    problems = [function for _, function in found if isinstance(function, Problem)]
    if problems:
        raise ConfigError(problems)
    return tuple(
        CustomReward(spec, function, timeout_s)
        for spec, function in found
        if not isinstance(function, Problem)
    )


def _load(spec: str) -> RewardFunction | Problem:
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        return wrong_value(_FIELD, spec, "package.module:function, such as my_rewards:short_code")
    module = _import(spec, module_name)
    if isinstance(module, Problem):
        return module
    function = vars(module).get(name)
    if function is None:
        return _problem(
            spec, f"{module_name} ({module.__file__}) defines no {name}", "a function of that module"
        )
    if not callable(function):
        return _problem(spec, f"{name} is no function but {_shown(function)}", "a function")
    return _signature_problem(spec, function) or function


def _import(spec: str, module_name: str) -> ModuleType | Problem:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            allowed = "a module that is installed or lies in the working directory"
            return _problem(spec, f"there is no module {error.name}", allowed)
        return _problem(spec, f"{module_name} cannot be imported: {_Raised(error)}", "a module that imports")
    # The user's module can raise anything while it loads.
    except (Exception, SystemExit) as error:
        return _problem(spec, f"{module_name} cannot be imported: {_Raised(error)}", "a module that imports")


def _signature_problem(spec: str, function: RewardFunction) -> Problem | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # Compiled functions need not have one; a call will show.
    columns = _columns(_EXAMPLE, "", "")
    try:
        signature.bind(**columns)
    except TypeError as error:
        allowed = f"the keywords {', '.join(columns)}, or those it needs and **columns"
        return _problem(spec, f"it cannot be called: {error}", allowed)
    return None


def _problem(spec: str, fault: str, allowed: str) -> Problem:
    return Problem(field=_FIELD, fault=f"{spec}: {fault}", allowed=allowed)


def _columns(task: Task, text: str, code: str) -> dict[str, list[object]]:
    """The keywords of one call, each a list of length one."""
    return {
        "prompts": [task.prompt],
        "completions": [text],
        "task_id": [task.task_id],
        "entry_point": [task.entry_point],
        "code": [code],
        "source": [task.source],
        "family": [task.family],
        "difficulty": [task.difficulty],
        "reference": [task.reference],
    }


_EXAMPLE = Task(task_id="example", prompt="", entry_point="f", check_source="")


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _as_number(value: object) -> float | None:
    """``value`` as a float, numpy's and torch's numbers too; None for text and all else."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


def _source_digest(function: RewardFunction) -> str:
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return "no source"
    if file is None or not os.path.isfile(file):
        return "no source"
    with open(file, "rb") as source:
        return hashlib.blake2b(source.read(), digest_size=8).hexdigest()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:76] + " ..."
