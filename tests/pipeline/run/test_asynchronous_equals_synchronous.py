"""On-policy training through all the asynchronous parts gives the weights of a plain loop.

Real are the Transformers engine, the trainer, its weight files, the sampler, the buffer, the ledger and both
loops; scores come late and out of order.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.generation.transformers_engine import TransformersEngine
from pipeline.messages import (
    Completion,
    GenerationRequest,
    RolloutGroup,
    StepResult,
    TrainBatch,
    WeightsLoaded,
    WeightUpdate,
)
from pipeline.models.prompts import request_seed, training_sampling
from pipeline.record.metrics import read_metrics
from pipeline.rollouts.batch import make_batch
from pipeline.rollouts.producer import make_group
from pipeline.training.trainer import Trainer
from pipeline.weights.files import write_weights
from rewards.result import RewardResult
from tests.pipeline import tiny_model
from tests.pipeline.fake_stages import NUM_GENERATIONS, TASKS, FakeRun, make_config, scored, until

NUM_STEPS = 3
GROUPS_PER_STEP = 3
PROMPT = (1, 2, 3)  # of every task of FakeRun

TokenIds = list[tuple[int, ...]]


def configure(*, is_streamed: bool, mode: str) -> Config:
    return make_config(
        acceleration={"max_staleness": 0, "stream_steps": is_streamed},
        training={
            "gradient_accumulation_steps": GROUPS_PER_STEP,
            "max_steps": NUM_STEPS,
            "bf16": False,
            "learning_rate": 1e-3,
            "warmup_steps": 0,
        },
        generation={
            "engine": "transformers",
            "dtype": "float32",
            "max_completion_length": 10,
            "seed_requests": True,
            "weight_update_mode": mode,
        },
    )


def score(text: str) -> RewardResult:
    """Something that differs between answers and is the same wherever it is asked for."""
    return scored(float(zlib.crc32(text.encode()) % 5) / 4)


def sample_ids(batches: Sequence[TrainBatch]) -> list[TokenIds]:
    """What each batch was trained on, whatever the order."""
    return [sorted(sample.token_ids for sample in batch.samples) for batch in batches]


def publish(trainer: Trainer, folder: Path) -> WeightUpdate:
    path = str(folder / f"{trainer.policy_version}.safetensors")
    return write_weights(trainer.named_weights(), path, trainer.policy_version, torch.float32)


def weights_of(trainer: Trainer) -> Tensor:
    return torch.cat([weight.detach().flatten() for _, weight in trainer.named_weights()])


def assert_same_training(before: Tensor, ours: Tensor, expected: Tensor) -> None:
    # Adam takes a full step even where the gradient is all rounding, so one part in 1,000 may differ.
    change = float((expected - before).norm())
    assert change > 1e-3
    assert float((ours - expected).norm()) < 1e-3 * change


def train_asynchronously(
    path: Path, model: Path, *, is_streamed: bool, mode: str
) -> tuple[Tensor, list[TokenIds], FakeRun]:
    """The final weights, the samples of each step, and the run."""
    config = configure(is_streamed=is_streamed, mode=mode)
    run = FakeRun(path, config)
    trainer, engine = Trainer(config, model), TransformersEngine(config, str(model), "cpu")
    parts: dict[int, list[TrainBatch]] = {}

    async def generate(request: GenerationRequest) -> AsyncIterator[Completion]:
        # Streamed, the last group of a step is written when the trainer has begun with another one.
        draw_id = int(request.request_id.removeprefix("draw-"))
        if is_streamed and draw_id % GROUPS_PER_STEP == 0:
            await until(lambda: draw_id // GROUPS_PER_STEP in parts)
        async for completion in engine.generate(request):
            yield completion

    async def score_late(
        task: Task, text: str, *, priority: float = 0, by_tests: bool = False
    ) -> RewardResult:
        # Later answers first: they come in an order that no plain loop has.
        await asyncio.sleep(0.002 * (zlib.crc32(text.encode()) % 7))
        return score(text)

    async def accumulate(batch: TrainBatch) -> None:
        parts.setdefault(batch.step, []).append(batch)
        await asyncio.to_thread(trainer.accumulate, batch)

    async def step(batch: TrainBatch) -> StepResult:
        parts.setdefault(batch.step, []).append(batch)
        result = await asyncio.to_thread(trainer.step, batch)
        run.trainer._version = trainer.policy_version
        return result

    async def publish_files(directory: str) -> WeightUpdate:
        return publish(trainer, Path(directory))

    async def update_weights(update: WeightUpdate) -> WeightsLoaded:
        assert update.mode == mode
        return await engine.update_weights(update)

    run.scorer.score = score_late  # type: ignore[method-assign]
    run.generator.generate = generate  # type: ignore[method-assign]
    run.generator.update_weights = update_weights  # type: ignore[method-assign]
    run.trainer.accumulate, run.trainer.step = accumulate, step  # type: ignore[method-assign]
    run.trainer.publish = publish_files  # type: ignore[method-assign]
    run.train()
    trained = [
        [sample for part in parts[number] for sample in part.samples] for number in range(1, NUM_STEPS + 1)
    ]
    return weights_of(trainer), [sorted(s.token_ids for s in samples) for samples in trained], run


def train_synchronously(path: Path, model: Path) -> tuple[Tensor, list[TokenIds]]:
    """Draw, generate, score, train, publish: one after the other, in one loop."""
    config = configure(is_streamed=False, mode="keep")
    sampler = Sampler(TASKS, config.acceleration.curriculum, 0)
    trainer, engine = Trainer(config, model), TransformersEngine(config, str(model), "cpu")
    batches = []

    async def generate(draw_id: int) -> list[Completion]:
        request = GenerationRequest(
            request_id=f"draw-{draw_id}",
            prompt_ids=PROMPT,
            num_generations=NUM_GENERATIONS,
            sampling=training_sampling(config),
            seed=request_seed(config.training.seed, f"draw/{draw_id}"),
        )
        return [completion async for completion in engine.generate(request)]

    async def collect(draw_id: int, step: int) -> RolloutGroup:
        task = sampler.draw(step)
        completions = await generate(draw_id)
        results = [score("prefill " + completion.text) for completion in completions]
        sampler.record(task.task_id, sum(result.passed for result in results), len(results))
        return make_group(draw_id, task, PROMPT, completions, results)

    async def train() -> None:
        for step in range(NUM_STEPS):
            first = step * GROUPS_PER_STEP + 1
            groups = [await collect(draw_id, step) for draw_id in range(first, first + GROUPS_PER_STEP)]
            batch = make_batch(step + 1, groups, config.grpo)
            batches.append(batch)
            trainer.step(batch)
            await engine.update_weights(publish(trainer, path))

    asyncio.run(asyncio.wait_for(train(), 60))
    return weights_of(trainer), sample_ids(batches)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.save_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tensor, Tensor, list[TokenIds]]:
    """The weights before and after a plain loop, and what it trained on."""
    before = weights_of(Trainer(configure(is_streamed=False, mode="keep"), model))
    return before, *train_synchronously(tmp_path_factory.mktemp("plain"), model)


@pytest.mark.parametrize(
    ("is_streamed", "mode"),
    [(True, "keep"), (False, "keep"), (True, "keep_cache"), (True, "drain"), (True, "abort")],
)
def test_on_policy_training_ends_at_the_weights_of_a_plain_loop(
    tmp_path: Path,
    model: Path,
    plain: tuple[Tensor, Tensor, list[TokenIds]],
    is_streamed: bool,
    mode: str,
) -> None:
    before, expected, expected_samples = plain
    ours, samples, run = train_asynchronously(tmp_path, model, is_streamed=is_streamed, mode=mode)
    assert samples == expected_samples
    assert_same_training(before, ours, expected)
    for line in read_metrics(run.folder.metrics):
        assert ((line["train/parts"] or 0) > 1) is is_streamed
        assert line["train/staleness_max"] == line["train/token_staleness_mean"] == 0
        assert line["train/on_policy_share"] == 1
        # Engine and trainer are one model here, so their probabilities differ by rounding only.
        assert 0 <= (line["train/mismatch_kl"] or 0) < 1e-6
        assert line["train/ratio_p01"] == pytest.approx(1, abs=1e-3)
        assert line["train/ratio_p99"] == pytest.approx(1, abs=1e-3)
    assert "warning" not in run.output.getvalue()
