from __future__ import annotations

import pytest
import torch

from pipeline.training.logprobs import logits_gradient_, logprobs_to_probabilities_


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
