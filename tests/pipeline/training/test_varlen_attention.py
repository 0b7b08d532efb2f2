"""The flash kernel's two calls over a row equal masked attention; a plain function stands for the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from pipeline.training import trainer, varlen_attention
from pipeline.training.attention import make_layout, row_attention
from pipeline.training.rows import Tree
from pipeline.training.trainer import Trainer
from pipeline.training.varlen_attention import Segments, attend_by_lengths, has_flash_kernel, row_lengths
from tests.pipeline.tiny_model import make_config, make_groups
from tests.pipeline.training.builders import (
    SCALE,
    Operands,
    assert_each_near,
    assert_is_masked_attention,
    make_operands,
)

ROWS = {
    "shared prompts": (
        Tree(num_prompt=7, completions=(3, 0, 9, 5, 1)),
        Tree(num_prompt=11, completions=()),
        Tree(num_prompt=1, completions=(2, 2)),
    ),
    "sequences by themselves": (Tree(num_prompt=5, completions=()), Tree(num_prompt=1, completions=())),
    "one tree": (Tree(num_prompt=4, completions=(6,)),),
    "no completion that is not empty": (Tree(num_prompt=4, completions=(0, 0)),),
    "one token each": (Tree(num_prompt=1, completions=(1,)), Tree(num_prompt=1, completions=(1, 1))),
}


def plain_flash(
    operands: Operands, queries: Segments, keys: Segments, *, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """What the flash kernel computes, segment by segment and in plain operations."""
    outputs, sums = [], []
    for query, key, value in _each(operands, queries, keys):
        scores = _scores(query, key, is_causal=is_causal, scale=scale)
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), _repeated(value, query)))
        sums.append(scores.logsumexp(-1))
    return torch.cat(outputs), torch.cat(sums, dim=1)


def plain_flash_backward(
    gradient: Tensor,
    operands: Operands,
    results: tuple[Tensor, Tensor],
    queries: Segments,
    keys: Segments,
    *,
    is_causal: bool,
    scale: float,
) -> Operands:
    """With the probabilities that the given sums make, as the kernel has them."""
    output, lse = results
    parts: list[Operands] = []
    places = zip(queries.ends[:-1].tolist(), queries.ends[1:].tolist(), strict=True)
    for (query, key, value), (start, end) in zip(_each(operands, queries, keys), places, strict=True):
        scores = _scores(query, key, is_causal=is_causal, scale=scale)
        shares = (scores - lse[:, start:end, None]).exp()
        d_output, repeated = gradient[start:end], _repeated(value, query)
        d_shares = torch.einsum("qhd,khd->hqk", d_output, repeated)
        row = (d_output * output[start:end]).sum(-1).t()[..., None]
        d_scores = shares * (d_shares - row) * scale
        d_query = torch.einsum("hqk,khd->qhd", d_scores, _repeated(key, query))
        d_key = torch.einsum("hqk,qhd->khd", d_scores, query)
        d_value = torch.einsum("hqk,qhd->khd", shares, d_output)
        num = key.shape[1]
        parts.append((d_query, _summed(d_key, num), _summed(d_value, num)))
    d_query, d_key, d_value = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return d_query, d_key, d_value


@pytest.fixture
def plain_kernel(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands for the kernel; remembers its forward calls."""
    forward = Mock(side_effect=plain_flash)
    monkeypatch.setattr(varlen_attention, "_flash", forward)
    monkeypatch.setattr(varlen_attention, "_flash_backward", plain_flash_backward)
    return forward


def _each(operands: Operands, queries: Segments, keys: Segments) -> list[Operands]:
    """The operands of each segment; the ends must fill them, as the kernel wants it."""
    query, key, value = operands
    assert queries.ends.dtype == keys.ends.dtype == torch.int32
    q_sizes, k_sizes = queries.ends.diff().tolist(), keys.ends.diff().tolist()
    assert min(q_sizes + k_sizes) > 0, "the kernel is not asked for what is empty"
    assert (queries.longest, keys.longest) == (max(q_sizes), max(k_sizes))
    parts = (torch.split(query, q_sizes), torch.split(key, k_sizes), torch.split(value, k_sizes))
    return list(zip(*parts, strict=True))


def _scores(query: Tensor, key: Tensor, *, is_causal: bool, scale: float) -> Tensor:
    scores = torch.einsum("qhd,khd->hqk", query, _repeated(key, query)) * scale
    if is_causal:
        num, num_keys = scores.shape[1:]
        assert num == num_keys
        scores = scores.masked_fill(torch.ones(num, num).triu(1).bool(), -torch.inf)
    return scores


def _repeated(tensor: Tensor, query: Tensor) -> Tensor:
    return tensor.repeat_interleave(query.shape[1] // tensor.shape[1], dim=1)


def _summed(tensor: Tensor, num: int) -> Tensor:
    return tensor.view(tensor.shape[0], num, -1, tensor.shape[2]).sum(2)


@pytest.mark.parametrize("trees", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize(("num_heads", "num_kv"), [(6, 2), (3, 3), (4, 1)])
@pytest.mark.usefixtures("plain_kernel")
def test_two_calls_a_row_give_the_output_and_gradient_of_masked_attention(
    trees: Sequence[Tree], num_heads: int, num_kv: int
) -> None:
    num_tokens = sum(tree.num_tokens for tree in trees)
    operands = make_operands(num_tokens, num_heads, num_kv, dtype=torch.float64)
    output = attend_by_lengths(*operands, row_lengths(trees, "cpu"), SCALE)
    assert_is_masked_attention(output, operands, trees)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_trainer_that_takes_the_kernel_has_the_gradient_of_one_that_does_not(
    folder: Path, checkpointed: bool, plain_kernel: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(training={"gradient_checkpointing": checkpointed})
    batch = make_groups((7, 1, 4), [[3, 9, 1, 6], [5, 2, 8, 4], [1, 1, 12, 7]])
    _, expected = Trainer(config, folder).gradients(batch)
    monkeypatch.setattr(trainer, "row_kernel", lambda model, training, device: "varlen")
    _, ours = Trainer(config, folder).gradients(batch)
    assert plain_kernel.called
    assert_each_near(ours, expected)


@pytest.mark.parametrize("trees", ROWS.values(), ids=ROWS)
def test_torchs_kernel_is_called_as_it_is_declared(trees: Sequence[Tree]) -> None:
    """On the device that computes shapes alone, forward and backward."""
    num_tokens = sum(tree.num_tokens for tree in trees)
    query, key, value = (
        torch.empty(1, num, num_tokens, 64, dtype=torch.bfloat16, device="meta").requires_grad_()
        for num in (6, 2, 2)
    )
    output = attend_by_lengths(query, key, value, row_lengths(trees, "meta"), SCALE)
    assert (output.shape, output.dtype) == ((1, num_tokens, 6, 64), torch.bfloat16)
    gradients = torch.autograd.grad(output, (query, key, value), torch.empty_like(output))
    assert [gradient.shape for gradient in gradients] == [query.shape, key.shape, value.shape]


def test_heads_that_the_kernel_would_refuse_are_not_given_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch itself says yes to any size: its own attention pads heads before the kernel."""
    monkeypatch.setattr(varlen_attention, "can_use_flash_attention", lambda params: True)
    sizes = (6, 8, 60, 64, 80)
    cpu = torch.device("cpu")
    assert [has_flash_kernel(torch.bfloat16, size, cpu) for size in sizes] == [False, True, False, True, True]


@pytest.mark.gpu
@pytest.mark.parametrize("trees", ROWS.values(), ids=ROWS)
def test_on_a_gpu_the_flash_kernel_gives_what_sdpa_by_sequences_gives(trees: Sequence[Tree]) -> None:
    device = torch.device("cuda")
    if not has_flash_kernel(torch.bfloat16, 64, device):
        pytest.skip("this GPU has no flash kernel for bf16")
    exact = make_operands(sum(tree.num_tokens for tree in trees), 6, 2, size=64, dtype=torch.float64)
    found = {}
    for kernel in ("varlen", "sdpa"):
        query, key, value = (tensor.detach().to(device, torch.bfloat16).requires_grad_() for tensor in exact)
        layout = make_layout(trees, device, kernel)
        output, _ = row_attention(nn.Module(), query, key, value, None, layout=layout, scaling=SCALE)
        weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(output)
        found[kernel] = (output, *torch.autograd.grad(output, (query, key, value), weight))
    for flash, plain in zip(found["varlen"], found["sdpa"], strict=True):
        assert float((flash - plain).float().norm()) <= 0.02 * float(plain.float().norm())
