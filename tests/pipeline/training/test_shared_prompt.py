"""Sharing a group's prompt is exact: the same loss and gradient as computing it for every completion."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.training.batching import StepTotals
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_groups
from tests.pipeline.training.builders import assert_each_near, micro_plans

BATCH = make_groups((7, 1, 4), [[3, 9, 1, 6], [5, 2, 8, 4], [1, 1, 12, 7]])


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
    assert_each_near(gradient, expected)
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-3


def test_the_prompt_goes_through_the_model_once_a_group() -> None:
    plans = micro_plans(BATCH.samples, shares_prompts=True, acceleration={"shared_prefix": False})
    totals = StepTotals(num_samples=12, num_tokens=BATCH.num_tokens, num_parts=1, micro_plans=plans)
    # The last token of a completion predicts nothing and stays outside.
    num_inputs = sum(sum(sample.loss_mask) - 1 for sample in BATCH.samples)
    assert totals.num_shared_tokens == 3 * (7 + 1 + 4)
    parts = [plan.build() for plan in plans]
    assert len(parts) == 3 and sum(part.input_ids.numel() for part in parts) == 7 + 1 + 4 + num_inputs
