"""A run with fakes where the heavy stages are: real sampler, buffer, ledger, folder and loops, no model.

The fakes count versions, note what happens in the order in which it happens, and fail where a test
says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from configs.schema import Config, OutputConfig
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.host.spans import Timeline
from pipeline.messages import (
    Completion,
    GenerationRequest,
    RolloutGroup,
    StepResult,
    TrainBatch,
    WeightsLoaded,
    WeightUpdate,
)
from pipeline.models.prompts import PromptTokenizer
from pipeline.record.ledger import Ledger
from pipeline.record.metric_names import FAMILIES, METRICS
from pipeline.record.progress import make_progress
from pipeline.record.run_folder import Context, RunFolder
from pipeline.record.tracking import Tracking
from pipeline.rollouts.turns import TurnTerms
from pipeline.run.attempt import Attempt
from pipeline.run.job import Job
from pipeline.run.overlap_trial import OverlapTrial
from pipeline.run.resume import restore, terms_of
from pipeline.run.stages import Stages
from pipeline.training.handle import TrainerHandle
from pipeline.weights.receipts import code_of
from rewards.pool import RewardPool
from rewards.result import RewardResult
from sandbox.result import Outcome
from tests.pipeline.rollouts.groups import completion

NUM_GENERATIONS = 4
GROUPS_PER_STEP = 2
TASKS = tuple(
    Task(task_id=f"t{index}", prompt=f"p{index}", entry_point="f", check_source="def check(f): pass")
    for index in range(6)
)


def make_config(max_staleness: int = 0, **sections: Mapping[str, object]) -> Config:
    """Two groups of four a step, three steps, and what ``sections`` change."""
    merged: dict[str, Mapping[str, object]] = {
        "training": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 3},
        "grpo": {"num_generations": NUM_GENERATIONS},
        "generation": {"assistant_prefill": "prefill "},
        "acceleration": {"max_staleness": max_staleness},
    }
    for name, values in sections.items():
        merged[name] = {**merged.get(name, {}), **values}
    return Config.model_validate(merged)


def is_documented(name: str) -> bool:
    """Whether METRICS has ``name``, or FAMILIES a form of it."""
    families = tuple(family.name.removesuffix("NAME").removesuffix("N") for family in FAMILIES)
    return any(metric.name == name for metric in METRICS) or name.startswith(families)


def scored(reward: float, *, detail: str = "") -> RewardResult:
    """A score; NaN makes it an infrastructure error."""
    outcome = Outcome.INFRA_ERROR if math.isnan(reward) else Outcome.PASS if reward == 1 else Outcome.WRONG
    return RewardResult(
        reward=reward,
        breakdown={"syntax": 1.0},
        outcome=outcome,
        passed=outcome is Outcome.PASS,
        detail=detail,
        cached=False,
        seconds=0.1,
    )


def by_index(task: Task, index: int) -> RewardResult:
    """Half of each group passes."""
    return scored(float(index % 2))


def rows(run: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """What the ledger of the run folder ``run`` answers."""
    with contextlib.closing(sqlite3.connect(run / "run.db")) as database:
        return database.execute(query, values).fetchall()


async def until(condition: Callable[[], bool]) -> None:
    """Wait, as a stage that is slow; the run's deadline ends it."""
    while not condition():
        await asyncio.sleep(0)


def at_once() -> bool:
    """The condition of what does not wait."""
    return True


async def let_others_run(num_turns: int = 20) -> None:
    """Give every other task of the event loop this many turns."""
    for _ in range(num_turns):
        await asyncio.sleep(0)


class FakeGenerator:
    """Writes completions with the version it has; ``fault`` may raise at the start of a request."""

    def __init__(self, log: list[str], fault: Callable[[GenerationRequest], None]) -> None:
        self._log = log
        self._fault = fault
        self.policy_version = 0
        self.receipts: dict[int, str] = {}  # by policy version
        self.num_missing = 0
        self.version_lag: dict[str, int] = {}  # request_id -> how much too old its tokens are
        self.held: dict[str, Callable[[], bool]] = {}  # request_id -> what its completions wait for
        self.update_held: Callable[[], bool] = at_once
        self.num_writing = 0
        self.is_asleep = False

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self._log.append(f"generate {request.request_id}")
        self._fault(request)
        await until(lambda: not self.is_asleep)
        self.num_writing += 1
        try:
            async for completion in self._write(request):
                yield completion
        finally:
            self.num_writing -= 1

    async def _write(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        version = self.policy_version - self.version_lag.get(request.request_id, 0)
        await until(self.held.get(request.request_id, at_once))
        for index in range(request.num_generations - self.num_missing):
            await let_others_run(3)
            self._log.append(f"completion {request.request_id} {index}")
            written = completion(index, version, newest=self.policy_version)
            yield replace(written, receipt=self.receipts.get(self.policy_version, ""))
        await let_others_run(3)

    async def stats(self) -> dict[str, float]:
        return {}

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        assert Path(update.path).is_file() and not self.is_asleep
        await let_others_run()
        await until(self.update_held)
        self.policy_version = update.policy_version
        self._log.append(f"weights {update.policy_version}")
        self.receipts[self.policy_version] = code_of(update.receipt)
        return WeightsLoaded(policy_version=self.policy_version, pause_s=0.0, receipt=update.receipt)

    async def sleep(self) -> None:
        self.is_asleep = True
        await until(lambda: self.num_writing == 0)
        self._log.append("asleep")

    async def wake(self) -> None:
        assert self.is_asleep, "nobody wakes what is awake"
        await let_others_run()
        self._log.append("awake")
        self.is_asleep = False

    async def reset(self) -> None:
        self.policy_version = 0

    async def close(self) -> None:
        pass


class FakeScorer:
    """Scores by task and by the number at the end of the text."""

    def __init__(self, log: list[str], score_of: Callable[[Task, int], RewardResult]) -> None:
        self._log = log
        self._score_of = score_of
        self.texts: list[str] = []
        self.by_tests: list[str] = []  # what was measured

    async def score(
        self, task: Task, text: str, *, priority: float = 0, by_tests: bool = False
    ) -> RewardResult:
        index = int(text.split()[-1])
        self._log.append(f"score {task.task_id} {index}")
        self.texts.append(text)
        self.by_tests += [text] * by_tests
        await asyncio.sleep(0)
        return self._score_of(task, index)

    def metrics(self) -> dict[str, float]:
        counted = ("cache_hits", "cache_misses", "scored", "busy_s")
        others = ("cache_joins", "cache_evictions", "cache_saved_s", "infra_errors", "worker_restarts")
        levels = ("in_flight", "waiting")
        return {
            **{f"rewards/{name}": float(len(self.texts)) for name in counted},
            **{f"rewards/{name}": 0.0 for name in (*others, *levels)},
        }


class FakeTokenizer:
    """Gives every prompt the same three tokens."""

    chat_template = None

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [1, 2, 3]}


class FakeTrainer:
    """Makes version after version, and keeps the batches of whole steps and the age of every sample."""

    def __init__(self, log: list[str], version: int) -> None:
        self._log = log
        self._version = version
        self._parts: list[TrainBatch] = []  # of the step that is open
        self.batches: list[TrainBatch] = []
        self.staleness: list[int] = []
        self.saved: list[int] = []
        self.dies_in_step = 0
        self.is_short = False
        self.save_held: Callable[[], bool] = at_once

    async def fit_memory(self) -> str | None:
        self._log.append("fitted")
        return None

    async def release_memory(self) -> None:
        self._log.append("released")

    async def accumulate(self, batch: TrainBatch) -> None:
        await self._add(batch)

    async def _add(self, batch: TrainBatch) -> None:
        self._log.append(f"train {batch.step} {batch.part}")
        await let_others_run(60)
        assert batch.part == len(self._parts) and batch.step == self._version + 1
        self._parts.append(batch)

    async def step(self, batch: TrainBatch) -> StepResult:
        await self._add(batch)
        if batch.step == self.dies_in_step:
            raise StageError("the trainer died")
        parts, self._parts = self._parts, []
        samples = tuple(sample for part in parts for sample in part.samples)
        batch = replace(batch, samples=samples)
        self.batches.append(batch)
        self.staleness += [self._version - sample.policy_version for sample in batch.samples]
        self._version += 1
        self._log.append(f"trained {batch.step}")
        return StepResult(
            step=batch.step,
            metrics={"train/loss": 0.5, "train/parts": float(sum(bool(part.samples) for part in parts))},
            seconds=1.0,
            num_tokens=batch.num_tokens,
        )

    async def publish(self, directory: str) -> WeightUpdate:
        path = Path(directory) / f"{self._version}.safetensors"
        path.write_bytes(b"weights")
        receipt = {"weights": self._version}
        return WeightUpdate(policy_version=self._version, path=str(path), receipt=receipt)

    @property
    def layout(self) -> dict[str, int]:
        return {"limit": 0, "threads": 1}

    async def save(self, folder: Path, step: int) -> Path:
        await until(self.save_held)
        assert step == self._version
        self.saved.append(step)
        self._log.append(f"saved {step}")
        return folder


class FakeRun:
    """All parts of one run in ``path``; made again on the same path with ``done_steps``, it is a resume."""

    def __init__(
        self,
        path: Path,
        config: Config,
        *,
        score_of: Callable[[Task, int], RewardResult] = by_index,
        fault: Callable[[GenerationRequest], None] = lambda request: None,
        tasks: Sequence[Task] = TASKS,
        done_steps: int = 0,
        open_tasks: Sequence[str] = (),
        trial: OverlapTrial | None = None,
        tracking: Tracking | None = None,
        heldout: Sequence[Task] = (),
        turns: TurnTerms | None = None,
    ) -> None:
        """``open_tasks`` are the tasks of draws that the ledger holds open before the run begins, ``heldout``
        those that are measured on the way.
        """
        self.log: list[str] = []
        self.output = io.StringIO()
        self.weights_folder = path / "weights"
        self.weights_folder.mkdir(exist_ok=True)
        is_new = not (path / "run").exists()
        output = OutputConfig(dir=str(path), name="run")
        self.folder = RunFolder.create(output, "{}") if is_new else RunFolder.open(path / "run")
        self.ledger = Ledger(self.folder.db, terms_of(config))
        self.context = Context(
            config=config,
            folder=self.folder,
            ledger=self.ledger,
            progress=make_progress("plain", title="run", stream=self.output),
            timeline=Timeline(enabled=config.output.timeline_steps > 0),
            tracking=tracking or Tracking(()),
        )
        self.stop = self.context.stop
        self.sampler = Sampler(tasks, config.acceleration.curriculum, 0)
        if not is_new:
            restore(config, self.ledger, self.sampler, done_steps, tasks, lambda task: (1, 2, 3))
        for task_id in open_tasks:
            self.ledger.record_draw(task_id, 0, 0)
        self.generator = FakeGenerator(self.log, fault)
        self.generator.policy_version = done_steps
        self.scorer = FakeScorer(self.log, score_of)
        self.trainer = FakeTrainer(self.log, done_steps)
        stages = Stages(
            model_path="",
            tasks=tuple(tasks),
            tokenizer=cast(PromptTokenizer, FakeTokenizer()),
            generator=self.generator,
            scorer=cast(RewardPool, self.scorer),
            trainer=cast(Any, None),
            turns=turns,
        )
        self.attempt = Attempt(
            self.context,
            Job(config=config, tasks=tuple(tasks), heldout=tuple(heldout), device="cpu"),
            stages,
            cast(TrainerHandle, self.trainer),
            self.sampler,
            step=done_steps,
            weights_folder=self.weights_folder,
            trial=trial,
        )
        self.buffer, self.producer = self.attempt.buffer, self.attempt.producer

    @property
    def notes(self) -> list[str]:
        """What the measurement on the way noted."""
        return [text for (text,) in self.rows("SELECT text FROM events WHERE kind = 'evaluation'")]

    def train(self) -> FakeRun:
        """Run to the end, or until something raises; then give the folder back."""
        try:
            asyncio.run(asyncio.wait_for(self.attempt.run(), 30))
        finally:
            self.close()
        return self

    def take(self) -> tuple[RolloutGroup, ...]:
        """Produce until the first step's groups are there, or a fault is; then give the folder back."""

        async def body() -> tuple[RolloutGroup, ...]:
            producing = asyncio.create_task(self.producer.run())
            try:
                return await self.buffer.take(GROUPS_PER_STEP, 20)
            finally:
                producing.cancel()
                await asyncio.gather(producing, return_exceptions=True)

        try:
            return asyncio.run(asyncio.wait_for(body(), 30))
        finally:
            self.close()

    def die_in(self, step: int) -> FakeRun:
        """Train until the trainer dies in ``step``."""
        self.trainer.dies_in_step = step
        with pytest.raises(StageError, match="the trainer died"):
            self.train()
        return self

    def close(self) -> None:
        self.attempt.close()
        self.ledger.close()
        self.folder.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the ledger's file answers."""
        return rows(self.folder.path, query)
