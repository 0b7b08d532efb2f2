"""A reward worker in a Ray actor: on any host of a cluster. Needs a running Ray.

The actor takes no CPU of Ray's count (``num_cpus=0``): on a small machine it shares the cores with the
trainer instead of waiting for it for ever. Given to rewards.workers by whoever runs on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.task import Task
from rewards.worker import (
    CallCancelledError,
    RewardWorker,
    Scored,
    WorkerCallError,
    WorkerInfo,
    WorkerLostError,
)

T = TypeVar("T")


class RayWorker:
    """See rewards.worker.WorkerLink.

    ``node_resource`` is a custom Ray resource: the worker runs on a node that offers 1 of it.
    """

    def __init__(
        self, rewards: RewardsConfig, execution: ExecutionConfig, node_resource: str | None = None
    ) -> None:
        worker_class = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(RewardWorker)
        resources = {} if node_resource is None else {node_resource: 1}
        options = {"scheduling_strategy": "SPREAD", "resources": resources}
        self._actor: Any = worker_class.options(**options).remote(rewards, execution)
        self._refs: dict[Future[Scored], Any] = {}

    def describe(self) -> Future[WorkerInfo]:
        """See WorkerLink."""
        return _answer(self._actor.describe.remote(), lambda: None)

    def score(self, task: Task, text: str) -> Future[Scored]:
        """See WorkerLink."""
        ref = self._actor.score.remote(task, text)
        score: Future[Scored] = _answer(ref, lambda: self._refs.pop(score, None))
        if not score.done():
            self._refs[score] = ref
        return score

    def cancel(self, score: Future[Scored]) -> None:
        """See WorkerLink."""
        ref = self._refs.get(score)
        if ref is not None:
            ray.cancel(ref)

    def kill(self) -> None:
        """See WorkerLink."""
        ray.kill(self._actor, no_restart=True)


def _answer(ref: Any, forget: Callable[[], object]) -> Future[Any]:
    """Ray's answer, with the errors of rewards.worker in place of Ray's."""
    answer: Future[Any] = Future()
    # Who stops waiting for it does not settle it.
    answer.set_running_or_notify_cancel()

    def settle(future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            answer.set_result(future.result())
        elif isinstance(error, TaskCancelledError):
            answer.set_exception(CallCancelledError())
        elif isinstance(error, RayTaskError):
            answer.set_exception(WorkerCallError(f"{type(error.cause).__name__}: {error.cause}"))
        elif isinstance(error, RayError):
            # The last line is the one that says why the worker died, or what its constructor raised.
            lines = str(error).strip().splitlines() or [""]
            answer.set_exception(WorkerLostError(f"{type(error).__name__}: {lines[-1].strip()}"))
        else:
            answer.set_exception(error)
        forget()

    ref.future().add_done_callback(settle)
    return answer
