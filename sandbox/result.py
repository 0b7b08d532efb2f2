"""What a run of model-written code is asked to do, and what came of it.

These are the only types that cross the sandbox's border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

# The detail, with the outcome "exception", of a program that does not compile.
NOT_COMPILED: Final = "SyntaxError"


class Outcome(StrEnum):
    """The verdict on one program. Only ``PASS`` earns the tests reward in full."""

    PASS = "pass"
    WRONG = "wrong"
    EXCEPTION = "exception"
    TIMEOUT_CPU = "timeout_cpu"
    TIMEOUT_WALL = "timeout_wall"
    OOM = "oom"
    CRASH = "crash"
    VIOLATION = "violation"
    INFRA_ERROR = "infra_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTest:
    """One call of the entry point: ``entry_point(*args) == expected``, decided outside the child.

    ``expected_args``, where given, is what the arguments must look like after the call (a task that
    sorts in place, say); they are copied back from the candidate only then, and compared with this
    saved copy, never with each other. All are of the types that cross the border (sandbox.codec), and what is
    expected is equal to a copy of itself, which a nan is not.
    """

    args: tuple[object, ...]
    expected: object
    expected_args: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioTest:
    """One run of the whole program: ``stdin`` goes in, ``expected_stdout`` must come out.

    Compared line by line; white space at the ends of lines and empty lines at the end do not count. With
    ``decimals`` (LiveCodeBench's rule) neither does white space at the start of a line, nor do empty lines at
    the start, and a line of numbers may write the same numbers otherwise (1.0 for 1).
    """

    stdin: str
    expected_stdout: str
    decimals: bool = False


_WALL_FACTOR: Final = 5.0
_CAP_FACTOR: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one run (in stdio mode: on one test).

    ``cpu_s``: CPU seconds, all threads together. ``wall_s``: wall seconds less the time in which the
    run was ready but the machine was busy with others. ``wall_cap_s``: plain wall seconds, a backstop.
    ``memory_bytes``: address space beyond the warm interpreter's. ``output_bytes``: on stderr, and
    in stdio mode on stdout; elsewhere what is printed goes nowhere.
    """

    cpu_s: float = 2.0
    wall_s: float = 10.0
    wall_cap_s: float = 60.0
    memory_bytes: int = 512 * 1024**2
    output_bytes: int = 1024**2

    @classmethod
    def around(cls, cpu_s: float, memory_bytes: int, wall_s: float | None = None) -> Limits:
        """Limits of a run that may take ``cpu_s``: the wall clock (``wall_s``, or five times that and 10 s at
        least) is a backstop well above it, and its cap above that, so that an honest program does not fail
        because the machine is busy."""
        usual = cls()
        if wall_s is None:
            wall_s = max(usual.wall_s, _WALL_FACTOR * cpu_s)
        cap_s = max(usual.wall_cap_s, _CAP_FACTOR * wall_s)
        return cls(cpu_s=cpu_s, wall_s=wall_s, wall_cap_s=cap_s, memory_bytes=memory_bytes)

    def for_outputs(self, tests: Sequence[StdioTest]) -> Limits:
        """Room for twice the longest expected output: all of it must be allowed, a little more be wrong."""
        expected = (len(test.expected_stdout.encode("utf-8", "surrogatepass")) for test in tests)
        return replace(self, output_bytes=max(self.output_bytes, 2 * max(expected, default=0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """One program and its tests.

    Exactly one of ``call_tests``, ``check_source`` and ``stdio_tests`` is given. ``check_source`` is
    a test program: it defines ``check(candidate)`` (HumanEval's form), or unittest classes, or
    ``test_*`` functions, or makes its asserts when loaded. ``prelude`` is code that both the judge
    and the solution may rely on (imports and helpers of the prompt). ``entry_point`` is a function's
    name, or ``Class.method`` for a method of a fresh instance; empty in stdio mode.

    ``copy_back`` lets a test program see what the candidate did to its arguments. Such a program must
    compute what it expects from its own copy: ``f(xs) == sorted(xs)`` would pass for a candidate that
    empties ``xs``.

    ``keep_values`` asks for what the calls returned, to write tests from a program that is known to be right.
    """

    solution: str
    entry_point: str
    call_tests: tuple[CallTest, ...] = ()
    check_source: str | None = None
    stdio_tests: tuple[StdioTest, ...] = ()
    prelude: str = ""
    copy_back: bool = False
    keep_values: bool = False
    limits: Limits = Limits()

    @property
    def num_tests(self) -> int:
        """As far as it is known before the run: that of a test program counts as one."""
        return max(1, len(self.call_tests) + len(self.stdio_tests))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The verdict, with a short reason and the usage.

    ``num_passed`` of ``num_tests`` tests passed; a test program counts its unittest methods or ``test_*``
    functions, a ``check`` or bare asserts count as one. ``detail`` is short: the first failing test's index,
    the exception's type and the line of the solution, as the solution's own process says; ``NOT_COMPILED``
    for one that does not compile. ``clean`` is False when the program wrote to stderr. ``level`` names the
    isolation that was in force: L3 to L0. ``values`` are what the calls returned, each in a tuple of its own,
    None for one that raised or gave no plain data; kept where the request asks for it, up to the first call
    that ended the run.
    """

    outcome: Outcome
    num_passed: int
    num_tests: int
    detail: str
    clean: bool
    cpu_s: float
    wall_s: float
    level: str
    values: tuple[tuple[object] | None, ...] = ()
