"""What whole rewards cost: over the pool and in a loop, in a recorded run, and a batch as TRL calls it.

Programs are real completions in their sampled order; nothing is simulated. Called by ``rewards.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.completions import RealCompletion
from benchmarks.reward_reference import reference_score
from configs.schema import ExecutionConfig, RewardCacheConfig, RewardsConfig
from curriculum.task import Task
from pipeline.evaluation.scorers import local_reward_worker
from rewards.cache import RewardCache
from rewards.execution import start_sandbox
from rewards.pool import RewardPool
from rewards.result import RewardResult
from rewards.scorer import Scorer
from rewards.trl import make_reward_function
from sandbox.pool import SandboxPool

_NO_CACHE = RewardCacheConfig(enabled=False)
_REWARDS = RewardsConfig()
_EXECUTION = ExecutionConfig()


def throughput(completions: Sequence[RealCompletion], num_rounds: int, num_workers: int) -> dict[str, Any]:
    """Completions a second of the pool (no cache) and of a loop in one process, on the same programs.

    The rounds alternate, so that what else the machine does falls on both.
    """
    rates: dict[str, list[float]] = {"pool": [], "serial": []}
    pool = RewardPool(_REWARDS, _EXECUTION, _NO_CACHE, num_workers, start_worker=local_reward_worker)
    try:
        with start_sandbox(_EXECUTION) as sandbox, Scorer(_REWARDS, _EXECUTION, None, sandbox) as scorer:
            for _ in range(num_rounds):
                start = time.perf_counter()
                serial = [scorer.score(one.task, one.text) for one in completions]
                rates["serial"].append(len(completions) / (time.perf_counter() - start))
                start = time.perf_counter()
                pooled = asyncio.run(_score_all(pool, completions))
                rates["pool"].append(len(completions) / (time.perf_counter() - start))
                num_unequal = _num_unequal(serial, pooled)
    finally:
        pool.close()
    return {
        "pool_per_s": round(statistics.median(rates["pool"]), 1),
        "serial_per_s": round(statistics.median(rates["serial"]), 1),
        "ratio": _median_ratio(rates["pool"], rates["serial"]),
        "rounds_pool_per_s": [round(rate, 1) for rate in rates["pool"]],
        "rounds_serial_per_s": [round(rate, 1) for rate in rates["serial"]],
        "num_completions": len(completions),
        "num_workers": num_workers,
        "num_unequal": num_unequal,
    }


def replay(completions: Sequence[RealCompletion], warmed_by: Sequence[RealCompletion] = ()) -> dict[str, Any]:
    """Score a recorded run in its order, with a cache and without, in one process.

    ``warmed_by`` is a run whose verdicts the cache holds already. ``saved_s`` is the cache's own account.
    """
    cache = RewardCache(max_size=RewardCacheConfig().max_size)
    with start_sandbox(_EXECUTION) as sandbox:
        with Scorer(_REWARDS, _EXECUTION, None, sandbox) as scorer:
            start = time.perf_counter()
            plain = [scorer.score(one.task, one.text) for one in completions]
            without_s = time.perf_counter() - start
        with Scorer(_REWARDS, _EXECUTION, cache, sandbox) as scorer:
            for one in warmed_by:
                scorer.score(one.task, one.text)
            before = cache.counts
            start = time.perf_counter()
            cached = [scorer.score(one.task, one.text) for one in completions]
            with_s = time.perf_counter() - start
    num_hits = cache.counts.num_hits - before.num_hits
    return {
        "num_completions": len(completions),
        "hit_rate": round(num_hits / len(completions), 4),
        "hit_rate_by_part": _hit_rates(completions, cached),
        "seconds_without": round(without_s, 2),
        "seconds_with": round(with_s, 2),
        "saved_s": round(cache.counts.saved_s - before.saved_s, 2),
        "saved_share": round(1 - with_s / without_s, 4),
        "num_unequal": _num_unequal(plain, cached),
    }


def batches_of_64(
    batches: Sequence[Sequence[RealCompletion]], num_workers: int, generation_s: float
) -> dict[str, Any]:
    """Seconds that the batches of a recorded run take to score; medians and sums over them.

    ``trl``: our rewards, called as TRL calls a reward function: the whole batch at once, one completion
    after another, no cache. ``plain``: the same, with a fresh ruff process each, as a first version would
    have it. ``pool``: all 64 handed to the workers at once, with the cache and what it holds from the
    batches before. ``left``: what the pool still has to do when the last completion is there, if they
    come one by one over ``generation_s``; of TRL's seconds, all are left then.
    """
    walls_s: dict[str, list[float]] = {"trl": [], "plain": [], "pool": [], "left": []}
    with contextlib.ExitStack() as stack:
        # Each has a cache of its own: the second may not find what the first has scored.
        pool, beside = (
            RewardPool(
                _REWARDS, _EXECUTION, RewardCacheConfig(), num_workers, start_worker=local_reward_worker
            )
            for _ in range(2)
        )
        stack.callback(pool.close)
        stack.callback(beside.close)
        sandbox = stack.enter_context(start_sandbox(_EXECUTION))
        scorer = stack.enter_context(Scorer(_REWARDS, _EXECUTION, None, sandbox))
        for batch in batches:
            walls_s["trl"].append(_time_trl(batch, scorer))
            walls_s["plain"].append(_time_plain(batch, sandbox))
            start = time.perf_counter()
            asyncio.run(_score_all(pool, batch))
            walls_s["pool"].append(time.perf_counter() - start)
            start = time.perf_counter()
            asyncio.run(_score_as_they_come(beside, batch, generation_s))
            walls_s["left"].append(time.perf_counter() - start - generation_s)
    return {
        **{f"{name}_s": round(statistics.median(seconds), 3) for name, seconds in walls_s.items()},
        **{f"all_{name}_s": round(sum(seconds), 2) for name, seconds in walls_s.items()},
        **{f"{name}_to_pool": _median_ratio(walls_s[name], walls_s["pool"]) for name in ("trl", "plain")},
        "trl_to_left": _median_ratio(walls_s["trl"], walls_s["left"]),
        "batches_s": {name: [round(one, 3) for one in seconds] for name, seconds in walls_s.items()},
        "generation_s": generation_s,
        "num_batches": len(batches),
        "num_workers": num_workers,
    }


async def _score_as_they_come(
    pool: RewardPool, batch: Sequence[RealCompletion], generation_s: float
) -> list[RewardResult]:
    """The last completion comes after ``generation_s``."""
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        jobs = []
        for number, one in enumerate(batch, start=1):
            await asyncio.sleep(start + generation_s * number / len(batch) - time.perf_counter())
            jobs.append(group.create_task(pool.score(one.task, one.text)))
    return [job.result() for job in jobs]


async def _score_all(pool: RewardPool, completions: Sequence[RealCompletion]) -> list[RewardResult]:
    return await asyncio.gather(*(pool.score(one.task, one.text) for one in completions))


def _time_trl(batch: Sequence[RealCompletion], scorer: Scorer) -> float:
    tasks: dict[str, Task] = {one.task.task_id: one.task for one in batch}
    reward = make_reward_function(tasks, scorer)
    start = time.perf_counter()
    reward(
        [one.task.prompt for one in batch],
        [one.text for one in batch],
        task_id=[one.task.task_id for one in batch],
    )
    return time.perf_counter() - start


def _time_plain(batch: Sequence[RealCompletion], sandbox: SandboxPool) -> float:
    start = time.perf_counter()
    for one in batch:
        reference_score(one.task, one.text, _REWARDS, _EXECUTION, sandbox)
    return time.perf_counter() - start


def _hit_rates(completions: Sequence[RealCompletion], results: Sequence[RewardResult]) -> dict[str, float]:
    cached: dict[str, list[bool]] = {}
    for one, result in zip(completions, results, strict=True):
        cached.setdefault(one.source, []).append(result.cached)
    return {source: round(statistics.mean(hits), 4) for source, hits in cached.items()}


def _num_unequal(one: Sequence[RewardResult], other: Sequence[RewardResult]) -> int:
    """How many verdicts differ; infrastructure errors (NaN) differ from all."""
    return sum(a.reward != b.reward or a.breakdown != b.breakdown for a, b in zip(one, other, strict=True))


def _median_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 2)
