"""FlexAttention over a row of trees: its mask, made without anything of size T * T.

The way for a GPU that has no flash kernel for the type of the model (pipeline.training.varlen_attention). It
has no backward on a CPU.

Shapes: T tokens of the row, H query heads, D head size, B blocks of the mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from pipeline.training.rows import Tree, segments, to_device

# Rows are of any length: without it each kind of length is compiled anew, with and without a gradient, until
# dynamo gives up.
_compiled_flex = torch.compile(flex_attention, dynamic=True)
# FlexAttention's.
_BLOCK = 128


def attend_by_mask(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float) -> Tensor:
    """Attention as ``mask`` says, (1, T, H, D); compiled on a GPU."""
    flex: Any = _compiled_flex if query.device.type == "cuda" else flex_attention
    output = flex(query, key, value, block_mask=mask, scale=scale, enable_gqa=True)
    return cast(Tensor, output).transpose(1, 2)


def tree_mask(trees: Sequence[Tree], device: torch.device | str) -> BlockMask:
    """FlexAttention's mask of a row of ``trees``.

    Which blocks are looked at follows from the segments at their ends: FlexAttention's own way to find them
    looks at each pair of tokens, in 7.5 T^2 bytes.
    """
    host_own, host_prompts = (torch.tensor(ids) for ids in segments(trees))
    own, prompts = to_device(host_own, device), to_device(host_prompts, device)

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        is_visible = (own[key] == own[query]) | (own[key] == prompts[query])
        return (key <= query) & is_visible

    some, whole = _visible_blocks(host_own, host_prompts)
    (num_some, some_keys), (num_whole, whole_keys) = _as_lists(some & ~whole), _as_lists(whole)
    return BlockMask.from_kv_blocks(
        to_device(num_some, device),
        to_device(some_keys, device),
        to_device(num_whole, device),
        to_device(whole_keys, device),
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
