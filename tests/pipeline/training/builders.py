"""What the tests of training share: batches, layouts, attention, a full memory, how near gradients are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from configs.schema import Config
from pipeline.messages import TrainBatch, TrainingSample
from pipeline.record.checkpoints import find_fault
from pipeline.training.batching import MicroBatchPlan, StepPlanner
from pipeline.training.ranks import Ranks
from pipeline.training.rows import Tree
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import VOCABULARY, make_config, make_samples, make_tokenizer

# (prompt, completion) lengths of eight samples; two of the advantages are zero.
LENGTHS = [(5, 9), (3, 16), (7, 1), (5, 4), (2, 12), (6, 6), (4, 3), (3, 8)]
ADVANTAGES = [1.2, -0.7, 0.0, 0.4, -1.5, 0.0, 0.3, -0.2]
# The same in two groups of four, all with a signal.
GROUP_LENGTHS = [(5, 9), (5, 12), (5, 4), (5, 6), (4, 12), (4, 6), (4, 3), (4, 8)]
GROUP_ADVANTAGES = [1.2, -0.7, 0.1, 0.4, -1.5, 0.2, 0.3, -0.2]
PADDED: Mapping[str, object] = {"token_packing": {"enabled": False}, "shared_prompt": False}
LORA: Mapping[str, object] = {"enabled": True, "r": 4, "alpha": 6.0}


def gradients(
    ranks: Ranks, config: Config, folder: Path, *parts: TrainBatch
) -> tuple[float, dict[str, Tensor]]:
    """The loss and gradient of a step in these parts."""
    return Trainer(config, folder, ranks=ranks).gradients(*parts)


def with_reference(config: Config, policy: Path, reference: Path) -> Trainer:
    """A trainer of ``policy`` whose reference is another model, as after steps."""
    trainer = Trainer(config, reference)
    trainer._load_weights(policy)
    trainer._weights.refresh()
    return trainer


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.named_weights()}


def micro_plans(
    samples: Sequence[TrainingSample],
    *,
    packs: bool = False,
    shares_prompts: bool = False,
    **sections: Mapping[str, Any],
) -> list[MicroBatchPlan]:
    """The micro-batches of a trainer with ``make_config(**sections)`` and this layout."""
    acceleration = {**sections.pop("acceleration", {}), "shared_prompt": shares_prompts}
    packing = {**acceleration.get("token_packing", {}), "enabled": packs}
    config = make_config(**sections, acceleration={**acceleration, "token_packing": packing})
    planner = StepPlanner(config, supports_rows=True, pad_token_id=0, num_ranks=1)
    return planner.plan(planner.weighted(samples), planner.limit)


def assert_goes_on(first: Trainer, resumed: Trainer, place: Path) -> Path:
    """``resumed`` goes on from a checkpoint of ``first`` in ``place`` as if it had made all steps itself."""
    batches = [make_samples(LENGTHS, ADVANTAGES, seed=seed) for seed in range(4)]
    before = weights(first)
    for batch in batches[:2]:
        first.step(batch)
    assert any(bool((value != before[name]).any()) for name, value in weights(first).items())
    saved = first.save(place, 2)
    assert find_fault(saved) is None
    assert resumed.load(saved) == resumed.policy_version == 2
    for batch in batches[2:]:
        expected, ours = first.step(batch), resumed.step(batch)
        assert ours.metrics == pytest.approx(dict(expected.metrics))
    expected_weights = weights(first)
    for name, value in weights(resumed).items():
        assert torch.equal(value, expected_weights[name]), name
    return saved


def relative_error(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    assert ours.keys() == expected.keys()
    a, b = (torch.cat([grads[name].flatten() for name in expected]) for grads in (ours, expected))
    return float((a - b).norm() / b.norm())


def assert_same(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Element by element, and not all of them zero."""
    assert ours.keys() == expected.keys()
    assert any(bool(value.abs().max() > 1e-4) for value in expected.values())
    for name, value in expected.items():
        torch.testing.assert_close(ours[name], value, atol=1e-6, rtol=1e-4, msg=name)


def assert_each_near(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor], error: float = 1e-5) -> None:
    """Parameter by parameter, by the norm of the difference."""
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert float((ours[name] - value).norm()) <= error * float(value.norm()), name


Operands = tuple[Tensor, Tensor, Tensor]
# On the scores of attention.
SCALE = 0.3


def make_operands(
    num_tokens: int, num_heads: int, num_kv: int, *, size: int = 8, dtype: torch.dtype = torch.float32
) -> Operands:
    """Query (1, num_heads, num_tokens, size), key and value (1, num_kv, num_tokens, size), as leaves."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, num, num_tokens, size, generator=generator, dtype=dtype).requires_grad_()
        for num in (num_heads, num_kv, num_kv)
    )
    return query, key, value


def segments(trees: Sequence[Tree]) -> tuple[list[int], list[int]]:
    """For every token of a row its segment, and the segment of its prompt.

    A token sees those before it in the row that are of its own segment or of its prompt's.
    """
    own: list[int] = []
    prompts: list[int] = []
    num = 0
    for tree in trees:
        prompt = num
        for length in (tree.num_prompt, *tree.completions):
            own += [num] * length
            prompts += [prompt] * length
            num += 1
    return own, prompts


def visible(trees: Sequence[Tree]) -> Tensor:
    """Which tokens of a row each of its tokens sees: (T, T) bool."""
    own, prompts = (torch.tensor(ids) for ids in segments(trees))
    index = torch.arange(len(own))
    return (index[None] <= index[:, None]) & ((own[None] == own[:, None]) | (own[None] == prompts[:, None]))


def masked_attention(operands: Operands, trees: Sequence[Tree]) -> Tensor:
    output = scaled_dot_product_attention(*operands, attn_mask=visible(trees), scale=SCALE, enable_gqa=True)
    return output.transpose(1, 2)


def assert_is_masked_attention(output: Tensor, operands: Operands, trees: Sequence[Tree]) -> None:
    """In value and gradient."""
    expected = masked_attention(operands, trees)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(expected.shape, generator=random, dtype=expected.dtype)
    ours = torch.autograd.grad(output, operands, weight)
    for gradient, reference in zip(ours, torch.autograd.grad(expected, operands, weight), strict=True):
        torch.testing.assert_close(gradient, reference, atol=1e-5, rtol=1e-5)


def gpu_fault() -> Exception:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class FaultyAllocator:
    """Fails in the forward or the backward of the first layer when more than ``max_tokens`` go through it.

    In the backward all later layers have their gradients by then.
    """

    def __init__(
        self, trainer: Trainer, max_tokens: int, where: str, fault: Callable[[], Exception] = gpu_fault
    ) -> None:
        self.sizes: list[int] = []
        self.is_on = True
        self.max_tokens = max_tokens
        self._fault = fault
        self._is_late = where == "backward"
        layer: nn.Module = trainer._weights.compute_model.model.layers[0]
        layer.register_forward_hook(self._check)

    def _check(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.sizes.append(output.shape[0] * output.shape[1])
        if self.is_on and self.sizes[-1] > self.max_tokens:
            if not self._is_late:
                raise self._fault()
            output.register_hook(self._fail)  # type: ignore[no-untyped-call]

    def _fail(self, gradient: Tensor) -> None:
        raise self._fault()


def save_language_part(folder: Path) -> Path:
    """A small model, its weights named as in the files of the model of images that it is a part of."""
    config = Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    Qwen3_5ForCausalLM(config).save_pretrained(str(folder))  # type: ignore[no-untyped-call]
    make_tokenizer().save_pretrained(str(folder))
    path = folder / "model.safetensors"
    named = {f"model.language_{name}": value for name, value in load_file(path).items()}
    save_file(named, path, metadata={"format": "pt"})
    return folder
