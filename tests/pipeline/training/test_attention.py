"""Attention over rows equals masked attention, forward and backward, and refuses what it cannot express."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    BambaConfig,
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    MistralForCausalLM,
    NemotronConfig,
    PreTrainedModel,
    Qwen3Config,
    StableLmConfig,
    Zamba2Config,
)

from configs.training_schema import TrainingConfig
from pipeline.training import attention
from pipeline.training.attention import (
    RowKernel,
    make_layout,
    row_attention,
    row_kernel,
    use_rows,
    why_not_packed,
)
from pipeline.training.rows import Tree
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import VOCABULARY, make_config, make_model, make_samples, make_tokenizer
from tests.pipeline.training.builders import (
    PADDED,
    SCALE,
    Operands,
    assert_is_masked_attention,
    make_operands,
    masked_attention,
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


@pytest.mark.parametrize("kernel", ["cpu", "sdpa"])
@pytest.mark.parametrize(("num_heads", "num_kv"), [(6, 2), (3, 3), (4, 1)])
def test_rows_give_the_output_and_gradient_of_masked_attention(
    num_heads: int, num_kv: int, kernel: RowKernel
) -> None:
    inputs = make_operands(NUM_TOKENS, num_heads, num_kv)
    layout = make_layout(TREES, "cpu", kernel)
    output, _ = row_attention(nn.Module(), *inputs, None, layout=layout, scaling=SCALE)
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


def test_without_a_flash_kernel_no_row_takes_memory_that_grows_with_its_square() -> None:
    row = Tree(num_prompt=256, completions=(128,) * 14)
    query, key, value = (torch.zeros(1, heads, row.num_tokens, 8) for heads in (4, 2, 2))
    with LargestTensor() as largest:
        row_attention(
            nn.Module(), query, key, value, None, layout=make_layout([row], "cpu", "sdpa"), scaling=1.0
        )
    assert query.numel() <= largest.num_elements < row.num_tokens**2 / 4


@pytest.mark.gpu
def test_without_a_flash_kernel_a_gpu_gives_the_gradient_of_masked_attention() -> None:
    inputs = moved(make_operands(NUM_TOKENS, 6, 2), torch.empty(0, device="cuda"))
    layout = make_layout(TREES, "cuda", "sdpa")
    output, _ = row_attention(nn.Module(), *inputs, None, layout=layout, scaling=SCALE)
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
    assert "caps its scores" in (why_not_packed(Gemma2Config(), longest=64) or "")
    for hybrid in (BambaConfig(attn_layer_indices=[1]), MambaConfig(), Zamba2Config()):
        assert "layers of kind" in (why_not_packed(hybrid, longest=64) or "")
    for config in (StableLmConfig(), NemotronConfig()):
        assert "do not tell their attention of rows" in (why_not_packed(config, longest=64) or "")


def test_a_gpu_takes_the_flash_kernel_where_it_may_and_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch itself knows which types and cards its kernel takes; here it is made to know one."""
    asked = []

    def has_flash_kernel(dtype: torch.dtype, head_size: int, device: torch.device) -> bool:
        asked.append((dtype, head_size, device.type))
        return dtype == torch.bfloat16

    monkeypatch.setattr(attention, "has_flash_kernel", has_flash_kernel)
    model, cuda = make_model(), torch.device("cuda")

    def kernel(device: torch.device, *, bf16: bool) -> str:
        return row_kernel(model, TrainingConfig(bf16=bf16), device)

    assert kernel(torch.device("cpu"), bf16=True) == "cpu" and not asked
    assert (kernel(cuda, bf16=True), kernel(cuda, bf16=False)) == ("varlen", "sdpa")
    assert asked == [(torch.bfloat16, 6, "cuda"), (torch.float32, 6, "cuda")]


def logprobs_of(model: PreTrainedModel, token_ids: tuple[int, ...]) -> list[float]:
    """Of all tokens but the first, by Transformers alone."""
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([token_ids])).logits[0, :-1], dim=-1)
    return [float(row[token]) for row, token in zip(logprobs, token_ids[1:], strict=True)]


@pytest.mark.parametrize("acceleration", [{}, PADDED], ids=["rows wanted", "padded"])
def test_a_window_that_is_shorter_than_a_sequence_is_kept(
    acceleration: Mapping[str, object], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=4,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
    )
    policy = MistralForCausalLM(config)  # type: ignore[no-untyped-call]
    policy.save_pretrained(str(tmp_path))
    make_tokenizer().save_pretrained(str(tmp_path))
    batch = make_samples([(3, 9), (5, 14), (2, 6)], [1.0, -1.0, 0.5])
    policy.set_attn_implementation("sdpa")
    samples = []
    for sample in batch.samples:
        own = (0.0, *logprobs_of(policy, sample.token_ids))
        old = tuple(value * mask for value, mask in zip(own, sample.loss_mask, strict=True))
        samples.append(replace(sample, old_logprobs=old, on_policy=sample.loss_mask))
    trainer = Trainer(make_config(acceleration=acceleration), tmp_path)
    metrics = trainer.step(replace(batch, samples=tuple(samples))).metrics
    assert abs(metrics["train/mismatch_kl"]) < 1e-6
    assert [metrics[f"train/ratio_{name}"] for name in ("p01", "p99")] == pytest.approx([1, 1], abs=1e-4)
    ids = batch.samples[1].token_ids
    seen = logprobs_of(policy, ids)
    policy.config.sliding_window = None
    assert logprobs_of(policy, ids) != pytest.approx(seen, abs=0.05), "all of it looks different"


def test_a_model_whose_code_takes_no_other_attention_is_padded(caplog: pytest.LogCaptureFixture) -> None:
    model = BloomForCausalLM(BloomConfig(vocab_size=VOCABULARY, hidden_size=8, n_layer=1, n_head=2))
    assert not use_rows(make_config(), model)
    assert "the batches are padded: the code of BloomForCausalLM takes no other attention" in caplog.text
    assert use_rows(make_config(), make_model())
    assert not use_rows(make_config(acceleration=PADDED), make_model())
