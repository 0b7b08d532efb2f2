"""Which layers get adapters: the names in ``lora.target_modules`` against the layers that a model has.

Loads no weights and no PEFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from configs.errors import ConfigError, wrong_value
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
