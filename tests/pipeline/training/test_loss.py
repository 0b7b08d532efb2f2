"""Every loss equals a plain Python loop over sequences and tokens, in value and gradient."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from configs.training_schema import GrpoConfig, LossType
from pipeline.training.loss import (
    LossTokens,
    importance_weights,
    needs_whole_sequences,
    policy_loss,
    step_scale,
    token_weights,
)

LENGTHS = [3, 1, 4, 2]
ADVANTAGES = [1.1, -0.8, 0.5, -1.4]
MODES = ["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


def make_tokens(*, spread: float = 0.6, seed: int = 0) -> LossTokens:
    """Tokens of four sequences in fp64, with a leaf as ``logprobs``; a sequence has one token weight."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(LENGTHS)
    current = (-2.0 + torch.randn(total, generator=generator, dtype=torch.float64)).requires_grad_()
    owners = torch.tensor([index for index, length in enumerate(LENGTHS) for _ in range(length)])
    noise = torch.randn(2, total, generator=generator, dtype=torch.float64)
    return LossTokens(
        logprobs=current,
        old_logprobs=current.detach() + spread * noise[0],
        advantages=torch.tensor(ADVANTAGES, dtype=torch.float64)[owners],
        weights=torch.tensor([0.05, 0.2, 0.1, 0.15], dtype=torch.float64)[owners],
        on_policy=torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)[owners],
        sequence_ids=owners,
        num_sequences=len(LENGTHS),
        ref_logprobs=current.detach() + 0.3 * noise[1],
    )


def plain_loss(current: list[Tensor], tokens: LossTokens, grpo: GrpoConfig) -> Tensor:
    """The loss as the papers write it, one scalar at a time; ``current`` are the log-probabilities."""
    assert tokens.ref_logprobs is not None
    low = 1 - grpo.epsilon
    high = 1 + (grpo.epsilon if grpo.epsilon_high is None else grpo.epsilon_high)
    total = torch.zeros((), dtype=torch.float64)
    for sequence in range(tokens.num_sequences):
        members = [n for n in range(len(current)) if int(tokens.sequence_ids[n]) == sequence]
        behaviour = {n: float(tokens.old_logprobs[n]) for n in members}
        is_corrected = grpo.importance_sampling_mode != "none"
        proximal = {n: float(current[n].detach()) if is_corrected else behaviour[n] for n in members}
        mean = torch.stack([current[n] - proximal[n] for n in members]).mean()
        log_product = sum(float(current[n].detach()) - behaviour[n] for n in members)
        for n in members:
            by_token = current[n] - proximal[n]
            ratio = torch.exp(by_token if grpo.importance_sampling_level == "token" else mean)
            advantage = float(tokens.advantages[n])
            if grpo.loss_type == "cispo":
                assert grpo.epsilon_high is not None
                loss = -min(float(ratio.detach()), grpo.epsilon_high) * advantage * current[n]
            else:
                first = ratio if grpo.delta is None else ratio.clamp(max=grpo.delta)
                loss = -torch.minimum(first * advantage, ratio.clamp(low, high) * advantage)
            weight = 1.0
            if is_corrected:
                kind, _, act = grpo.importance_sampling_mode.partition("_")
                own = float(current[n].detach()) - behaviour[n]
                weight = math.exp(own if kind == "token" else log_product)
                if weight > grpo.importance_sampling_cap:
                    weight = grpo.importance_sampling_cap if act == "truncate" else 0.0
            loss = loss * weight
            d = float(tokens.ref_logprobs[n]) - current[n]
            loss = loss + grpo.beta * ratio * (torch.exp(d) - d - 1)
            total = total + float(tokens.weights[n]) * loss
    return total


def assert_equals_plain(tokens: LossTokens, grpo: GrpoConfig) -> None:
    loss, _ = policy_loss(tokens, grpo)
    (gradient,) = torch.autograd.grad(loss, tokens.logprobs)
    current = [value.clone().requires_grad_() for value in tokens.logprobs.detach()]
    expected = plain_loss(current, tokens, grpo)
    expected_gradient = torch.autograd.grad(expected, current, allow_unused=True)
    plain = [0.0 if value is None else float(value) for value in expected_gradient]
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    assert gradient.tolist() == pytest.approx(plain, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("level", "beta", "mode", "delta"),
    [
        case
        for case in itertools.product(["token", "sequence"], [0.0, 0.1], MODES, [None, 1.5])
        if not (case[2] != "none" and case[3] is not None)
    ],
)
def test_the_clipped_losses_equal_a_loop(level: str, beta: float, mode: str, delta: float | None) -> None:
    grpo = make_grpo(
        importance_sampling_level=level,
        beta=beta,
        importance_sampling_mode=mode,
        delta=delta,
        epsilon_high=0.28,
        importance_sampling_cap=1.3,
    )
    for seed in range(3):
        assert_equals_plain(make_tokens(seed=seed), grpo)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_cispo_equals_a_loop(beta: float, mode: str) -> None:
    settings = {"loss_type": "cispo", "epsilon_high": 1.2, "beta": beta, "importance_sampling_mode": mode}
    assert_equals_plain(make_tokens(), make_grpo(**settings, importance_sampling_cap=1.3))


def test_losses_of_single_tokens_do_not_depend_on_the_cut() -> None:
    tokens = make_tokens()
    assert tokens.ref_logprobs is not None
    grpo = make_grpo(beta=0.1, importance_sampling_mode="token_truncate")
    assert not needs_whole_sequences(grpo)
    whole, whole_sums = policy_loss(tokens, grpo)
    parts = [policy_loss(cut(tokens, rows), grpo) for rows in (slice(0, 4), slice(4, None))]
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole)
    # Sums are reported in fp32.
    torch.testing.assert_close((parts[0][1] + parts[1][1]).stacked(), whole_sums.stacked())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"importance_sampling_mode": "token_mask"}, False),
        ({"importance_sampling_mode": "sequence_mask"}, True),
        ({"importance_sampling_mode": "sequence_truncate"}, True),
        ({"importance_sampling_level": "sequence"}, True),
    ],
)
def test_only_ratios_of_sequences_need_whole_sequences(settings: dict[str, str], expected: bool) -> None:
    assert needs_whole_sequences(make_grpo(**settings)) is expected


def test_clipping_stops_the_gradient_only_in_the_direction_of_the_advantage() -> None:
    tokens = simple_tokens([0.5, 0.5, -0.5, -0.5], [1.0, -1.0, 1.0, -1.0])
    loss, sums = policy_loss(tokens, make_grpo())
    (gradient,) = torch.autograd.grad(loss, tokens.logprobs)
    assert (gradient == 0).tolist() == [True, False, False, True]
    assert int(sums.clipped) == 2


def test_the_second_bound_stops_the_gradient_of_bad_tokens_that_became_likely() -> None:
    tokens = simple_tokens([0.8, 0.3], [-1.0, -1.0])
    for delta, expected in ((None, [False, False]), (2.0, [True, False])):
        loss, sums = policy_loss(tokens, make_grpo(delta=delta))
        (gradient,) = torch.autograd.grad(loss, tokens.logprobs)
        assert (gradient == 0).tolist() == expected
        assert int(sums.clipped) == sum(expected)


def test_a_higher_upper_bound_lets_more_tokens_through() -> None:
    tokens = simple_tokens([0.22], [1.0])
    assert int(policy_loss(tokens, make_grpo())[1].clipped) == 1
    assert int(policy_loss(tokens, make_grpo(epsilon_high=0.28))[1].clipped) == 0


def test_cispo_keeps_the_gradient_of_tokens_that_it_clips() -> None:
    tokens = simple_tokens([1.0, -3.0], [1.0, 1.0])
    loss, sums = policy_loss(tokens, make_grpo(loss_type="cispo", epsilon_high=2.0))
    (gradient,) = torch.autograd.grad(loss, tokens.logprobs)
    assert gradient.tolist() == pytest.approx([-2.0, -math.exp(-3.0)])
    assert int(sums.clipped) == 1


def test_weights_above_the_cap_are_cut_or_masked_and_counted() -> None:
    tokens = simple_tokens([1.0, 0.0, -1.0], [1.0, 1.0, 1.0], owners=[0, 1, 1])
    weights, is_capped = importance_weights(tokens, mode="token_truncate", cap=2.0)
    assert weights.tolist() == pytest.approx([2.0, 1.0, math.exp(-1)])
    assert is_capped.tolist() == [True, False, False]
    weights, _ = importance_weights(tokens, mode="sequence_mask", cap=2.0)
    assert weights.tolist() == pytest.approx([0.0, math.exp(-1), math.exp(-1)])
    _, sums = policy_loss(
        tokens, make_grpo(importance_sampling_mode="sequence_mask", importance_sampling_cap=2)
    )
    assert int(sums.capped) == 1


def test_a_sequence_ratio_beyond_all_numbers_is_still_cut() -> None:
    tokens = simple_tokens([200.0, 300.0], [1.0, -1.0])
    for mode, expected in (("sequence_truncate", 3.0), ("sequence_mask", 0.0)):
        weights, _ = importance_weights(tokens, mode=mode, cap=3.0)  # type: ignore[arg-type]
        assert weights.tolist() == [expected, expected]


def test_sums_tell_the_ratio_to_the_behaviour_policy_in_every_mode() -> None:
    tokens = simple_tokens([math.log(2), math.log(0.5)], [1.0, 1.0])
    for mode in MODES:
        _, sums = policy_loss(tokens, make_grpo(importance_sampling_mode=mode))
        assert float(sums.ratio) == pytest.approx(2.5)
        assert float(sums.ratio_max) == pytest.approx(2.0)
        assert float(sums.behaviour_kl) == pytest.approx(1 - math.log(2) + math.log(2) - 0.5)
        # Of the first token alone: the second was written by an older version.
        assert int(sums.on_policy) == 1
        assert float(sums.mismatch_k3) == pytest.approx(1 - math.log(2))
        assert float(sums.mismatch_k1) == pytest.approx(-math.log(2))


@pytest.mark.parametrize(
    ("loss_type", "expected"),
    [
        ("grpo", [1 / 6, 1 / 12, 1 / 3]),
        ("dr_grpo", [1 / 30, 1 / 30, 1 / 30]),
        ("dapo", [1 / 7, 1 / 7, 1 / 7]),
        ("cispo", [1 / 7, 1 / 7, 1 / 7]),
        ("bnpo", [1 / 12, 1 / 12, 1 / 2]),
    ],
)
def test_token_weights_follow_each_papers_denominator(loss_type: LossType, expected: list[float]) -> None:
    lengths = [2, 4, 1]
    weights = token_weights(lengths, loss_type=loss_type, batch_size=2, max_completion_length=10)
    scale = step_scale(num_sequences=3, num_tokens=sum(lengths), loss_type=loss_type, batch_size=2)
    assert [weight * scale for weight in weights] == pytest.approx(expected)


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "cispo", "bnpo"])
def test_the_weights_of_a_steps_parts_are_those_of_the_step(loss_type: LossType) -> None:
    lengths = [2, 4, 1, 3, 5]
    settings: dict[str, Any] = {"loss_type": loss_type, "batch_size": 2, "max_completion_length": 10}
    parts = [token_weights(part, **settings) for part in (lengths[:2], lengths[2:4], lengths[4:])]
    assert [weight for part in parts for weight in part] == token_weights(lengths, **settings)


def make_grpo(**settings: Any) -> GrpoConfig:
    return GrpoConfig(**settings)


def simple_tokens(
    log_ratios: list[float], advantages: list[float], owners: list[int] | None = None
) -> LossTokens:
    """Tokens of weight 1 whose behaviour log-probability is 0; of one sequence, or of ``owners``."""
    num = len(log_ratios)
    ids = owners or [0] * num
    return LossTokens(
        logprobs=torch.tensor(log_ratios, requires_grad=True),
        old_logprobs=torch.zeros(num),
        advantages=torch.tensor(advantages),
        weights=torch.ones(num),
        on_policy=torch.tensor([1.0] + [0.0] * (num - 1)),
        sequence_ids=torch.tensor(ids),
        num_sequences=max(ids) + 1,
    )


def cut(tokens: LossTokens, rows: slice) -> LossTokens:
    values = {field.name: getattr(tokens, field.name) for field in fields(tokens)}
    tensors: dict[str, Any] = {
        name: value[rows] for name, value in values.items() if isinstance(value, Tensor)
    }
    return replace(tokens, **tensors)
