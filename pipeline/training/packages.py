"""Settings of the trainer that need a GPU or a package that need not be installed: refused before all else.

Called before any model is loaded, and by a dry run. Imports none of the packages.
"""

from __future__ import annotations

import importlib.util

from configs.errors import ConfigError, Problem, wrong_value
from configs.schema import Config

_BITSANDBYTES = "bitsandbytes", "pip install bitsandbytes"


def refuse_unusable_packages(config: Config, device: str) -> None:
    """Raise ConfigError for settings of the trainer that ``device``, or what is installed, cannot serve."""
    problems = [
        *_four_bit_problems(config, device),
        *_unsloth_problems(config, device),
        *_optimizer_problems(config, device),
        *_liger_problems(config, device),
        *_attention_problems(config, device),
        *_offloading_problems(config, device),
    ]
    if problems:
        raise ConfigError(problems)


def _four_bit_problems(config: Config, device: str) -> list[Problem]:
    field = "lora.load_in_4bit"
    if not config.lora.load_in_4bit:
        return []
    problems = _gpu_problems(field, True, device, *_BITSANDBYTES)
    if not config.lora.enabled:
        problems.append(wrong_value(field, True, "false, or true with lora.enabled: true", "lora.enabled"))
    return problems


def _unsloth_problems(config: Config, device: str) -> list[Problem]:
    field, value = "model.loader", config.model.loader
    if value != "unsloth":
        return []
    problems = _gpu_problems(field, value, device, "unsloth", "pip install -e '.[unsloth]'")
    if not config.lora.enabled:
        allowed = "transformers, or unsloth with lora.enabled: true"
        problems.append(wrong_value(field, value, allowed, "lora.enabled"))
    acceleration = config.acceleration
    for other, is_on in (
        ("acceleration.token_packing.enabled", acceleration.token_packing.enabled),
        ("acceleration.shared_prompt", acceleration.shared_prompt),
    ):
        if is_on:
            allowed = (
                f"transformers, or unsloth with {other}: false (its attention knows no rows of sequences)"
            )
            problems.append(wrong_value(field, value, allowed, other))
    return problems


def _optimizer_problems(config: Config, device: str) -> list[Problem]:
    field, value = "training.optim", config.training.optim
    if value == "adamw_torch":
        return []
    problems = _gpu_problems(field, value, device, *_BITSANDBYTES)
    if config.runtime.trainer_ranks > 1:
        allowed = "adamw_torch, or adamw_8bit with runtime.trainer_ranks: 1 (it knows no sharded weights)"
        problems.append(wrong_value(field, value, allowed, "runtime.trainer_ranks"))
    return problems


def _liger_problems(config: Config, device: str) -> list[Problem]:
    field = "training.use_liger_kernel"
    if not config.training.use_liger_kernel:
        return []
    problems = _gpu_problems(field, True, device, "liger_kernel", "pip install liger-kernel")
    if config.model.loader == "unsloth":
        allowed = "false, or true with model.loader: transformers (Unsloth has kernels of its own)"
        problems.append(wrong_value(field, True, allowed, "model.loader"))
    return problems


def _attention_problems(config: Config, device: str) -> list[Problem]:
    value = config.training.attn_implementation
    return [] if value == "auto" else _gpu_problems("training.attn_implementation", value, device)


def _offloading_problems(config: Config, device: str) -> list[Problem]:
    if not config.training.activation_offloading:
        return []
    return _gpu_problems("training.activation_offloading", True, device)


def _gpu_problems(
    field: str, value: object, device: str, package: str | None = None, install: str = ""
) -> list[Problem]:
    """``value`` needs a GPU and an installed ``package``, if any."""
    if device == "cpu":
        allowed = "another value on a CPU; this one needs a CUDA GPU (the run's device is cpu)"
        return [wrong_value(field, value, allowed, "runtime.device")]
    if package is not None and importlib.util.find_spec(package) is None:
        allowed = f"with the package {package}, which is not installed: {install}"
        return [wrong_value(field, value, allowed)]
    return []
