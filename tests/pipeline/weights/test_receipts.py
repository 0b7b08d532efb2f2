"""Receipts: what a digest sees, what its parts add up to, and what is said of weights that differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from pipeline.generation.generator import GeneratorError, require_version
from pipeline.messages import WeightsLoaded, WeightUpdate
from pipeline.weights import receipts
from pipeline.weights.files import write_weights
from pipeline.weights.receipts import (
    NUM_TURNS,
    code_of,
    columns_of,
    differing,
    digest,
    numbers,
    receipt_of,
)
from pipeline.weights.receipts import tensor_digest as lazy_digest
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.tiny_model import make_model, save_model


def tensor_digest(tensor: torch.Tensor, policy_version: int) -> int:
    (number,) = numbers([lazy_digest(tensor, policy_version)])
    return number


DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def flipped(tensor: torch.Tensor, place: int, bit: int) -> torch.Tensor:
    whole_numbers = torch.int32 if tensor.element_size() == 4 else torch.int16
    changed = tensor.clone()
    bits = changed.flatten().view(whole_numbers)
    bits[place] ^= (1 << bit) if bit < 8 * tensor.element_size() - 1 else torch.iinfo(whole_numbers).min
    return bits.view(tensor.dtype).reshape(tensor.shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit_of_every_element_counts(dtype: torch.dtype) -> None:
    tensor = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    whole = tensor_digest(tensor, 0)
    seen = {
        tensor_digest(flipped(tensor, place, bit), 0)
        for place in range(tensor.numel())
        for bit in range(8 * tensor.element_size())
    }
    assert whole not in seen and len(seen) == tensor.numel() * 8 * tensor.element_size()
    assert tensor_digest(tensor.flip(0), 0) != whole != tensor_digest(tensor.flip(1), 0)


@pytest.mark.parametrize("stride", range(1, 10))
def test_a_bit_of_a_large_tensor_is_seen_by_one_of_eleven_updates(stride: int) -> None:
    tensor = torch.randn(200, 1003)
    changed = flipped(tensor, 777, 0)
    # Where the stages run in turn, one version of each block of steps is loaded.
    versions = range(7, 7 + 11 * stride, stride)
    differ = [tensor_digest(tensor, turn) != tensor_digest(changed, turn) for turn in versions]
    assert differ.count(True) == 1
    assert sorted(place for turn in range(NUM_TURNS) for place in columns_of(200, 1003, turn)) == list(
        range(1003)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_in_whatever_cut_add_up_to_the_whole(dtype: torch.dtype) -> None:
    tensor, columns = torch.randn(700, 300).to(dtype), columns_of(700, 300, 4)
    cuts = [
        (range(0, 123), range(109, 120)),
        (range(123, 700), range(109, 120)),
        (range(700), range(120, 136)),
    ]
    parts = [
        digest(tensor[rows.start : rows.stop, own.start : own.stop], own, first_row=rows.start)
        for rows, own in cuts
    ]
    assert columns == range(109, 136)
    assert sum(numbers(parts)) % 2**64 == tensor_digest(tensor, 4)


def test_a_device_is_waited_for_once_for_all_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(digests: Sequence[torch.Tensor]) -> list[int]:
        read.append(len(digests))
        return numbers(digests)

    monkeypatch.setattr(receipts, "numbers", counted)
    monkeypatch.setattr(torch.Tensor, "__int__", lambda self: pytest.fail("a wait for each tensor"))
    named = list(make_model(seed=1).named_parameters())
    assert len(receipt_of(named, 3)) == len(named) > 1
    assert read == [len(named)]


def test_minus_zero_is_zero_and_one_dimension_is_a_row() -> None:
    assert tensor_digest(torch.tensor([0.0, 1.0]), 0) == tensor_digest(torch.tensor([[-0.0, 1.0]]), 0)


def test_what_differs_is_named_and_a_tied_head_is_the_embedding() -> None:
    published = {"model.embed_tokens.weight": 1, "model.norm.weight": 2}
    assert differing(published, {**published, "lm_head.weight": 1}) == []
    assert differing(published, {**published, "lm_head.weight": 3}) == ["lm_head.weight differs"]
    assert differing(published, {"model.embed_tokens.weight": 1}) == ["model.norm.weight is missing"]
    assert differing(published, {"model.embed_tokens.weight": 1}, unread=["experts"]) == []
    assert differing({"a": 1}, {"a": 1, "b": 2}) == ["b was not published"]
    # An engine holds them in no order.
    assert differing({"b": 1, "a": 1}, {"b": 2, "a": 2}) == ["a differs", "b differs"]
    assert differing({"b": 1, "a": 1}, {}) == ["a is missing", "b is missing"]


def test_a_code_is_of_what_is_held_of_what_was_published() -> None:
    published = {"a": 1, "b": 2}
    assert (
        code_of(published)
        == code_of(published, {"a": 1, "b": 2, "lm_head": 1})
        == code_of(published, {"a": 1})
    )
    assert code_of(published) != code_of(published, {"a": 1, "b": 3})
    assert len(code_of(published)) == 16


def test_what_is_published_bears_the_receipt_of_what_is_in_the_file(tmp_path: Path) -> None:
    model = make_model(seed=1)
    update = write_weights(model.named_parameters(), str(tmp_path / "a.safetensors"), 3, torch.bfloat16)
    cast = {name: weight.to(torch.bfloat16) for name, weight in model.named_parameters()}
    assert update.receipt == receipt_of(cast.items(), 3)
    _, adapter = publish_random_adapter(save_model(tmp_path / "base"), tmp_path / "adapter", 3)
    assert len(adapter.receipt) == 2 * 2 * 7  # layers, factors, projections


def test_an_answer_that_holds_something_else_is_an_error_with_the_tensors_names() -> None:
    update = WeightUpdate(policy_version=4, path="x", receipt={"a": 1, "b": 2, "c": 3})
    held = WeightsLoaded(policy_version=4, pause_s=0.0, receipt={"a": 1, "b": 5})
    with pytest.raises(
        GeneratorError, match=r"engine 7 .*weights 4 .*in 2 of 3 tensors: c is missing; b diff"
    ):
        require_version(held, update, "engine 7")
    assert require_version(WeightsLoaded(policy_version=4, pause_s=0.0, receipt=update.receipt), update, "x")
