"""A model's first layers as a model of its own: a draft model where there is no smaller one of the family.

It was not trained as one, so what it drafts is seldom kept; a figure with it says what drafting costs, and
is a lower bound of what a trained draft model gains. Called by benchmarks.generation.
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from pipeline.models.loading import load_model, load_tokenizer


def save_shallow(model_path: Path, num_layers: int, folder: Path) -> None:
    """Write the model in ``model_path`` with its first ``num_layers`` layers only to ``folder``.

    Raises ValueError where it has fewer.
    """
    model = load_model(model_path)
    layers = model.model.layers
    if not 0 < num_layers <= len(layers):
        raise ValueError(f"--draft-layers: value {num_layers}: {model_path} has {len(layers)} layers")
    model.model.layers = nn.ModuleList(layers[:num_layers])
    model.config.num_hidden_layers = num_layers
    model.save_pretrained(folder)
    load_tokenizer(model_path).save_pretrained(folder)
