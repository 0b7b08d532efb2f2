"""Restarts: how many are allowed, and what becomes of an engine that dies or falls silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pipeline.errors import StageError
from pipeline.generation.generator import GeneratorError, GeneratorLostError
from pipeline.generation.supervised import SupervisedGenerator
from pipeline.host.limits import memory_figures, num_oom_kills, why_killed
from pipeline.host.restarts import RestartLimit
from pipeline.messages import Completion, GenerationRequest, SamplingSettings, WeightsLoaded, WeightUpdate
from tests.pipeline.rollouts.groups import completion

# Where an engine may fail, beside a completion's number and the negative of a version.
ASLEEP, AWAKE = 100, 101
REQUEST = GenerationRequest(request_id="r", prompt_ids=(1,), num_generations=3, sampling=SamplingSettings())


class Notes:
    """What a limit says, and a clock that a test moves."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_s = 0.0

    def limit(self, max_restarts: int = 3, window_s: float = 600.0) -> RestartLimit:
        return RestartLimit(
            max_restarts,
            window_s,
            lambda kind, text: self.lines.append(f"{kind}: {text}"),
            clock=lambda: self.now_s,
        )


def test_restarts_are_counted_by_stage_within_a_sliding_window() -> None:
    notes = Notes()
    limit = notes.limit(max_restarts=2, window_s=100.0)
    limit.admit("generator 0", "killed")
    notes.now_s = 50.0
    limit.admit("generator 0", "killed again")
    limit.admit("the trainer", "out of memory")
    notes.now_s = 99.0
    with pytest.raises(StageError, match=r"generator 0: .*2 restarts within 100 s .*reason: silent"):
        limit.admit("generator 0", "silent")
    notes.now_s = 100.0
    limit.admit("generator 0", "killed")
    assert [line.split(":")[0] for line in notes.lines] == ["restart"] * 3 + ["given up"] + ["restart"]
    assert notes.lines[1] == "restart: generator 0 (2 of 2): killed again"


def test_a_stage_that_did_nothing_since_its_restart_is_not_started_for_ever() -> None:
    """Each of its starts may take longer than the window."""
    notes = Notes()
    limit = notes.limit(max_restarts=2, window_s=100.0)
    for _ in range(2):
        notes.now_s += 900.0
        limit.admit("the trainer", "no answer within 900 s", has_worked=False)
    with pytest.raises(StageError, match=r"2 restarts without any work between them are allowed"):
        limit.admit("the trainer", "no answer within 900 s", has_worked=False)
    limit.admit("the trainer", "no answer within 900 s", has_worked=True)
    assert notes.lines[-1].startswith("restart: the trainer (2 of 2)")


def test_a_stage_that_asks_for_less_each_time_is_not_counted() -> None:
    notes = Notes()
    limit = notes.limit(max_restarts=1)
    for _ in range(5):
        limit.admit("the trainer", "killed for want of memory", has_worked=False, is_less=True)
    limit.admit("the trainer", "killed", has_worked=False)
    assert [line.partition(": ")[2] for line in notes.lines] == (
        ["the trainer, to go on with less: killed for want of memory"] * 5 + ["the trainer (1 of 1): killed"]
    )


@pytest.mark.parametrize("is_less", [False, True])
def test_without_restarts_the_first_death_ends_the_run(is_less: bool) -> None:
    with pytest.raises(StageError, match=r"runtime\.max_restarts"):
        Notes().limit(max_restarts=0).admit("the trainer", "died", is_less=is_less)


class Engine:
    """Writes its version into its completions; dies, is silent or refuses as ``fault`` says before each."""

    def __init__(self, fault: Callable[[int], None]) -> None:
        self._fault = fault
        self.version = 0
        self.updates: list[int] = []
        self.fate = "running"

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        for index in range(request.num_generations):
            await asyncio.sleep(0)
            self._fault(index)
            yield completion(index, self.version)

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        await asyncio.sleep(0)
        self._fault(-update.policy_version)
        self.version = update.policy_version
        self.updates.append(self.version)
        return WeightsLoaded(policy_version=self.version, pause_s=0.1)

    async def stats(self) -> dict[str, float]:
        return {}

    async def sleep(self) -> None:
        self._fault(ASLEEP)

    async def wake(self) -> None:
        self._fault(AWAKE)

    async def reset(self) -> None:
        self.version = 0

    async def close(self) -> None:
        self.fate = "closed"

    async def kill(self) -> None:
        self.fate = "killed"


def no_fault(point: int) -> None:
    """Nothing goes wrong."""


def lost_at(where: int) -> Callable[[int], None]:
    def fault(point: int) -> None:
        if point == where:
            raise GeneratorLostError("process 7 was killed")

    return fault


def update(version: int) -> WeightUpdate:
    return WeightUpdate(policy_version=version, path=f"/w/{version}")


class Supervised:
    """A supervised generator whose engines come from a list, the first of them at once."""

    def __init__(self, *engines: Engine | Exception, notes: Notes, max_restarts: int = 3) -> None:
        self.left = list(engines)
        first = self.left.pop(0)
        assert isinstance(first, Engine)
        self.may_start = asyncio.Event()
        self.may_start.set()
        limit = notes.limit(max_restarts=max_restarts)
        self.generator = SupervisedGenerator(first, self._start, limit=limit, name="generator 0")

    async def _start(self) -> Engine:
        await self.may_start.wait()
        engine = self.left.pop(0)
        if isinstance(engine, Exception):
            raise engine
        return engine

    async def versions(self) -> list[tuple[int, int]]:
        return [(c.index, c.min_policy_version) async for c in self.generator.generate(REQUEST)]


async def test_an_engine_that_dies_is_replaced_with_the_newest_weights_and_its_requests_made_again() -> None:
    notes = Notes()
    dying, fresh = Engine(lost_at(1)), Engine(no_fault)
    run = Supervised(dying, fresh, notes=notes)
    await run.generator.update_weights(update(4))
    both = await asyncio.gather(run.versions(), run.versions())
    assert [*both] == [[(0, 4), (1, 4), (2, 4)]] * 2, "every completion once, all of the newest weights"
    assert dying.fate == "killed" and fresh.updates == [4]
    assert notes.lines == ["restart: generator 0 (1 of 3): process 7 was killed"]


async def test_weights_published_while_an_engine_starts_are_in_it_before_its_first_token() -> None:
    fresh = Engine(no_fault)
    run = Supervised(Engine(lost_at(0)), fresh, notes=Notes())
    run.may_start.clear()
    writing = asyncio.create_task(run.versions())
    await asyncio.sleep(0.01)
    loaded = await run.generator.update_weights(update(1))
    assert loaded == WeightsLoaded(policy_version=1, pause_s=0.0), "nobody waits for the start"
    run.may_start.set()
    assert await writing == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("where", [ASLEEP, AWAKE])
async def test_an_engine_that_dies_asleep_is_started_again_when_it_is_to_wake_not_before(where: int) -> None:
    notes = Notes()
    fresh = Engine(no_fault)
    run = Supervised(Engine(lost_at(where)), fresh, notes=notes)
    await run.generator.update_weights(update(4))
    await run.generator.sleep()
    writing = asyncio.create_task(run.versions()) if where == ASLEEP else None
    await asyncio.sleep(0.05)
    assert run.left == [fresh] and notes.lines == [], "the card's memory is the trainer's"
    await run.generator.wake()
    versions = await (run.versions() if writing is None else writing)
    assert versions == [(0, 4), (1, 4), (2, 4)], "and what was asked for meanwhile is not lost"
    assert fresh.updates == [4]
    assert notes.lines == ["restart: generator 0 (1 of 3): process 7 was killed"]


@pytest.mark.parametrize("what", ["update", "reset"])
async def test_new_weights_bring_back_what_died_asleep(what: str) -> None:
    fresh = Engine(no_fault)
    run = Supervised(Engine(lost_at(ASLEEP)), fresh, notes=Notes())
    await run.generator.sleep()
    await (run.generator.update_weights(update(1)) if what == "update" else run.generator.reset())
    version = 1 if what == "update" else 0
    assert await run.versions() == [(0, version), (1, version), (2, version)]


async def test_an_engine_that_is_being_started_falls_asleep_when_it_is_there() -> None:
    run = Supervised(Engine(lost_at(0)), Engine(lost_at(ASLEEP)), notes=Notes())
    run.may_start.clear()
    writing = asyncio.create_task(run.versions())
    await asyncio.sleep(0.01)
    sleeping = asyncio.create_task(run.generator.sleep())
    await asyncio.sleep(0.01)
    assert not sleeping.done()
    run.may_start.set()
    await sleeping
    assert await writing == [(0, 0), (1, 0), (2, 0)]
    await run.generator.close()


async def test_a_weight_update_that_is_lost_ends_in_a_new_engine_with_these_weights() -> None:
    fresh = Engine(no_fault)
    run = Supervised(Engine(lost_at(-2)), fresh, notes=Notes())
    await run.generator.update_weights(update(2))
    assert await run.versions() == [(0, 2), (1, 2), (2, 2)]


async def test_an_engine_that_asks_for_weights_the_trainer_no_longer_has_gets_the_newer_ones() -> None:
    def trainer_has_two(point: int) -> None:
        if point == -1:
            run.may_start.clear()
            refused.set()
            raise GeneratorError("the trainer holds policy version 2, not 1")

    refused, late, fresh = asyncio.Event(), Engine(trainer_has_two), Engine(trainer_has_two)
    run = Supervised(Engine(lost_at(0)), late, fresh, notes=Notes())
    await run.generator.update_weights(update(1))
    writing = asyncio.create_task(run.versions())
    await asyncio.wait_for(refused.wait(), 20)
    await run.generator.update_weights(update(2))
    run.may_start.set()
    assert await writing == [(0, 2), (1, 2), (2, 2)]
    assert late.fate == "killed" and fresh.updates == [2]


async def test_after_going_back_a_new_engine_gets_no_weights_of_the_lost_steps() -> None:
    fresh = Engine(no_fault)
    run = Supervised(Engine(lost_at(0)), fresh, notes=Notes())
    await run.generator.update_weights(update(3))
    await run.generator.reset()
    assert await run.versions() == [(0, 0), (1, 0), (2, 0)]
    assert fresh.updates == []


async def test_an_engine_that_keeps_dying_is_given_up_with_the_reason_and_every_caller_hears_of_it() -> None:
    notes = Notes()
    run = Supervised(
        Engine(lost_at(0)), StageError("no memory"), Engine(lost_at(-1)), notes=notes, max_restarts=2
    )
    waiting = [asyncio.create_task(run.versions()) for _ in range(2)]
    await asyncio.sleep(0)
    await run.generator.update_weights(update(1))
    for task in waiting:
        with pytest.raises(StageError, match="generator 0"):
            await task
    with pytest.raises(StageError, match="generator 0"):
        await run.generator.update_weights(update(2))
    assert notes.lines[-1].startswith("given up: generator 0")
    await run.generator.close()


async def test_a_request_that_a_healthy_engine_refuses_restarts_nothing() -> None:
    def refuse(point: int) -> None:
        raise GeneratorError("the prompt is too long")

    notes = Notes()
    run = Supervised(Engine(refuse), notes=notes)
    with pytest.raises(GeneratorError, match="too long"):
        await run.versions()
    assert notes.lines == []


async def test_a_generator_that_is_closed_while_it_starts_leaves_nothing_behind() -> None:
    run = Supervised(Engine(lost_at(0)), Engine(no_fault), notes=Notes())
    run.may_start.clear()
    writing = asyncio.create_task(run.versions())
    await asyncio.sleep(0.01)
    await run.generator.close()
    with pytest.raises(asyncio.CancelledError):
        await writing


async def test_a_generator_that_is_closed_while_a_new_engine_loads_weights_ends_that_one() -> None:
    class Loading(Engine):
        async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
            is_loading.set()
            await asyncio.sleep(1000)
            raise AssertionError

    is_loading, fresh = asyncio.Event(), Loading(no_fault)
    run = Supervised(Engine(lost_at(0)), fresh, notes=Notes())
    await run.generator.update_weights(update(1))
    writing = asyncio.create_task(run.versions())
    await asyncio.wait_for(is_loading.wait(), 20)
    await run.generator.close()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert fresh.fate == "killed"


@pytest.mark.parametrize("works", [True, False])
async def test_an_engine_whose_starts_outlast_the_window_is_given_up_unless_it_works(works: bool) -> None:
    notes = Notes()
    # Each gets one completion further than the one before it, or none gets to the first.
    engines = [Engine(lost_at(number if works else 0)) for number in (1, 2)]
    run = Supervised(*engines, Engine(no_fault), notes=notes, max_restarts=1)
    start = run._start

    async def start_slowly() -> Engine:
        notes.now_s += 900.0
        return await start()

    run.generator._start = start_slowly
    if works:
        assert len(await run.versions()) == 3
        return
    with pytest.raises(StageError, match="1 restarts without any work between them are allowed"):
        await run.versions()


def test_a_kill_for_want_of_memory_is_told_from_another_one(tmp_path: Path) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("low 0\noom 3\noom_kill 2\n")
    assert num_oom_kills([counter, tmp_path / "missing"]) == 2
    assert num_oom_kills([]) == 0
    machine = tmp_path / "vmstat"
    machine.write_text("pgfault 1\noom_kill 7\n")
    assert num_oom_kills([counter, machine]) == 2, "what other containers lost is not this run's"
    assert num_oom_kills([tmp_path / "missing", machine]) == 7
    now = num_oom_kills()
    assert "has not been at work" in why_killed(now)
    assert "has ended 1 process" in why_killed(now - 1)
    figures = memory_figures(shared=tmp_path)
    assert "GiB of memory available" in figures and str(tmp_path) in figures
