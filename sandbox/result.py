"""What a run of model-written code is asked to do, and what came of it.

These are the only types that cross the sandbox's border. Called by rewards, evaluation and
the sandbox itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    """One call of the entry point: ``entry_point(*args) == expected``, decided outside the child."""

    args: tuple[object, ...]
    expected: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one run: CPU seconds, wall seconds (backstop), bytes of memory and of output."""

    cpu_s: float = 2.0
    wall_s: float = 10.0
    memory_bytes: int = 512 * 1024**2
    output_bytes: int = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """One program and its tests.

    Exactly one of ``call_tests`` and ``check_source`` is given. ``check_source`` is a test program
    that defines ``check(candidate)`` (HumanEval's form); ``prelude`` is code that both the judge and
    the solution may rely on (imports and helpers of the prompt).
    """

    solution: str
    entry_point: str
    call_tests: tuple[CallTest, ...] = ()
    check_source: str | None = None
    prelude: str = ""
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The verdict, with a short reason and the usage.

    ``num_passed`` of ``num_tests`` call tests passed (judge mode counts the whole check as one test).
    ``detail`` is short: the first failing test index, the exception's type. ``clean`` is False when
    the program wrote to stderr. ``level`` names the isolation that was in force.
    """

    outcome: Outcome
    num_passed: int
    num_tests: int
    detail: str
    clean: bool
    cpu_s: float
    wall_s: float
    level: str
