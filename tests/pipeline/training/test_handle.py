"""The trainer as the driver sees it: two ranks that work, and ranks that die, hang or fail."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from configs.load import load_config
from configs.schema import Config
from pipeline.cluster import running_ray
from pipeline.errors import TrainerDiedError, TrainerError, TrainerLostError
from pipeline.generation.settings import engine_environment
from pipeline.host.limits import KEEPING_ALLOCATOR
from pipeline.processes.connection import CallFailedError
from pipeline.training import handle
from pipeline.training.handle import TrainerHandle
from pipeline.training.rank import _Notes
from pipeline.training.trainer import Trainer
from tests.pipeline.processes.liar import Fault, Liar
from tests.pipeline.tiny_model import make_config, make_samples, parts_of
from tests.pipeline.training.builders import ADVANTAGES, LENGTHS

pytestmark = pytest.mark.slow

BATCH = make_samples(LENGTHS, ADVANTAGES)


@pytest.fixture(scope="module", params=[None, "local"])
def address(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """``cluster.address``: ranks are processes of this machine, or Ray's."""
    if request.param is None:
        yield None
        return
    with running_ray():
        yield request.param


def two_ranks(address: str | None, **runtime: object) -> Config:
    settings = {"trainer_ranks": 2, "trainer_threads": 2, **runtime}
    return make_config(runtime=settings, cluster={"address": address})


@asynccontextmanager
async def started(config: Config, folder: Path) -> AsyncIterator[TrainerHandle]:
    trainer = TrainerHandle(config, str(folder), "cpu")
    await trainer.start()
    try:
        yield trainer
    finally:
        trainer.close()


async def ended(pid: int) -> bool:
    """Whether the process goes within a few seconds."""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                await asyncio.sleep(0.1)
                continue
        return True
    return False


async def rank_1_dies_in_a_step(trainer: TrainerHandle) -> None:
    # Stopped first, so that the step is under way when it dies.
    os.kill(trainer.pids[1], signal.SIGSTOP)
    step = asyncio.create_task(trainer.step(BATCH))
    await asyncio.sleep(1.0)
    assert not step.done()
    os.kill(trainer.pids[1], signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(TrainerError, match=rf"rank 1 of 2, process {trainer.pids[1]}\): step 1"):
        await step
    assert time.monotonic() - begun < 20.0
    assert await ended(trainer.pids[0])


def test_two_ranks_do_as_one_does_until_one_dies_which_ends_the_step_at_once(
    address: str | None, folder: Path, tmp_path: Path
) -> None:
    async def run() -> None:
        async with started(two_ranks(address), folder) as trainer:
            assert len(set(trainer.pids)) == 2
            shares = [(await trainer.publish(str(tmp_path))).changed_share for _ in range(2)]
            first, last = parts_of(BATCH, (5, 3))
            await trainer.accumulate(first)
            result = await trainer.step(last)
            assert result.step == 1 and result.num_tokens == BATCH.num_tokens
            update = await trainer.publish(str(tmp_path))
            published = load_file(update.path)
            assert update.policy_version == 1
            assert [*shares, update.changed_share] == [None, 0.0, 1.0], "which share of the weights changed"
            assert all(tensor.dtype is torch.float32 for tensor in published.values())
            saved = await trainer.save(tmp_path / "step-000001", 1)
            await trainer.step(BATCH)
            assert await trainer.load(saved) == 1
            await trainer.step(BATCH)
            assert (await trainer.publish(str(tmp_path))).policy_version == 2
            one = Trainer(make_config(), folder)
            expected = one.step(BATCH)
            assert result.metrics["train/loss"] == pytest.approx(expected.metrics["train/loss"], rel=1e-5)
            assert published.keys() == {name for name, _ in one.named_weights()}
            for name, weight in one.named_weights():
                # Adam's first step is nearly the gradient's sign, whatever its size: a hundredth of a step.
                torch.testing.assert_close(published[name], weight.detach(), atol=2e-5, rtol=1e-5)
            await rank_1_dies_in_a_step(trainer)

    asyncio.run(run())


def test_a_rank_that_hangs_is_named_at_the_deadline_and_none_stays_behind(
    address: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the other one may answer late.
    monkeypatch.setattr(handle, "_PROBE_TIMEOUT_S", 10.0)

    async def run() -> None:
        async with started(two_ranks(address, train_step_timeout_s=4.0), folder) as trainer:
            os.kill(trainer.pids[1], signal.SIGSTOP)
            expected = rf"\(rank 1 of 2, process {trainer.pids[1]}\): step 1: no answer within 4 s"
            with pytest.raises(TrainerError, match=expected) as caught:
                await trainer.step(BATCH)
            assert "rank 0" not in str(caught.value)
            assert "runtime.train_step_timeout_s" in str(caught.value)
            assert [await ended(pid) for pid in trainer.pids] == [True, True]

    asyncio.run(run())


def test_a_model_that_cannot_be_loaded_is_said_once(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"the trainer \(starting\): start: .*none") as caught:
        asyncio.run(TrainerHandle(make_config(), str(tmp_path / "none"), "cpu").start())
    assert str(caught.value).count("model.name: ") == 1


@pytest.mark.parametrize(
    ("num_ranks", "save", "fit", "part_s"),
    [
        (1, (607.0, "600 s and runtime.train_step_timeout_s"), (60.0, "fixed"), 7.0),
        (2, (607.0, "600 s and runtime.train_step_timeout_s"), (667.0, "fixed"), 614.0),
    ],
)
def test_ranks_that_save_together_have_the_time_of_the_step_that_they_are_at(
    num_ranks: int,
    save: tuple[float, str],
    fit: tuple[float, str],
    part_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: dict[str, tuple[float, str]] = {}

    async def wait(
        trainer: TrainerHandle, calls: Sequence[Future[Any]], what: str, timeout_s: float, setting: str
    ) -> list[Any]:
        limits.setdefault(what, (timeout_s, setting))
        return [call.result(60.0) for call in calls]

    async def body() -> None:
        await trainer.save(Path("folder"), 1)
        await trainer.fit_memory()
        await trainer.accumulate(BATCH)

    monkeypatch.setattr(TrainerHandle, "_wait", wait)
    runtime = {"train_step_timeout_s": 7.0, "trainer_ranks": num_ranks}
    trainer = TrainerHandle(make_config(runtime=runtime, training={"memory": "auto"}), "model", "cpu")
    answers = {"save": "folder", "fit_memory": 1, "adopt_limit": "one row at a time", "accumulate": None}
    liars = [Liar(answers) for _ in range(num_ranks)]
    trainer._ranks = [*liars]
    asyncio.run(body())
    for liar in liars:
        liar.close()
    part = (part_s, "runtime.train_step_timeout_s")
    assert limits == {"save of step 1": save, "fit": fit, f"part 0 of step {BATCH.step}": part}


@pytest.mark.parametrize(
    ("faults", "kind", "said"),
    [
        ((None, None), None, ""),
        ((None, "dies"), TrainerDiedError, r"rank 1 of 2.*: weights on offer: process 4711 ended"),
        (
            ("hangs", None),
            TrainerLostError,
            r"rank 0 of 2.*: weights on offer: no answer within .* \(fixed\)",
        ),
        ((), TrainerLostError, "weights on offer: its processes have ended"),
    ],
)
def test_whether_every_rank_is_there_is_asked_of_all_of_them(
    faults: tuple[Fault | None, ...],
    kind: type[TrainerLostError] | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handle, "_PROBE_TIMEOUT_S", 0.5 if "hangs" in faults else 60.0)
    trainer = TrainerHandle(make_config(), "model", "cpu")
    liars = [Liar({"answer": True}, "answer", fault) for fault in faults]
    trainer._ranks = [*liars]
    if kind is None:
        asyncio.run(trainer.require_all())
    else:
        with pytest.raises(TrainerLostError, match=said) as caught:
            asyncio.run(trainer.require_all())
        assert type(caught.value) is kind
    for liar in liars:
        liar.close()


@pytest.mark.parametrize(
    ("num_ranks", "memory", "is_fitted", "error", "kind"),
    [
        (2, "auto", True, MemoryError("a micro-batch does not fit"), TrainerDiedError),
        (2, "fixed", True, MemoryError("a micro-batch does not fit"), TrainerError),
        (2, "auto", True, ValueError("no MemoryError"), TrainerError),
        (1, "auto", True, MemoryError("one sequence does not fit"), TrainerError),
        # As ranks say when they are to take less than the least.
        (2, "auto", False, MemoryError("the smallest micro-batches"), TrainerError),
    ],
)
def test_several_ranks_that_lack_memory_begin_again_with_less(
    num_ranks: int, memory: str, is_fitted: bool, error: Exception, kind: type[TrainerError]
) -> None:
    trainer = TrainerHandle(make_config(training={"memory": memory}), "model", "cpu")
    trainer._is_fitted = is_fitted
    calls: list[Future[Any]] = [Future() for _ in range(num_ranks)]
    calls[-1].set_exception(CallFailedError(f"{type(error).__name__}: {error}", "trace"))
    for call in calls[:-1]:
        call.set_result(None)
    liars = [Liar({}) for _ in range(num_ranks)]
    trainer._ranks = [*liars]
    with pytest.raises(TrainerError, match=str(error)) as caught:
        asyncio.run(trainer._wait(calls, "step 1", 5.0, "fixed"))
    assert type(caught.value) is kind
    assert trainer.is_short == (kind is TrainerDiedError)
    for liar in liars:
        liar.close()


def test_a_trainer_on_a_cpu_keeps_freed_memory_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in KEEPING_ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    assert handle._environment("cpu", 4).items() >= KEEPING_ALLOCATOR.items()
    assert not set(KEEPING_ALLOCATOR) & set(handle._environment("cuda", 4))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    assert handle._environment("cpu", 4)["MALLOC_ARENA_MAX"] == "4"


def test_a_trainer_on_a_gpu_allocates_in_segments_that_grow_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert handle._environment("cuda", 4)[names[0]] == "expandable_segments:True"
    assert not set(names) & set(handle._environment("cpu", 4))
    # vLLM's pool, which gives its memory back in its sleep, cannot be of such segments.
    config = load_config(overrides=["generation.dtype=bfloat16"])
    assert not set(names) & set(engine_environment(config, "cuda"))
    for name in names:
        with monkeypatch.context() as patch:
            patch.setenv(name, "max_split_size_mb:512")
            assert not set(names) & set(handle._environment("cuda", 4))


def test_what_a_rank_warns_of_comes_with_its_next_step_once(capsys: pytest.CaptureFixture[str]) -> None:
    notes = _Notes()
    logger = logging.getLogger("pipeline.training.somewhere")
    logging.getLogger("pipeline").addHandler(notes)
    try:
        for _ in range(2):
            logger.warning("the batches are padded: %s", "why")
        logger.info("nothing that decides")
    finally:
        logging.getLogger("pipeline").removeHandler(notes)
    assert notes.drain() == ("the batches are padded: why",)
    assert notes.drain() == ()
    assert "the batches are padded: why" in capsys.readouterr().err, "for the words of one that dies"
