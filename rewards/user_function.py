"""Functions that users write, named in the configuration as ``package.module:function``.

Loaded from the installed packages and then from the working directory, tried on the keywords that they will
be called with, and called with a deadline. What a function does wrong is reported by its name. Isolates
nothing: the functions are the user's own and run in the process of their caller.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from types import ModuleType

from configs.errors import ConfigError, Problem, wrong_value

DEFAULT_TIMEOUT_S = 30.0
# How long an event loop may take to answer after a call on it was cancelled.
_GRACE_S = 1.0
_SLOW_IMPORT_S = 2.0
# Threads that may hang in calls that came too late; a thread cannot be ended from outside.
_MAX_LOST_THREADS = 4

Function = Callable[..., object]


class UserFunctionError(RuntimeError):
    """A user's function gave nothing that can be used; the message names the setting and the function."""


class UserFunction:
    """One function of the user's, named ``spec`` in the setting ``field``; ``timeout_s`` is for one call.

    Calls run one at a time on a thread with an event loop, the same one for all calls, so that an async
    function may keep a client open between calls; any other is called while that loop stands still. Not for
    several threads at once.
    """

    def __init__(self, field: str, spec: str, function: Function, timeout_s: float) -> None:
        self.spec = spec
        self._field = field
        self._function = function
        self._timeout_s = timeout_s
        self._thread: _CallThread | None = None
        self._lost_threads: list[_CallThread] = []

    @property
    def fingerprint(self) -> str:
        """The function's name with a digest of its module's source, where it has one."""
        return f"{self.spec}@{_source_digest(self._function)}"

    def __call__(self, task_id: str, columns: Mapping[str, object]) -> object:
        """What the function returns for ``columns``, keywords about the task ``task_id``.

        Raises UserFunctionError when it raises, or takes longer than the deadline.
        """
        thread = self._running_thread()
        deadline = time.monotonic() + self._timeout_s
        returned = self._wait(thread.call(self._function, columns), deadline, task_id)
        if inspect.isawaitable(returned):
            returned = self._wait(thread.run_awaitable(returned), deadline, task_id)
        return returned

    def _wait(self, future: Future[object], deadline: float, task_id: str) -> object:
        try:
            returned = future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            self._give_up(future)
            # A flag's deadline is no setting.
            setting = "" if self._field.startswith("--") else " (rewards.custom_timeout_s)"
            fault = f"no answer in {self._timeout_s:g} s{setting}"
            raise self.error(fault, task_id) from None
        except CancelledError:
            raise self.error("its call was cancelled from within", task_id) from None
        if isinstance(returned, _Raised):
            fault = f"raised {returned.told(_source_file(self._function))}"
            raise self.error(fault, task_id) from returned.error
        return returned

    def error(self, fault: str, task_id: str) -> UserFunctionError:
        """The error that says what the function did wrong with that task."""
        return UserFunctionError(f"{self._field}: {self.spec}: {fault} (task {task_id})")

    def close(self) -> None:
        """End the thread; one that hangs in a call stays until the process ends. Safe to call twice."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def _running_thread(self) -> _CallThread:
        if self._thread is None:
            self._lost_threads = [thread for thread in self._lost_threads if thread.is_alive()]
            if len(self._lost_threads) >= _MAX_LOST_THREADS:
                fault = f"{len(self._lost_threads)} calls of it hang; it is not called until one returns"
                raise UserFunctionError(f"{self._field}: {self.spec}: {fault}")
            self._thread = _CallThread(self.spec)
        return self._thread

    def _give_up(self, future: Future[object]) -> None:
        """Cancel a call; a thread that does not come back from it is left to itself."""
        future.cancel()
        assert self._thread is not None
        if not self._thread.is_back_within(_GRACE_S):
            self._lost_threads.append(self._thread)
            self.close()


class _CallThread(threading.Thread):
    """A thread that runs an event loop, and stops it for each call of a function.

    TRL calls functions outside of any loop as well, where they may run one of their own. What they raise is
    returned, so that it does not end the thread.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._loop = asyncio.new_event_loop()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.start()

    def call(self, function: Function, columns: Mapping[str, object]) -> Future[object]:
        """Call ``function``; an awaitable is returned as it is."""
        future: Future[object] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(_whole(function(**columns)))
            except BaseException as error:
                future.set_result(_Raised(error))

        self._stop_loop_for(call)
        return future

    def run_awaitable(self, awaitable: Awaitable[object]) -> Future[object]:
        """Run what a function returned on the loop."""
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop)

    def is_back_within(self, seconds: float) -> bool:
        """Whether the loop runs again, or soon will."""
        has_answered = threading.Event()
        self._loop.call_soon_threadsafe(has_answered.set)
        return has_answered.wait(seconds)

    def end(self) -> None:
        """End the thread, when it comes back from its call."""
        self._stop_loop_for(None)

    def run(self) -> None:
        """See threading.Thread."""
        # What asyncio.get_event_loop gives to a function that is not async, as a main thread has one.
        theirs = asyncio.new_event_loop()
        asyncio.set_event_loop(theirs)
        while True:
            self._loop.run_forever()
            while not self._calls.empty():
                call = self._calls.get()
                if call is None:
                    self._loop.close()
                    theirs.close()
                    return
                call()

    def _stop_loop_for(self, call: Callable[[], None] | None) -> None:
        self._calls.put(call)
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _awaited(awaitable: Awaitable[object]) -> object:
    try:
        return _whole(await awaitable)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return _Raised(error)


def _whole(returned: object) -> object:
    """``returned``; of an iterator all that it gives: its code is the user's, and runs here."""
    return list(returned) if isinstance(returned, Iterator) else returned


class _Raised:
    """An exception that a user's code raised, on its way between two threads."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def told(self, file: str | None) -> str:
        """The exception and where it was raised: the last line of ``file`` that has a part in it, if any."""
        frames = traceback.extract_tb(self.error.__traceback__)
        # A library's own line says nothing to who calls it.
        last = ([frame for frame in frames if frame.filename == file] or frames)[-1]
        return f"{type(self.error).__name__}: {self.error} at {os.path.basename(last.filename)}:{last.lineno}"


def load_functions(
    field: str, specs: Sequence[str], timeout_s: float, keywords: Mapping[str, object]
) -> tuple[UserFunction, ...]:
    """The functions that ``specs`` name, given in the setting ``field``; called with ``keywords``.

    Modules are imported from the installed packages and then from the working directory, which is put at
    the end of the import path; an import that takes long says so on standard error. Raises ConfigError that
    lists every one that cannot be loaded or called.
    """
    if not specs:
        return ()
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    notice = threading.Timer(
        _SLOW_IMPORT_S, print, [f"  ... importing {', '.join(specs)}"], {"file": sys.stderr}
    )
    notice.daemon = True
    notice.start()
    try:
        found = [(spec, _load(field, spec, keywords)) for spec in specs]
    finally:
        notice.cancel()
    problems = [function for _, function in found if isinstance(function, Problem)]
    if problems:
        raise ConfigError(problems)
    return tuple(
        UserFunction(field, spec, function, timeout_s)
        for spec, function in found
        if not isinstance(function, Problem)
    )


def shown(value: object) -> str:
    """``value`` for a message, cut."""
    text = repr(value)
    return text if len(text) <= 80 else text[:76] + " ..."


def _load(field: str, spec: str, keywords: Mapping[str, object]) -> Function | Problem:
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        return wrong_value(field, spec, "package.module:function, such as my_rewards:short_code")
    module = _import(field, spec, module_name)
    if isinstance(module, Problem):
        return module
    function = vars(module).get(name)
    if function is None:
        return _problem(
            field, spec, f"{module_name} ({module.__file__}) defines no {name}", "a function of that module"
        )
    if not callable(function):
        return _problem(field, spec, f"{name} is no function but {shown(function)}", "a function")
    return _signature_problem(field, spec, function, keywords) or function


def _import(field: str, spec: str, module_name: str) -> ModuleType | Problem:
    try:
        return importlib.import_module(module_name)
    # The user's module can raise anything while it loads.
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            allowed = "a module that is installed or lies in the working directory"
            return _problem(field, spec, f"there is no module {missing}", allowed)
        fault = f"{module_name} cannot be imported: {_Raised(error).told(None)}"
        return _problem(field, spec, fault, "a module that imports")


def _signature_problem(
    field: str, spec: str, function: Function, keywords: Mapping[str, object]
) -> Problem | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # Compiled functions need not have one; a call will show.
    try:
        signature.bind(**keywords)
    except TypeError as error:
        allowed = f"the keywords {', '.join(keywords)}, or those it needs and **columns"
        return _problem(field, spec, f"it cannot be called: {error}", allowed)
    return None


def _problem(field: str, spec: str, fault: str, allowed: str) -> Problem:
    return Problem(field=field, fault=f"{spec}: {fault}", allowed=allowed)


def _source_digest(function: Function) -> str:
    file = _source_file(function)
    if file is None or not os.path.isfile(file):
        return "no source"
    with open(file, "rb") as source:
        return hashlib.blake2b(source.read(), digest_size=8).hexdigest()


def _source_file(function: Function) -> str | None:
    try:
        return inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return None
