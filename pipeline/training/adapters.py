"""LoRA through PEFT: the policy with frozen weights and trained adapters, and its adapters in PEFT's layout.

The adapters are put into the model in place, so that it stays the Transformers model that the rest of the
trainer knows. A frozen layer and its adapter are one step forward and one backward: PEFT's own layer adds the
scaled output of the adapter in passes of their own over a tensor as large as the layer's output; so does
autograd with the two gradients of the input. Here both are added by the product that makes them. Does not
merge (pipeline.models.merging) and does not step.

Source: LoRA arXiv:2106.09685, QLoRA arXiv:2305.14314.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import peft
import torch
from peft.tuners import lora
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from configs.errors import ConfigError, wrong_value
from configs.schema import Config, LoraConfig, ModelConfig
from pipeline.models.files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    PEFT_PREFIX,
    check_safetensors,
    weight_files,
)
from pipeline.models.find import commit_of
from pipeline.models.loading import load_model, model_without_weights
from pipeline.models.packaged import BUILT_IN

ALL_LINEAR = "all-linear"
# PEFT's name of the adapter within the model; it is not part of the names in a file.
_ADAPTER = "default"


def refuse_unknown_layers(config: Config, model_path: Path | str) -> None:
    """Raise ConfigError when ``lora.target_modules`` names a layer that the model does not have.

    Also where its files name the weights of all layers otherwise than the model does: adapters, which have
    the model's names, would be merged with none of them.
    """
    if not config.lora.enabled:
        return
    trust = config.model.trust_remote_code
    settings = AutoConfig.from_pretrained(str(model_path), local_files_only=True, trust_remote_code=trust)
    model = model_without_weights(settings, trust_remote_code=trust)
    target_names(model, config.lora)
    stored = frozenset[str]().union(*map(check_safetensors, weight_files(Path(model_path))))
    layers = {f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    if stored and stored.isdisjoint(layers):
        allowed = f"false: the files of {model_path} name its layers otherwise than the model ({min(stored)})"
        raise ConfigError([wrong_value("lora.enabled", True, allowed)])


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
    wrong = [target for target in wanted if not any(f".{name}".endswith(f".{target}") for name in layers)]
    if wrong:
        raise ConfigError([wrong_value("lora.target_modules", name, allowed) for name in wrong])
    return list(wanted)


def load_policy(config: Config, path: Path | str, device: torch.device) -> PreTrainedModel:
    """The model to train: what needs a gradient is fp32.

    With ``lora.enabled`` that is the adapters; all else is frozen, in the precision that the step computes
    in, or in 4 bits. ``refuse_unknown_layers`` has seen the configuration before. Raises ConfigError
    when ``lora.target_modules`` names no layer.
    """
    lora, trust = config.lora, config.model.trust_remote_code
    if not lora.enabled:
        return load_model(path, dtype=torch.float32, device=device, trust_remote_code=trust)
    if device.type == "meta":
        # Adapters are drawn where the model is.
        device = torch.device("cpu")
    dtype = torch.bfloat16 if config.training.bf16 else torch.float32
    if config.model.loader == "unsloth":
        return _load_by_unsloth(config, path, dtype)
    if lora.load_in_4bit:
        model = _load_4bit(path, dtype, device, trust_remote_code=trust)
    else:
        model = load_model(path, dtype=dtype, device=device, trust_remote_code=trust)
    add_adapters(model, lora)
    return model


def add_adapters(model: PreTrainedModel, lora: LoraConfig) -> None:
    """Freeze ``model`` and put fp32 adapters, which change nothing yet, into its layers.

    A is drawn from torch's global generator, B is zero. Raises ConfigError when ``lora.target_modules``
    names no layer.
    """
    settings = peft_settings(model, lora)
    if not lora.load_in_4bit:
        settings._register_custom_module({nn.Linear: LoraLinear})
    model.requires_grad_(False)
    peft.inject_adapter_in_model(settings, model, adapter_name=_ADAPTER)
    _to_fp32(model)
    model.train(False)


def peft_settings(model: PreTrainedModel, lora: LoraConfig) -> peft.LoraConfig:
    """PEFT's own settings for ``lora``. Raises ConfigError when ``target_modules`` names no layer."""
    return peft.LoraConfig(
        r=lora.r,
        # PEFT's type says int; the scale is a float all the same.
        lora_alpha=cast(int, lora.alpha),
        lora_dropout=lora.dropout,
        target_modules=target_names(model, lora),
        bias="none",
        task_type="CAUSAL_LM",
    )


@contextmanager
def disabled_adapters(model: nn.Module) -> Iterator[None]:
    """Within it the model computes what its frozen weights alone say; nothing changes without adapters."""
    layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def published_weights(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """What is trained, by the name that receivers know: Hugging Face's, and PEFT's for adapters."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield _published_name(name), parameter


def adapter_config(model: PreTrainedModel, config: ModelConfig, path: Path | str) -> dict[str, object]:
    """What PEFT's adapter_config.json says of the adapters in ``model``, whose base lies in ``path``.

    The base is named by its hub id where it has one, so that the adapter can travel.
    """
    settings = cast(dict[str, peft.LoraConfig], model.peft_config)[_ADAPTER]
    is_on_hub = config.name not in BUILT_IN and not Path(config.name).expanduser().is_dir()
    # The commit that was trained: a branch may have moved when the adapters are used.
    revision = commit_of(path) or config.revision
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": config.name if is_on_hub else str(Path(path).resolve()),
        "revision": revision if is_on_hub else None,
        "r": settings.r,
        "lora_alpha": settings.lora_alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(cast(set[str], settings.target_modules)),
        "bias": "none",
        "inference_mode": True,
    }


def saved_adapter(folder: Path | str, config: Mapping[str, object]) -> dict[str, Tensor]:
    """The adapters in ``folder`` by PEFT's names, for a model that has them as ``config`` says.

    Raises ValueError when they were made otherwise: on another base, of another rank, in other layers.
    """
    saved = json.loads((Path(folder) / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    for name in ("r", "lora_alpha", "target_modules"):
        if saved.get(name) != config[name]:
            raise ValueError(
                f"checkpoint {folder}: its adapter has {name} = {saved.get(name)}, this run {config[name]}"
            )
    # A base that has moved keeps the name of its folder.
    ours, theirs = (Path(str(found["base_model_name_or_path"])).name for found in (config, saved))
    if ours != theirs:
        raise ValueError(
            f"checkpoint {folder}: its adapter was trained on {theirs}, this run's model is {ours}"
        )
    return load_file(Path(folder) / ADAPTER_WEIGHTS)


def _published_name(name: str) -> str:
    """``model.layers.0.mlp.up_proj.lora_A.default.weight`` as PEFT writes it; other names as they are."""
    marker = f".{_ADAPTER}.weight"
    if ".lora_" not in name or not name.endswith(marker):
        return name
    return f"{PEFT_PREFIX}{name.removesuffix(marker)}.weight"


def _to_fp32(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def _load_4bit(
    path: Path | str, dtype: torch.dtype, device: torch.device, *, trust_remote_code: bool
) -> PreTrainedModel:
    """The model with its linear layers in 4-bit normal floats, their constants quantised again (QLoRA)."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        str(path),
        dtype=dtype,
        local_files_only=True,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
        quantization_config=BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        ),
        device_map={"": device},
    )
    return model


def _load_by_unsloth(config: Config, path: Path | str, dtype: torch.dtype) -> PreTrainedModel:
    """The model with Unsloth's kernels, its adapters in place."""
    # A GPU back end that changes Transformers when it is imported.
    from unsloth import FastLanguageModel  # type: ignore[import-not-found]

    lora, training = config.lora, config.training
    model, _ = FastLanguageModel.from_pretrained(
        model_name=str(path),
        max_seq_length=config.max_sequence_length,
        dtype=dtype,
        load_in_4bit=lora.load_in_4bit,
        trust_remote_code=config.model.trust_remote_code,
    )
    wrapped = FastLanguageModel.get_peft_model(
        model,
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=target_names(model, lora),
        bias="none",
        use_gradient_checkpointing=training.gradient_checkpointing,
        random_state=training.seed,
    )
    inner = cast(PreTrainedModel, wrapped.get_base_model())
    _to_fp32(inner)
    return inner


class LoraLinear(lora.Linear):
    """PEFT's layer with an adapter, in fewer passes wherever the adapter is the plain one.

    Within a forward without the adapter, with dropout, or of mixed precisions, it is PEFT's own.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The layer's output, [..., outputs], of ``x``, [..., inputs]."""
        (name,) = self.active_adapters
        low, high = self.lora_A[name].weight, self.lora_B[name].weight
        base = cast(nn.Linear, self.base_layer)
        one_precision = x.dtype == low.dtype == base.weight.dtype
        has_dropout = not isinstance(self.lora_dropout[name], nn.Identity)
        if self.disable_adapters or has_dropout or not one_precision:
            return super().forward(x, *args, **kwargs)
        apply = cast(Callable[..., Tensor], _AdaptedProduct.apply)
        flat = apply(x.flatten(end_dim=-2), base.weight, base.bias, low, high, self.scaling[name])
        return flat.view(*x.shape[:-1], -1)


class _AdaptedProduct(torch.autograd.Function):
    """``x W' + b + scale (x A') B'`` of x, [tokens, inputs]; W and b are frozen, A and B get a gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, low: Tensor, high: Tensor, scale: float
    ) -> Tensor:
        inner = x @ low.t()
        ctx.save_for_backward(x, weight, low, high, inner)
        ctx.scale = scale
        return nn.functional.linear(x, weight, bias).addmm_(inner, high.t(), alpha=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, low, high, inner = ctx.saved_tensors
        to_inner = (gradient @ high).mul_(ctx.scale)
        to_x = (gradient @ weight).addmm_(to_inner, low) if ctx.needs_input_grad[0] else None
        return to_x, None, None, to_inner.t() @ x, (gradient.t() @ inner).mul_(ctx.scale), None
