"""What a step made of its GPUs: the memory that the trainer reserved, and the share of the card's peak (MFU).

Nothing on a CPU. ``needed_flops`` counts what a step's gradient needs; what is computed twice, or for
padding, is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import torch

from configs.schema import Config
from pipeline.messages import TrainingSample
from pipeline.training.memory import ModelShape, shape_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# FLOP/s in bf16, dense, of NVIDIA's data sheets (SXM where there are several forms).
_PEAKS: Final = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
}


def peak_flops(name: str) -> float | None:
    """The FLOP/s in bf16 that the data sheet of the card ``name`` promises; None where it is not known."""
    return next((peak for card, peak in _PEAKS.items() if card in name), None)


def needed_flops(shape: ModelShape, samples: Sequence[TrainingSample]) -> dict[str, float]:
    """The operations that the gradient of ``samples`` needs, forward and backward, by part.

    ``layers``: six for each weight and token, a group's prompt counted once and no padding; ``head``: six for
    each weight and trained token; ``attention``: 12 for each pair of tokens of which one sees the other,
    layer, and part of a query. Groups without signal count as the others. Nothing is computed twice.
    """
    layer = shape.hidden * (2 * shape.query_width + 2 * shape.kv_width + 3 * shape.intermediate)
    prompts = {sample.token_ids[: sample.num_prompt_tokens] for sample in samples}
    num_tokens = sum(len(prompt) for prompt in prompts)
    num_pairs = sum(len(prompt) * (len(prompt) + 1) / 2 for prompt in prompts)
    num_trained = 0
    for sample in samples:
        num_own = len(sample.token_ids) - sample.num_prompt_tokens
        num_tokens += num_own
        num_pairs += num_own * sample.num_prompt_tokens + num_own * (num_own + 1) / 2
        num_trained += sum(sample.loss_mask)
    return {
        "layers": 6.0 * shape.layers * layer * num_tokens,
        "head": 6.0 * shape.vocabulary * shape.hidden * num_trained,
        "attention": 12.0 * shape.layers * shape.query_width * num_pairs,
    }


def training_flops(needed: Mapping[str, float], *, is_frozen: bool) -> float:
    """Of ``needed_flops`` those of a step: weights that are frozen, beside adapters, get no gradient."""
    share = 2 / 3 if is_frozen else 1.0
    return share * (needed["layers"] + needed["head"]) + needed["attention"]


class CardUse:
    """The metrics of one trainer rank's GPU, step by step; ``num_ranks`` share a step's work."""

    def __init__(self, config: Config, model: PreTrainedModel, device: torch.device, num_ranks: int) -> None:
        self._device = device
        self._num_ranks = num_ranks
        self._is_frozen = config.lora.enabled
        self._peak: float | None = None
        if device.type == "cuda":
            self._peak = peak_flops(torch.cuda.get_device_name(device))
            self._shape = shape_of(model, "")

    def metrics(self, samples: Sequence[TrainingSample], seconds: float) -> dict[str, float]:
        """Of a step that took ``seconds`` for ``samples``, skipped ones left out; the next one begins."""
        if self._device.type != "cuda":
            return {}
        found = {"train/gpu_memory_gb": torch.cuda.max_memory_reserved(self._device) / 1e9}
        torch.cuda.reset_peak_memory_stats(self._device)
        if self._peak is not None:
            flops = training_flops(needed_flops(self._shape, samples), is_frozen=self._is_frozen)
            found["train/mfu"] = flops / (seconds * self._peak * self._num_ranks)
        return found
