"""Attention over a row of trees on a GPU: PyTorch's flash kernel for sequences of various lengths, no mask.

Two calls a layer: every segment on itself, then the completions of each prompt on that prompt; a completion's
two results are joined as in pipeline.training.attention. The kernel is the one below
``torch.nn.attention.varlen.varlen_attn``, whose own backward ignores the gradient of the logarithms that
results are joined by: autograd through it would be wrong.

Shapes: T tokens of the row, H query heads, K key and value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention

from pipeline.training.rows import Tree, places, to_device

# Queries, keys and values.
Operands = tuple[Tensor, Tensor, Tensor]
# torch says yes to other sizes too: its own attention pads the heads before it calls the kernel.
_HEAD_STEP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """S segments that fill a tensor: ``ends`` (S + 1,) int32, where each begins and the last ends."""

    ends: Tensor
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrompts:
    """Prompts that have completions: of each all its completions, as one segment, and the prompt.

    ``completion_places`` and ``prompt_places``, int64, are their tokens' places in the row.
    """

    completions: Segments
    prompts: Segments
    completion_places: Tensor
    prompt_places: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLengths:
    """A row as the kernel reads it: all its ``segments``, and what sees more than its own, if anything."""

    segments: Segments
    shared: SharedPrompts | None


def has_flash_kernel(dtype: torch.dtype, head_size: int, device: torch.device) -> bool:
    """Whether PyTorch's flash kernel takes heads of this type and size there, forward and backward."""
    if head_size % _HEAD_STEP:
        return False
    heads = torch.empty(1, 1, 8, head_size, dtype=dtype, device=device, requires_grad=True)
    return bool(can_use_flash_attention(SDPAParams(heads, heads, heads, None, 0.0, True, False)))


def row_lengths(trees: Sequence[Tree], device: torch.device | str) -> RowLengths:
    """The lengths of a row that holds ``trees`` one behind the other; empty completions are left out."""

    def segments(lengths: Sequence[int]) -> Segments:
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return Segments(ends=to_device(ends, device), longest=max(lengths))

    every = [length for tree in trees for length in (tree.num_prompt, *tree.completions) if length]
    lying = [(prompt, completions) for prompt, completions, each in places(trees) if each]
    if not lying:
        return RowLengths(segments=segments(every), shared=None)
    prompts, completions = (
        [torch.arange(part.start, part.stop) for part in parts] for parts in zip(*lying, strict=True)
    )
    shared = SharedPrompts(
        completions=segments([len(part) for part in completions]),
        prompts=segments([len(part) for part in prompts]),
        completion_places=to_device(torch.cat(completions), device),
        prompt_places=to_device(torch.cat(prompts), device),
    )
    return RowLengths(segments=segments(every), shared=shared)


def attend_by_lengths(query: Tensor, key: Tensor, value: Tensor, lengths: RowLengths, scale: float) -> Tensor:
    """Attention of ``query`` (1, H, T, D) to ``key`` and ``value`` (1, K, T, D): (1, T, H, D)."""
    return cast(Tensor, _VarlenAttention.apply(query, key, value, lengths, scale))  # type: ignore[no-untyped-call]


class _VarlenAttention(torch.autograd.Function):
    """The backward of each call is given the joint results, so that the gradients add up to the whole."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, lengths: RowLengths, scale: float
    ) -> Tensor:
        operands, every, shared = _tokens_first(query, key, value), lengths.segments, lengths.shared
        output, lse = _flash(operands, every, every, is_causal=True, scale=scale)
        if shared is not None:
            places = shared.completion_places
            other = _flash(
                _of_shared(operands, shared), shared.completions, shared.prompts, is_causal=False, scale=scale
            )
            joint = _joined((output[places], lse[:, places]), other)
            output.index_copy_(0, places, joint[0].to(output.dtype))
            lse.index_copy_(1, places, joint[1])
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.lengths, ctx.scale = lengths, scale
        return output[None]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        operands, every, shared = _tokens_first(query, key, value), ctx.lengths.segments, ctx.lengths.shared
        gradient = grads[0][0]
        d_query, d_key, d_value = _flash_backward(
            gradient, operands, (output, lse), every, every, is_causal=True, scale=ctx.scale
        )
        if shared is not None:
            places = shared.completion_places
            parts = _flash_backward(
                gradient[places], _of_shared(operands, shared), (output[places], lse[:, places].contiguous()),
                shared.completions, shared.prompts, is_causal=False, scale=ctx.scale,
            )  # fmt: skip
            d_query.index_add_(0, places, parts[0])
            d_key.index_add_(0, shared.prompt_places, parts[1])
            d_value.index_add_(0, shared.prompt_places, parts[2])
        d_operands = (tensor.transpose(0, 1)[None] for tensor in (d_query, d_key, d_value))
        return (*d_operands, None, None)


def _flash(
    operands: Operands, queries: Segments, keys: Segments, *, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of segments of queries (Q, H, D) to as many of keys and values (N, K, D), one by one.

    Output (Q, H, D), and the logarithms of the sums of the exponentials (H, Q) in fp32. ``is_causal``: within
    segments of one length, a token sees what is before it. ``scale`` is on the scores.
    """
    output, lse, *_ = torch.ops.aten._flash_attention_forward(
        *operands, queries.ends, keys.ends, queries.longest, keys.longest, 0.0, is_causal, False,
        scale=scale,
    )  # fmt: skip
    return output, lse


def _flash_backward(
    gradient: Tensor, operands: Operands, results: tuple[Tensor, Tensor],
    queries: Segments, keys: Segments, *, is_causal: bool, scale: float,
) -> Operands:  # fmt: skip
    """What these keys add to the gradients to the operands.

    ``results`` are of all keys that the queries see, these and others.
    """
    # Of dropout, of which there is none.
    rng_state = torch.zeros(2, dtype=torch.uint64, device=gradient.device)
    unused = torch.empty(0, device=gradient.device)
    gradients: Operands = torch.ops.aten._flash_attention_backward(
        gradient, *operands, *results, queries.ends, keys.ends, queries.longest, keys.longest, 0.0,
        is_causal, rng_state, unused, scale=scale,
    )  # fmt: skip
    return gradients


def _tokens_first(query: Tensor, key: Tensor, value: Tensor) -> Operands:
    """(T, H, D), and (T, K, D) twice, from (1, H, T, D) and (1, K, T, D)."""
    return query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)


def _of_shared(operands: Operands, shared: SharedPrompts) -> Operands:
    """The queries of the completions, the keys and the values of the prompts."""
    query, key, value = operands
    return query[shared.completion_places], key[shared.prompt_places], value[shared.prompt_places]


def _joined(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Outputs and logarithms, in fp32, of attention over the keys of both."""
    joint = torch.logaddexp(one[1], other[1])
    shares = [(lse - joint).exp().t()[..., None] for lse in (one[1], other[1])]
    return one[0] * shares[0] + other[0] * shares[1], joint
