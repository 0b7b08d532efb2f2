"""The sums over tokens that one step reports, on the device until the step ends.

Made by pipeline.training.backward for each micro-batch, added up and read once a step by
pipeline.training.trainer: reading earlier would make the host wait for the device. pipeline.training.ranks
adds up those of several ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

# Quantiles of the ratio that a step reports, by name.
_QUANTILES = {"train/ratio_p01": 0.01, "train/ratio_p50": 0.5, "train/ratio_p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Scalars on the device, detached; sums over tokens but for ``ratio_max``; the loss is the weighted one.

    ``ratio`` is the ratio of the trained to the behaviour policy, ``log_ratios`` (N,) its logarithm for each
    token. ``clipped`` counts the tokens where clipping acts on the gradient, ``capped`` those whose
    importance weight was cut or masked. ``reference_kl`` estimates the KL to the reference model,
    ``behaviour_kl`` that to the behaviour policy. ``on_policy`` counts the tokens that the version in
    training wrote; of these alone, ``mismatch_k1`` and ``mismatch_k3`` estimate the KL of the generator to
    the trainer, 0 if their engines computed the same (http://joschu.net/blog/kl-approx.html).
    """

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    capped: Tensor
    reference_kl: Tensor
    behaviour_kl: Tensor
    entropy: Tensor
    on_policy: Tensor
    mismatch_k1: Tensor
    mismatch_k3: Tensor
    ratio_max: Tensor
    log_ratios: Tensor

    @classmethod
    def zeros(cls, device: torch.device | str) -> LossSums:
        """The sums of no token."""
        return cls.from_stacked(torch.zeros(len(_NAMES), device=device), torch.zeros(0, device=device))

    @classmethod
    def from_stacked(cls, values: Tensor, log_ratios: Tensor) -> LossSums:
        """The inverse of ``stacked``, with ``log_ratios``."""
        return cls(**dict(zip(_NAMES, values.unbind(), strict=True)), log_ratios=log_ratios)

    def __add__(self, other: LossSums) -> LossSums:
        """The sums of both parts of a step."""
        ours, theirs = self.stacked(), other.stacked()
        # ratio_max is the last of them.
        stacked = torch.cat([(ours + theirs)[:-1], torch.maximum(ours, theirs)[-1:]])
        return LossSums.from_stacked(stacked, torch.cat([self.log_ratios, other.log_ratios]))

    def stacked(self) -> Tensor:
        """All scalars in one fp32 tensor (K,), in the order of the fields."""
        return torch.stack([getattr(self, name).float() for name in _NAMES])

    def reported(self) -> Tensor:
        """What ``loss_metrics`` reads, copied to the host once a step: scalars, then quantiles of the ratio.

        The quantiles are those of all tokens, exact (nearest rank).
        """
        num_tokens = self.log_ratios.shape[0]
        ordered = self.log_ratios.float().sort().values if num_tokens else self.log_ratios.new_zeros(1)
        ranks = [max(math.ceil(share * num_tokens) - 1, 0) for share in _QUANTILES.values()]
        return torch.cat([self.stacked(), torch.stack([ordered[rank] for rank in ranks]).exp()])


_NAMES = tuple(field.name for field in fields(LossSums) if field.name != "log_ratios")


def loss_metrics(values: Sequence[float], *, num_tokens: int, has_reference: bool) -> dict[str, float]:
    """The metrics of a step whose ``LossSums.reported()`` are ``values``, over ``num_tokens`` loss tokens.

    Means are over the tokens that went through the model; see pipeline/record/metrics.py for the names.
    """
    sums = dict(zip(_NAMES, values[: len(_NAMES)], strict=True))
    tokens = max(num_tokens, 1)
    metrics = {
        "train/loss": sums["loss"],
        "train/ratio_mean": sums["ratio"] / tokens if num_tokens else 1.0,
        "train/ratio_max": sums["ratio_max"] if num_tokens else 1.0,
        **dict(zip(_QUANTILES, values[len(_NAMES) :], strict=True)),
        "train/clipped_share": sums["clipped"] / tokens,
        "train/capped_share": sums["capped"] / tokens,
        "train/kl": sums["behaviour_kl"] / tokens,
        "train/entropy": sums["entropy"] / tokens,
        "train/on_policy_share": sums["on_policy"] / tokens,
    }
    if sums["on_policy"]:
        metrics["train/mismatch_kl"] = sums["mismatch_k3"] / sums["on_policy"]
        metrics["train/mismatch_kl_k1"] = sums["mismatch_k1"] / sums["on_policy"]
    return {**metrics, "train/reference_kl": sums["reference_kl"] / tokens} if has_reference else metrics
