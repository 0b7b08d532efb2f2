"""The main job around its attempts: a resume that is refused, a trainer that is lost; fake stages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from configs.load import load_config
from configs.schema import Config
from curriculum.task import Task
from pipeline.errors import StageError, TrainerDiedError
from pipeline.generation.generator import GeneratorError
from pipeline.messages import StepResult, TrainBatch, WeightsLoaded, WeightUpdate
from pipeline.models.prompts import PromptTokenizer
from pipeline.record.checkpoints import step_of
from pipeline.run.early_start import Launched
from pipeline.run.job import Job
from pipeline.run.orchestrator import _Run
from pipeline.run.resume import refuse_resume, with_commit_of
from pipeline.run.stages import Stages
from pipeline.training.handle import TrainerHandle
from rewards.pool import RewardPool
from tests.pipeline.fake_stages import (
    TASKS,
    FakeGenerator,
    FakeScorer,
    FakeTokenizer,
    FakeTrainer,
    by_index,
    make_config,
    rows,
)
from tests.pipeline.run.test_resume import write_checkpoint

Play = Callable[..., Path]


class Scorer(FakeScorer):
    level = "L2"


class Trainer(FakeTrainer):
    """Dies once, in ``dies_in_step``, while it writes weights. ``found`` is what lay in their folder each
    time that it was to write some."""

    def __init__(self, log: list[str], dies_in_step: int) -> None:
        super().__init__(log, 0)
        self._dies_in_step = dies_in_step
        self._folder = Path()
        self.found: list[list[str]] = []

    async def start(self) -> None:
        self._version, self._parts = 0, []

    async def load(self, folder: Path) -> int:
        self._version = step_of(folder)
        return self._version

    async def save(self, folder: Path, step: int) -> Path:
        write_checkpoint(folder, step)
        return await super().save(folder, step)

    async def publish(self, directory: str) -> WeightUpdate:
        self._folder = Path(directory)
        self.found.append(sorted(path.name for path in self._folder.iterdir()))
        return await super().publish(directory)

    async def step(self, batch: TrainBatch) -> StepResult:
        if batch.step == self._dies_in_step:
            self._dies_in_step = 0
            (self._folder / ".half-written").mkdir()
            raise TrainerDiedError("the trainer died")
        return await super().step(batch)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs the main job, or goes on with it, with ``trainer`` and ``tasks``; returns its folder."""

    def play(
        config: Config,
        resume: Path | None = None,
        *,
        trainer: Trainer,
        tasks: Sequence[Task] = TASKS,
        model_path: str = "",
    ) -> Path:
        @asynccontextmanager
        async def stages(*_: object, **__: object) -> AsyncIterator[Stages]:
            yield Stages(
                model_path=model_path,
                tasks=tuple(tasks),
                tokenizer=cast(PromptTokenizer, FakeTokenizer()),
                generator=FakeGenerator([], lambda request: None),
                scorer=cast(RewardPool, Scorer([], by_index)),
                trainer=asyncio.ensure_future(asyncio.sleep(0, cast(TrainerHandle, trainer))),
            )

        monkeypatch.setattr("pipeline.run.orchestrator.running_stages", stages)
        monkeypatch.setattr("pipeline.handover.command.finish_run", lambda run, config: None)
        if resume is not None:
            config = with_commit_of(resume, config)
        job = Job(config=config, tasks=tuple(tasks), heldout=(), device="cpu")
        changes = [] if resume is None else refuse_resume(resume, config)
        assert _Run(job, cast(Launched, None), changes).run(None if resume is None else str(resume)) == 0
        return Path(config.output.dir) / "run"

    return play


def config_of(folder: Path, max_steps: int, **sections: Mapping[str, object]) -> Config:
    output = {"dir": str(folder), "name": "run", "save_steps": 2}
    return make_config(1, training={"max_steps": max_steps}, output=output, **sections)


def test_a_resume_with_other_tasks_leaves_the_run_as_it_was(tmp_path: Path, play: Play) -> None:
    run = play(config_of(tmp_path, 2), trainer=Trainer([], 0))
    before = (run / "config.yaml").read_bytes(), dump(run)
    longer = config_of(tmp_path, 4)
    others = [*TASKS, replace(TASKS[0], task_id="t6")]
    with pytest.raises(ValueError, match="was saved for other tasks"):
        play(longer, run, trainer=Trainer([], 0), tasks=others)
    assert ((run / "config.yaml").read_bytes(), dump(run)) == before
    # And so it goes on.
    play(longer, run, trainer=Trainer([], 0))
    assert rows(run, "SELECT MAX(step) FROM steps WHERE status = 'committed'") == [(4,)]
    assert rows(run, "SELECT text FROM events WHERE kind = 'settings'") == [
        ("other than before: training.max_steps 2 -> 4",)
    ]
    assert load_config(run / "config.yaml").training.max_steps == 4


def test_a_resumed_run_keeps_the_commit_of_the_hub_that_it_began_with(tmp_path: Path, play: Play) -> None:
    hub = {"name": "org/model"}
    began = str(tmp_path / "snapshots" / "0123abc")
    run = play(config_of(tmp_path, 2, model=hub), trainer=Trainer([], 0), model_path=began)
    assert load_config(run / "config.yaml").model.revision == "0123abc"
    # Also where a file is given that names none; an older run's own file gets it.
    play(config_of(tmp_path, 4, model=hub), run, trainer=Trainer([], 0), model_path=began)
    assert load_config(run / "config.yaml").model.revision == "0123abc"
    assert not [text for (text,) in rows(run, "SELECT text FROM events") if "revision" in text]
    other = config_of(tmp_path, 6, model={**hub, "revision": "4567def"})
    with pytest.raises(ValueError, match=r"model\.revision: .*4567def.*0123abc"):
        play(other, run, trainer=Trainer([], 0), model_path=began)


def test_restarts_with_smaller_micro_batches_are_not_counted(tmp_path: Path, play: Play) -> None:
    class Hungry(Trainer):
        """Is ended for want of memory until its micro-batches are the fourth choice."""

        limit = 0

        @property
        def layout(self) -> dict[str, int]:
            return {"limit": self.limit, "threads": 1}

        async def fit_memory(self) -> str | None:
            self.limit, self.is_short = self.limit + self.is_short, False
            return None

        async def step(self, batch: TrainBatch) -> StepResult:
            if self.limit < 3:
                self.is_short = True
                raise TrainerDiedError("killed for want of memory")
            return await super().step(batch)

    run = play(config_of(tmp_path, 2, runtime={"max_restarts": 1}), trainer=Hungry([], 0))
    assert rows(run, "SELECT COUNT(*), MAX(text) FROM events WHERE kind = 'restart'") == [
        (3, "the trainer, to go on with less: killed for want of memory")
    ]


def test_a_run_that_goes_on_is_not_told_by_the_numbers_of_its_earlier_end(tmp_path: Path, play: Play) -> None:
    ends: list[Path] = []

    class Watching(Trainer):
        async def step(self, batch: TrainBatch) -> StepResult:
            ends.extend(path for path in (summary, after) if path.exists())
            return await super().step(batch)

    run = play(config_of(tmp_path, 2), trainer=Trainer([], 0))
    summary, after = run / "summary.json", run / "evaluation_after.json"
    after.write_text("{}", encoding="utf-8")
    longer = config_of(tmp_path, 4)
    play(longer, run, trainer=Watching([], 0))
    assert ends == [] and not after.exists()
    assert json.loads(summary.read_text("utf-8"))["num_steps"] == 4
    # One that was interrupted while it was measured repeats that and no step.
    summary.unlink()
    after.write_text("{}", encoding="utf-8")
    play(longer, run, trainer=Trainer([], 0))
    assert summary.exists() and after.exists()


def dump(run: Path) -> list[list[tuple[Any, ...]]]:
    """What the ledger holds of the run, but for who opened it."""
    tables = ("steps", "draws", "tokens", "sampler_calls", "tasks", "events")
    return [rows(run, f"SELECT * FROM {table}") for table in tables]


def test_a_lost_trainer_leaves_no_weights_in_the_shared_folder(tmp_path: Path, play: Play) -> None:
    trainer = Trainer([], 4)
    run = play(config_of(tmp_path, 5), trainer=trainer)
    assert rows(run, "SELECT DISTINCT rewound_to FROM runs WHERE rewound_to IS NOT NULL") == [(2,)]
    # Versions 1 to 3; after the loss version 2, of the checkpoint, and then 3, 4 and 5.
    one_before = [[], ["1.safetensors"], ["2.safetensors"]]
    assert trainer.found == [*one_before, [], ["2.safetensors"], ["3.safetensors"], ["4.safetensors"]]


class LostWhileLoading(Trainer):
    """Dies as often as ``num_losses`` says while it loads a checkpoint."""

    def __init__(self, dies_in_step: int, num_losses: int) -> None:
        super().__init__([], dies_in_step)
        self._num_losses = num_losses

    async def load(self, folder: Path) -> int:
        if self._num_losses > 0:
            self._num_losses -= 1
            raise TrainerDiedError("the trainer died while it loaded")
        return await super().load(folder)


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("num_restarts", [2, 3])
def test_a_trainer_that_is_lost_while_it_loads_is_started_again_as_often_as_it_may_be(
    is_resumed: bool, num_restarts: int, tmp_path: Path, play: Play
) -> None:
    config = config_of(tmp_path, 5, runtime={"max_restarts": 2})
    if is_resumed:
        play(config_of(tmp_path, 2), trainer=Trainer([], 0))
        trainer = LostWhileLoading(0, num_restarts)
    else:
        trainer = LostWhileLoading(4, num_restarts - 1)
    run, resume = tmp_path / "run", tmp_path / "run" if is_resumed else None
    if num_restarts > 2:
        with pytest.raises(StageError, match=r"the trainer: not started again .* died while it loaded"):
            play(config, resume, trainer=trainer)
    else:
        play(config, resume, trainer=trainer)
    assert rows(run, "SELECT COUNT(*) FROM events WHERE kind = 'restart'") == [(2,)]
    (last,) = rows(run, "SELECT MAX(step) FROM steps WHERE status = 'committed'")
    assert last == ((2 if is_resumed else 3) if num_restarts > 2 else 5,)


class Sending(Trainer):
    """Offers its weights to whoever asks; ``is_gone`` of one rank is found out when all are asked, once."""

    def __init__(self, *, is_gone: bool) -> None:
        super().__init__([], 0)
        self._is_gone = is_gone

    async def publish(self, directory: str) -> WeightUpdate:
        return replace(await super().publish(directory), kind="offer")

    async def require_all(self) -> None:
        if self._is_gone:
            self._is_gone = False
            raise TrainerDiedError("rank 1 of 2 is gone")


@pytest.mark.parametrize("is_gone", [True, False])
def test_weights_that_a_dead_rank_did_not_send_are_made_again_and_others_end_the_run(
    is_gone: bool, tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [3]
    load = FakeGenerator.update_weights

    async def fail_once(self: FakeGenerator, update: WeightUpdate) -> WeightsLoaded:
        if update.policy_version in failing:
            failing.clear()
            raise GeneratorError("policy version 3 from the trainer: connection reset")
        return await load(self, update)

    monkeypatch.setattr(FakeGenerator, "update_weights", fail_once)
    run, config = tmp_path / "run", config_of(tmp_path, 5)
    if not is_gone:
        with pytest.raises(GeneratorError, match="connection reset"):
            play(config, trainer=Sending(is_gone=False))
    else:
        play(config, trainer=Sending(is_gone=True))
    assert rows(run, "SELECT MAX(step) FROM steps WHERE status = 'committed'") == [(5 if is_gone else 2,)]
    rewound = rows(run, "SELECT rewound_to FROM runs WHERE rewound_to IS NOT NULL")
    assert rewound == [(2,)] * is_gone
    said = rows(run, "SELECT text FROM events WHERE kind = 'restart'")
    assert ["rank 1 of 2 is gone" in text for (text,) in said] == [True] * is_gone


def test_int8_that_was_left_stays_left_when_the_trainer_was_lost(
    tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Disagreeing(Trainer):
        async def step(self, batch: TrainBatch) -> StepResult:
            result = await super().step(batch)
            mismatch = {"train/mismatch_kl": 0.03 if batch.step == 2 else 0.0}
            return replace(result, metrics={**result.metrics, **mismatch})

    updates: list[tuple[int, bool]] = []
    load = FakeGenerator.update_weights

    async def watched(self: FakeGenerator, update: WeightUpdate) -> WeightsLoaded:
        updates.append((update.policy_version, update.is_quantised))
        return await load(self, update)

    monkeypatch.setattr(FakeGenerator, "update_weights", watched)
    config = config_of(tmp_path, 5, grpo={"mismatch_kl_warning": 0.02}, generation={"quantization": "int8"})
    play(config, trainer=Disagreeing([], 4))
    assert updates[0] == (1, True)
    assert updates[1:] == [(version, False) for version in (2, 3, 2, 3, 4, 5)]
