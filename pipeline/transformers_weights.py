"""The Transformers engine's side of a weight update: all weights from a file, or an adapter on the base.

All of an update is loaded or nothing: names and shapes are looked at first. Raises ValueError when they are
not the model's, OSError or SafetensorError when a file cannot be read. Called by
pipeline.transformers_engine.
"""

from __future__ import annotations

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from pipeline.merging import base_weights, read_adapter


@torch.no_grad()
def load_weights(model: PreTrainedModel, path: str) -> None:
    """Load a safetensors file of Hugging Face names; a tied head may be in it or not."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        unknown = sorted(names - set(parameters))
        # Tied parameters are one object under several names; one of them is enough.
        loaded = {id(parameters[name]) for name in names & set(parameters)}
        missing = sorted(name for name, parameter in parameters.items() if id(parameter) not in loaded)
        if unknown or missing:
            raise ValueError(f"{path}: not the model's weights; unknown {unknown[:3]}, missing {missing[:3]}")
        for name in names:
            shape = file.get_slice(name).get_shape()
            if list(shape) != list(parameters[name].shape):
                raise ValueError(
                    f"{path}: {name} has shape {shape}, the model {list(parameters[name].shape)}"
                )
        for name in names:
            parameters[name].copy_(file.get_tensor(name))


@torch.no_grad()
def load_base(model: PreTrainedModel, model_path: str) -> None:
    """Set all weights to those of the base in ``model_path``."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, weight in base_weights(model_path):
        if name in parameters:
            parameters[name].copy_(weight)


@torch.no_grad()
def load_adapter(model: PreTrainedModel, model_path: str, path: str) -> None:
    """Set the adapted weights to those of the base in ``model_path`` with the adapter in ``path`` added."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    adapter = read_adapter(path)
    merged = {
        name: adapter.merged(name, weight)
        for name, weight in base_weights(model_path)
        if name in adapter.factors
    }
    missing = sorted(set(adapter.factors) - (set(merged) & set(parameters)))
    if missing:
        raise ValueError(f"{path}: not an adapter of this model; it has no {missing[:3]}")
    for name, weight in merged.items():
        parameters[name].copy_(weight)
