"""The judge's side of a run: execute a test program against a candidate in another process.

Runs inside its own jailed child, which alone holds the test source; what the candidate sees of it are
arguments. A program in one of the usual forms: ``check(candidate)``; unittest classes and ``test_*``
functions without parameters, one test each; or bare asserts. The candidate is there under its own
name, as ``candidate``, and as a member of the module ``solution``. It reports; the owner decides.

Frame in: ``(prelude, check_source, entry_point, copy_back)``. Frames out: ``("called",)`` before the first
call of the candidate, since a time-out before it is the test program's own; ``("progress", num_passed,
num_tests)`` after each of several tests; last ``("verdict", verdict, detail, num_passed, num_tests)``
with verdict pass, wrong, exception, oom or broken (the test program fails by itself).
"""

from __future__ import annotations

import os
import socket
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from sandbox import randomness
from sandbox.candidate import run_prelude
from sandbox.cargo import unpack
from sandbox.codec import encode
from sandbox.proxy import EXIT_CANDIDATE_FORGED, CandidateProxy
from sandbox.tally import Tally
from sandbox.unittests import TallyResult, leave_the_run_to_the_judge, load_suite
from sandbox.wire import FrameReader, send_frame

if TYPE_CHECKING:
    import unittest


def serve(control: socket.socket, candidate: socket.socket) -> None:
    """Run one test program and send its verdict frame."""
    frame = cast("tuple[str, str, str, bool]", unpack(FrameReader(control).receive()))
    prelude, check_source, entry_point, copy_back = frame
    randomness.seed(check_source)
    proxy = CandidateProxy(candidate, copy_back=copy_back)
    tally = Tally(control, proxy)

    def call(*args: object, **kwargs: object) -> object:
        if proxy.num_calls == 0:
            send_frame(control, encode(("called",)))
        return proxy.call(*args, **kwargs)

    module = types.ModuleType("check")
    try:
        flags = _load_prelude(module, prelude)
        proxy.learn_exceptions(vars(module))
        defined = _load(module, check_source, entry_point, call, flags)
    except BaseException as error:
        tally.finish("", error)
    else:
        _run(module, defined, call, tally)
    verdict, detail = tally.verdict()
    if verdict == "pass" and proxy.has_surplus:
        # Read here, so the owner cannot see it any more.
        os._exit(EXIT_CANDIDATE_FORGED)
    send_frame(control, encode(("verdict", verdict, detail, tally.num_passed, tally.num_tests)))


def _load_prelude(module: types.ModuleType, prelude: str) -> int:
    # Dataclasses and unittest look a class's module up; unittest.main() looks for __main__.
    sys.modules["check"] = sys.modules["__main__"] = module
    sys.argv = ["check.py"]
    return run_prelude(prelude, module)


def _load(
    module: types.ModuleType,
    check_source: str,
    entry_point: str,
    call: Callable[..., object],
    flags: int,
) -> Mapping[str, object]:
    """Execute the program's top level and return the names that it defined itself."""
    solution = types.ModuleType("solution")
    solution.__dict__.update({name: value for name, value in vars(module).items() if name[:2] != "__"})
    sys.modules["solution"] = solution
    name, _, method = entry_point.partition(".")
    stand_in = type(name, (), {method: staticmethod(call)}) if method else call
    setattr(solution, name, stand_in)
    setattr(module, name, stand_in)
    module.__dict__.setdefault("candidate", call)
    before = dict(vars(module))
    if "unittest" in check_source and "main" in check_source:
        leave_the_run_to_the_judge()
    try:
        exec(compile(check_source, "<check>", "exec", flags, dont_inherit=True), module.__dict__)
    except SystemExit as end:
        # The program's own: the candidate's exits never arrive as one.
        if end.code:
            raise
    return {name: value for name, value in vars(module).items() if before.get(name) is not value}


def _run(
    module: types.ModuleType, defined: Mapping[str, object], call: Callable[..., object], tally: Tally
) -> None:
    check = defined.get("check")
    if callable(check):
        tally.run("", lambda: check(call))
        return
    functions = {
        name: cast("Callable[[], object]", value)
        for name, value in defined.items()
        if (name.startswith("test_") or name == "test") and _needs_nothing(value)
    }
    num_cases = 0
    if "unittest" in sys.modules:
        suite = load_suite(module)
        num_cases = suite.countTestCases()
    if num_cases + len(functions) == 0:
        # Bare asserts, and all of them held.
        nothing = None if tally.num_calls else LookupError("no check function, no test and no call")
        tally.finish("", nothing)
        return
    tally.start(num_cases + len(functions))
    if num_cases:
        try:
            suite.run(cast("unittest.TestResult", TallyResult(tally)))
        except BaseException as error:
            tally.fail("unittest", error)
    for name, function in functions.items():
        tally.run(name, function)


def _needs_nothing(value: object) -> bool:
    """Whether it is a function that can be called without arguments."""
    if not isinstance(value, types.FunctionType):
        return False
    code = value.__code__
    num_required = code.co_argcount - len(value.__defaults__ or ())
    return num_required == 0 and code.co_kwonlyargcount == len(value.__kwdefaults__ or ())
