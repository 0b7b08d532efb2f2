"""The RewardPool: scores completions one by one, each program once.

    score ─► extract ─► cache ─► same program in flight? ─► worker ─► cache
             (found: done)      (join it)

Stands in the driver's process, so that all workers of all hosts share one cache and a hit costs no
message. Decides nothing about scores. The queue is bounded by those who wait for their scores: the
rollout buffer lets no more draws begin than it has slots. For one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from configs.rollouts_schema import RolloutsConfig
from configs.schema import ExecutionConfig, RewardCacheConfig, RewardsConfig
from curriculum.task import Task
from rewards.breaker import CircuitBreaker
from rewards.cache import MB, REPRODUCIBLE_PARTS, CacheCounts, KeyMaker, RewardCache
from rewards.cache_file import CacheFile
from rewards.extract import extract_code
from rewards.feedback import FeedbackError
from rewards.flight import SingleFlight
from rewards.result import RewardResult, infra_error
from rewards.rubric import Rubric
from rewards.worker import StartWorker
from rewards.workers import WorkerGroup

_logger = logging.getLogger(__name__)


class RewardPool:
    """``num_workers`` reward workers behind one awaitable ``score``; see ``WorkerGroup`` for its terms.

    ``start_worker`` starts each: pipeline.evaluation.scorers has one for this machine and one for Ray.
    ``cache_file`` is where verdicts are stored, if ``reward_cache.persist`` is set. ``timeout_s`` is an
    item's deadline; None is twice what the limits of ``execution`` allow, and more: see ``rewards.deadline``.
    ``on_restart`` is called, in the event loop, with a line on each worker or sandbox that was replaced.
    Raises RewardsBrokenError when a worker does not start; the message carries its reason.
    """

    def __init__(
        self,
        rewards: RewardsConfig,
        execution: ExecutionConfig,
        reward_cache: RewardCacheConfig,
        num_workers: int = 1,
        *,
        start_worker: StartWorker,
        cache_file: Path | None = None,
        timeout_s: float | None = None,
        startup_timeout_s: float = 120.0,
        on_restart: Callable[[str], None] | None = None,
    ) -> None:
        if num_workers < 1:
            raise ValueError(
                f"acceleration.async_rewards.workers: value {num_workers}: at least 1 worker is needed"
            )
        self._rubric = Rubric(rewards)
        self._breaker = CircuitBreaker()
        # Their own: for each answer that nothing can be told of there is one that was scored.
        self._told_breaker = CircuitBreaker(what="got no feedback")
        self._flights: SingleFlight[RewardResult] = SingleFlight()
        self._flushing: asyncio.Task[None] | None = None
        self._num_joins = 0
        self._joined_s = 0.0
        self._num_scored = 0
        self._num_infra_errors = 0
        self._busy_s = 0.0
        self._workers = WorkerGroup(
            rewards,
            execution,
            num_workers,
            start_worker=start_worker,
            timeout_s=timeout_s,
            startup_timeout_s=startup_timeout_s,
            on_restart=on_restart,
        )
        self.level = ",".join(sorted({info.level for info in self._workers.infos}))
        configurations = {info.configuration for info in self._workers.infos}
        self._keys = KeyMaker(configurations.pop())
        self._file: CacheFile | None = None
        self._cache: RewardCache | None = None
        if reward_cache.enabled and not configurations:
            self._open_cache(reward_cache, cache_file)
        elif reward_cache.enabled:
            _logger.warning("reward workers differ in their tools or isolation: verdicts are not reused")

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers that are ready, for monitoring and for tests that kill them."""
        return [info.pid for info in self._workers.infos]

    async def score(
        self, task: Task, text: str, *, priority: float = 0, by_tests: bool = False
    ) -> RewardResult:
        """Score ``text`` (prefill and completion) as an answer to ``task``; smallest ``priority`` first.

        ``by_tests`` is for measurements: whatever the rewards are, the tests alone judge.

        A verdict that was found comes back ``cached``. A failure of the machinery is never a verdict on
        a program: those who joined it go again, together, once; then, or where it was a deadline that
        passed, they get the failure too, as an INFRA_ERROR with a reward of NaN. Raises
        RewardsBrokenError when most items fail so.
        """
        self._breaker.check()
        start = time.perf_counter()
        cache = self._cache
        if cache is None or by_tests or not self._is_shared(task):
            return await self._judge(task, text, priority, by_tests=by_tests)
        key = self._keys.key(task, extract_code(text, task.entry_point, task.prompt))
        for _ in range(2):
            is_joining = key in self._flights
            known = None if is_joining else cache.get(key)
            if known is not None:
                return replace(known, cached=True, seconds=time.perf_counter() - start)
            result = await self._flights.run(
                key, lambda: self._judge_and_keep(cache, key, task, text, priority)
            )
            if not is_joining:
                return result
            if not result.is_infra_error:
                self._num_joins += 1
                self._joined_s += result.seconds
                return replace(result, cached=True, seconds=time.perf_counter() - start)
            if result.seconds >= self._workers.deadline_s(len(task.stdio_tests)):
                break
        return result

    async def tell(
        self, task: Task, text: str, result: RewardResult, rollouts: RolloutsConfig, *, priority: float = 0
    ) -> str:
        """Feedback as ``rollouts`` says (rewards.feedback) on ``text``, an answer that was scored ``result``.

        Raises FeedbackError where no worker could give it, RewardsBrokenError as ``score``.
        """
        self._told_breaker.check()
        try:
            told = await self._workers.tell(task, text, result, rollouts, priority=priority)
        except FeedbackError as error:
            self._told_breaker.record(infra_error(str(error), 0.0))
            self._told_breaker.check()
            raise
        self._told_breaker.record(result)
        return told

    def metrics(self) -> dict[str, float]:
        """Counts since the start, and what is in flight now; asks no worker."""
        counts = CacheCounts() if self._cache is None else self._cache.counts
        return {
            "rewards/cache_hits": float(counts.num_hits),
            "rewards/cache_misses": float(counts.num_misses),
            "rewards/cache_evictions": float(counts.num_evictions),
            "rewards/cache_joins": float(self._num_joins),
            "rewards/cache_saved_s": counts.saved_s + self._joined_s,
            "rewards/scored": float(self._num_scored),
            "rewards/infra_errors": float(self._num_infra_errors),
            "rewards/worker_restarts": float(self._workers.num_restarts),
            "rewards/in_flight": float(self._workers.num_in_flight),
            "rewards/waiting": float(self._workers.num_waiting),
            "rewards/busy_s": self._busy_s + self._workers.told_s,
        }

    def close(self) -> None:
        """End every worker, with sandboxes and linters, and store what waits. Safe to call twice."""
        self._workers.close()
        if self._file is not None:
            self._file.flush()

    def _open_cache(self, reward_cache: RewardCacheConfig, path: Path | None) -> None:
        if not reward_cache.persist or path is None:
            self._cache = RewardCache(reward_cache.max_size, reward_cache.max_mb)
            return
        file = CacheFile(path, int(reward_cache.max_mb * MB))
        self._cache = RewardCache(reward_cache.max_size, reward_cache.max_mb, on_put=file.put)
        self._cache.warm(file.load())
        self._file = file

    def _is_shared(self, task: Task) -> bool:
        """Whether the parts that count for ``task`` come out the same for the same program."""
        weights = self._rubric.rules(task.source).weights
        return REPRODUCIBLE_PARTS.issuperset(name for name, weight in weights.items() if weight != 0.0)

    async def _judge_and_keep(
        self, cache: RewardCache, key: bytes, task: Task, text: str, priority: float
    ) -> RewardResult:
        result = await self._judge(task, text, priority)
        cache.put(key, result)
        self._flush_if_due()
        return result

    async def _judge(self, task: Task, text: str, priority: float, *, by_tests: bool = False) -> RewardResult:
        """Have a worker score the answer, and count it."""
        result = await self._workers.score(task, text, priority=priority, by_tests=by_tests)
        self._num_scored += 1
        self._num_infra_errors += result.is_infra_error
        self._busy_s += result.seconds
        self._breaker.record(result)
        self._breaker.check()
        return result

    def _flush_if_due(self) -> None:
        """Write to the cache file beside the event loop."""
        if self._file is None or not self._file.is_due:
            return
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(asyncio.to_thread(self._file.flush))
