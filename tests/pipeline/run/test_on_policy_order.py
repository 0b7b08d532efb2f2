"""Without staleness, training on groups as they come gives the weights of the synchronous order."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import torch
from torch import Tensor

from pipeline.messages import Completion, GenerationRequest, StepResult, TrainBatch
from pipeline.record.metrics import read_metrics
from pipeline.training.trainer import Trainer
from tests.pipeline import tiny_model
from tests.pipeline.fake_stages import FakeRun, make_config, until

NUM_STEPS = 3
GROUPS_PER_STEP = 4


def write(request: GenerationRequest, version: int) -> list[Completion]:
    """Completions that depend on the draw alone."""
    chance = random.Random(request.request_id)
    completions = []
    for index in range(request.num_generations):
        length = chance.randint(1, 12)
        completions.append(
            Completion(
                index=index,
                token_ids=tuple(chance.randrange(3, tiny_model.VOCABULARY) for _ in range(length)),
                logprobs=tuple(-4.0 + chance.random() for _ in range(length)),
                text=f"answer {index}",
                finish_reason="stop",
                min_policy_version=version,
                max_policy_version=version,
            )
        )
    return completions


def train(path: Path, model: Path, *, is_streamed: bool) -> tuple[dict[str, Tensor], list[float | None]]:
    """The weights after three steps of real training, and the parts of each step.

    Streamed, a step's groups come from the last draw to the first, each when the one after it is trained on.
    """
    config = make_config(
        acceleration={"max_staleness": 0, "stream_steps": is_streamed},
        training={"gradient_accumulation_steps": GROUPS_PER_STEP, "max_steps": NUM_STEPS, "bf16": False},
    )
    run = FakeRun(path, config)
    real = Trainer(config, model)

    async def generate(request: GenerationRequest) -> AsyncIterator[Completion]:
        version = run.generator.policy_version
        draw_id = int(request.request_id.removeprefix("draw-"))
        num_later = -draw_id % GROUPS_PER_STEP
        if is_streamed:
            await until(lambda: num_later == 0 or f"train {version + 1} {num_later - 1}" in run.log)
        for completion in write(request, version):
            yield completion

    async def accumulate(batch: TrainBatch) -> None:
        run.log.append(f"train {batch.step} {batch.part}")
        real.accumulate(batch)

    async def step(batch: TrainBatch) -> StepResult:
        result = real.step(batch)
        run.trainer._version = result.policy_version
        return result

    run.generator.generate = generate  # type: ignore[method-assign]
    run.trainer.accumulate, run.trainer.step = accumulate, step  # type: ignore[method-assign]
    run.train()
    parts = [line["train/parts"] for line in read_metrics(run.folder.metrics)]
    return {name: weight.detach().clone() for name, weight in real.named_weights()}, parts


def test_on_policy_steps_fed_group_by_group_end_at_the_weights_of_the_synchronous_order(
    tmp_path: Path,
) -> None:
    model = tiny_model.save_model(tmp_path / "policy")
    results = []
    for is_streamed in (True, False):
        folder = tmp_path / str(is_streamed)
        folder.mkdir()
        results.append(train(folder, model, is_streamed=is_streamed))
    (streamed, streamed_parts), (synchronous, synchronous_parts) = results
    assert streamed_parts == [GROUPS_PER_STEP] * NUM_STEPS
    assert synchronous_parts == [1] * NUM_STEPS
    start = dict(Trainer(tiny_model.make_config(), model).named_weights())
    names = list(start)
    ours, expected, before = (
        torch.cat([weights[name].flatten() for name in names]) for weights in (streamed, synchronous, start)
    )
    # Adam takes a full step even where the gradient is all rounding, so one part in 1,000 may differ.
    change = float((expected - before).norm())
    assert change > 1e-3
    assert float((ours - expected).norm()) < 1e-3 * change
