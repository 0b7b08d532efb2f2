"""The reward pool on real Ray workers: right scores, back-pressure, deadlines, and dead workers."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from configs.schema import ExecutionConfig, RewardCacheConfig, RewardsConfig
from curriculum.task import Task
from rewards.pool import RewardPool
from sandbox.result import CallTest, Outcome

TASK = Task(
    task_id="t/add",
    prompt="Write add.",
    entry_point="add",
    call_tests=(CallTest(args=(1, 2), expected=3), CallTest(args=(0, 0), expected=0)),
)
ROOT = Path(__file__).parents[2]


def answer(expression: str) -> str:
    return f"```python\ndef add(a, b):\n    return {expression}\n```"


@pytest.fixture(scope="module", autouse=True)
def ray_runtime() -> Iterator[None]:
    ray.init(
        num_cpus=1,
        object_store_memory=80 * 1024**2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    yield
    ray.shutdown()


def make_pool(num_workers: int = 1, timeout_s: float = 60.0, cpu_s: float = 2.0) -> RewardPool:
    return RewardPool(
        RewardsConfig(),
        ExecutionConfig(timeout=cpu_s),
        RewardCacheConfig(max_size=100),
        num_workers,
        timeout_s=timeout_s,
    )


def worker_pids(pool: RewardPool) -> list[int]:
    pids = []
    for slot in pool._slots:
        actor_id = slot.handle._actor_id.hex()
        pids.append(ray._private.state.actors(actor_id)["Pid"])
    return pids


def descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = set(), [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.add(child)
            queue.append(child)
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_every_completion_gets_its_own_reward_and_repeats_come_from_the_cache() -> None:
    pool = make_pool()
    texts = [answer("a + b"), answer("a - b"), answer("3"), answer("a +"), answer("a + b")] * 2

    async def score_all() -> list[float]:
        results = await asyncio.gather(*(pool.score(TASK, text) for text in texts))
        return [result.reward for result in results]

    rewards = asyncio.run(score_all())
    metrics = pool.metrics()
    level = pool.level
    pool.close()
    pool.close()
    assert rewards == pytest.approx([1.0, 0.75, 0.75, 0.1, 1.0] * 2)
    assert level and level != "none"
    assert metrics["rewards/scored"] == 10
    # Four programs, three of which compile and so have two verdicts each: 7 misses of 18 look-ups.
    assert metrics["rewards/cache_misses"] == 7
    assert metrics["rewards/cache_hits"] == 11
    assert metrics["rewards/in_flight"] == metrics["rewards/waiting"] == metrics["rewards/infra_errors"] == 0


def test_a_killed_worker_is_replaced_and_every_item_still_gets_its_reward() -> None:
    pool = make_pool(num_workers=2)
    texts = [answer(f"a + b + {number} - {number}") for number in range(40)]

    async def score_and_kill() -> list[float]:
        jobs = [asyncio.create_task(pool.score(TASK, text)) for text in texts]
        while not any(job.done() for job in jobs):
            await asyncio.sleep(0.005)
        os.kill(worker_pids(pool)[0], signal.SIGKILL)
        return [result.reward for result in await asyncio.gather(*jobs)]

    rewards = asyncio.run(score_and_kill())
    metrics = pool.metrics()
    pool.close()
    assert rewards == pytest.approx([1.0] * 40)
    assert metrics["rewards/worker_restarts"] == 1
    assert metrics["rewards/scored"] == 40
    assert metrics["rewards/infra_errors"] == 0


def test_a_late_worker_gives_an_infrastructure_error_that_names_it_and_the_next_item_is_scored() -> None:
    pool = make_pool(timeout_s=0.5, cpu_s=20.0)

    async def score_two() -> tuple[float, Outcome, str, float]:
        late = await pool.score(
            TASK, "```python\nwhile True:\n    pass\n\n\ndef add(a, b):\n    return 3\n```"
        )
        # The replacement needs longer to start than half a second.
        pool._timeout_s = 60.0
        return late.reward, late.outcome, late.detail, (await pool.score(TASK, answer("a + b"))).reward

    reward, outcome, detail, next_reward = asyncio.run(score_two())
    metrics = pool.metrics()
    pool.close()
    assert math.isnan(reward) and outcome is Outcome.INFRA_ERROR
    assert "worker 0" in detail and "t/add" in detail and "0.5 s" in detail
    assert next_reward == pytest.approx(1.0)
    assert metrics["rewards/infra_errors"] == metrics["rewards/worker_restarts"] == 1


def test_no_more_is_in_flight_than_the_workers_can_hold() -> None:
    pool = make_pool()
    seen: list[tuple[float, float]] = []

    async def watch() -> None:
        jobs = [asyncio.create_task(pool.score(TASK, answer(f"a + b + 0 * {number}"))) for number in range(8)]
        while not all(job.done() for job in jobs):
            metrics = pool.metrics()
            seen.append((metrics["rewards/in_flight"], metrics["rewards/waiting"]))
            await asyncio.sleep(0.001)

    asyncio.run(watch())
    pool.close()
    assert max(in_flight for in_flight, _ in seen) == 2
    assert max(waiting for _, waiting in seen) == 6


def test_closing_ends_the_workers_and_all_their_processes() -> None:
    pool = make_pool()
    asyncio.run(pool.score(TASK, answer("a + b")))
    worker = worker_pids(pool)[0]
    family = {worker, *descendants(worker)}
    assert len(family) >= 3  # the worker, its linter, its sandbox
    pool.close()
    deadline = time.monotonic() + 20
    while alive := [pid for pid in family if is_running(pid)]:
        assert time.monotonic() < deadline, f"processes {alive} outlived the pool"
        time.sleep(0.05)


def test_a_pool_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="workers"):
        make_pool(num_workers=0)
