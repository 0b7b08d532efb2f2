"""Settings of the trainer that need a GPU or a package that need not be installed: refused before all else.

Called before any model is loaded, and by a dry run. Imports none of the packages.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from configs.errors import ConfigError, Problem, wrong_value
from configs.schema import Config

_INSTALL = {
    "bitsandbytes": "pip install bitsandbytes",
    "liger_kernel": "pip install liger-kernel",
    "unsloth": "pip install -e '.[unsloth]'",
}


def refuse_unusable_packages(config: Config, device: str) -> None:
    """Raise ConfigError for settings of the trainer that ``device``, or what is installed, cannot serve."""
    if problems := list(_gpu_problems(config, device)):
        raise ConfigError(problems)


def refuse_conflicts(config: Config, _: str) -> None:
    """Raise ConfigError for settings of the trainer that do not go with each other, on whatever machine."""
    if problems := list(_conflicts(config)):
        raise ConfigError(problems)


def _gpu_problems(config: Config, device: str) -> Iterator[Problem]:
    """Values that need a GPU, and some an installed package."""
    training = config.training
    for field, value, default, package in (
        ("lora.load_in_4bit", config.lora.load_in_4bit, False, "bitsandbytes"),
        ("model.loader", config.model.loader, "transformers", "unsloth"),
        ("training.optim", training.optim, "adamw_torch", "bitsandbytes"),
        ("training.use_liger_kernel", training.use_liger_kernel, False, "liger_kernel"),
        ("training.activation_offloading", training.activation_offloading, False, None),
    ):
        if value == default:
            continue
        if device == "cpu":
            allowed = "another value on a CPU; this one needs a CUDA GPU (the run's device is cpu)"
            yield wrong_value(field, value, allowed, "runtime.device")
        elif package is not None and importlib.util.find_spec(package) is None:
            allowed = f"with the package {package}, which is not installed: {_INSTALL[package]}"
            yield wrong_value(field, value, allowed)


def _conflicts(config: Config) -> Iterator[Problem]:
    """Values that do not go with the value of another field."""
    loader, lora, training = config.model.loader, config.lora, config.training
    if lora.load_in_4bit and not lora.enabled:
        allowed = "false, or true with lora.enabled: true"
        yield wrong_value("lora.load_in_4bit", True, allowed, "lora.enabled")
    if loader == "unsloth" and not lora.enabled:
        allowed = "transformers, or unsloth with lora.enabled: true"
        yield wrong_value("model.loader", loader, allowed, "lora.enabled")
    for other, is_on in (
        ("acceleration.token_packing.enabled", config.acceleration.token_packing.enabled),
        ("acceleration.shared_prompt", config.acceleration.shared_prompt),
    ):
        if loader == "unsloth" and is_on:
            why = "(its attention knows no rows of sequences)"
            allowed = f"transformers, or unsloth with {other}: false {why}"
            yield wrong_value("model.loader", loader, allowed, other)
    if training.optim == "adamw_8bit" and config.runtime.trainer_ranks > 1:
        allowed = "adamw_torch, or adamw_8bit with runtime.trainer_ranks: 1 (it knows no sharded weights)"
        yield wrong_value("training.optim", training.optim, allowed, "runtime.trainer_ranks")
    if training.use_liger_kernel and loader == "unsloth":
        allowed = "false, or true with model.loader: transformers (Unsloth has kernels of its own)"
        yield wrong_value("training.use_liger_kernel", True, allowed, "model.loader")
