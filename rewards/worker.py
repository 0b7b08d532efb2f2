"""The RewardWorker: one Scorer with one sandbox, as it runs in a process of its own, and the way to it.

``WorkerLink`` is that way, as far as a pool needs it. Who owns a pool starts its workers, as processes of its
machine or anywhere on a cluster (pipeline.evaluation.scorers).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from configs.rollouts_schema import RolloutsConfig
from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.judging import start_sandbox
from curriculum.task import Task
from rewards.custom import CustomFeedback
from rewards.execution import judge_by_tests
from rewards.extract import extract_code
from rewards.feedback import make_feedback
from rewards.result import RewardResult
from rewards.scorer import Scorer


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a worker says of itself once it is up; ``level`` is "none" where nothing is executed."""

    level: str
    configuration: tuple[str, ...]
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a worker sends back: score or feedback, and how often its sandbox has been replaced so far."""

    result: RewardResult | str
    num_sandbox_failures: int
    # What feedback took; a score says so itself.
    told_s: float = 0.0


class WorkerLostError(Exception):
    """The worker's process is gone, or did not come up; the message says why, in one line."""


class WorkerCallError(Exception):
    """The worker raised, and is well itself; the message is the error's type and text, in one line."""


class CallCancelledError(Exception):
    """The call was cancelled before the worker began with it."""


class WorkerLink(Protocol):
    """A RewardWorker that was started. It does one thing after another, in the order of the calls."""

    def call(self, method: str, *arguments: object) -> Future[Any]:
        """What ``method`` returns, once the worker is up.

        Raises WorkerLostError, WorkerCallError, or CallCancelledError where ``cancel`` came in time.
        """
        ...

    def cancel(self, call: Future[Any]) -> None:
        """Do not begin that call; one that runs goes on."""
        ...

    def kill(self) -> None:
        """End the worker and all its processes at once. Safe to call twice."""
        ...


StartWorker = Callable[[RewardsConfig, ExecutionConfig], WorkerLink]


class RewardWorker:
    """One Scorer with one sandbox; its processes die with the process that it is in."""

    def __init__(self, rewards: RewardsConfig, execution: ExecutionConfig) -> None:
        self._sandbox = start_sandbox(execution) if execution.enabled else None
        self._execution = execution
        self._scorer = Scorer(rewards, execution, self._sandbox)
        self._custom_timeout_s = rewards.custom_timeout_s
        self._custom_feedback: dict[str, CustomFeedback] = {}

    def describe(self) -> WorkerInfo:
        """The isolation in force, and all else that verdicts of this worker depend on."""
        return WorkerInfo(
            level="none" if self._sandbox is None else self._sandbox.level,
            configuration=self._scorer.configuration,
            pid=os.getpid(),
        )

    def score(self, task: Task, text: str) -> Scored:
        """Score one answer."""
        return self._scored(self._scorer.score(task, text))

    def judge(self, task: Task, text: str) -> Scored:
        """Score one answer by its tests alone, as a measurement does."""
        assert self._sandbox is not None, "without execution nothing is measured"
        program = extract_code(text, task.entry_point, task.prompt)
        return self._scored(judge_by_tests(task, program, self._sandbox, self._execution))

    def tell(self, task: Task, text: str, result: RewardResult, rollouts: RolloutsConfig) -> Scored:
        """Feedback on an answer that was scored ``result``.

        Raises FeedbackError where the sandbox fails, UserFunctionError where custom feedback does.
        """
        start = time.perf_counter()
        assert self._sandbox is not None, "without execution no answer fails, and there is nothing to tell"
        program = extract_code(text, task.entry_point, task.prompt)
        said = make_feedback(rollouts.feedback, task, program, result, self._sandbox, self._execution)
        if (spec := rollouts.custom_feedback) is not None:
            if spec not in self._custom_feedback:
                self._custom_feedback[spec] = CustomFeedback(spec, self._custom_timeout_s)
            said = self._custom_feedback[spec].tell(task, text, program, result, said)
        return self._scored(said, time.perf_counter() - start)

    def _scored(self, result: RewardResult | str, told_s: float = 0.0) -> Scored:
        num_failures = 0 if self._sandbox is None else self._sandbox.num_failures
        return Scored(result=result, num_sandbox_failures=num_failures, told_s=told_s)
