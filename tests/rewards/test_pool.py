"""The reward pool on real workers: right scores, one run a program, deadlines, and dead workers."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rewards.deadline
from configs.rollouts_schema import RolloutsConfig
from configs.schema import ExecutionConfig, RewardCacheConfig, RewardsConfig, RewardWeights
from curriculum.judging import start_sandbox
from curriculum.task import Task
from pipeline.evaluation.scorers import local_reward_worker
from rewards.breaker import CircuitBreaker, RewardsBrokenError
from rewards.feedback import FeedbackError
from rewards.pool import RewardPool
from rewards.result import RewardResult, infra_error
from rewards.scorer import Scorer
from rewards.worker import StartWorker
from sandbox.result import CallTest, Outcome, StdioTest
from tests.processes import descendants, none_runs

pytestmark = pytest.mark.slow

TASK = Task(
    task_id="t/add",
    prompt="Write add.",
    entry_point="add",
    call_tests=(CallTest(args=(1, 2), expected=3), CallTest(args=(0, 0), expected=0)),
)
# Its own check cannot run: an infrastructure error, whatever the answer.
BROKEN_TASK = Task(task_id="t/broken", prompt="Write add.", entry_point="add", check_source="def check(:\n")
ENDLESS = "```python\nwhile True:\n    pass\n\n\ndef add(a, b):\n    return 3\n```"


def answer(expression: str) -> str:
    return f"```python\ndef add(a, b):\n    return {expression}\n```"


def make_pool(
    num_workers: int = 1,
    timeout_s: float | None = 60.0,
    cpu_s: float = 2.0,
    cache: RewardCacheConfig | None = None,
    cache_file: Path | None = None,
    rewards: RewardsConfig | None = None,
    start_worker: StartWorker = local_reward_worker,
) -> RewardPool:
    return RewardPool(
        rewards or RewardsConfig(),
        ExecutionConfig(timeout=cpu_s),
        cache or RewardCacheConfig(max_size=1000),
        num_workers,
        start_worker=start_worker,
        cache_file=cache_file,
        timeout_s=timeout_s,
    )


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[RewardPool]:
    """One worker and no cache, for tests that break nothing and count nothing."""
    pool = make_pool(cache=RewardCacheConfig(enabled=False))
    yield pool
    pool.close()


def test_every_completion_gets_its_own_reward_and_each_program_runs_once(tmp_path: Path) -> None:
    path = tmp_path / "reward_cache.jsonl"
    pool = make_pool(cache_file=path)
    texts = [answer("a + b"), answer("a - b"), answer("3"), answer("a +"), answer("a + b")]
    # Other prose around the same program: the program is what counts.
    texts += [f"Here it is:\n{text}\nDone." for text in texts]

    async def score_all(pool: RewardPool) -> list[RewardResult]:
        return await asyncio.gather(*(pool.score(TASK, text) for text in texts))

    at_once = asyncio.run(score_all(pool))
    again = asyncio.run(score_all(pool))
    metrics = pool.metrics()
    assert pool.level and pool.level != "none"
    pool.close()
    pool.close()
    assert [result.reward for result in at_once] == pytest.approx([1.0, 0.75, 0.75, 0.1, 1.0] * 2)
    assert [result.cached for result in at_once] == [False] * 4 + [True] * 6
    assert at_once[3].detail.startswith("syntax: ")
    assert [result.reward for result in again] == [result.reward for result in at_once]
    assert all(result.cached for result in again)
    assert sum(result.seconds for result in again) < metrics["rewards/cache_saved_s"]
    assert metrics["rewards/scored"] == metrics["rewards/cache_misses"] == 4
    assert metrics["rewards/cache_joins"] == 6 and metrics["rewards/cache_hits"] == 10
    assert metrics["rewards/cache_saved_s"] > 0 and metrics["rewards/cache_evictions"] == 0
    assert metrics["rewards/in_flight"] == metrics["rewards/waiting"] == metrics["rewards/infra_errors"] == 0

    resumed = make_pool(cache_file=path)
    warm = asyncio.run(score_all(resumed))
    num_scored = resumed.metrics()["rewards/scored"]
    resumed.close()
    assert [result.reward for result in warm] == [result.reward for result in at_once]
    assert num_scored == 0


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_verdict_is_in_the_file_before_the_pool_ends_where_it_is_to_persist(
    is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewards.cache_file._MAX_WAITING", 0)
    path = tmp_path / "cache.jsonl"
    pool = make_pool(cache_file=path, cache=RewardCacheConfig(persist=is_kept))

    async def score_two() -> None:
        # What the second finds due, a thread writes.
        for text in ("a + b", "a - b"):
            await pool.score(TASK, answer(text))
        async with asyncio.timeout(60):
            # Behind its head, which is there at once.
            while is_kept and path.read_text().count("\n") < 2:
                await asyncio.sleep(0.01)

    asyncio.run(score_two())
    pool.close()
    assert path.exists() == is_kept


def test_custom_rewards_see_the_text_so_nothing_is_taken_from_the_cache_or_kept() -> None:
    pool = make_pool(rewards=RewardsConfig(custom=["tests.rewards.test_scorer:has_no_opinion"]))
    try:
        results = [asyncio.run(pool.score(TASK, answer("a + b"))) for _ in range(2)]
        metrics = pool.metrics()
    finally:
        pool.close()
    assert [result.cached for result in results] == [False, False] and metrics["rewards/scored"] == 2
    assert metrics["rewards/cache_hits"] == metrics["rewards/cache_misses"] == 0


def test_a_measurement_is_judged_by_the_tests_whatever_the_rewards_are() -> None:
    weights = RewardWeights(syntax=0, lint=0, complexity=0, tests=0, execution=0)
    opinion = "tests.rewards.test_scorer:has_no_opinion"
    pool = make_pool(rewards=RewardsConfig(weights=weights, custom=[opinion]))
    try:
        trained = asyncio.run(pool.score(TASK, answer("a + b")))
        measured = [
            asyncio.run(pool.score(TASK, answer(expression), by_tests=True))
            for expression in ("a + b", "a - b")
        ]
    finally:
        pool.close()
    assert trained.is_infra_error
    assert [(result.passed, result.reward) for result in measured] == [(True, 1.0), (False, 0.0)]
    assert measured[1].breakdown == {"tests": 0.5} and not any(result.cached for result in measured)


def test_without_a_cache_every_completion_is_scored_for_itself(shared_pool: RewardPool) -> None:
    before = shared_pool.metrics()["rewards/scored"]

    async def score_four() -> list[RewardResult]:
        return await asyncio.gather(*(shared_pool.score(TASK, answer("a + b")) for _ in range(4)))

    results = asyncio.run(score_four())
    assert [result.cached for result in results] == [False] * 4
    assert shared_pool.metrics()["rewards/scored"] - before == 4


def test_an_infrastructure_error_is_not_kept_and_those_who_joined_it_go_again_once() -> None:
    pool = make_pool()

    async def score_three() -> list[RewardResult]:
        return await asyncio.gather(*(pool.score(BROKEN_TASK, answer("a + b")) for _ in range(3)))

    results = asyncio.run(score_three())
    metrics = pool.metrics()
    pool.close()
    assert all(math.isnan(result.reward) and result.is_infra_error for result in results)
    assert all(not result.cached and "t/broken" in result.detail for result in results)
    # The first flight, and one more for the two who had joined it.
    assert metrics["rewards/scored"] == metrics["rewards/infra_errors"] == 2
    assert metrics["rewards/cache_hits"] == metrics["rewards/cache_joins"] == 0


def test_a_batch_of_500_is_scored_right_and_exactly_once_while_a_worker_is_killed_every_second() -> None:
    wrong = {number: f"a - b + {number}" for number in range(0, 500, 3)}
    texts = [answer(wrong.get(number, f"a + b + {number} - {number}")) for number in range(500)]
    execution = ExecutionConfig()
    with start_sandbox(execution) as sandbox, Scorer(RewardsConfig(), execution, sandbox) as scorer:
        expected = [scorer.score(TASK, text).reward for text in texts]
    pool = make_pool(num_workers=2)
    killed: list[int] = []
    num_results: list[int] = [0] * len(texts)

    async def kill_one_every_second() -> None:
        while True:
            for pid in pool.worker_pids[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            await asyncio.sleep(1.0)

    async def score(number: int) -> float:
        # The pace of a generator: on a fast machine the batch must not be done before the second kill.
        await asyncio.sleep(number * 0.02)
        result = await pool.score(TASK, texts[number])
        num_results[number] += 1
        return result.reward

    async def score_all() -> list[float]:
        killing = asyncio.create_task(kill_one_every_second())
        try:
            return await asyncio.gather(*(score(number) for number in range(len(texts))))
        finally:
            killing.cancel()

    rewards = asyncio.run(score_all())
    metrics = pool.metrics()
    pool.close()
    assert rewards == pytest.approx(expected)
    assert num_results == [1] * 500
    assert metrics["rewards/scored"] == 500 and metrics["rewards/infra_errors"] == 0
    assert len(set(killed)) >= 3
    assert metrics["rewards/worker_restarts"] >= 3


def test_a_late_worker_gives_an_infrastructure_error_that_names_it_and_the_next_item_is_scored() -> None:
    pool = make_pool(timeout_s=10.0, cpu_s=60.0)

    async def score_three() -> tuple[RewardResult, RewardResult, RewardResult]:
        late, joined = await asyncio.gather(pool.score(TASK, ENDLESS), pool.score(TASK, ENDLESS))
        # The replacement starts beside the loop; its start is no part of the next item's deadline.
        return late, joined, await pool.score(TASK, answer("a + b"))

    late, joined, following = asyncio.run(score_three())
    metrics = pool.metrics()
    pool.close()
    assert math.isnan(late.reward) and late.outcome is Outcome.INFRA_ERROR
    assert "worker 0" in late.detail and "t/add" in late.detail and "10 s" in late.detail
    assert joined.detail == late.detail  # what was late once is not waited for again
    assert following.reward == pytest.approx(1.0)
    assert metrics["rewards/infra_errors"] == metrics["rewards/worker_restarts"] == 1


def test_a_program_of_many_tests_is_not_late_nor_is_the_item_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Seconds for a minute, or the test would take the time of an honest slow program.
    monkeypatch.setattr(rewards.deadline, "longest_run_s", lambda config, tests=0: 0.4 * max(1, tests))
    pool = make_pool(timeout_s=None, rewards=RewardsConfig(custom_timeout_s=1.5))
    tests = tuple(StdioTest(stdin="", expected_stdout="1\n") for _ in range(20))
    program = Task(task_id="t/program", prompt="Print 1.", entry_point="", stdio_tests=tests)
    slow = "```python\nimport time\ntime.sleep(0.2)\nprint(1)\n```"

    async def score_both() -> tuple[RewardResult, RewardResult]:
        return await asyncio.gather(pool.score(program, slow), pool.score(TASK, answer("a + b")))

    try:
        found = asyncio.run(score_both())
        assert [(result.outcome, result.detail) for result in found] == [(Outcome.PASS, "")] * 2
        assert pool.metrics()["rewards/worker_restarts"] == 0
    finally:
        pool.close()


def test_no_more_is_in_flight_than_the_workers_can_hold_and_the_loop_stays_free(
    shared_pool: RewardPool,
) -> None:
    seen: list[tuple[float, float]] = []

    async def watch() -> None:
        jobs = [
            asyncio.create_task(shared_pool.score(TASK, answer(f"a + b + 0 * {number}")))
            for number in range(8)
        ]
        await asyncio.sleep(0)
        while not all(job.done() for job in jobs):
            metrics = shared_pool.metrics()
            seen.append((metrics["rewards/in_flight"], metrics["rewards/waiting"]))
            await asyncio.sleep(0.001)

    asyncio.run(watch())
    assert max(in_flight for in_flight, _ in seen) == 2
    assert max(waiting for _, waiting in seen) == 6


def test_of_those_who_wait_the_smallest_priority_is_first_then_the_first_come(
    shared_pool: RewardPool,
) -> None:
    done: list[tuple[int, int]] = []

    async def score(priority: int, number: int) -> None:
        text = answer(f"a + b + 0 * {number}")
        assert (await shared_pool.score(TASK, text, priority=priority)).passed
        done.append((priority, number))

    async def score_all() -> None:
        held = [asyncio.create_task(score(0, number)) for number in range(2)]
        await asyncio.sleep(0)
        late = [(9, 2), (5, 3), (9, 4), (1, 5), (5, 6), (7, 7)]
        waiting = [asyncio.create_task(score(*item)) for item in late]
        await asyncio.sleep(0)
        # One that gives up in the middle of the line leaves the others in order.
        waiting.pop().cancel()
        await asyncio.gather(*held, *waiting)

    asyncio.run(score_all())
    assert done == [(0, 0), (0, 1), (1, 5), (5, 3), (5, 6), (9, 2), (9, 4)]


def test_cancelled_work_that_no_worker_has_begun_is_not_run(shared_pool: RewardPool) -> None:
    before = shared_pool.metrics()["rewards/scored"]

    async def cancel_all_but_two() -> list[RewardResult]:
        running = [asyncio.create_task(shared_pool.score(TASK, answer(f"a + b + {n} * 0"))) for n in (1, 2)]
        await asyncio.sleep(0)
        queued = [asyncio.create_task(shared_pool.score(TASK, ENDLESS)) for _ in range(20)]
        await asyncio.sleep(0)
        for job in queued:
            job.cancel()
        await asyncio.gather(*queued, return_exceptions=True)
        return await asyncio.gather(*running)

    results = asyncio.run(cancel_all_but_two())
    assert [result.reward for result in results] == pytest.approx([1.0, 1.0])
    metrics = shared_pool.metrics()
    assert metrics["rewards/scored"] - before == 2
    assert metrics["rewards/in_flight"] == metrics["rewards/waiting"] == 0


def test_a_cancelled_item_that_runs_keeps_its_place_until_its_worker_is_done() -> None:
    pool = make_pool(cpu_s=1.0)

    async def cancel_then_score() -> tuple[float, RewardResult]:
        job = asyncio.create_task(pool.score(TASK, ENDLESS))
        await asyncio.sleep(0.3)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        taken = pool.metrics()["rewards/in_flight"]
        return taken, await pool.score(TASK, answer("a + b"))

    taken, result = asyncio.run(cancel_then_score())
    metrics = pool.metrics()
    pool.close()
    assert taken == 1
    assert result.passed and metrics["rewards/in_flight"] == 0 and metrics["rewards/worker_restarts"] == 0


def test_when_most_items_fail_the_pool_says_why_and_scores_no_more() -> None:
    pool = make_pool()

    async def score_many() -> list[RewardResult | BaseException]:
        jobs = (pool.score(BROKEN_TASK, answer(f"a + b + {number}")) for number in range(40))
        return await asyncio.gather(*jobs, return_exceptions=True)

    results = asyncio.run(score_many())
    with pytest.raises(RewardsBrokenError, match=r"\d+ of the last \d+ completions.*t/broken"):
        asyncio.run(pool.score(TASK, answer("a + b")))
    pool.close()
    assert sum(isinstance(result, RewardsBrokenError) for result in results) >= 8


def test_the_breaker_opens_at_half_and_names_the_most_frequent_reason() -> None:
    breaker = CircuitBreaker(window=8, max_errors=4)
    good = RewardResult(reward=1.0, breakdown={}, outcome=Outcome.PASS, passed=True)
    for result in [good, infra_error("odd", 0), good, infra_error("disk full", 0)]:
        breaker.record(result)
    breaker.record(infra_error("disk full", 0))
    breaker.check()
    breaker.record(infra_error("disk full", 0))
    with pytest.raises(RewardsBrokenError, match=r"4 of the last 6 .*\(3 times\): disk full"):
        breaker.check()
    for _ in range(5):
        breaker.record(good)
    breaker.check()


def test_reasons_that_differ_in_a_name_only_are_one_reason() -> None:
    breaker = CircuitBreaker(window=8, max_errors=4)
    for detail in (
        "odd",
        "odd",
        "check of 'f' cannot run",
        "check of 'g' cannot run",
        "check of 'h' cannot run",
    ):
        breaker.record(infra_error(detail, 0))
    with pytest.raises(RewardsBrokenError, match=r"\(3 times\): check of 'f' cannot run"):
        breaker.check()


def test_a_worker_that_does_not_start_is_reported_with_its_reason() -> None:
    with pytest.raises(RewardsBrokenError, match="no_such_package"):
        RewardPool(
            RewardsConfig(),
            ExecutionConfig(modules=["no_such_package"]),
            RewardCacheConfig(),
            start_worker=local_reward_worker,
        )


def test_closing_ends_the_workers_and_all_their_processes() -> None:
    pool = make_pool()
    asyncio.run(pool.score(TASK, answer("a + b")))
    worker = pool.worker_pids[0]
    family = {worker, *descendants(worker)}
    assert len(family) >= 3  # the worker, its linter, its sandbox
    pool.close()
    assert none_runs(family, 20.0), f"of {family} some outlived the pool"


def test_a_pool_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="workers"):
        make_pool(num_workers=0)


SHOWN = Task(
    task_id="t/shown",
    prompt="Write add.\n\n>>> add(1, 2)\n3\n",
    entry_point="add",
    call_tests=(CallTest(args=(40, 2), expected=42),),
)


def hint(task_id: str, code: str, feedback: str, outcome: str, **columns: object) -> str:
    assert columns["prompt"] == SHOWN.prompt and code in str(columns["completion"])
    return f"{task_id}, {outcome}: {feedback} Your program was:\n{code}"


def silent(**columns: object) -> None: ...


def raises(**columns: object) -> str:
    raise ValueError("no idea")


def counts(**columns: object) -> int:
    return 3


def halves(**columns: object) -> str:
    return "\ud83d"


def slow(**columns: object) -> None:
    time.sleep(0.2)


async def hangs(**columns: object) -> str:
    await asyncio.sleep(60)
    return ""


async def told_by(pool: RewardPool, terms: RolloutsConfig) -> str:
    text = answer("a - b")
    return await pool.tell(SHOWN, text, await pool.score(SHOWN, text), terms)


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"feedback": "verdict"}, "Your program gives a wrong result in a test."),
        ({}, "The example returns -1."),
        (
            {"feedback": "verdict", "custom_feedback": f"{__name__}:hint"},
            "t/shown, wrong: Your program gives a wrong result in a test. Your program was:\n"
            "def add(a, b):\n    return a - b\n",
        ),
        (
            {"feedback": "verdict", "custom_feedback": f"{__name__}:silent"},
            "Your program gives a wrong result in a test.",
        ),
    ],
)
def test_a_worker_tells_how_an_answer_failed(
    shared_pool: RewardPool, terms: dict[str, Any], told: str
) -> None:
    assert asyncio.run(told_by(shared_pool, RolloutsConfig(**terms))) == told


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "raised ValueError: no idea at"),
        ("counts", "returned 3, not a text or None"),
        ("halves", "returned a text that is no UTF-8: "),
        ("hangs", r"no answer in 1 s \(rewards.custom_timeout_s\)"),
    ],
)
def test_custom_feedback_that_fails_is_an_error_by_name_and_the_worker_is_well(
    name: str, reason: str
) -> None:
    pool = make_pool(rewards=RewardsConfig(custom_timeout_s=1.0))
    try:
        terms = RolloutsConfig(custom_feedback=f"{__name__}:{name}")
        with pytest.raises(FeedbackError, match=rf"rollouts.custom_feedback: {__name__}:{name}: {reason}"):
            asyncio.run(told_by(pool, terms))
        assert asyncio.run(told_by(pool, RolloutsConfig(feedback="verdict"))) == (
            "Your program gives a wrong result in a test."
        )
        assert pool.metrics()["rewards/worker_restarts"] == 0
    finally:
        pool.close()


def test_feedback_that_no_worker_can_give_is_an_error_by_name(shared_pool: RewardPool) -> None:
    async def tell() -> str:
        # A worker that raises: examples are run, and here nothing can be looked at.
        return await shared_pool.tell(SHOWN, None, await shared_pool.score(SHOWN, ""), RolloutsConfig())  # type: ignore[arg-type]

    with pytest.raises(FeedbackError, match="reward worker 0 failed on t/shown"):
        asyncio.run(tell())


def test_feedback_survives_the_death_of_a_worker() -> None:
    pool = make_pool()

    async def tell() -> str:
        result = await pool.score(SHOWN, answer("a - b"))
        os.kill(pool.worker_pids[0], signal.SIGKILL)
        return await pool.tell(SHOWN, answer("a - b"), result, RolloutsConfig(feedback="verdict"))

    try:
        assert asyncio.run(tell()) == "Your program gives a wrong result in a test."
    finally:
        pool.close()


def test_when_feedback_fails_for_most_the_pool_says_why() -> None:
    """Though every other item, the verdicts themselves, is well."""
    pool = make_pool()
    terms = RolloutsConfig(custom_feedback=f"{__name__}:raises")
    try:
        for _ in range(31):
            with pytest.raises(FeedbackError):
                asyncio.run(told_by(pool, terms))
        with pytest.raises(
            RewardsBrokenError,
            match=r"32 of the last 32 completions got no feedback; .*raised ValueError: no idea",
        ):
            asyncio.run(told_by(pool, terms))
    finally:
        pool.close()


def test_feedback_is_among_the_seconds_that_workers_were_busy(shared_pool: RewardPool) -> None:
    before = shared_pool.metrics()["rewards/busy_s"]
    asyncio.run(told_by(shared_pool, RolloutsConfig(custom_feedback=f"{__name__}:slow")))
    assert shared_pool.metrics()["rewards/busy_s"] - before >= 0.2
