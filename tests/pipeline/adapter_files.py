"""An adapter with random factors, as the trainer would publish it, and the model that has it."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel

from configs.schema import Config
from pipeline.messages import WeightUpdate
from pipeline.training.adapters import adapter_config, load_policy, published_weights
from pipeline.weights.files import write_adapter

RANK = 4


def publish_random_adapter(
    base: Path, path: Path, version: int, *, scale: float = 0.2, seed: int = 0
) -> tuple[PreTrainedModel, WeightUpdate]:
    """Write an fp32 adapter of ``RANK`` for all linear layers; returns ``base`` with it as well."""
    config = Config.model_validate(
        {
            "model": {"name": str(base)},
            "lora": {"enabled": True, "r": RANK, "alpha": 6.0},
            "training": {"bf16": False},
        }
    )
    model = load_policy(config, base, torch.device("cpu"))
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in published_weights(model):
            weight.copy_(scale * torch.randn(weight.shape, generator=random))
    settings = adapter_config(model, config.model, base)
    return model, write_adapter(published_weights(model), settings, str(path), version, torch.float32)
