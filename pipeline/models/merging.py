"""Read an adapter in PEFT's layout, and add it to the weights of its base model.

    ADAPTER/    adapter_config.json          r, lora_alpha, the base model, which layers
                adapter_model.safetensors    A (r, in) and B (out, r) of each adapted layer

An adapted layer computes W x + (lora_alpha / r) B A x (arXiv:2106.09685); merged it is one matrix again, so
that an engine serves it at the speed of the base. Needs neither PEFT nor the model's code, and does not
train. By hand: pipeline.handover.command.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipeline.host.files import let_others_read, read_object, written_whole
from pipeline.models.files import (
    A_END,
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    B_END,
    PEFT_PREFIX,
    base_weights,
    check_adapter,
    check_safetensors,
    refuse_quantised,
    stored_files,
)

_CHUNK = 2**19  # elements whose sums fit into a core's cache
# Kinds of adapter that PEFT can make and that are more than W + (alpha / r) B A.
_VARIANTS = (
    *("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "trainable_token_indices"),
    *("alora_invocation_tokens", "use_qalora", "use_bdlora", "arrow_config", "kasa_config"),
)
# Beginnings of ``init_lora_weights`` that change the base itself: its files are then not what was trained on.
_OTHER_BASE = ("pissa", "olora", "corda", "lora_ga", "loftq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """The low-rank factors by the name of the weight they belong to: A (r, in) and B (out, r).

    ``base`` names the model they were trained on: a folder or a hub id, of which ``revision``.
    """

    base: str
    revision: str | None
    scale: float
    factors: Mapping[str, tuple[Tensor, Tensor]]

    def named_factors(self) -> Iterator[tuple[str, Tensor]]:
        """A and B of every layer, under PEFT's names."""
        for name, (low, high) in self.factors.items():
            layer = f"{PEFT_PREFIX}{name.removesuffix('.weight')}"
            yield f"{layer}{A_END}", low
            yield f"{layer}{B_END}", high

    def merged(self, name: str, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """The weight ``name`` with the adapter added in fp32, rounded to ``dtype``.

        Raises ValueError when the adapter is of another shape.
        """
        if name not in self.factors:
            return weight.to(dtype)
        low, high = self.factors[name]
        shape = (high.shape[0], low.shape[1])
        if shape != tuple(weight.shape):
            raise ValueError(f"adapter: {name} has shape {shape}, the base model {tuple(weight.shape)}")
        low, high = low.to(weight.device).float(), high.to(weight.device).float()
        merged = torch.empty_like(weight, dtype=dtype)
        # Sums in fp32 of a whole matrix would go to memory and back.
        num_rows = max(1, _CHUNK // weight.shape[1]) if weight.is_cpu else len(weight)
        for part in (slice(start, start + num_rows) for start in range(0, len(weight), num_rows)):
            merged[part] = torch.addmm(weight[part].float(), high[part], low, alpha=self.scale)
        return merged


def read_adapter(folder: Path | str) -> Adapter:
    """The adapter in ``folder``; tensors on the CPU.

    Raises ValueError for a folder without one, and for an adapter that is no plain LoRA.
    """
    folder = Path(folder)
    config = check_adapter(folder)
    tensors = load_file(folder / ADAPTER_WEIGHTS)
    found = [name for name in _VARIANTS if config.get(name)]
    if str(init := config.get("init_lora_weights")).startswith(_OTHER_BASE):
        found.append(f"init_lora_weights={init}")
    if config.get("peft_type") != "LORA" or found or config.get("fan_in_fan_out"):
        raise ValueError(
            f"adapter {folder}: only plain LoRA can be merged, not "
            f"{', '.join([str(config.get('peft_type')), *found])}; merge it with PEFT (merge_and_unload)"
        )
    return Adapter(
        base=config["base_model_name_or_path"],
        revision=config.get("revision"),
        scale=adapter_scale(config),
        factors=_paired(tensors, folder),
    )


def adapter_scale(config: Mapping[str, Any]) -> float:
    """What B A is multiplied with, of what adapter_config.json holds."""
    rank: int = config["r"]
    return float(config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank))


def adapter_rank(folder: Path | str) -> int:
    """The rank of the adapter in ``folder``."""
    return int(str(read_object(Path(folder) / ADAPTER_CONFIG)["r"]))


def write_adapter_files(folder: Path, config: Mapping[str, object], tensors: Mapping[str, Tensor]) -> None:
    """Write both files of an adapter into ``folder``, which exists; the tensors are on the CPU."""
    (folder / ADAPTER_CONFIG).write_text(json.dumps(dict(config), indent=1), encoding="utf-8")
    save_file(dict(tensors), folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})


def merged_weights(
    adapter: Adapter, base: Path | str, dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """``base_weights`` with the adapter added, in ``dtype``, without one as they are stored.

    Raises ValueError, before the first, for a layer that the base does not have.
    """
    _refuse_strangers(adapter, stored_files(Path(base)), Path(base))
    for name, weight in base_weights(base):
        yield name, adapter.merged(name, weight, dtype or weight.dtype)


def merge_adapter(
    folder: Path | str, base: Path | str, out: Path | str, dtype: torch.dtype | None = None
) -> Path:
    """Write the base model with the adapter in ``folder`` merged into it to ``out``; returns ``out``.

    A whole model in Hugging Face layout, with weights in ``dtype``, without one in that of the base, and with
    the adapter's tokenizer where it has one; complete or not there at all. Raises ValueError when ``out``
    exists or the two do not fit.
    """
    folder, base, out = Path(folder), Path(base), Path(out)
    if out.exists():
        raise ValueError(f"merged model: {out} exists already")
    adapter = read_adapter(folder)
    files = stored_files(base)
    _refuse_strangers(adapter, files, base)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with written_whole(out) as partial:
        partial.mkdir()
        for source in (base, folder):
            for path in source.iterdir():
                if path.is_file() and path.suffix in (".json", ".jinja", ".txt", ".model", ".py"):
                    shutil.copyfile(path, partial / path.name)
        (partial / ADAPTER_CONFIG).unlink()
        (partial / "state.json").unlink(missing_ok=True)
        for path in files:
            merged = {}
            for name, weight in load_file(path).items():
                wanted = dtype if weight.is_floating_point() else None
                merged[name] = adapter.merged(name, weight, wanted or weight.dtype)
            save_file(merged, partial / path.name, metadata={"format": "pt"})
        let_others_read(partial)
    return out


def _paired(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """A and B of each layer, by the name of its weight."""
    factors = {}
    for name, low in tensors.items():
        layer = name.removeprefix(PEFT_PREFIX).removesuffix(A_END)
        if name.endswith(A_END):
            high = tensors.get(name.removesuffix(A_END) + B_END)
            if high is None:
                raise ValueError(f"adapter {folder}: {layer} has an A and no B")
            factors[f"{layer}.weight"] = (low, high)
    if len(tensors) != 2 * len(factors):
        known = {
            f"{PEFT_PREFIX}{name.removesuffix('.weight')}{end}" for name in factors for end in (A_END, B_END)
        }
        raise ValueError(
            f"adapter {folder}: {sorted(set(tensors) - known)[0]} is no A or B of a linear layer"
        )
    return factors


def _refuse_strangers(adapter: Adapter, files: Sequence[Path], base: Path) -> None:
    refuse_quantised(base, "adapter")
    names = frozenset[str]().union(*map(check_safetensors, files))
    strangers = sorted(set(adapter.factors) - names)
    if strangers:
        raise ValueError(f"adapter: the base model {base} has no {strangers[0]}")
