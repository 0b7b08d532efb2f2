"""The model against queues that really run: the same buffer, with sleeps for the stages' work."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from selectors import DefaultSelector, SelectorKey

import pytest
import simpy

from pipeline.planning.engine_model import ModelledEngine
from pipeline.planning.pipeline_model import PipelineShape, StageCosts, own_times, predict
from pipeline.rollouts.buffer import RolloutBuffer, Slot
from tests.pipeline.rollouts.test_buffer import group

NUM_STEPS = 12
SHAPE = PipelineShape(
    groups_per_step=4, num_generations=4, max_staleness=1, num_generating=8, num_reward_workers=4
)
# Generation 0.42 s a step, rewards 0.2 s, training 0.26 s.
COSTS = StageCosts(
    completion_s=(0.1, 0.3, 0.2, 0.16, 0.24),
    reward_s=(0.02, 0.08, 0.05),
    train_group_s=0.05,
    optimizer_s=0.04,
    publish_s=0.02,
    update_s=0.03,
    pause_s=0.02,
)
MIXES = {
    "generation-bound": (COSTS, SHAPE),
    "reward-bound": (replace(COSTS, reward_s=(0.1, 0.3, 0.2)), SHAPE),
    "training-bound": (replace(COSTS, train_group_s=0.2), SHAPE),
    "on-policy": (COSTS, replace(SHAPE, max_staleness=0)),
    "on-policy, streamed": (
        replace(COSTS, train_group_s=0.1),
        replace(SHAPE, max_staleness=0, is_streamed=True),
    ),
    "balanced, streamed": (
        replace(COSTS, train_group_s=0.09, reward_s=(0.1,)),
        replace(SHAPE, is_streamed=True, is_update_beside=True),
    ),
}


class Pausable:
    """The engines' places; what is written in one goes on after a pause where it was."""

    def __init__(self, num_places: int) -> None:
        self.places = asyncio.Semaphore(num_places)
        self._is_running = asyncio.Event()
        self._is_running.set()
        self._num_pauses = 0
        self._pause = asyncio.Event()

    async def write(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        async with self.places:
            while seconds > 0:
                await self._is_running.wait()
                began_s = loop.time()
                try:
                    await asyncio.wait_for(self._pause.wait(), seconds)
                except TimeoutError:
                    return
                seconds -= loop.time() - began_s

    async def pause(self, seconds: float) -> None:
        self._is_running.clear()
        self._pause.set()
        await asyncio.sleep(seconds)
        self._pause.clear()
        self._is_running.set()


async def run_queues(costs: StageCosts, shape: PipelineShape, num_filling: int) -> float:
    """Seconds a step, after the first ``num_filling``, of a run through a real buffer."""
    loop = asyncio.get_running_loop()
    buffer = RolloutBuffer(groups_per_step=shape.groups_per_step, max_staleness=shape.max_staleness)
    engine, workers = Pausable(shape.num_generating), asyncio.Semaphore(shape.num_reward_workers)
    completion_s, reward_s = itertools.cycle(costs.completion_s), itertools.cycle(costs.reward_s)

    async def complete() -> None:
        await engine.write(next(completion_s))
        async with workers:
            await asyncio.sleep(next(reward_s))

    async def collect(draw_id: int, slot: Slot) -> None:
        await asyncio.gather(*(complete() for _ in range(shape.num_generations)))
        buffer.put(group(draw_id, slot.policy_version))

    async def produce() -> None:
        async with asyncio.TaskGroup() as draws:
            for draw_id in range(NUM_STEPS * shape.groups_per_step):
                slot = await buffer.acquire_slot(60)
                buffer.issue(slot, draw_id)
                draws.create_task(collect(draw_id, slot))

    async def update(version: int) -> None:
        await asyncio.sleep(costs.update_s - costs.pause_s)
        await engine.pause(costs.pause_s)
        buffer.weights_loaded(version)

    num_at_once = 1 if shape.is_streamed else shape.groups_per_step
    producing = asyncio.create_task(produce())
    updating = asyncio.create_task(asyncio.sleep(0))
    begin_s = loop.time()
    for step in range(NUM_STEPS):
        if step == num_filling:
            begin_s = loop.time()
        for _ in range(0, shape.groups_per_step, num_at_once):
            await buffer.take(num_at_once, step, 60)
            await asyncio.sleep(num_at_once * costs.train_group_s)
        await updating
        await asyncio.sleep(costs.optimizer_s)
        buffer.trained(step + 1)
        await asyncio.sleep(costs.publish_s)
        updating = asyncio.create_task(update(step + 1))
        if not shape.is_update_beside:
            await updating
    seconds = loop.time() - begin_s
    await asyncio.gather(producing, updating)
    return seconds / (NUM_STEPS - num_filling)


class LeapingClock(DefaultSelector):
    """Where nothing is left to do the clock leaps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen again"
        self.now_s += max(0.0, timeout)
        return super().select(0)


def shortened(costs: StageCosts, factor: float) -> StageCosts:
    return StageCosts(
        completion_s=tuple(factor * seconds for seconds in costs.completion_s),
        reward_s=tuple(factor * seconds for seconds in costs.reward_s),
        train_group_s=factor * costs.train_group_s,
        optimizer_s=factor * costs.optimizer_s,
        publish_s=factor * costs.publish_s,
        update_s=factor * costs.update_s,
        pause_s=factor * costs.pause_s,
    )


@contextmanager
def leaping_loop() -> Iterator[asyncio.AbstractEventLoop]:
    clock = LeapingClock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now_s  # type: ignore[method-assign]
    try:
        yield loop
    finally:
        loop.close()


@pytest.mark.parametrize("mix", MIXES)
def test_the_model_predicts_a_run_through_the_real_queue(mix: str) -> None:
    costs, shape = MIXES[mix]
    with leaping_loop() as loop:
        measured_s = loop.run_until_complete(run_queues(costs, shape, 3))
    predicted = predict(costs, shape, num_steps=NUM_STEPS, num_filling=3)
    assert predicted.step_s == pytest.approx(measured_s, rel=0.02)


def test_the_model_predicts_a_run_that_really_sleeps() -> None:
    costs, shape = MIXES["on-policy, streamed"]
    costs = shortened(costs, 0.6)
    predicted = predict(costs, shape, num_steps=NUM_STEPS, num_filling=3)
    began_s = time.perf_counter()
    # Other work on the machine can only make a run slower than its sleeps.
    fastest_s = asyncio.run(run_queues(costs, shape, 3))
    for _ in range(3):
        if fastest_s > 1.10 * predicted.step_s:
            fastest_s = min(fastest_s, asyncio.run(run_queues(costs, shape, 3)))
    assert time.perf_counter() - began_s > fastest_s * (NUM_STEPS - 3)
    assert predicted.step_s == pytest.approx(fastest_s, rel=0.10)


@pytest.mark.parametrize("mix", MIXES)
def test_no_step_is_faster_than_the_slowest_stage_by_itself_nor_slower_than_all_in_turn(mix: str) -> None:
    costs, shape = MIXES[mix]
    predicted = predict(costs, shape, num_steps=40, num_filling=10)
    slowest_s = max(own_times(costs, shape).values())
    assert predicted.step_s >= 0.99 * slowest_s
    # In turn: each stage in full, and what the last completion and the last score of a step hang over.
    tail_s = max(costs.completion_s) + max(costs.reward_s) + costs.update_s
    assert predicted.step_s <= sum(own_times(costs, shape).values()) + tail_s


def test_with_staleness_a_long_run_goes_at_the_speed_of_its_slowest_stage() -> None:
    for mix in ("generation-bound", "reward-bound", "training-bound"):
        costs, shape = MIXES[mix]
        predicted = predict(costs, shape, num_steps=60, num_filling=10)
        assert predicted.step_s == pytest.approx(max(predicted.own_s.values()), rel=0.12), mix
        assert mix.startswith(predicted.bottleneck.removesuffix("s"))
        assert predicted.utilisation[predicted.bottleneck] > 0.85


def test_the_stages_are_as_busy_as_their_work_says() -> None:
    costs, shape = MIXES["reward-bound"]
    predicted = predict(costs, shape, num_steps=60, num_filling=10)
    for stage in ("generation", "rewards", "training"):
        work_s = own_times(costs, shape)[stage]
        # Neither a pause nor waiting for an update is work.
        work_s -= {"generation": costs.pause_s, "rewards": 0.0, "training": costs.update_s}[stage]
        assert predicted.utilisation[stage] == pytest.approx(work_s / predicted.step_s, rel=0.03), stage


def test_on_policy_the_stages_of_two_steps_never_overlap() -> None:
    costs, shape = MIXES["on-policy"]
    alone = replace(shape, groups_per_step=1, num_generations=1)
    one = replace(costs, completion_s=(0.2,), reward_s=(0.05,))
    predicted = predict(one, alone, num_steps=5, num_filling=1)
    assert predicted.step_s == pytest.approx(0.2 + 0.05 + 0.05 + 0.04 + 0.02 + 0.03)


def ends_of(engine: ModelledEngine, env: simpy.Environment, seconds: Sequence[float]) -> list[float]:
    ends: dict[int, float] = {}

    def one(index: int) -> Iterator[simpy.Event]:
        yield engine.write(seconds[index])
        ends[index] = env.now

    for index in range(len(seconds)):
        env.process(one(index))  # type: ignore[arg-type]
    env.run()
    return [ends[index] for index in range(len(seconds))]


@pytest.mark.parametrize(
    ("spare_speed", "expected"), [(0.0, [1.0, 2.0, 1.5]), (1.0, [1.0, 1.75, 1.5]), (0.5, [1.0, 1.853, 1.5])]
)
def test_an_engine_that_is_not_full_is_faster_as_its_spare_speed_says(
    spare_speed: float, expected: list[float]
) -> None:
    env = simpy.Environment()
    # The third waits for the first one's place; from 1.5 s on the second is alone, with 0.5 s to go.
    ends_s = ends_of(ModelledEngine(env, 2, spare_speed), env, [1.0, 2.0, 0.5])
    assert ends_s == pytest.approx(expected, abs=1e-3)


def test_what_is_written_goes_on_after_a_pause_where_it_was() -> None:
    env = simpy.Environment()
    engine = ModelledEngine(env, 1, 0.0)

    def pausing() -> Iterator[simpy.Event]:
        yield env.timeout(0.4)
        engine.pause()
        yield env.timeout(2.0)
        engine.resume()

    env.process(pausing())  # type: ignore[arg-type]
    assert ends_of(engine, env, [1.0, 0.5]) == pytest.approx([3.0, 3.5])
    assert engine.busy_s == pytest.approx(1.5)
