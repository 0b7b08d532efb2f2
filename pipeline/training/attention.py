"""Attention over a row of trees (pipeline.training.rows): a token sees its own sequence and its prompt only.

``row_attention`` takes the place of Transformers' attention in the trainer's models; without a layout it is
SDPA. On a CPU it calls PyTorch's flash kernel for each part of a tree, without a mask or padding; elsewhere
it is FlexAttention with the tree's mask. Nothing of size T * T is ever made.

Shapes: T tokens of the row, H query heads, K key and value heads, D head size.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from configs.schema import Config
from pipeline.training.rows import Tree, segments

_log = logging.getLogger(__name__)

# The name under which Transformers finds ``row_attention``.
IMPLEMENTATION = "code_grpo_rows"

# Rows are of any length: without it each kind of length is compiled anew, with and without a gradient, until
# dynamo gives up.
_compiled_flex = torch.compile(flex_attention, dynamic=True)
# FlexAttention's.
_BLOCK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Who sees whom in a row: ``trees``, and elsewhere than on a CPU the ``mask`` that says the same."""

    trees: tuple[Tree, ...]
    mask: BlockMask | None


def make_layout(trees: Sequence[Tree], device: torch.device | str) -> RowLayout:
    """The layout of a row that holds ``trees`` one behind the other."""
    is_cpu = torch.device(device).type == "cpu"
    return RowLayout(trees=tuple(trees), mask=None if is_cpu else tree_mask(trees, device))


def tree_mask(trees: Sequence[Tree], device: torch.device | str) -> BlockMask:
    """FlexAttention's mask of a row of ``trees``.

    Which blocks are looked at follows from the segments at their ends: FlexAttention's own way to find them
    looks at each pair of tokens, in 7.5 T^2 bytes.
    """
    is_cuda = torch.device(device).type == "cuda"

    def moved(host: Tensor) -> Tensor:
        # Pinned: a copy from other memory would wait until the device has done all its work.
        return (host.pin_memory() if is_cuda else host).to(device, non_blocking=True)

    host_own, host_prompts = (torch.tensor(ids) for ids in segments(trees))
    own, prompts = moved(host_own), moved(host_prompts)

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        is_visible = (own[key] == own[query]) | (own[key] == prompts[query])
        return (key <= query) & is_visible

    some, whole = _visible_blocks(host_own, host_prompts)
    (num_some, some_keys), (num_whole, whole_keys) = _as_lists(some & ~whole), _as_lists(whole)
    return BlockMask.from_kv_blocks(
        moved(num_some),
        moved(some_keys),
        moved(num_whole),
        moved(whole_keys),
        BLOCK_SIZE=_BLOCK,
        mask_mod=sees,
        seq_lengths=(len(own), len(own)),
    )


def _visible_blocks(own: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
    """Of each block of queries which blocks of keys hold any that they see, and which only such: [B, B] each.

    Some of the first may hold none: between the prompts of a block's sequences lie other sequences. Segments
    are numbered along the row.
    """
    (first, last), (least, greatest) = _ends(own), _ends(prompts)
    num = len(first)
    before = torch.ones(num, num, dtype=torch.bool).tril(-1)

    def meets(low: Tensor, high: Tensor) -> Tensor:
        return (first[None] <= high[:, None]) & (low[:, None] <= last[None])

    some = (before | torch.eye(num, dtype=torch.bool)) & (meets(first, last) | meets(least, greatest))
    one = first == last
    same_own = (first[:, None] == first[None]) & one[:, None] & one[None]
    same_prompt = (least[:, None] == first[None]) & (least == greatest)[:, None] & one[None]
    whole = before & (same_own | same_prompt)
    if len(own) % _BLOCK:
        whole[-1] = False
    return some, whole


def _ends(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest of each block of ``ids``."""
    least, greatest = zip(*(block.aminmax() for block in torch.split(ids, _BLOCK)), strict=True)
    return torch.stack(least), torch.stack(greatest)


def _as_lists(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries has, and their numbers first: (1, 1, B), (1, 1, B, B)."""
    order = blocks.int().argsort(dim=1, descending=True, stable=True)
    return blocks.sum(1).int()[None, None], order.int()[None, None]


def row_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: RowLayout | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Transformers' attention interface: ``query`` (1, H, T, D), ``key`` and ``value`` (1, K, T, D).

    Returns (1, T, H, D). A model that ``why_not_packed`` names must not be given a layout.
    """
    if layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    scale = settings["scaling"] or query.shape[-1] ** -0.5
    if layout.mask is not None:
        is_compiled = query.device.type == "cuda"
        flex: Any = _compiled_flex if is_compiled else flex_attention
        output = flex(query, key, value, block_mask=layout.mask, scale=scale, enable_gqa=True)
        return cast(Tensor, output).transpose(1, 2), None
    return _attend_rows(query, key, value, layout, scale), None


# Its loop differs from row to row: compiled, every row would be compiled again.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend_rows(query: Tensor, key: Tensor, value: Tensor, layout: RowLayout, scale: float) -> Tensor:
    return cast(Tensor, _RowAttention.apply(query, key, value, layout.trees, scale))  # type: ignore[no-untyped-call]


def why_not_packed(config: Any, longest: int) -> str | None:
    """Why a model with this ``config`` cannot run rows of sequences of up to ``longest`` tokens, or None."""
    text = config.get_text_config().to_dict()
    window = text.get("sliding_window")
    if window is not None and text.get("use_sliding_window", True) and longest > window:
        return f"its attention window of {window} tokens is shorter than the longest sequence, {longest}"
    if text.get("attn_logit_softcapping") is not None:
        return "its attention caps its scores"
    kinds = set(text.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
    return f"it has layers of kind {', '.join(sorted(kinds))}" if kinds else None


def use_row_attention(model: PreTrainedModel) -> None:
    """Give ``model`` the attention that understands rows; padded batches go through SDPA as before."""
    model.set_attn_implementation(IMPLEMENTATION)


def supports_packing(config: Config, model: PreTrainedModel) -> bool:
    """Whether rows of several sequences go through ``model`` as they should; if not, the run says so."""
    acceleration, generation = config.acceleration, config.generation
    if not (acceleration.token_packing.enabled or acceleration.shared_prompt):
        return False
    obstacle = why_not_packed(model.config, generation.max_prompt_length + generation.max_completion_length)
    if obstacle is not None:
        _log.warning("token packing and shared prompts are off, the batches are padded: %s", obstacle)
    return obstacle is None


class _RowAttention(torch.autograd.Function):
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
        for prompt, completions, each in _places(trees):
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

        for prompt, completions, each in _places(ctx.trees):
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


def _places(trees: Sequence[Tree]) -> list[tuple[slice, slice, list[slice]]]:
    """Where each tree lies in the row: its prompt, all its completions, and each that is not empty."""
    places = []
    start = 0
    for tree in trees:
        prompt = slice(start, start + tree.num_prompt)
        each = []
        start = prompt.stop
        for length in tree.completions:
            if length:
                each.append(slice(start, start + length))
            start += length
        places.append((prompt, slice(prompt.stop, start), each))
    return places


AttentionInterface.register(IMPLEMENTATION, row_attention)
