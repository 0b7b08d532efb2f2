"""What rewards cost: each stage of them, a pool of workers beside a loop, and a recorded run.

Programs are real completions, in stages each distinct one once a round, in runs in their sampled order;
nothing is simulated. Figures of stages are of one core: this process and what it starts are held to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.rewards.completions import RealCompletion
from configs.schema import ExecutionConfig, RewardCacheConfig, RewardsConfig
from curriculum.judging import execution_request, start_sandbox
from pipeline.evaluation.scorers import local_reward_worker
from rewards.cache import KeyMaker, RewardCache
from rewards.extract import extract_code
from rewards.fast import score_fast
from rewards.lint import Linter, count_by_process
from rewards.pool import RewardPool
from rewards.result import RewardResult
from rewards.scorer import Scorer
from rewards.syntax import check_syntax
from rewards.trl import make_reward_function
from rewards.type_check import TypeChecker
from rewards.type_rules import FLAGS
from sandbox.pool import SandboxPool
from sandbox.result import Outcome

Item = TypeVar("Item")
_REWARDS = RewardsConfig()
_EXECUTION = ExecutionConfig()
_NO_CACHE = RewardCacheConfig(enabled=False)
_FULL_CACHE = 50_000
_NUM_MYPY_PROCESSES = 5
_MYPY_TIMEOUT_S = 120.0


class _RuffProcesses(Linter):
    """A fresh ruff process for each program."""

    def count_issues(self, code: str, given: Collection[str] = ()) -> int:
        return count_by_process(code, given=given)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Hold this thread, and the processes that it starts, to one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def distinct(completions: Sequence[RealCompletion]) -> list[RealCompletion]:
    """The first of each (task, text), in order."""
    return list({(one.task.task_id, one.text): one for one in completions}.values())


def program(completion: RealCompletion) -> str:
    """The program of ``completion``."""
    return extract_code(completion.text, completion.task.entry_point, completion.task.prompt)


def fast_tier(completions: Sequence[RealCompletion], num_rounds: int) -> dict[str, Any]:
    """Completions a second and core through extraction, syntax, lint and complexity, with no cache.

    ``compiling`` leaves out those that end at the syntax check.
    """
    completions = distinct(completions)
    compiling = [one for one in completions if check_syntax(program(one)).score == 1.0]
    rates: dict[str, list[float]] = {"all": [], "compiling": []}
    with one_core(), Linter() as linter:

        def judge(one: RealCompletion) -> None:
            score_fast(program(one), one.task.entry_point, linter)

        judge(compiling[0])
        for _ in range(num_rounds):
            rates["all"].append(len(completions) / _seconds(judge, completions))
            rates["compiling"].append(len(compiling) / _seconds(judge, compiling))
    return {
        "per_s_per_core": round(statistics.median(rates["all"]), 1),
        "per_s_per_core_compiling": round(statistics.median(rates["compiling"]), 1),
        "rounds_per_s_per_core": [round(rate, 1) for rate in rates["all"]],
        "num_completions": len(completions),
        "num_compiling": len(compiling),
    }


def cache_times(completions: Sequence[RealCompletion], num_rounds: int) -> dict[str, Any]:
    """Microseconds a key, a look-up that hits in a full cache, and a whole score that does."""
    completions = distinct(completions)
    pairs = [(one.task, program(one)) for one in completions]
    cache = RewardCache(_FULL_CACHE)
    times_s: dict[str, list[float]] = {"key": [], "key_and_look_up": [], "score": []}
    with one_core(), Scorer(_REWARDS, ExecutionConfig(enabled=False), None) as scorer:
        keys = KeyMaker(scorer.configuration)
        judge = _score_through(cache, scorer)
        for number in range(_FULL_CACHE - len(pairs)):
            cache.put(keys.key(pairs[0][0], f"# {number}\n"), _filler())
        for task, code in pairs:
            cache.put(keys.key(task, code), _filler())
        num_misses = cache.counts.num_misses
        for _ in range(num_rounds):
            times_s["key"].append(_seconds(lambda pair: keys.key(*pair), pairs))
            times_s["key_and_look_up"].append(_seconds(lambda pair: cache.get(keys.key(*pair)), pairs))
            times_s["score"].append(_seconds(judge, completions))
        assert cache.counts.num_misses == num_misses
    return {
        **{f"{name}_us": round(1e6 * statistics.median(t) / len(pairs), 2) for name, t in times_s.items()},
        "cached_per_s_per_core": round(len(pairs) / statistics.median(times_s["score"])),
        "num_entries": len(cache),
        "num_bytes": cache.num_bytes,
    }


def type_checks(completions: Sequence[RealCompletion], num_rounds: int) -> dict[str, Any]:
    """Type checks a second and core, through the resident checker and through plain mypy processes."""
    programs = sorted({program(one) for one in completions})
    programs = [code for code in programs if check_syntax(code).score == 1.0]
    with one_core():
        checker = TypeChecker()
        try:
            checker.count_errors(programs[0])
            rounds_s = [_seconds(checker.count_errors, programs) for _ in range(num_rounds)]
        finally:
            checker.close()
        plain = programs[:_NUM_MYPY_PROCESSES]
        process_s = _seconds(_run_mypy, plain) / len(plain)
    return {
        "per_s_per_core": round(len(programs) / statistics.median(rounds_s), 1),
        "rounds_per_s_per_core": [round(len(programs) / one, 1) for one in rounds_s],
        "by_process_per_s": round(1 / process_s, 2),
        "num_programs": len(programs),
    }


def throughput(completions: Sequence[RealCompletion], num_rounds: int, num_workers: int) -> dict[str, Any]:
    """Completions a second of the pool (no cache) and of a loop in one process, on the same programs.

    The rounds alternate, so that what else the machine does falls on both.
    """
    rates: dict[str, list[float]] = {"pool": [], "serial": []}
    pool = RewardPool(_REWARDS, _EXECUTION, _NO_CACHE, num_workers, start_worker=local_reward_worker)
    try:
        with start_sandbox(_EXECUTION) as sandbox, Scorer(_REWARDS, _EXECUTION, sandbox) as scorer:
            for _ in range(num_rounds):
                rates["serial"].append(len(completions) / _score_seconds(scorer, completions))
                rates["pool"].append(len(completions) / _timed(asyncio.run, _score_all(pool, completions)))
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
    }


def replay(completions: Sequence[RealCompletion], warmed_by: Sequence[RealCompletion] = ()) -> dict[str, Any]:
    """Score a recorded run in its order, with a cache and without, in one process.

    ``warmed_by`` is a run whose verdicts the cache holds already.
    """
    cache = RewardCache(max_size=RewardCacheConfig().max_size)
    with start_sandbox(_EXECUTION) as sandbox:
        with Scorer(_REWARDS, _EXECUTION, sandbox) as scorer:
            without_s = _score_seconds(scorer, completions)
        with Scorer(_REWARDS, _EXECUTION, sandbox) as scorer:
            judge = _score_through(cache, scorer)
            _seconds(judge, warmed_by)
            num_before = cache.counts.num_hits
            with_s = _seconds(judge, completions)
        with Scorer(_REWARDS, _EXECUTION, sandbox) as scorer:
            # Before and after: what comes first finds everything cold.
            without_s = (without_s + _score_seconds(scorer, completions)) / 2
    num_hits = cache.counts.num_hits - num_before
    return {
        "num_completions": len(completions),
        "hit_rate": round(num_hits / len(completions), 4),
        "seconds_without": round(without_s, 2),
        "seconds_with": round(with_s, 2),
        "saved_share": round(1 - with_s / without_s, 4),
    }


def batches_of_64(
    batches: Sequence[Sequence[RealCompletion]], num_workers: int, generation_s: float
) -> dict[str, Any]:
    """Seconds that the batches of a recorded run take to score; medians over them.

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
        scorer = stack.enter_context(Scorer(_REWARDS, _EXECUTION, sandbox))
        ruff = stack.enter_context(_RuffProcesses())
        for batch in batches:
            walls_s["trl"].append(_time_trl(batch, scorer))
            walls_s["plain"].append(_time_plain(batch, ruff, sandbox))
            walls_s["pool"].append(_timed(asyncio.run, _score_all(pool, batch)))
            coming = _score_as_they_come(beside, batch, generation_s)
            walls_s["left"].append(_timed(asyncio.run, coming) - generation_s)
    return {
        **{f"{name}_s": round(statistics.median(seconds), 3) for name, seconds in walls_s.items()},
        **{f"{name}_to_pool": _median_ratio(walls_s[name], walls_s["pool"]) for name in ("trl", "plain")},
        "trl_to_left": _median_ratio(walls_s["trl"], walls_s["left"]),
        "batches_s": {name: [round(one, 3) for one in seconds] for name, seconds in walls_s.items()},
        "generation_s": generation_s,
        "num_batches": len(batches),
        "num_workers": num_workers,
    }


async def _score_as_they_come(pool: RewardPool, batch: Sequence[RealCompletion], generation_s: float) -> None:
    """The last completion comes after ``generation_s``."""
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, one in enumerate(batch, start=1):
            await asyncio.sleep(start + generation_s * number / len(batch) - time.perf_counter())
            group.create_task(pool.score(one.task, one.text))


async def _score_all(pool: RewardPool, completions: Sequence[RealCompletion]) -> None:
    await asyncio.gather(*(pool.score(one.task, one.text) for one in completions))


def _score_seconds(scorer: Scorer, completions: Sequence[RealCompletion]) -> float:
    return _seconds(lambda one: scorer.score(one.task, one.text), completions)


def _score_through(cache: RewardCache, scorer: Scorer) -> Callable[[RealCompletion], None]:
    """What a pool does for one completion, in this process."""
    keys = KeyMaker(scorer.configuration)

    def score(one: RealCompletion) -> None:
        key = keys.key(one.task, program(one))
        if cache.get(key) is None:
            cache.put(key, scorer.score(one.task, one.text))

    return score


def _time_trl(batch: Sequence[RealCompletion], scorer: Scorer) -> float:
    reward = make_reward_function({one.task.task_id: one.task for one in batch}, scorer)
    prompts, texts = [one.task.prompt for one in batch], [one.text for one in batch]
    return _timed(lambda: reward(prompts, texts, task_id=[one.task.task_id for one in batch]))


def _time_plain(batch: Sequence[RealCompletion], linter: Linter, sandbox: SandboxPool) -> float:
    def judge(one: RealCompletion) -> None:
        code = program(one)
        if score_fast(code, one.task.entry_point, linter).syntax > 0.0:
            sandbox.run(execution_request(one.task, code, _EXECUTION))

    return _seconds(judge, batch)


def _median_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 2)


def _run_mypy(code: str) -> None:
    """Check ``code`` in a fresh mypy process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "solution.py").write_text(code, encoding="utf-8", errors="replace")
        command = [*("-m", "mypy", *FLAGS), *("--no-incremental", "--cache-dir", os.devnull)]
        subprocess.run(
            [sys.executable, *command, "solution.py"],
            capture_output=True,
            timeout=_MYPY_TIMEOUT_S,
            cwd=folder,
        )


def _filler() -> RewardResult:
    return RewardResult(
        reward=0.5,
        breakdown=dict.fromkeys(("syntax", "lint", "complexity", "tests", "execution"), 0.5),
        outcome=Outcome.WRONG,
        passed=False,
        detail="test 0: wrong value",
        cached=False,
        seconds=0.01,
    )


def _timed(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def _seconds(work: Callable[[Item], object], items: Sequence[Item]) -> float:
    return _timed(lambda: [work(item) for item in items])
