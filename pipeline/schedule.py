"""The learning rate over the steps. Pure. Called by pipeline.trainer."""

from __future__ import annotations

import math

from configs.training_schema import TrainingConfig


def learning_rate_factor(step: int, training: TrainingConfig) -> float:
    """The share of the peak learning rate in optimiser step ``step`` (from 0).

    Warm-up rises linearly and does not waste the first step on a rate of zero; linear and cosine then
    fall towards zero at ``max_steps``.
    """
    if step < training.warmup_steps:
        return (step + 1) / (training.warmup_steps + 1)
    if training.lr_scheduler_type == "constant":
        return 1.0
    left = max(training.max_steps - training.warmup_steps, 1)
    progress = min((step - training.warmup_steps) / left, 1.0)
    return (
        1.0 - progress
        if training.lr_scheduler_type == "linear"
        else 0.5 * (1.0 + math.cos(math.pi * progress))
    )
