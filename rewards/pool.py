"""The RewardPool: many Scorers in Ray actors, each with its own sandbox.

Dispatches each completion to the least loaded worker, bounds what is in flight, gives every item a
deadline, and replaces workers that die. Decides nothing about scores: an item that cannot be scored
comes back as an infrastructure error. Called by the orchestrator, from one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from configs.schema import ExecutionConfig, RewardCacheConfig, RewardsConfig
from curriculum.task import Task
from rewards.cache import CacheCounts, VerdictCache
from rewards.execution import longest_run_s, start_sandbox
from rewards.result import RewardResult
from rewards.rubric import Scorer
from sandbox.result import Outcome

_logger = logging.getLogger(__name__)
# One item runs and one waits in each worker: enough that a worker never idles for a message.
_IN_FLIGHT_PER_WORKER = 2


def scoring_deadline_s(timeout_s: float | None, execution: ExecutionConfig) -> float:
    """``timeout_s``, or for None the longest that scoring one item can honestly take, from its dispatch on.

    That is the longest run with all retries, once for the item and once for the one before it in its worker.
    """
    return _IN_FLIGHT_PER_WORKER * longest_run_s(execution) if timeout_s is None else timeout_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReply:
    """A worker's answer: the score, and what its cache has done so far."""

    result: RewardResult
    cache_counts: CacheCounts


class RewardWorker:
    """One Scorer with one sandbox; runs as a Ray actor, and its processes die with it."""

    def __init__(
        self, rewards: RewardsConfig, execution: ExecutionConfig, reward_cache: RewardCacheConfig
    ) -> None:
        self._sandbox = start_sandbox(execution) if execution.enabled else None
        self._cache = VerdictCache(reward_cache.max_size) if reward_cache.enabled else None
        self._scorer = Scorer(rewards, execution, self._cache, self._sandbox)

    def level(self) -> str:
        """The isolation in force, or "none" where nothing is executed."""
        return "none" if self._sandbox is None else self._sandbox.level

    def score(self, task: Task, text: str) -> WorkerReply:
        """Score one answer."""
        result = self._scorer.score(task, text)
        counts = CacheCounts() if self._cache is None else self._cache.counts
        return WorkerReply(result=result, cache_counts=counts)


class _Slot:
    """A worker's place in the pool: the actor that holds it now, and its load."""

    def __init__(self, index: int, handle: Any) -> None:
        self.index = index
        self.handle = handle
        self.num_in_flight = 0
        self.cache_counts = CacheCounts()


class RewardPool:
    """``num_workers`` reward workers behind one awaitable ``score``.

    Needs a running Ray. The workers take no CPU of Ray's count (``num_cpus=0``): on a small machine
    they share the cores with the trainer instead of waiting for it for ever. The constructor blocks
    until every worker is up, at most ``startup_timeout_s``. ``timeout_s`` is an item's deadline; None is
    what the limits of ``execution`` allow at most, see ``scoring_deadline_s``.

    Raises RuntimeError when a worker does not start; the message carries its reason.
    """

    def __init__(
        self,
        rewards: RewardsConfig,
        execution: ExecutionConfig,
        reward_cache: RewardCacheConfig,
        num_workers: int = 1,
        *,
        timeout_s: float | None = None,
        startup_timeout_s: float = 120.0,
        max_attempts: int = 3,
    ) -> None:
        if num_workers < 1:
            raise ValueError(
                f"acceleration.async_rewards.workers: value {num_workers}: at least 1 worker is needed"
            )
        assert max_attempts >= 1
        self._sections = (rewards, execution, reward_cache)
        self._timeout_s = scoring_deadline_s(timeout_s, execution)
        self._max_attempts = max_attempts
        self._capacity = asyncio.Semaphore(num_workers * _IN_FLIGHT_PER_WORKER)
        self._slots = [_Slot(index, self._start_worker()) for index in range(num_workers)]
        self._retired_counts = CacheCounts()
        self._num_scored = 0
        self._num_infra_errors = 0
        self._num_restarts = 0
        self._num_waiting = 0
        self._busy_s = 0.0
        self._is_closed = False
        self.level = self._wait_until_up(startup_timeout_s)

    async def score(self, task: Task, text: str) -> RewardResult:
        """Score ``text`` (prefill and completion) as an answer to ``task``.

        Waits for a free place first (back-pressure); the deadline counts from the dispatch. Returns an
        INFRA_ERROR result, with a reward of NaN, when the item's worker died ``max_attempts`` times, did
        not answer in time, or raised; ``detail`` names the worker and the task.
        """
        self._num_waiting += 1
        try:
            await self._capacity.acquire()
        finally:
            self._num_waiting -= 1
        start = time.perf_counter()
        try:
            result = await self._score_in_worker(task, text, start)
        finally:
            self._capacity.release()
        self._num_scored += 1
        self._num_infra_errors += result.outcome is Outcome.INFRA_ERROR
        self._busy_s += result.seconds
        return result

    def metrics(self) -> dict[str, float]:
        """Counts since the start, of all workers that ever were; asks no worker."""
        counts = [self._retired_counts, *(slot.cache_counts for slot in self._slots)]
        return {
            "rewards/cache_hits": float(sum(count.num_hits for count in counts)),
            "rewards/cache_misses": float(sum(count.num_misses for count in counts)),
            "rewards/cache_evictions": float(sum(count.num_evictions for count in counts)),
            "rewards/scored": float(self._num_scored),
            "rewards/infra_errors": float(self._num_infra_errors),
            "rewards/worker_restarts": float(self._num_restarts),
            "rewards/in_flight": float(sum(slot.num_in_flight for slot in self._slots)),
            "rewards/waiting": float(self._num_waiting),
            "rewards/busy_s": self._busy_s,
        }

    def close(self) -> None:
        """End every worker, and with them their sandboxes and linters. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        for slot in self._slots:
            ray.kill(slot.handle, no_restart=True)

    def _start_worker(self) -> Any:
        worker_class = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(RewardWorker)
        return worker_class.options(scheduling_strategy="SPREAD").remote(*self._sections)

    def _wait_until_up(self, startup_timeout_s: float) -> str:
        """The isolation level of the workers, once all have answered."""
        try:
            levels = ray.get([slot.handle.level.remote() for slot in self._slots], timeout=startup_timeout_s)
        except GetTimeoutError as error:
            self.close()
            raise RuntimeError(
                f"reward workers: not all {len(self._slots)} were up after {startup_timeout_s:g} s "
                "(runtime.startup_timeout_s)"
            ) from error
        except (RayActorError, RayTaskError) as error:
            self.close()
            raise RuntimeError(f"a reward worker did not start: {error}") from error
        return ",".join(sorted(set(levels)))

    async def _score_in_worker(self, task: Task, text: str, start: float) -> RewardResult:
        detail = ""
        for _ in range(self._max_attempts):
            slot = min(self._slots, key=lambda candidate: candidate.num_in_flight)
            handle = slot.handle
            slot.num_in_flight += 1
            try:
                future = asyncio.wrap_future(handle.score.remote(task, text).future())
                reply: WorkerReply = await asyncio.wait_for(future, self._timeout_s)
            except TimeoutError:
                detail = f"reward worker {slot.index}: no score for {task.task_id} in {self._timeout_s:g} s"
                self._replace(slot, handle, detail)
                break
            except RayActorError as error:
                detail = f"reward worker {slot.index} died while it scored {task.task_id}: {error}"
                self._replace(slot, handle, detail)
            except RayTaskError as error:
                # A fault of the scorer, not of the answer; the worker itself is well.
                detail = f"reward worker {slot.index} failed on {task.task_id}: {error}"
                _logger.warning("%s", detail)
                break
            else:
                if handle is slot.handle:
                    slot.cache_counts = reply.cache_counts
                return reply.result
            finally:
                slot.num_in_flight -= 1
        return RewardResult(
            reward=math.nan,
            breakdown={},
            outcome=Outcome.INFRA_ERROR,
            passed=False,
            detail=detail,
            cached=False,
            seconds=time.perf_counter() - start,
        )

    def _replace(self, slot: _Slot, dead: Any, reason: str) -> None:
        """Put a new worker in ``slot``, unless another item that ``dead`` held has done so already."""
        if slot.handle is not dead or self._is_closed:
            return
        _logger.warning("%s; the worker is replaced", reason)
        ray.kill(dead, no_restart=True)
        self._retired_counts = _add(self._retired_counts, slot.cache_counts)
        slot.cache_counts = CacheCounts()
        slot.handle = self._start_worker()
        self._num_restarts += 1


def _add(left: CacheCounts, right: CacheCounts) -> CacheCounts:
    return CacheCounts(
        num_hits=left.num_hits + right.num_hits,
        num_misses=left.num_misses + right.num_misses,
        num_evictions=left.num_evictions + right.num_evictions,
    )
