"""Attention over rows equals masked attention, forward and backward, and refuses what it cannot express."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, MistralConfig, Qwen3Config

from pipeline.training.attention import RowLayout, make_layout, row_attention, tree_mask, why_not_packed
from pipeline.training.rows import Tree, segments

TREES = (
    Tree(num_prompt=7, completions=(3, 0, 9, 5, 1)),
    Tree(num_prompt=11, completions=()),
    Tree(num_prompt=1, completions=(2, 2)),
)
SCALE = 0.3
NUM_TOKENS = sum(tree.num_tokens for tree in TREES)


Operands = tuple[Tensor, Tensor, Tensor]


def operands(num_heads: int, num_kv: int) -> Operands:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, num, NUM_TOKENS, 8, generator=generator).requires_grad_()
        for num in (num_heads, num_kv, num_kv)
    )
    return query, key, value


def moved(inputs: Operands, like: Tensor) -> Operands:
    """Leaves of the same values, of the type and on the device of ``like``."""
    query, key, value = (tensor.detach().to(like).requires_grad_() for tensor in inputs)
    return query, key, value


def masked(inputs: Operands) -> Tensor:
    query, key, value = inputs
    own, prompts = (torch.tensor(ids) for ids in segments(TREES))
    index = torch.arange(NUM_TOKENS)
    mask = (index[None] <= index[:, None]) & ((own[None] == own[:, None]) | (own[None] == prompts[:, None]))
    output = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=SCALE, enable_gqa=True)
    return output.transpose(1, 2)


@pytest.mark.parametrize(("num_heads", "num_kv"), [(6, 2), (3, 3), (4, 1)])
def test_rows_give_the_output_and_gradient_of_masked_attention(num_heads: int, num_kv: int) -> None:
    inputs = operands(num_heads, num_kv)
    expected = masked(inputs)
    output, _ = row_attention(nn.Module(), *inputs, None, layout=make_layout(TREES, "cpu"), scaling=SCALE)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad(output, inputs, weight)
    for gradient, reference in zip(ours, torch.autograd.grad(expected, inputs, weight), strict=True):
        torch.testing.assert_close(gradient, reference, atol=1e-5, rtol=1e-5)


def test_bf16_rows_are_as_near_to_fp32_as_bf16_masked_attention() -> None:
    exact = operands(6, 2)
    rounded = moved(exact, torch.empty(0, dtype=torch.bfloat16))
    query, key, value = rounded
    truth = masked((query.float(), key.float(), value.float()))
    output, _ = row_attention(nn.Module(), *rounded, None, layout=make_layout(TREES, "cpu"), scaling=SCALE)
    plain = masked(rounded)
    assert float((output - truth).detach().abs().max()) <= 2 * float((plain - truth).detach().abs().max())
    weight = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(truth, rounded, weight)
    for gradient, reference in zip(
        torch.autograd.grad(output, rounded, weight.bfloat16()), expected, strict=True
    ):
        assert float((gradient - reference).norm()) <= 0.02 * float(reference.norm())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_mask_for_flex_attention_means_the_same() -> None:
    """FlexAttention has no backward on a CPU; its gradient is tested where there is a GPU."""
    query, key, value = (tensor.detach() for tensor in operands(6, 2))
    layout = RowLayout(trees=TREES, mask=tree_mask(TREES, "cpu"))
    output, _ = row_attention(nn.Module(), query, key, value, None, layout=layout, scaling=SCALE)
    torch.testing.assert_close(output, masked((query, key, value)), atol=1e-6, rtol=1e-5)


@pytest.mark.gpu
def test_flex_attention_gives_the_gradient_of_masked_attention_on_a_gpu() -> None:
    inputs = moved(operands(6, 2), torch.empty(0, device="cuda"))
    output, _ = row_attention(nn.Module(), *inputs, None, layout=make_layout(TREES, "cuda"), scaling=SCALE)
    cpu = moved(inputs, torch.empty(0))
    expected = masked(cpu)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad(output, inputs, weight.cuda())
    for gradient, reference in zip(ours, torch.autograd.grad(expected, cpu, weight), strict=True):
        torch.testing.assert_close(gradient.cpu(), reference, atol=1e-2, rtol=1e-2)


def test_attention_that_a_row_cannot_express_is_named() -> None:
    assert why_not_packed(LlamaConfig(), longest=10_000) is None
    assert why_not_packed(Qwen3Config(), longest=10_000) is None
    window = MistralConfig(sliding_window=64)
    assert why_not_packed(window, longest=64) is None
    assert "64 tokens" in (why_not_packed(window, longest=65) or "")
