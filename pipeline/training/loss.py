"""The GRPO losses on a flat list of completion tokens.

Every loss is one formula, ``step_scale * sum_n weight[n] * loss[n]``. The weights do not depend on how the
step is split into micro-batches, and ``step_scale``, which depends on the whole step, is a factor of its
gradient: that can be summed up before the step is complete. ``LossSums`` are what a step reports: made for
each micro-batch, added up on the device and read once a step, since reading earlier would make the host wait.
Pure: no model, no optimiser.

Shapes: N completion tokens of a micro-batch, in S whole sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from configs.training_schema import CorrectionMode, GrpoConfig, LossType

# Quantiles of the ratio that a step reports, by name.
_QUANTILES = {"train/ratio_p01": 0.01, "train/ratio_p50": 0.5, "train/ratio_p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTokens:
    """What the loss reads of N tokens; all tensors are (N,), fp32 but ``sequence_ids``.

    The log-probabilities of the trained policy, of the behaviour policy (the generator's) and of the
    reference model, if any; the advantage of each token's sequence and its weight (``token_weights``);
    ``on_policy`` is 1 where the trained policy is the one that wrote the token, else 0.
    ``sequence_ids`` int64 are below ``num_sequences``. Tokens need not be of whole sequences unless
    ``needs_whole_sequences`` says so.
    """

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    on_policy: Tensor
    sequence_ids: Tensor
    num_sequences: int
    ref_logprobs: Tensor | None = None


def token_weights(
    lengths: Sequence[int], *, loss_type: LossType, batch_size: int, max_completion_length: int
) -> list[float]:
    """The weight of each token of sequence i, given the sequences' numbers of loss tokens, in step order.

    Times ``step_scale`` of the whole step it is the loss's:

    - grpo: mean over sequences of the mean over tokens (arXiv:2402.03300)
    - dr_grpo: sum over tokens, divided by sequences * ``max_completion_length`` (arXiv:2503.20783)
    - dapo: mean over all tokens of the step (arXiv:2503.14476); cispo likewise (arXiv:2506.13585)
    - bnpo: mean over micro-batches of the mean over their tokens (arXiv:2506.02864); a micro-batch is
      ``batch_size`` consecutive sequences here, whatever the trainer runs at a time

    Each equals what TRL's GRPOTrainer accumulates over an optimiser step of equal micro-batches. Of a part of
    a step the weights are those of the whole; for bnpo only if it begins at a multiple of ``batch_size``.
    """
    if loss_type == "grpo":
        return [1.0 / max(length, 1) for length in lengths]
    if loss_type == "dr_grpo":
        return [1.0 / max_completion_length] * len(lengths)
    if loss_type in ("dapo", "cispo"):
        return [1.0] * len(lengths)
    totals = [
        max(sum(lengths[start : start + batch_size]), 1) for start in range(0, len(lengths), batch_size)
    ]
    return [1.0 / totals[index // batch_size] for index in range(len(lengths))]


def step_scale(*, num_sequences: int, num_tokens: int, loss_type: LossType, batch_size: int) -> float:
    """The factor of every token's weight, given the sequences and loss tokens of the whole step."""
    if loss_type in ("dapo", "cispo"):
        return 1.0 / max(num_tokens, 1)
    if loss_type == "bnpo":
        return 1.0 / max(math.ceil(num_sequences / batch_size), 1)
    return 1.0 / max(num_sequences, 1)


def needs_whole_sequences(grpo: GrpoConfig) -> bool:
    """Whether a token's loss depends on the other tokens of its sequence."""
    mode = grpo.importance_sampling_mode
    return grpo.importance_sampling_level == "sequence" or mode in ("sequence_truncate", "sequence_mask")


def policy_loss(tokens: LossTokens, grpo: GrpoConfig) -> tuple[Tensor, LossSums]:
    """The loss of ``tokens`` and its sums, with an entropy of 0: the caller knows the distributions.

    With ``importance_sampling_mode`` none the ratio is that of the trained to the behaviour policy.
    Otherwise the proximal policy is the one at the start of the step, which is the trained one itself: the
    ratio to it is 1 (its gradient is not), and ``importance_weights`` account for the behaviour policy
    (decoupled PPO, arXiv:2110.00641; in this form TRL's for vLLM).
    """
    current = tokens.logprobs
    is_corrected = grpo.importance_sampling_mode != "none"
    log_ratio = current - (current.detach() if is_corrected else tokens.old_logprobs)
    if grpo.importance_sampling_level == "sequence":
        log_ratio = sequence_means(log_ratio, tokens.sequence_ids, tokens.num_sequences)
    ratio = torch.exp(log_ratio)
    if grpo.loss_type == "cispo":
        assert grpo.epsilon_high is not None
        losses = cispo_surrogate(current, ratio, tokens.advantages, cap=grpo.epsilon_high)
    else:
        losses = clipped_surrogate(
            ratio,
            tokens.advantages,
            epsilon=grpo.epsilon,
            epsilon_high=grpo.epsilon if grpo.epsilon_high is None else grpo.epsilon_high,
            delta=grpo.delta,
        )
    behaviour_log_ratio = current.detach() - tokens.old_logprobs
    behaviour_ratio = torch.exp(behaviour_log_ratio)
    capped = torch.zeros_like(behaviour_ratio, dtype=torch.bool)
    if is_corrected:
        correction, capped = importance_weights(
            tokens, mode=grpo.importance_sampling_mode, cap=grpo.importance_sampling_cap
        )
        losses = losses * correction
    kl = torch.zeros_like(behaviour_ratio)
    if grpo.beta != 0.0:
        assert tokens.ref_logprobs is not None
        kl = reference_kl(current, tokens.ref_logprobs, ratio)
        losses = losses + grpo.beta * kl
    loss = (losses * tokens.weights).sum()
    behaviour_kl = k3(behaviour_log_ratio)
    return loss, LossSums(
        loss=loss.detach(),
        ratio=behaviour_ratio.sum(),
        clipped=is_clipped(ratio.detach(), tokens.advantages, grpo).sum(),
        capped=capped.sum(),
        reference_kl=kl.detach().sum(),
        behaviour_kl=behaviour_kl.sum(),
        entropy=torch.zeros_like(loss.detach()),
        on_policy=tokens.on_policy.sum(),
        mismatch_k1=-(behaviour_log_ratio * tokens.on_policy).sum(),
        mismatch_k3=(behaviour_kl * tokens.on_policy).sum(),
        ratio_max=behaviour_ratio.max(),
        log_ratios=behaviour_log_ratio,
    )


def clipped_surrogate(
    ratio: Tensor, advantages: Tensor, *, epsilon: float, epsilon_high: float, delta: float | None = None
) -> Tensor:
    """``-min(r * A, clip(r, 1 - epsilon, 1 + epsilon_high) * A)`` a token: (N,).

    PPO's (arXiv:1707.06347) with group-relative advantages (arXiv:2402.03300); ``epsilon_high`` is DAPO's
    (arXiv:2503.14476). With ``delta`` the first r is cut at it, which bounds the loss where A < 0
    (two-sided clipping, INTELLECT-2, arXiv:2505.07291).
    """
    clipped = torch.clamp(ratio, 1 - epsilon, 1 + epsilon_high)
    free = ratio if delta is None else torch.clamp(ratio, max=delta)
    return -torch.min(free * advantages, clipped * advantages)


def cispo_surrogate(logprobs: Tensor, ratio: Tensor, advantages: Tensor, *, cap: float) -> Tensor:
    """``-sg(min(r, cap)) * A * log p`` a token, sg for stop-gradient: (N,).

    The weight is clipped, the gradient never (CISPO, MiniMax-M1, arXiv:2506.13585). Only the upper bound
    exists and ``cap`` is the bound itself (ScaleRL, arXiv:2510.13786), as in TRL.
    """
    return -torch.clamp(ratio.detach(), max=cap) * advantages * logprobs


def sequence_means(values: Tensor, sequence_ids: Tensor, num_sequences: int) -> Tensor:
    """The mean of ``values`` over each token's sequence: (N,).

    Of log-ratios and followed by exp it is GSPO's sequence ratio (arXiv:2507.18071), a geometric mean.
    """
    counts = _sequence_sums(torch.ones_like(values), sequence_ids, num_sequences)
    return (_sequence_sums(values, sequence_ids, num_sequences) / counts)[sequence_ids]


@torch.no_grad()
def importance_weights(tokens: LossTokens, *, mode: CorrectionMode, cap: float) -> tuple[Tensor, Tensor]:
    """The weight of each token for having been drawn by another policy (N,), and where ``cap`` acted (N,).

    The ratio of the trained to the behaviour policy, a token's own or the product over its sequence.
    Above ``cap`` it is cut (truncated importance sampling, as IMPALA's, arXiv:1802.01561) or becomes 0
    (masked, as IcePop's, arXiv:2510.18855). No gradient flows through it.
    """
    log_ratio = tokens.logprobs - tokens.old_logprobs
    if mode in ("sequence_truncate", "sequence_mask"):
        log_ratio = _sequence_sums(log_ratio, tokens.sequence_ids, tokens.num_sequences)[tokens.sequence_ids]
    ratio = torch.exp(log_ratio)
    is_above = ratio > cap
    replacement = cap if mode in ("token_truncate", "sequence_truncate") else 0.0
    return torch.where(is_above, replacement, ratio), is_above


def reference_kl(logprobs: Tensor, ref_logprobs: Tensor, ratio: Tensor) -> Tensor:
    """``r * k3`` a token, an estimate of the KL to the reference: (N,).

    k3 = exp(d) - d - 1, d = ref - current (http://joschu.net/blog/kl-approx.html); the factor r, through
    which the gradient flows too, makes the gradient that of the reverse KL (arXiv:2512.02556, TRL's
    default).
    """
    return ratio * k3(ref_logprobs - logprobs)


def k3(difference: Tensor) -> Tensor:
    """``exp(d) - d - 1`` for d = log q - log p: unbiased for KL(p || q) under p, never negative."""
    # Not exp(d) - 1 - d, which is all rounding where d is small.
    return torch.expm1(difference) - difference


def is_clipped(ratio: Tensor, advantages: Tensor, grpo: GrpoConfig) -> Tensor:
    """Where clipping acts on the gradient: (N,) bool. For cispo, where the weight is cut."""
    if grpo.loss_type == "cispo":
        assert grpo.epsilon_high is not None
        return ratio > grpo.epsilon_high
    high = grpo.epsilon if grpo.epsilon_high is None else grpo.epsilon_high
    is_low = (ratio < 1 - grpo.epsilon) & (advantages < 0)
    is_high = (ratio > 1 + high) & (advantages > 0)
    return (
        is_low | is_high if grpo.delta is None else is_low | is_high | (ratio > grpo.delta) & (advantages < 0)
    )


def _sequence_sums(values: Tensor, sequence_ids: Tensor, num_sequences: int) -> Tensor:
    """The sum of ``values`` over each sequence: (S,)."""
    return values.new_zeros(num_sequences).index_add(0, sequence_ids, values)


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

    Means are over the tokens that went through the model, and missing where none did; see
    pipeline/record/metric_names.py for the names.
    """
    sums = dict(zip(_NAMES, values[: len(_NAMES)], strict=True))
    if not num_tokens:
        return {"train/loss": sums["loss"]}
    tokens = num_tokens
    metrics = {
        "train/loss": sums["loss"],
        "train/ratio_mean": sums["ratio"] / tokens,
        "train/ratio_max": sums["ratio_max"],
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
