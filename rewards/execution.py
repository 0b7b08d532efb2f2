"""The tests and execution rewards: what a run in the sandbox is worth."""

from __future__ import annotations

from typing import Literal

from curriculum.judging import has_passed
from sandbox.result import NOT_COMPILED, ExecutionResult, Outcome

_RAN_TO_ITS_END = frozenset({Outcome.PASS, Outcome.WRONG})


def is_no_program(result: ExecutionResult) -> bool:
    """Whether the program did not compile: the sandbox finds what parsing alone (rewards.syntax) does not."""
    return result.outcome is Outcome.EXCEPTION and result.detail == NOT_COMPILED


def score_tests(result: ExecutionResult, mode: Literal["fraction", "all"]) -> float:
    """The share of tests passed (``fraction``), or 1 for all of them and else 0 (``all``).

    Only a pass earns 1. A violation earns 0 whatever it passed: attacks do not pay.
    """
    if has_passed(result):
        return 1.0
    if mode == "all" or result.outcome in (Outcome.VIOLATION, Outcome.INFRA_ERROR):
        return 0.0
    return result.num_passed / result.num_tests if result.num_passed < result.num_tests else 0.0


def score_execution(result: ExecutionResult) -> float:
    """1 for a clean run, 0.5 for one that wrote to stderr, 0 for one that did not come to its end."""
    if result.outcome not in _RAN_TO_ITS_END:
        return 0.0
    return 1.0 if result.clean else 0.5
