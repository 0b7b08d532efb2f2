"""The worker group: whose time runs in a worker, and a worker that cannot be started at once."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from concurrent.futures import Future
from typing import Any

import pytest

from configs.schema import ExecutionConfig, RewardsConfig
from pipeline.evaluation.scorers import local_reward_worker
from rewards.result import RewardResult
from rewards.worker import Scored, WorkerInfo, WorkerLink, WorkerLostError
from rewards.workers import WorkerGroup
from sandbox.result import Outcome
from tests.rewards.test_pool import ENDLESS, TASK, answer, make_pool

GOOD = RewardResult(reward=1.0, breakdown={}, outcome=Outcome.PASS, passed=True)


class HeldLink:
    """A worker that is up at once, and scores when the test says so."""

    def __init__(self) -> None:
        self.scores: list[Future[Any]] = []
        self.cancelled: list[Future[Any]] = []
        self.info = WorkerInfo(level="L3", configuration=("L3", "ruff 1"), pid=os.getpid())

    def call(self, method: str, *arguments: object) -> Future[Any]:
        answer: Future[Any] = Future()
        if method == "describe":
            answer.set_result(self.info)
        else:
            self.scores.append(answer)
        return answer

    def cancel(self, call: Future[Any]) -> None:
        self.cancelled.append(call)

    def kill(self) -> None:
        for score in self.scores:
            if not score.done():
                score.set_exception(WorkerLostError("it was killed"))


def group_of(link: HeldLink, timeout_s: float) -> WorkerGroup:
    return WorkerGroup(
        *(RewardsConfig(), ExecutionConfig(), 1),
        start_worker=lambda *_: link,
        timeout_s=timeout_s,
        startup_timeout_s=10.0,
    )


def test_an_items_time_begins_when_no_other_is_before_it_in_its_worker() -> None:
    link = HeldLink()
    group = group_of(link, 5.0)

    async def score_two() -> list[RewardResult]:
        jobs = [asyncio.create_task(group.score(TASK, text)) for text in ("slow", "as slow")]
        for number in range(2):
            await asyncio.sleep(3.0)
            link.scores[number].set_result(Scored(result=GOOD, num_sandbox_failures=0))
        return await asyncio.gather(*jobs)

    assert asyncio.run(score_two()) == [GOOD, GOOD]
    assert group.num_restarts == 0


def test_a_worker_is_told_of_an_item_that_nobody_waits_for_any_more() -> None:
    link = HeldLink()
    group = group_of(link, 30.0)

    async def cancel_the_second() -> RewardResult:
        first, second = (asyncio.create_task(group.score(TASK, text)) for text in ("slow", "unwanted"))
        while len(link.scores) < 2:
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert link.cancelled == [link.scores[1]]
        link.scores[0].set_result(Scored(result=GOOD, num_sandbox_failures=0))
        return await first

    assert asyncio.run(cancel_the_second()) == GOOD
    group.close()


def test_the_item_behind_one_that_hangs_is_scored_by_the_next_worker() -> None:
    pool = make_pool(timeout_s=10.0, cpu_s=60.0)

    async def score_both() -> tuple[RewardResult, RewardResult]:
        return await asyncio.gather(pool.score(TASK, ENDLESS), pool.score(TASK, answer("a + b")))

    try:
        late, behind = asyncio.run(score_both())
        assert late.outcome is Outcome.INFRA_ERROR and "10 s" in late.detail
        assert behind.passed
        metrics = pool.metrics()
        assert metrics["rewards/infra_errors"] == metrics["rewards/worker_restarts"] == 1
    finally:
        pool.close()


@pytest.mark.parametrize(
    "fault",
    [
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        RuntimeError("can't start new thread"),
    ],
)
def test_a_worker_for_which_there_is_no_process_just_now_is_started_later(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewards.workers._PAUSE_S", 0.01)
    starts: list[str] = []

    def start(rewards: RewardsConfig, execution: ExecutionConfig) -> WorkerLink:
        starts.append("refused" if len(starts) in (1, 2) else "started")
        if starts[-1] == "refused":
            raise fault
        return local_reward_worker(rewards, execution)

    pool = make_pool(start_worker=start)

    async def score() -> RewardResult:
        os.kill(pool.worker_pids[0], signal.SIGKILL)
        return await asyncio.wait_for(pool.score(TASK, answer("a + b")), 60)

    try:
        assert asyncio.run(score()).passed
        assert starts == ["started", "refused", "refused", "started"]
        assert pool.metrics()["rewards/worker_restarts"] == 1
    finally:
        pool.close()


def test_a_worker_with_another_sandbox_or_other_tools_takes_nobodys_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rewards.workers._PAUSE_S", 0.01)
    links: list[HeldLink] = []

    def start(*_: object) -> HeldLink:
        links.append(HeldLink())
        # The second comes up on a host that has no namespaces left.
        if len(links) == 2:
            links[-1].info = WorkerInfo(level="L2", configuration=("L2", "ruff 1"), pid=os.getpid())
        return links[-1]

    group = WorkerGroup(
        *(RewardsConfig(), ExecutionConfig(), 1), start_worker=start, timeout_s=30.0, startup_timeout_s=10.0
    )

    async def lose_the_first() -> RewardResult:
        job = asyncio.create_task(group.score(TASK, "text"))
        while not links[0].scores:
            await asyncio.sleep(0)
        links[0].kill()
        while len(links) < 3 or not links[2].scores:
            await asyncio.sleep(0.01)
        links[2].scores[0].set_result(Scored(result=GOOD, num_sandbox_failures=0))
        return await job

    assert asyncio.run(asyncio.wait_for(lose_the_first(), 20)) == GOOD
    assert not links[1].scores
    assert "its tools or its sandbox (level L2) are not the run's" in caplog.text
    assert [info.level for info in group.infos] == ["L3"]
    group.close()
