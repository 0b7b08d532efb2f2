"""The sums over tokens that one step reports, as scalars on the device until the step ends.

Made by pipeline.backward for each micro-batch, added up and read once a step by pipeline.trainer: reading
earlier would make the host wait for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Scalars on the device, detached; sums over tokens but for ``ratio_max``; the loss is the weighted one.

    ``ratio`` is the ratio of the trained to the behaviour policy. ``clipped`` counts the tokens where
    clipping acts on the gradient, ``capped`` those whose importance weight was cut or masked.
    ``reference_kl`` estimates the KL to the reference model, ``mismatch_kl`` that to the behaviour policy.
    """

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    capped: Tensor
    reference_kl: Tensor
    mismatch_kl: Tensor
    entropy: Tensor
    ratio_max: Tensor

    @classmethod
    def zeros(cls, device: torch.device | str) -> LossSums:
        """The sums of no token."""
        return cls.from_stacked(torch.zeros(len(_NAMES), device=device))

    @classmethod
    def from_stacked(cls, values: Tensor) -> LossSums:
        """The inverse of ``stacked``."""
        return cls(**dict(zip(_NAMES, values.unbind(), strict=True)))

    def __add__(self, other: LossSums) -> LossSums:
        """The sums of both parts of a step."""
        ours, theirs = self.stacked(), other.stacked()
        # ratio_max is the last field.
        return LossSums.from_stacked(torch.cat([(ours + theirs)[:-1], torch.maximum(ours, theirs)[-1:]]))

    def stacked(self) -> Tensor:
        """All fields in one fp32 tensor (K,), in the order of the fields: what a step copies to the host."""
        return torch.stack([getattr(self, name).float() for name in _NAMES])


_NAMES = tuple(field.name for field in fields(LossSums))


def loss_metrics(values: Sequence[float], *, num_tokens: int, has_reference: bool) -> dict[str, float]:
    """The metrics of a step whose ``LossSums.stacked()`` are ``values``, over ``num_tokens`` loss tokens.

    Means are over the tokens that went through the model; see pipeline/metrics.py for the names.
    """
    sums = dict(zip(_NAMES, values, strict=True))
    tokens = max(num_tokens, 1)
    metrics = {
        "train/loss": sums["loss"],
        "train/ratio_mean": sums["ratio"] / tokens if num_tokens else 1.0,
        "train/ratio_max": sums["ratio_max"] if num_tokens else 1.0,
        "train/clipped_share": sums["clipped"] / tokens,
        "train/capped_share": sums["capped"] / tokens,
        "train/kl": sums["mismatch_kl"] / tokens,
        "train/entropy": sums["entropy"] / tokens,
    }
    return {**metrics, "train/reference_kl": sums["reference_kl"] / tokens} if has_reference else metrics
