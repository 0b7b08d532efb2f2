from __future__ import annotations

import pytest
import torch

from pipeline.loss import LossType, grpo_loss, sequence_weights, token_logprobs


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

    logprobs, entropy = token_logprobs(logits * 1.0, targets, temperature=temperature)
    torch.testing.assert_close(logprobs, expected.detach())
    torch.testing.assert_close(entropy, expected_entropy.detach())
    copy = logits.detach().clone().requires_grad_()
    again, _ = token_logprobs(copy * 1.0, targets, temperature=temperature)
    (gradient,) = torch.autograd.grad(again @ upstream, copy)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-6, rtol=1e-5)


def test_a_confident_bf16_token_keeps_its_small_gradient() -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0]], dtype=torch.bfloat16, requires_grad=True)
    logprobs, _ = token_logprobs(logits * 1.0, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(logprobs.sum(), logits)
    assert float(gradient[0, 0]) == pytest.approx(2 * 1.234e-4, rel=0.02)


def test_clipping_stops_the_gradient_only_in_the_direction_of_the_advantage() -> None:
    logprobs = torch.tensor([0.5, 0.5, -0.5, -0.5], requires_grad=True)
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    result = grpo_loss(logprobs, torch.zeros(4), advantages, torch.ones(4), epsilon=0.2)
    (gradient,) = torch.autograd.grad(result.loss, logprobs)
    assert (gradient == 0).tolist() == [True, False, False, True]
    assert int(result.num_clipped) == 2


def test_a_higher_upper_bound_lets_more_tokens_through() -> None:
    logprobs = torch.tensor([0.22], requires_grad=True)
    arguments = (logprobs, torch.zeros(1), torch.ones(1), torch.ones(1))
    assert int(grpo_loss(*arguments, epsilon=0.2).num_clipped) == 1
    assert int(grpo_loss(*arguments, epsilon=0.2, epsilon_high=0.28).num_clipped) == 0


@pytest.mark.parametrize(
    ("loss_type", "expected"),
    [
        ("grpo", [1 / 6, 1 / 12, 1 / 3]),
        ("dr_grpo", [1 / 30, 1 / 30, 1 / 30]),
        ("dapo", [1 / 7, 1 / 7, 1 / 7]),
        ("bnpo", [1 / 12, 1 / 12, 1 / 2]),
    ],
)
def test_token_weights_follow_each_papers_denominator(loss_type: LossType, expected: list[float]) -> None:
    weights = sequence_weights([2, 4, 1], loss_type=loss_type, batch_size=2, max_completion_length=10)
    assert weights == pytest.approx(expected)
