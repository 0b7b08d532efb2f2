from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.rollouts.waiting import Waiting, group_deadline_s, standstill_s
from sandbox.result import StdioTest
from tests.pipeline.fake_stages import TASKS, FakeRun, make_config


def _explain(waited_s: float) -> str:
    return f"waited {waited_s:g} s for nobody"


async def test_who_waits_looks_at_once_and_after_each_change() -> None:
    waiting = Waiting()
    looks: list[int] = []

    def is_ready() -> bool:
        looks.append(len(looks))
        return len(looks) == 3

    task = asyncio.create_task(waiting.until(is_ready, 30, _explain))
    for expected in (1, 2, 3):
        await asyncio.sleep(0)
        assert len(looks) == expected
        waiting.changed()
        await asyncio.sleep(0)
    await task


def test_a_deadline_that_passes_is_explained() -> None:
    with pytest.raises(TimeoutError, match=r"^waited 0\.01 s for nobody$"):
        asyncio.run(Waiting().until(lambda: False, 0.01, _explain))


async def test_renewed_who_waits_has_as_long_again() -> None:
    waiting, clock = Waiting(), asyncio.get_running_loop()
    began = clock.time()
    task = asyncio.create_task(waiting.until(lambda: False, 1.0, _explain))
    await asyncio.sleep(0.2)
    waiting.renew()
    waiting.changed()
    with pytest.raises(TimeoutError):
        await task
    assert clock.time() - began >= 1.19


async def test_a_change_alone_renews_nothing() -> None:
    waiting, clock = Waiting(), asyncio.get_running_loop()
    until = clock.time() + 0.3
    task = asyncio.create_task(waiting.until(lambda: False, 0.3, _explain))
    while not task.done():
        assert clock.time() < until + 20
        waiting.changed()
        await asyncio.sleep(0.02)
    with pytest.raises(TimeoutError):
        task.result()


async def test_a_failure_reaches_who_waits_and_who_comes_later_and_the_first_reason_stays() -> None:
    waiting = Waiting()
    task = asyncio.create_task(waiting.until(lambda: False, 30, _explain))
    await asyncio.sleep(0)
    waiting.fail("the generator died")
    waiting.fail("so did the trainer")
    for late in (task, waiting.until(lambda: True, 30, _explain)):
        with pytest.raises(StageError, match=r"^the generator died$"):
            await late


def config_of(**sections: Any) -> Config:
    """A score takes 10 s at most; to write twice, and to start the engine in between, 250 s."""
    runtime = {"reward_timeout_s": 10, "generation_timeout_s": 100, "startup_timeout_s": 50}
    return make_config(runtime=runtime, **sections)


@pytest.mark.parametrize(("num_workers", "deadline_s"), [(1, 290), (3, 270), (4, 260), (9, 260)])
def test_a_group_has_time_for_the_scores_that_a_worker_gives_one_by_one(
    num_workers: int, deadline_s: float
) -> None:
    config = config_of(acceleration={"async_rewards": {"workers": num_workers}})
    assert config.grpo.num_generations == 4 and group_deadline_s(config) == deadline_s


# Four tasks at a time, each written twenty times.
MEASURED = {"every_steps": 1, "inloop_requests": 4, "inloop_samples": 20, "num_samples": 1}


@pytest.mark.parametrize(
    ("max_num_seqs", "evaluation", "deadline_s"),
    [(64, {}, 260), (16, {}, 260), (8, {}, 460), (6, {}, 660), (16, MEASURED, 1260)],
)
def test_a_group_has_time_for_the_sequences_that_the_engine_writes_before_it(
    max_num_seqs: int, evaluation: Mapping[str, object], deadline_s: float
) -> None:
    config = config_of(
        acceleration={"max_staleness": 1, "async_rewards": {"workers": 4}},
        generation={"max_num_seqs": max_num_seqs},
        evaluation=evaluation,
    )
    # Two steps of eight sequences, and those of a measurement on the way.
    assert config.completions_per_step == 8 and group_deadline_s(config) == deadline_s


def test_a_group_has_time_for_what_is_drawn_ahead_too() -> None:
    acceleration = {"max_staleness": 1, "refill": {"enabled": True, "max_draws": 2.0}}
    config = config_of(acceleration=acceleration, generation={"max_num_seqs": 16})
    plain = config_of(acceleration={"max_staleness": 1}, generation={"max_num_seqs": 8})
    assert group_deadline_s(config) == group_deadline_s(plain)


@pytest.mark.parametrize(("mode", "more_s"), [("keep_cache", 0), ("drain", 260), ("abort", 260)])
def test_a_group_has_the_time_of_the_updates_that_hold_it_up(mode: str, more_s: float) -> None:
    runtime = {"generation_timeout_s": 100, "weight_update_timeout_s": 30}
    deadlines_s = [
        group_deadline_s(make_config(runtime=runtime, generation={"weight_update_mode": one}))
        for one in ("keep", mode)
    ]
    # Written twice at most, it may wait twice for what is drained and for the update.
    assert deadlines_s[1] - deadlines_s[0] == more_s


def test_the_deadlines_of_a_run_are_those_of_its_task_with_the_most_tests(tmp_path: Path) -> None:
    tests = (StdioTest(stdin="1", expected_stdout="2"),) * 30
    program = replace(TASKS[0], task_id="program", entry_point="", check_source=None, stdio_tests=tests)
    config = make_config()
    run = FakeRun(tmp_path, config, tasks=[*TASKS, program])
    run.close()
    # Each test is a run of its own, of some seconds at most.
    assert group_deadline_s(config, 30) > group_deadline_s(config) + 4 * 29 * config.execution.timeout
    assert run.producer.group_deadline_s == group_deadline_s(config, 30)
    assert run.producer._slot_deadline_s == standstill_s(config, 30)
