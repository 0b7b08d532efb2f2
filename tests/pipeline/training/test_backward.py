"""Chunks, a first pass and the direct gradient of the head change nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    InklingTextConfig,
    LlamaForCausalLM,
    MiniCPM3Config,
    PreTrainedConfig,
    RecurrentGemmaConfig,
)
from transformers.models.xlstm.configuration_xlstm import xLSTMConfig

from configs.schema import Config
from configs.training_schema import GrpoConfig
from pipeline.training import backward as backward_module
from pipeline.training.backward import (
    LossBackward,
    add_weight_gradient_,
    logits_gradient_,
    logprobs_to_probabilities_,
)
from pipeline.training.loss import LossSums, loss_metrics
from pipeline.training.micro_batch import MicroBatch
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_model, make_samples
from tests.pipeline.training.builders import ADVANTAGES, LENGTHS, assert_same, micro_plans

LOSSES: dict[str, dict[str, object]] = {
    "gspo": {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    "gspo with KL": {"importance_sampling_level": "sequence", "beta": 0.1},
    "KL": {"beta": 0.1},
    "truncated": {"importance_sampling_mode": "sequence_truncate"},
    "masked": {"importance_sampling_mode": "sequence_mask", "beta": 0.1},
    "both": {"importance_sampling_mode": "sequence_mask", "importance_sampling_level": "sequence"},
    "token weights": {"importance_sampling_mode": "token_truncate", "importance_sampling_level": "sequence"},
}


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_depends_on_the_chunks(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    config = make_config(grpo={**LOSSES[name], "importance_sampling_cap": 50.0})
    expected_loss, expected = Trainer(config, folder).gradients(batch)
    expected_metrics = Trainer(config, folder).step(batch).metrics
    monkeypatch.setattr(backward_module, "LOGITS_ROWS", {"cpu": 5})
    loss, gradients = Trainer(config, folder).gradients(batch)
    metrics = Trainer(config, folder).step(batch).metrics
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert_same(gradients, expected)
    assert metrics == pytest.approx(dict(expected_metrics), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "rows", "num_passes"),
    [
        ({}, 1024, 1),
        ({}, 20, 3),
        ({"importance_sampling_level": "sequence"}, 1024, 1),
        ({"importance_sampling_level": "sequence"}, 20, 6),
    ],
)
def test_the_head_runs_twice_only_for_sequences_that_chunks_cut(
    settings: dict[str, str], rows: int, num_passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backward_module, "LOGITS_ROWS", {"cpu": rows})
    model = make_model()
    calls: list[None] = []
    model.lm_head.register_forward_hook(lambda *arguments: calls.append(None))
    make_backward(model, make_config(grpo=settings)).accumulate(make_part())
    assert len(calls) == num_passes


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_head_gradient_added_directly_is_that_of_autograd(is_tied: bool) -> None:
    expected_model, model = make_model(is_tied=is_tied), make_model(is_tied=is_tied)
    config = make_config()
    expected_sums = make_backward(expected_model, config, is_direct=False).accumulate(make_part())
    sums = make_backward(model, config).accumulate(make_part())
    torch.testing.assert_close(sums.stacked(), expected_sums.stacked())
    assert_same(gradients_of(model), gradients_of(expected_model))


def test_a_head_with_a_bias_is_left_to_autograd() -> None:
    model = make_model(is_tied=False)
    weight = model.lm_head.weight
    model.lm_head = nn.Linear(weight.shape[1], weight.shape[0])
    make_backward(model, make_config()).accumulate(make_part())
    assert model.lm_head.bias.grad is not None
    assert float(model.lm_head.bias.grad.abs().max()) > 0


def test_a_frozen_head_passes_the_gradient_on_and_gets_none() -> None:
    expected_model, model = make_model(is_tied=False), make_model(is_tied=False)
    model.lm_head.weight.requires_grad_(False)
    make_backward(expected_model, make_config()).accumulate(make_part())
    make_backward(model, make_config()).accumulate(make_part())
    expected = gradients_of(expected_model)
    del expected["lm_head.weight"]
    assert_same(gradients_of(model), expected)


def test_slices_of_the_vocabulary_add_up_to_the_whole_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    gradient, states = torch.randn(7, 50).bfloat16(), torch.randn(7, 6).bfloat16()
    start = torch.randn(50, 6)
    expected = start + gradient.float().t() @ states.float()
    monkeypatch.setattr(backward_module, "_CPU_SLICE", 6 * 8)
    total = start.clone()
    add_weight_gradient_(total, gradient, states)
    # bf16 products are rounded to 8 bits before they are added.
    torch.testing.assert_close(total, expected, atol=0.05, rtol=0)
    assert float((total - start).abs().max()) > 1


def test_sums_add_up_and_keep_the_largest_ratio() -> None:
    one, two = (LossSums.from_stacked(torch.arange(11.0) * sign, torch.ones(2) * sign) for sign in (1, -1))
    assert (one + two).stacked().tolist() == [0.0] * 10 + [10.0]
    assert float((one + two).ratio_max) == 10.0
    assert (one + two).log_ratios.tolist() == [1.0, 1.0, -1.0, -1.0]
    assert LossSums.zeros("cpu").stacked().tolist() == [0.0] * 11


def test_metrics_are_means_over_the_tokens() -> None:
    sums = LossSums(
        loss=torch.tensor(0.5),
        ratio=torch.tensor(4.4),
        clipped=torch.tensor(1),
        capped=torch.tensor(2),
        reference_kl=torch.tensor(0.8),
        behaviour_kl=torch.tensor(0.4),
        entropy=torch.tensor(12.0),
        on_policy=torch.tensor(2.0),
        mismatch_k1=torch.tensor(0.3),
        mismatch_k3=torch.tensor(0.5),
        ratio_max=torch.tensor(1.7),
        log_ratios=torch.tensor([1.1, 0.9, 0.7, 1.7]).log(),
    )
    metrics = loss_metrics(sums.reported().tolist(), num_tokens=4, has_reference=True)
    assert metrics == pytest.approx(
        {
            "train/loss": 0.5,
            "train/ratio_mean": 1.1,
            "train/ratio_max": 1.7,
            "train/ratio_p01": 0.7,
            "train/ratio_p50": 0.9,
            "train/ratio_p99": 1.7,
            "train/clipped_share": 0.25,
            "train/capped_share": 0.5,
            "train/kl": 0.1,
            "train/on_policy_share": 0.5,
            "train/mismatch_kl": 0.25,
            "train/mismatch_kl_k1": 0.15,
            "train/entropy": 3.0,
            "train/reference_kl": 0.2,
        }
    )
    empty = loss_metrics(LossSums.zeros("cpu").reported().tolist(), num_tokens=0, has_reference=False)
    assert empty == {"train/loss": 0.0}


@pytest.mark.parametrize("num_tokens", [1, 2, 99, 100, 101, 1000])
def test_quantiles_are_the_tokens_of_that_rank(num_tokens: int) -> None:
    values = torch.randn(num_tokens, generator=torch.Generator().manual_seed(num_tokens))
    sums = replace(LossSums.zeros("cpu"), log_ratios=values)
    found = sums.reported()[-3:].log()
    for share, value in zip((0.01, 0.5, 0.99), found, strict=True):
        num_below = int((values < value - 1e-5).sum())
        num_up_to = int((values <= value + 1e-5).sum())
        assert num_below < share * num_tokens + 1e-9 and num_up_to >= share * num_tokens - 1e-9


def test_a_model_that_changes_its_logits_is_refused() -> None:
    model = make_model()
    LossBackward(model, None, GrpoConfig(), temperature=1.0)
    model.config.logit_scale = 0.5
    with pytest.raises(ValueError, match=r"model\.name.*logit_scale = 0\.5"):
        LossBackward(model, None, GrpoConfig(), temperature=1.0)


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        # Computed: no setting of the file.
        (MiniCPM3Config(), "logits_scaling = 10.0"),
        (RecurrentGemmaConfig(), "logits_soft_cap = 30.0"),
        (xLSTMConfig(), "output_logit_soft_cap = 30.0"),
        (InklingTextConfig(), "logits_mup_width_multiplier = 24.0"),
    ],
)
def test_a_transform_is_refused_also_where_a_config_computes_it(
    config: PreTrainedConfig, setting: str
) -> None:
    model = make_model()
    model.config = config  # type: ignore[assignment]
    with pytest.raises(ValueError, match=rf"model\.name.*{re.escape(setting)}"):
        LossBackward(model, None, GrpoConfig(), temperature=1.0)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_and_their_gradient_equal_log_softmax(temperature: float) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(41, 97)).requires_grad_()
    targets = torch.randint(0, 97, (41,))
    upstream = torch.randn(41)
    plain = torch.log_softmax(logits / temperature, -1)
    expected = plain.gather(1, targets[:, None]).squeeze(1)
    (expected_gradient,) = torch.autograd.grad(expected @ upstream, logits)
    expected_entropy = -(plain.exp() * plain).sum(-1)

    memory = logits.detach().clone()
    logprobs, entropy = logprobs_to_probabilities_(memory, targets, temperature=temperature)
    torch.testing.assert_close(logprobs, expected.detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(entropy, expected_entropy.detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(memory, plain.exp().detach(), atol=1e-7, rtol=1e-5)
    gradient = logits_gradient_(memory, targets, logprobs, upstream, temperature=temperature)
    assert gradient is memory
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-6, rtol=1e-5)


def test_no_rows_have_no_logprobs() -> None:
    """As on a rank that is idle in a part of a step, which must go on to the next one with the others."""
    logprobs, entropy = logprobs_to_probabilities_(torch.empty(0, 5), torch.empty(0, dtype=torch.long))
    assert logprobs.shape == entropy.shape == (0,)


def test_improbable_tokens_keep_their_log_probability() -> None:
    logits = torch.tensor([[200.0, 0.0, -300.0], [-1000.0, 0.0, 0.0]])
    logprobs, _ = logprobs_to_probabilities_(logits, torch.tensor([2, 0]))
    assert logprobs.tolist() == pytest.approx([-500.0, -1000.69315], abs=1e-3)


def test_a_confident_bf16_token_keeps_its_small_gradient() -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0]], dtype=torch.bfloat16)
    targets = torch.tensor([0])
    logprobs, _ = logprobs_to_probabilities_(logits, targets)
    gradient = logits_gradient_(logits, targets, logprobs, torch.ones(1))
    assert float(gradient[0, 0]) == pytest.approx(2 * 1.234e-4, rel=0.02)


def test_bf16_logits_are_summed_in_fp32() -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(5, 4000)).bfloat16()
    targets = torch.randint(0, 4000, (5,))
    expected = torch.log_softmax(logits.double(), -1)
    logprobs, entropy = logprobs_to_probabilities_(logits, targets)
    chosen = expected.gather(1, targets[:, None]).squeeze(1)
    torch.testing.assert_close(logprobs.double(), chosen, atol=1e-5, rtol=0)
    torch.testing.assert_close(entropy.double(), -(expected.exp() * expected).sum(-1), atol=1e-5, rtol=0)


def make_backward(model: LlamaForCausalLM, config: Config, *, is_direct: bool = True) -> LossBackward:
    def gradient_of(parameter: nn.Parameter) -> Tensor:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        return parameter.grad

    return LossBackward(
        model, None, config.grpo, temperature=0.8, gradient_of=gradient_of if is_direct else None
    )


def make_part() -> MicroBatch:
    """The 59 loss tokens of all samples in one padded micro-batch."""
    (plan,) = micro_plans(
        make_samples(LENGTHS, ADVANTAGES).samples,
        training={"per_device_train_batch_size": 8},
        grpo={"loss_type": "dr_grpo"},
        acceleration={"skip_zero_advantages": False},
    )
    part = plan.build()
    assert part.layout is None and part.old_logprobs.shape == (59,)
    return part


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
