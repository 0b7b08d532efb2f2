"""The ways to a reward worker, a process of this machine and a Ray actor, keep the same terms."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from configs.schema import ClusterConfig, ExecutionConfig, RewardsConfig
from pipeline.cluster import running_ray
from pipeline.evaluation.scorers import reward_worker_starter
from rewards.worker import CallCancelledError, StartWorker, WorkerCallError, WorkerLink, WorkerLostError
from tests.processes import descendants, is_running, left_by_killed_owner, none_runs
from tests.rewards.test_pool import BROKEN_TASK, ENDLESS, TASK, answer

SLEEPY = answer("a + b").replace(
    "    return", "    import time\n    while time.process_time() < 0.4:\n        pass\n    return"
)
WAIT_S = 30.0


@pytest.fixture(scope="module")
def ray_runtime() -> Iterator[None]:
    with running_ray():
        yield


@pytest.fixture(scope="module", params=[None, "local"])
def start_worker(request: pytest.FixtureRequest) -> StartWorker:
    if request.param is not None:
        request.getfixturevalue("ray_runtime")
    return reward_worker_starter(ClusterConfig(address=request.param))


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker) -> Iterator[WorkerLink]:
    link = start_worker(RewardsConfig(), ExecutionConfig())
    yield link
    link.kill()


def test_calls_are_answered_in_their_order_from_another_process(worker: WorkerLink) -> None:
    info = worker.call("describe").result(WAIT_S)
    assert info.pid != os.getpid() and is_running(info.pid) and info.level.startswith("L")
    scores = [worker.call("score", TASK, answer(text)) for text in ("a + b", "a - b")]
    assert [one.result(WAIT_S).result.passed for one in scores] == [True, False]
    assert worker.call("score", BROKEN_TASK, answer("a")).result(WAIT_S).result.is_infra_error


def test_a_call_that_raises_fails_alone(worker: WorkerLink) -> None:
    wrong = worker.call("score", TASK, None)
    with pytest.raises(WorkerCallError, match="Error: "):
        wrong.result(WAIT_S)
    assert worker.call("score", TASK, answer("a + b")).result(WAIT_S).result.passed


def test_what_is_cancelled_in_time_is_not_begun_and_what_runs_goes_on(worker: WorkerLink) -> None:
    running = worker.call("score", TASK, SLEEPY)
    waiting = [worker.call("score", TASK, ENDLESS) for _ in range(5)]
    for one in waiting:
        worker.cancel(one)
    for one in waiting:
        with pytest.raises(CallCancelledError):
            one.result(WAIT_S)
    assert running.result(WAIT_S).result.passed
    assert worker.call("score", TASK, answer("a + b")).result(WAIT_S).result.passed


def test_a_worker_that_is_killed_fails_what_it_held_and_leaves_no_process(start_worker: StartWorker) -> None:
    link = start_worker(RewardsConfig(), ExecutionConfig())
    pid = link.call("describe").result(WAIT_S).pid
    family = {pid, *descendants(pid)}
    assert len(family) >= 2, "no sandbox was there"
    held = [link.call("score", TASK, SLEEPY) for _ in range(2)]
    os.kill(pid, signal.SIGKILL)
    for one in held:
        with pytest.raises(WorkerLostError):
            one.result(WAIT_S)
    with pytest.raises(WorkerLostError):
        link.call("score", TASK, answer("a + b")).result(WAIT_S)
    assert none_runs(family, WAIT_S), f"of {family} some are left"
    link.kill()
    link.kill()


def test_a_worker_that_does_not_come_up_says_why(start_worker: StartWorker) -> None:
    link = start_worker(RewardsConfig(), ExecutionConfig(modules=["no_such_package"]))
    with pytest.raises((WorkerLostError, WorkerCallError), match="no_such_package"):
        link.call("describe").result(WAIT_S)
    link.kill()


OWNER = """
import sys, time
from configs.schema import ExecutionConfig, RewardsConfig
from pipeline.evaluation.scorers import local_reward_worker
from tests.rewards.test_worker_links import SLEEPY, TASK

link = local_reward_worker(RewardsConfig(), ExecutionConfig())
print(link.call("describe").result().pid, flush=True)
link.call("score", TASK, SLEEPY)
time.sleep(100)
"""


def test_a_local_worker_dies_with_its_owner_even_at_work() -> None:
    family = left_by_killed_owner(OWNER)
    assert none_runs(family, WAIT_S), f"of {family} some are left"
