"""Refuse settings of LoRA, 4-bit weights and Unsloth that cannot work here, before anything is loaded.

Looks at the configuration, the device, the installed packages and the layers that a model has; loads no
weights and imports none of these packages.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from configs.errors import ConfigError, Problem, wrong_value
from configs.schema import Config, LoraConfig

ALL_LINEAR = "all-linear"


def refuse_unknown_layers(config: Config, model_path: Path | str) -> None:
    """Raise ConfigError when ``lora.target_modules`` names a layer that the model does not have.

    Builds the model without memory for its weights: milliseconds.
    """
    if not config.lora.enabled:
        return
    trust = config.model.trust_remote_code
    settings = AutoConfig.from_pretrained(str(model_path), local_files_only=True, trust_remote_code=trust)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            settings, trust_remote_code=trust
        )
    target_names(model, config.lora)


def target_names(model: PreTrainedModel, lora: LoraConfig) -> list[str]:
    """The names by which PEFT finds the layers that get adapters.

    Only linear layers of the decoder can: the output head is read by the loss, and often tied. Raises
    ConfigError naming the layers that there are.
    """
    head: nn.Module | None = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    layers = [
        name for name, part in model.named_modules() if isinstance(part, nn.Linear) and part is not head
    ]
    known = sorted({name.rpartition(".")[2] for name in layers})
    if not known:
        allowed = "false (this model has no linear layers that could get adapters)"
        raise ConfigError([wrong_value("lora.enabled", True, allowed)])
    wanted = lora.target_modules
    if wanted == ALL_LINEAR:
        return known
    allowed = f"{ALL_LINEAR}, or a list of: {', '.join(known)}"
    if isinstance(wanted, str) or not wanted:
        raise ConfigError([wrong_value("lora.target_modules", wanted, allowed)])
    wrong = [target for target in wanted if not _is_in(target, layers)]
    if wrong:
        raise ConfigError([wrong_value("lora.target_modules", name, allowed) for name in wrong])
    return list(wanted)


def _is_in(target: str, layers: Sequence[str]) -> bool:
    return any(layer == target or layer.endswith(f".{target}") for layer in layers)


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
