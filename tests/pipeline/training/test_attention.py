"""Attention over rows equals masked attention, forward and backward, and refuses what it cannot express."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, MistralConfig, Qwen3Config

from configs.training_schema import TrainingConfig
from pipeline.training import attention
from pipeline.training.attention import make_layout, row_attention, row_kernel, why_not_packed
from pipeline.training.flex_attention import tree_mask
from pipeline.training.rows import Tree
from tests.pipeline.tiny_model import make_model
from tests.pipeline.training.builders import (
    SCALE,
    Operands,
    assert_is_masked_attention,
    make_operands,
    masked_attention,
    visible,
)

TREES = (
    Tree(num_prompt=7, completions=(3, 0, 9, 5, 1)),
    Tree(num_prompt=11, completions=()),
    Tree(num_prompt=1, completions=(2, 2)),
)
NUM_TOKENS = sum(tree.num_tokens for tree in TREES)


def moved(inputs: Operands, like: Tensor) -> Operands:
    """Leaves of the same values, of the type and on the device of ``like``."""
    query, key, value = (tensor.detach().to(like).requires_grad_() for tensor in inputs)
    return query, key, value


@pytest.mark.parametrize(("num_heads", "num_kv"), [(6, 2), (3, 3), (4, 1)])
def test_rows_give_the_output_and_gradient_of_masked_attention(num_heads: int, num_kv: int) -> None:
    inputs = make_operands(NUM_TOKENS, num_heads, num_kv)
    output, _ = row_attention(nn.Module(), *inputs, None, layout=make_layout(TREES), scaling=SCALE)
    assert_is_masked_attention(output, inputs, TREES)


def test_bf16_rows_are_as_near_to_fp32_as_bf16_masked_attention() -> None:
    exact = make_operands(NUM_TOKENS, 6, 2)
    rounded = moved(exact, torch.empty(0, dtype=torch.bfloat16))
    query, key, value = rounded
    truth = masked_attention((query.float(), key.float(), value.float()), TREES)
    output, _ = row_attention(nn.Module(), *rounded, None, layout=make_layout(TREES), scaling=SCALE)
    plain = masked_attention(rounded, TREES)
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
    query, key, value = (tensor.detach() for tensor in make_operands(NUM_TOKENS, 6, 2))
    layout = make_layout(TREES, "cpu", "flex")
    output, _ = row_attention(nn.Module(), query, key, value, None, layout=layout, scaling=SCALE)
    torch.testing.assert_close(output, masked_attention((query, key, value), TREES), atol=1e-6, rtol=1e-5)


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the elements of the largest tensor that is made in its block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, Tensor):
                self.num_elements = max(self.num_elements, one.numel())
        return made


def random_trees(rng: random.Random, num_tokens: int) -> list[Tree]:
    trees, left = [], num_tokens
    while left > 0:
        prompt = min(left, rng.randint(1, 300))
        left -= prompt
        completions = []
        for _ in range(rng.randint(0, 4)):
            if left > 0:
                completions.append(min(left, rng.randint(1, 300)))
                left -= completions[-1]
        trees.append(Tree(num_prompt=prompt, completions=tuple(completions)))
    return trees


def test_the_blocks_of_the_mask_hold_all_that_is_seen_and_whole_ones_nothing_else() -> None:
    rng = random.Random(0)
    num_whole = 0
    for num_tokens in (1, 127, 128, 129, 640, 1000, 1537):
        trees = random_trees(rng, num_tokens)
        mask = tree_mask(trees, "cpu")
        size = -(-num_tokens // 128)
        padded = torch.zeros(128 * size, 128 * size, dtype=torch.bool)
        padded[:num_tokens, :num_tokens] = visible(trees)
        tiles = padded.view(size, 128, size, 128).transpose(1, 2).flatten(2)
        looked_at = mask.to_dense()[0, 0].bool()
        assert bool((looked_at | ~tiles.any(-1)).all())
        assert mask.full_kv_num_blocks is not None and mask.full_kv_indices is not None
        for query, number in enumerate(mask.full_kv_num_blocks[0, 0].tolist()):
            for key in mask.full_kv_indices[0, 0, query, :number].tolist():
                assert bool(tiles[query, key].all())
                num_whole += 1
    assert num_whole > 10


def test_making_the_mask_of_a_long_row_takes_no_memory_that_grows_with_its_square() -> None:
    with LargestTensor() as largest:
        tree_mask([Tree(num_prompt=1024, completions=(1024,) * 7)], "cpu")
    assert 8192 <= largest.num_elements <= 8192 * 64


def test_rows_of_any_length_are_compiled_at_most_twice() -> None:
    """Without a gradient: FlexAttention has none on a CPU."""
    torch._dynamo.reset()
    counter = CompileCounter()
    flex: Any = torch.compile(flex_attention, backend=counter, dynamic=True)
    rng = random.Random(1)
    for num_tokens in (700, 701, 512, 100, 64, 300, 128, 129, 900, 257, 33):
        mask = tree_mask(random_trees(rng, num_tokens), "cpu")
        query, key, value = (torch.randn(1, heads, num_tokens, 16) for heads in (4, 2, 2))
        flex(query, key, value, block_mask=mask, scale=SCALE, enable_gqa=True)
    torch._dynamo.reset()
    assert 1 <= counter.frame_count <= 2


@pytest.mark.gpu
def test_flex_attention_gives_the_gradient_of_masked_attention_on_a_gpu() -> None:
    # FlexAttention compiles for heads of 16 and more.
    inputs = moved(make_operands(NUM_TOKENS, 6, 2, size=16), torch.empty(0, device="cuda"))
    output, _ = row_attention(
        nn.Module(), *inputs, None, layout=make_layout(TREES, "cuda", "flex"), scaling=SCALE
    )
    cpu = moved(inputs, torch.empty(0))
    expected = masked_attention(cpu, TREES)
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


def test_a_gpu_takes_the_flash_kernel_where_it_may_and_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch itself knows which types and cards its kernel takes; here it is made to know one."""
    asked = []

    def has_flash_kernel(dtype: torch.dtype, head_size: int, device: torch.device) -> bool:
        asked.append((dtype, head_size, device.type))
        return dtype == torch.bfloat16

    monkeypatch.setattr(attention, "has_flash_kernel", has_flash_kernel)
    model, cuda = make_model(), torch.device("cuda")

    def kernel(device: torch.device, **training: Any) -> str:
        return row_kernel(model, TrainingConfig(**training), device)

    assert kernel(torch.device("cpu"), bf16=True) == "cpu" and not asked
    assert kernel(cuda, bf16=True, attn_implementation="flex_attention") == "flex" and not asked
    assert (kernel(cuda, bf16=True), kernel(cuda, bf16=False)) == ("varlen", "flex")
    assert asked == [(torch.bfloat16, 6, "cuda"), (torch.float32, 6, "cuda")]
