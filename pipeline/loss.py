"""The GRPO loss on a flat list of completion tokens, and the log-probabilities that it needs.

Every loss type is one formula, ``sum_n weight[n] * loss[n]``, that differs only in the token weights. The
weights come from the whole optimiser step (pipeline/batching.py), so how the step is split into
micro-batches changes nothing. Pure: no model, no optimiser. Called by the trainer.

Shapes: N completion tokens of a micro-batch, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor

LossType = Literal["grpo", "dr_grpo", "dapo", "bnpo"]

# Rows turned into probabilities at a time: few enough for the CPU's caches, and enough that the threads'
# meetings after each operation do not count (16 rows took five times as long on two busy cores).
_CPU_ROWS = 128
_CUDA_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoss:
    """The loss and the sums behind the metrics; all of them scalars on the device, detached but ``loss``."""

    loss: Tensor
    ratio_sum: Tensor
    num_clipped: Tensor
    kl_sum: Tensor
    mismatch_kl_sum: Tensor


def sequence_weights(
    lengths: Sequence[int], *, loss_type: LossType, batch_size: int, max_completion_length: int
) -> list[float]:
    """The weight of each token of sequence i, given every sequence's number of loss tokens, in step order.

    - grpo: mean over sequences of the mean over tokens (arXiv:2402.03300)
    - dr_grpo: sum over tokens, divided by sequences * ``max_completion_length`` (arXiv:2503.20783)
    - dapo: mean over all tokens of the step (arXiv:2503.14476)
    - bnpo: mean over micro-batches of the mean over their tokens (arXiv:2506.02864); a micro-batch is
      ``batch_size`` consecutive sequences here, whatever the trainer runs at a time

    Each equals what TRL's GRPOTrainer accumulates over an optimiser step of equal micro-batches.
    """
    num = len(lengths)
    if loss_type == "grpo":
        return [1.0 / (max(length, 1) * num) for length in lengths]
    if loss_type == "dr_grpo":
        return [1.0 / (num * max_completion_length)] * num
    if loss_type == "dapo":
        return [1.0 / max(sum(lengths), 1)] * num
    starts = range(0, num, batch_size)
    totals = [max(sum(lengths[start : start + batch_size]), 1) for start in starts]
    return [1.0 / (totals[index // batch_size] * len(totals)) for index in range(num)]


def token_logprobs(logits: Tensor, targets: Tensor, *, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and the entropy of its distribution (detached): (N,), (N,), fp32.

    ``logits`` (N, V) are consumed: their memory is overwritten with the probabilities that the backward
    needs, so nothing of size N * V is kept besides it, and no fp32 copy of it is ever made whole. The
    logits are divided by ``temperature`` first, so the policy is the one that was sampled from.
    """
    assert logits.ndim == 2 and targets.shape == logits.shape[:1]
    return cast(tuple[Tensor, Tensor], _TokenLogprobs.apply(logits, targets, temperature))  # type: ignore[no-untyped-call]


def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    epsilon: float,
    epsilon_high: float | None = None,
    beta: float = 0.0,
    ref_logprobs: Tensor | None = None,
) -> TokenLoss:
    """The clipped surrogate of PPO (arXiv:1707.06347) with group-relative advantages (arXiv:2402.03300).

    All tensors are (N,): the current, the behaviour and the reference policy's log-probabilities, the
    advantage of each token's sequence and its weight (``sequence_weights``). Per token
    ``-min(r * A, clip(r, 1 - epsilon, 1 + epsilon_high) * A) + beta * r * k3``, where r is the ratio of
    current to behaviour policy and k3 = exp(d) - d - 1, d = ref - current, estimates the KL to the
    reference (http://joschu.net/blog/kl-approx.html); the factor r makes its gradient that of the reverse
    KL (arXiv:2512.02556, TRL's default). ``epsilon_high`` is DAPO's (arXiv:2503.14476).
    """
    high = epsilon if epsilon_high is None else epsilon_high
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = torch.clamp(ratio, 1 - epsilon, 1 + high)
    losses = -torch.min(ratio * advantages, clipped * advantages)
    kl_sum = torch.zeros((), device=logprobs.device)
    if beta != 0.0:
        assert ref_logprobs is not None
        kl = ratio * k3(ref_logprobs - logprobs)
        losses = losses + beta * kl
        kl_sum = kl.detach().sum()
    with torch.no_grad():
        low_hit = (ratio < 1 - epsilon) & (advantages < 0)
        high_hit = (ratio > 1 + high) & (advantages > 0)
        num_clipped = (low_hit | high_hit).sum()
        mismatch_kl_sum = k3(logprobs - old_logprobs).sum()
    return TokenLoss(
        loss=(losses * weights).sum(),
        ratio_sum=ratio.detach().sum(),
        num_clipped=num_clipped,
        kl_sum=kl_sum,
        mismatch_kl_sum=mismatch_kl_sum,
    )


def k3(difference: Tensor) -> Tensor:
    """``exp(d) - d - 1`` for d = log q - log p: unbiased for KL(p || q) under p, never negative."""
    return torch.exp(difference) - difference - 1


class _TokenLogprobs(torch.autograd.Function):
    """log_softmax and gather in blocks of rows; see ``token_logprobs``."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        num = logits.shape[0]
        logprobs = torch.empty(num, dtype=torch.float32, device=logits.device)
        entropy = torch.empty_like(logprobs)
        block = _CPU_ROWS if logits.device.type == "cpu" else _CUDA_ROWS
        for start in range(0, num, block):
            rows = slice(start, start + block)
            scores = logits[rows].float()
            if temperature != 1.0:
                scores = scores / temperature
            scores = torch.log_softmax(scores, dim=1)
            logprobs[rows] = scores.gather(1, targets[rows, None]).squeeze(1)
            probabilities = scores.exp()
            entropy[rows] = -torch.linalg.vecdot(probabilities, scores)
            logits[rows] = probabilities
        ctx.save_for_backward(targets, logprobs)
        ctx.probabilities = logits
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        targets, logprobs = ctx.saved_tensors
        scale = grads[0] / ctx.temperature
        gradient = ctx.probabilities
        ctx.probabilities = None
        gradient.mul_(-scale[:, None].to(gradient.dtype))
        # 1 - p from the fp32 log-probability: a p near 1 that was rounded to bf16 would lose it.
        exact = (-torch.expm1(logprobs) * scale).to(gradient.dtype)
        gradient.scatter_(1, targets[:, None], exact[:, None])
        return gradient, None, None
