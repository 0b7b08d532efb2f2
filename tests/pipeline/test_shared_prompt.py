"""Sharing a group's prompt is exact: the same loss and gradient as computing it for every completion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.batching import plan_step
from pipeline.messages import TrainBatch
from pipeline.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_samples, save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("policy"))


def grouped(prompt_lengths: tuple[int, ...], completion_lengths: list[list[int]]) -> TrainBatch:
    """Groups whose samples begin with the same prompt, as rollouts of one task do."""
    samples = []
    for group, (num_prompt, lengths) in enumerate(zip(prompt_lengths, completion_lengths, strict=True)):
        advantages = [0.7 - 0.4 * index for index in range(len(lengths))]
        batch = make_samples([(num_prompt, length) for length in lengths], advantages, seed=group + 1)
        prompt = batch.samples[0].token_ids[:num_prompt]
        samples += [
            replace(sample, token_ids=prompt + sample.token_ids[num_prompt:]) for sample in batch.samples
        ]
    return TrainBatch(step=1, samples=tuple(samples), num_tokens=sum(sum(s.loss_mask) for s in samples))


BATCH = grouped((7, 1, 4), [[3, 9, 1, 6], [5, 2, 8, 4], [1, 1, 12, 7]])


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "bnpo"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_shared_prompt_keeps_loss_and_gradient(
    folder: Path, loss_type: str, beta: float, size: int
) -> None:
    results = []
    for shared in (True, False):
        config = make_config(
            grpo={"loss_type": loss_type, "beta": beta},
            acceleration={"shared_prompt": shared},
            training={"per_device_train_batch_size": size, "gradient_accumulation_steps": 12 // size},
        )
        results.append(Trainer(config, folder).gradients(BATCH))
    (loss, gradient), (expected_loss, expected) = results
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    for name, value in expected.items():
        assert float((gradient[name] - value).norm()) <= 1e-5 * float(value.norm()), name
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-3


def test_the_prompt_goes_through_the_model_once_a_group() -> None:
    plan = plan_step(
        BATCH.samples,
        loss_type="dapo",
        batch_size=4,
        max_completion_length=16,
        pad_token_id=0,
        skip_zero_advantages=True,
        share_prompts=True,
    )
    # The last token of a completion predicts nothing and stays outside.
    num_inputs = sum(sum(sample.loss_mask) - 1 for sample in BATCH.samples)
    assert plan.num_shared == 3 * (7 + 1 + 4)
    assert plan.num_real == 7 + 1 + 4 + num_inputs
    parts = [micro_plan.build() for micro_plan in plan.micro_plans]
    assert len(parts) == 3 and sum(part.input_ids.numel() for part in parts) == plan.num_real


def test_checkpointing_computes_every_prompt_and_gives_the_same_gradient(folder: Path) -> None:
    plain = Trainer(make_config(), folder).gradients(BATCH)[1]
    config = make_config(training={"gradient_checkpointing": True})
    recomputed = Trainer(config, folder).gradients(BATCH)[1]
    for name, value in plain.items():
        torch.testing.assert_close(recomputed[name], value, atol=1e-6, rtol=1e-4, msg=name)
