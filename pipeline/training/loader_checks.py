"""Refuse loaders of the policy that cannot work here, before anything is loaded.

Looks at the configuration, the device and the installed packages; imports none of them.
"""

from __future__ import annotations

import importlib.util

from configs.errors import ConfigError, Problem, wrong_value
from configs.schema import Config


def refuse_unusable_loaders(config: Config, device: str) -> None:
    """Raise ConfigError when 4-bit weights or Unsloth are asked for and cannot be had on ``device``."""
    problems = [*_four_bit_problems(config, device), *_unsloth_problems(config, device)]
    if problems:
        raise ConfigError(problems)


def _four_bit_problems(config: Config, device: str) -> list[Problem]:
    field = "lora.load_in_4bit"
    if not config.lora.load_in_4bit:
        return []
    problems = _gpu_problems(field, True, device, "bitsandbytes", "pip install bitsandbytes")
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


def _gpu_problems(field: str, value: object, device: str, package: str, install: str) -> list[Problem]:
    """``value`` needs a GPU and an installed ``package``."""
    if device == "cpu":
        allowed = "another value on a CPU; this one needs a CUDA GPU (the run's device is cpu)"
        return [wrong_value(field, value, allowed, "runtime.device")]
    if importlib.util.find_spec(package) is None:
        allowed = f"with the package {package}, which is not installed: {install}"
        return [wrong_value(field, value, allowed)]
    return []
