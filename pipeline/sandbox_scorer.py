"""Scores answers by their tests alone: what pass@k needs, without the other rewards and without Ray.

Called by pipeline.evaluation_command, pipeline.baseline and pipeline.inloop_evaluation.
"""

from __future__ import annotations

import asyncio

from configs.schema import ExecutionConfig
from curriculum.task import Task
from pipeline.samples import sample_program
from rewards.execution import Executor, execution_request, has_passed
from rewards.extract import extract_code
from rewards.result import RewardResult, infra_error
from sandbox.result import Outcome


class SandboxScorer:
    """Scores by the tests alone: reward 1 for a pass, else 0; the breakdown has the share of tests passed.

    The sandbox is the caller's.
    """

    def __init__(self, sandbox: Executor, execution: ExecutionConfig) -> None:
        self._sandbox = sandbox
        self._execution = execution

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict on an answer, whose program is extracted first."""
        return await self.score_program(task, extract_code(text, task.entry_point, task.prompt))

    async def score_program(self, task: Task, program: str) -> RewardResult:
        """The verdict on a program."""
        request = execution_request(task, program, self._execution)
        try:
            run = await asyncio.to_thread(self._sandbox.run, request)
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
            cached=False,
            seconds=run.wall_s,
        )


class CompletionScorer:
    """Scores continuations of the prompt, where ``SandboxScorer`` scores answers of a chat."""

    def __init__(self, scorer: SandboxScorer) -> None:
        self._scorer = scorer

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict on the program that a completion stands for, as for samples in OpenAI's format."""
        return await self._scorer.score_program(task, sample_program(task, text))
