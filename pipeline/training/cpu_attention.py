"""Attention over a row of trees on a CPU: PyTorch's flash kernel for each part of a tree, without a mask.

Shapes: T tokens of the row, H query heads, K key and value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from pipeline.training.rows import Tree, places


def attend_by_parts(query: Tensor, key: Tensor, value: Tensor, trees: Sequence[Tree], scale: float) -> Tensor:
    """Attention of ``query`` (1, H, T, D) to ``key`` and ``value`` (1, K, T, D): (1, T, H, D)."""
    return cast(Tensor, _CpuAttention.apply(query, key, value, trees, scale))  # type: ignore[no-untyped-call]


class _CpuAttention(torch.autograd.Function):
    """The flash kernel for CPUs, call by call: prompts, completions on prompts, completions on themselves.

    A completion's two results are joined by the logarithms of their sums, and the backward of each call is
    given the joint one, so that the gradients add up to those of the whole (as in ring attention,
    arXiv:2310.01889). In fp32 whatever the model's type: its backward in bf16 is several times slower.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, trees: Sequence[Tree], scale: float
    ) -> Tensor:
        q, k, v = _fp32_heads(query, key, value)
        output = torch.empty_like(q)
        lse = q.new_empty(q.shape[0], q.shape[2], q.shape[1]).transpose(1, 2)  # (1, H, T), as the kernel's
        for prompt, completions, each in places(trees):
            output[:, :, prompt], lse[:, :, prompt] = _flash(
                q[:, :, prompt], k[:, :, prompt], v[:, :, prompt], is_causal=True, scale=scale
            )
            for own in each:
                output[:, :, own], lse[:, :, own] = _flash(
                    q[:, :, own], k[:, :, own], v[:, :, own], is_causal=True, scale=scale
                )
            if each:
                shared, shared_lse = _flash(
                    q[:, :, completions], k[:, :, prompt], v[:, :, prompt], is_causal=False, scale=scale
                )
                _join(output[:, :, completions], lse[:, :, completions], shared, shared_lse)
        result = output.transpose(1, 2).to(query.dtype)  # (1, T, H, D)
        ctx.save_for_backward(query, key, value, result, lse)
        ctx.trees, ctx.scale = trees, scale
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, result, lse = ctx.saved_tensors
        q, k, v = _fp32_heads(query, key, value)
        output, d_output = (tensor.float().transpose(1, 2) for tensor in (result, grads[0]))
        d_q, d_k, d_v = (torch.empty_like(tensor) for tensor in (q, k, v))

        def part(queries: slice, keys: slice, is_causal: bool) -> tuple[Tensor, Tensor, Tensor]:
            gradients: tuple[Tensor, Tensor, Tensor] = _flash_backward(
                d_output[:, :, queries], q[:, :, queries], k[:, :, keys], v[:, :, keys],
                output[:, :, queries], lse[:, :, queries], 0.0, is_causal, scale=ctx.scale,
            )  # fmt: skip
            return gradients

        for prompt, completions, each in places(ctx.trees):
            d_q[:, :, prompt], d_k[:, :, prompt], d_v[:, :, prompt] = part(prompt, prompt, True)
            for own in each:
                d_q[:, :, own], d_k[:, :, own], d_v[:, :, own] = part(own, own, True)
            if each:
                parts = zip(
                    (d_q[:, :, completions], d_k[:, :, prompt], d_v[:, :, prompt]),
                    part(completions, prompt, False),
                    strict=True,
                )
                for total, more in parts:
                    total += more
        d_query = d_q.to(query.dtype)
        split = (1, key.shape[1], -1, *key.shape[2:])
        d_key, d_value = (d.view(split).sum(2).to(key.dtype) for d in (d_k, d_v))
        return d_query, d_key, d_value, None, None


_flash_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _flash(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Output (1, H, Q, D) and the log of the sums of the exponentials (1, H, Q)."""
    kernel: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, lse = kernel(q, k, v, 0.0, is_causal, scale=scale)
    return output, lse


def _join(output: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> None:
    """Make ``output`` and ``lse`` those of attention over the keys of both."""
    joint = torch.logaddexp(lse, other_lse)
    output *= (lse - joint).exp_()[..., None]
    output.addcmul_(other, (other_lse - joint).exp_()[..., None])
    lse.copy_(joint)


def _fp32_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """fp32 (1, H, T, D) each, keys and values repeated for their query heads."""
    num = query.shape[1] // key.shape[1]
    k, v = (tensor.float().repeat_interleave(num, dim=1) for tensor in (key, value))
    return query.float(), k, v
