"""Attention over a row of trees (pipeline.training.rows): a token sees its own sequence and its prompt only.

``row_attention`` takes the place of Transformers' attention in the trainer's models; without a layout it is
SDPA. Which kernel goes over a row is chosen once (``row_kernel``): PyTorch's flash kernel for each part of a
tree, without a mask, on a CPU; flash attention by lengths on a GPU (pipeline.training.varlen_attention); or,
on a GPU that has none for the model, SDPA sequence by sequence. Nothing of size T * T is ever made.

Shapes: T tokens of the row, H query heads, K key and value heads, D head size.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from configs.schema import Config
from configs.training_schema import TrainingConfig
from pipeline.training.rows import Tree, places
from pipeline.training.varlen_attention import RowLengths, attend_by_lengths, has_flash_kernel, row_lengths

_log = logging.getLogger(__name__)

# The name under which Transformers finds ``row_attention``.
IMPLEMENTATION = "code_grpo_rows"

RowKernel = Literal["cpu", "varlen", "sdpa"]
_flash_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Who sees whom in a row: ``trees``; for ``varlen`` the ``lengths`` that it reads."""

    trees: tuple[Tree, ...]
    kernel: RowKernel
    lengths: RowLengths | None = None


def row_kernel(model: PreTrainedModel, training: TrainingConfig, device: torch.device) -> RowKernel:
    """Which kernel goes over the rows of ``model``, computing on ``device``; a run is told of a slow one."""
    if device.type == "cpu":
        return "cpu"
    text = model.config.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    dtype = torch.bfloat16 if training.bf16 else torch.float32
    has_flash = has_flash_kernel(dtype, head_size, device)
    if not has_flash:
        _log.warning(
            "attention over rows goes sequence by sequence: the flash kernel, which wants bf16 and a card of "
            "compute capability 8.0 or newer, does not take this model"
        )
    return "varlen" if has_flash else "sdpa"


def make_layout(
    trees: Sequence[Tree], device: torch.device | str = "cpu", kernel: RowKernel = "cpu"
) -> RowLayout:
    """The layout, for ``kernel``, of a row that holds ``trees`` one behind the other."""
    return RowLayout(
        trees=tuple(trees),
        kernel=kernel,
        lengths=row_lengths(trees, device) if kernel == "varlen" else None,
    )


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
    return _attend(query, key, value, layout, scale), None


# The parts differ from row to row: compiled, every row would be compiled again.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend(query: Tensor, key: Tensor, value: Tensor, layout: RowLayout, scale: float) -> Tensor:
    if layout.lengths is not None:
        return attend_by_lengths(query, key, value, layout.lengths, scale)
    if layout.kernel == "sdpa":
        return _attend_by_sequences(query, key, value, layout.trees, scale)
    return cast(Tensor, _CpuAttention.apply(query, key, value, layout.trees, scale))  # type: ignore[no-untyped-call]


def _attend_by_sequences(
    query: Tensor, key: Tensor, value: Tensor, trees: Sequence[Tree], scale: float
) -> Tensor:
    # SDPA's kernel that takes a mask knows no groups of query heads.
    num = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(num, dim=1) for tensor in (key, value))
    outputs = []
    for prompt, _, each in places(trees):
        q, k, v = (tensor[:, :, prompt] for tensor in (query, key, value))
        outputs.append(scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale))
        for own in each:
            q, own_k, own_v = (tensor[:, :, own] for tensor in (query, key, value))
            own_k, own_v = torch.cat((k, own_k), dim=2), torch.cat((v, own_v), dim=2)
            mask = torch.ones(q.shape[2], own_k.shape[2], dtype=torch.bool, device=q.device)
            mask = mask.tril(k.shape[2])
            outputs.append(scaled_dot_product_attention(q, own_k, own_v, attn_mask=mask, scale=scale))
    return torch.cat(outputs, dim=2).transpose(1, 2)


# Whose layers do not hand on what attention over rows needs to know (Transformers 5.17).
_DROPS_LAYOUT = ("stablelm", "nemotron")


def why_not_packed(config: Any, longest: int) -> str | None:
    """Why a model with this ``config`` cannot run rows of sequences of up to ``longest`` tokens, or None."""
    # Not from its dictionary: some of these are computed from other settings.
    text = config.get_text_config()
    window = getattr(text, "sliding_window", None)
    if window is not None and getattr(text, "use_sliding_window", True) and longest > window:
        return f"its attention window of {window} tokens is shorter than the longest sequence, {longest}"
    if getattr(text, "attn_logit_softcapping", None) is not None:
        return "its attention caps its scores"
    if (name := getattr(text, "model_type", None)) in _DROPS_LAYOUT:
        return f"the layers of {name} do not tell their attention of rows"
    kinds = set(getattr(text, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    return f"it has layers of kind {', '.join(sorted(kinds))}" if kinds else None


def use_rows(config: Config, model: PreTrainedModel) -> bool:
    """Give ``model`` the attention over rows, where it can have it; returns whether rows go through it.

    Where rows are wanted and it cannot have it, the run says so: its padded batches keep its own attention,
    which knows its window.
    """
    acceleration = config.acceleration
    obstacle = why_not_packed(model.config, config.max_sequence_length)
    # Also for padded batches: Transformers' own looks at each batch's masks, and waits for the device.
    if obstacle is None and not use_row_attention(model):
        obstacle = f"the code of {type(model).__name__} takes no other attention"
    if not (acceleration.token_packing.enabled or acceleration.shared_prompt):
        return False
    if obstacle is not None:
        _log.warning("token packing and shared prompts are off, the batches are padded: %s", obstacle)
    return obstacle is None


def use_row_attention(model: PreTrainedModel) -> bool:
    """Give ``model`` the attention that understands rows; returns whether its code takes it."""
    model.set_attn_implementation(IMPLEMENTATION)
    return bool(model.config._attn_implementation == IMPLEMENTATION)


AttentionInterface.register(IMPLEMENTATION, row_attention)


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
