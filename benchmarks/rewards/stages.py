"""What one core does in each stage of the rewards: fast tier, cache, type check.

Programs are real completions, each distinct one once a round; figures are medians over the rounds. This
process and what it starts are held to one core, so that a rate is a rate a core.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.rewards.completions import RealCompletion
from configs.schema import ExecutionConfig, RewardsConfig
from rewards.cache import KeyMaker, RewardCache
from rewards.extract import extract_code
from rewards.fast import score_fast
from rewards.lint import Linter
from rewards.result import RewardResult
from rewards.scorer import Scorer
from rewards.syntax import check_syntax
from rewards.type_check import TypeChecker
from rewards.type_rules import FLAGS
from sandbox.result import Outcome

Item = TypeVar("Item")

_FULL_CACHE = 50_000
_NUM_MYPY_PROCESSES = 5
_MYPY_TIMEOUT_S = 120.0


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
    execution = ExecutionConfig(enabled=False)
    cache = RewardCache(_FULL_CACHE)
    times_s: dict[str, list[float]] = {"key": [], "key_and_look_up": [], "score": []}
    with one_core(), Scorer(RewardsConfig(), execution, cache, None) as scorer:
        keys = KeyMaker(scorer.configuration)
        for number in range(_FULL_CACHE - len(pairs)):
            cache.put(keys.key(pairs[0][0], f"# {number}\n"), _filler())
        for task, code in pairs:
            cache.put(keys.key(task, code), _filler())
        num_misses = cache.counts.num_misses
        for _ in range(num_rounds):
            times_s["key"].append(_seconds(lambda pair: keys.key(*pair), pairs))
            times_s["key_and_look_up"].append(_seconds(lambda pair: cache.get(keys.key(*pair)), pairs))
            times_s["score"].append(_seconds(lambda one: scorer.score(one.task, one.text), completions))
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
            start = time.perf_counter()
            checker.count_errors(programs[0])
            first_s = time.perf_counter() - start
            rounds_s = [_seconds(checker.count_errors, programs) for _ in range(num_rounds)]
            mypy = checker.version
        finally:
            checker.close()
        plain = programs[:_NUM_MYPY_PROCESSES]
        process_s = _seconds(_run_mypy, plain) / len(plain)
    return {
        "per_s_per_core": round(len(programs) / statistics.median(rounds_s), 1),
        "rounds_per_s_per_core": [round(len(programs) / one, 1) for one in rounds_s],
        "first_check_s": round(first_s, 3),
        "by_process_per_s": round(1 / process_s, 2),
        "num_programs": len(programs),
        "mypy": mypy,
    }


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


def _seconds(work: Callable[[Item], object], items: Sequence[Item]) -> float:
    start = time.perf_counter()
    for item in items:
        work(item)
    return time.perf_counter() - start
