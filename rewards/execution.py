"""The tests and execution rewards: what a run in the sandbox is worth."""

from __future__ import annotations

from typing import Literal

from configs.schema import ExecutionConfig
from curriculum.judging import Executor, execution_request, has_passed
from curriculum.task import Task
from rewards.result import RewardResult, infra_error
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


def judge_by_tests(task: Task, program: str, sandbox: Executor, execution: ExecutionConfig) -> RewardResult:
    """The verdict of the tests alone: reward 1 for a pass, else 0, and the share of them that passed."""
    try:
        run = sandbox.run(execution_request(task, program, execution))
    except ValueError as failure:
        # The task's own check cannot run: no answer's fault, and no reason to lose the other tasks.
        return infra_error(f"{task.task_id}: {failure}", 0.0)
    if run.outcome is Outcome.INFRA_ERROR:
        return infra_error(run.detail, run.wall_s)
    passed = has_passed(run)
    return RewardResult(
        reward=float(passed),
        breakdown={"tests": run.num_passed / max(1, run.num_tests)},
        outcome=run.outcome,
        passed=passed,
        detail=run.detail,
        seconds=run.wall_s,
    )
