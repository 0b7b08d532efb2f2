"""What starts beside what: a stage that fails is heard of at once, and nothing that was started is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from configs.load import load_config
from configs.schema import Config
from pipeline.errors import StageError
from pipeline.host import shares
from pipeline.host.restarts import RestartLimit
from pipeline.record.progress import Progress
from pipeline.record.run_folder import RunFolder
from pipeline.run import stages
from pipeline.run.early_start import Launched
from pipeline.run.job import Job, prepare
from pipeline.run.stages import _all_of, _begin, beside
from tests.pipeline.tiny_model import save_byte_model


async def after(delay_s: float, value: str) -> str:
    await asyncio.sleep(delay_s)
    return value


async def fail_after(delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    raise StageError("the trainer: no memory")


async def test_work_beside_the_trainer_ends_at_once_when_its_start_fails() -> None:
    trainer = asyncio.create_task(fail_after(0.01))
    work = asyncio.ensure_future(after(60, "measured"))
    async with asyncio.timeout(5):
        with pytest.raises(StageError, match="no memory"):
            await beside(trainer, work)
    assert work.cancelled()


async def test_work_that_is_done_first_does_not_wait_for_the_trainer() -> None:
    trainer = asyncio.create_task(fail_after(60))
    async with asyncio.timeout(5):
        assert await beside(trainer, after(0.0, "measured")) == "measured"
    trainer.cancel()


async def test_work_goes_on_when_the_trainer_is_up_first() -> None:
    trainer = asyncio.create_task(after(0.0, "handle"))
    assert await beside(trainer, after(0.02, "measured")) == "measured"


async def test_the_first_failure_among_the_wanted_is_raised_at_once() -> None:
    slow = asyncio.create_task(after(60, "slow"))
    failing = asyncio.create_task(fail_after(0.01))
    trainer = asyncio.create_task(after(60, "trainer"))
    async with asyncio.timeout(5):
        with pytest.raises(StageError):
            await _all_of({slow, failing}, trainer)
    slow.cancel()
    trainer.cancel()


async def test_what_was_started_is_closed_and_what_was_starting_is_cancelled() -> None:
    closed: list[str] = []
    may_end = asyncio.Event()

    async def thread() -> str:
        await may_end.wait()
        return "thread"

    async with AsyncExitStack() as stack:
        started = _begin(stack, after(0.0, "pool"), closed.append)
        waited = _begin(stack, thread(), closed.append, is_waited_for=True)
        starting = _begin(stack, after(60, "model"), closed.append)
        await started
        assert not waited.done()
        # Not before the stack is on its way out.
        asyncio.get_running_loop().call_later(0.05, may_end.set)
    assert starting.cancelled()
    assert sorted(closed) == ["pool", "thread"]


def test_a_stage_of_a_schedule_that_no_task_fits_is_refused_before_anything_starts(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"task_id": "a", "prompt": "Double.", "entry_point": "f", "tests": [{"args": [2], "expected": 4}]}
    tasks.write_text(json.dumps(task) + "\n", encoding="utf-8")
    config = Config.model_validate(
        {
            "dataset": {"name": str(tasks)},
            "evaluation": {"enabled": False},
            "runtime": {"device": "cpu"},
            "acceleration": {"curriculum": {"enabled": True, "stages": [{"min_difficulty": 4}]}},
        }
    )
    with pytest.raises(ValueError, match=r"stages\.0: levels 4 to 5 .* levels that tasks have \(1\)"):
        prepare(config)


@pytest.mark.parametrize("is_trainer_first", [True, False])
@pytest.mark.parametrize(("num_gpus", "is_waited_for"), [(1, True), (2, False)])
async def test_on_a_card_that_both_use_the_trainer_waits_for_the_generator(
    is_trainer_first: bool, num_gpus: int, is_waited_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM would count what the trainer takes meanwhile as its own; also where the run is resumed."""
    monkeypatch.setattr(stages, "num_gpus", lambda device: num_gpus)
    monkeypatch.setattr(stages, "_MANY_CORES", 1)
    config = load_config(overrides=["runtime.device=cuda"])
    job = Job(config=config, tasks=(), heldout=(), device="cuda")
    generator, scorer = (asyncio.ensure_future(asyncio.sleep(0)) for _ in range(2))
    first = stages._before_trainer(job, generator, scorer, is_trainer_first=is_trainer_first)
    assert first == ({generator} if is_waited_for else set())
    await asyncio.gather(generator, scorer)


async def test_the_generator_is_given_back_when_the_trainer_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resident engine that slept wakes then, on the card that the trainer had."""
    closed: list[str] = []
    model = str(save_byte_model(tmp_path / "model"))

    @asynccontextmanager
    async def generator(*_: object) -> AsyncIterator[str]:
        yield "generator"
        closed.append("generator")

    async def places(job: Job, ray: object, stack: AsyncExitStack) -> None:
        stack.callback(closed.append, "places")

    monkeypatch.setattr(stages, "running_generator", generator)
    monkeypatch.setattr(stages, "_found_model", lambda *_: asyncio.sleep(0, model))
    monkeypatch.setattr(stages, "_chosen", lambda *_: asyncio.sleep(0, ()))
    monkeypatch.setattr(stages, "_places", places)
    monkeypatch.setattr(stages, "_scorer", lambda *_: asyncio.sleep(0, "scorer"))
    monkeypatch.setattr(stages, "_trainer", lambda *_: asyncio.sleep(0, "trainer"))
    for name in ("RewardPool", "TrainerHandle"):
        monkeypatch.setattr(stages, name, SimpleNamespace(close=closed.append))
    running = stages.running_stages(
        Job(config=load_config(), tasks=(), heldout=(), device="cpu"),
        cast(Launched, SimpleNamespace(take_host=lambda: None)),
        folder=cast(RunFolder, SimpleNamespace(path=tmp_path, reward_cache=tmp_path / "cache")),
        progress=cast(Progress, SimpleNamespace(activity=lambda text: None)),
        note=lambda kind, text: None,
        restarts=RestartLimit(0, 1.0, lambda kind, text: None),
        after_ray=lambda: None,
        is_trainer_first=True,
    )
    async with running as started:
        assert started.model_path == model
        await started.trainer
    assert closed == ["trainer", "scorer", "generator", "places"]


@pytest.mark.parametrize("field", ["keep_alive", "attach"])
def test_a_resident_engine_is_refused_where_there_are_several_cards(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(overrides=[f"runtime.{field}=true"])
    monkeypatch.setattr(shares, "num_gpus", lambda device: 2)
    with pytest.raises(
        ValueError, match=rf"runtime\.{field}: value true: .*there are 2.*CUDA_VISIBLE_DEVICES"
    ):
        shares.check_residence(config, "cuda")
    monkeypatch.setattr(shares, "num_gpus", lambda device: 1)
    shares.check_residence(config, "cuda")
