"""The log-probabilities of chosen tokens and their gradient, in the memory of the logits.

Plain functions instead of an autograd node: the gradient of the loss to the log-probabilities may need whole
sequences, so the caller decides when to ask for it. Pure: no model, no loss.

Shapes: N tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Rows turned into probabilities at a time. CPU: two fp32 buffers of 32 rows stay in the cache; with fewer
# rows the threads' meetings after each operation count, with many more the memory does.
_CPU_ROWS = 32
_CUDA_ROWS = 256


@torch.no_grad()
def logprobs_to_probabilities_(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and the entropy of its distribution: (N,), (N,), fp32.

    ``logits`` (N, V) are consumed: their memory holds the probabilities afterwards, which
    ``logits_gradient_`` needs, so nothing of size N * V exists besides it. The logits are divided by
    ``temperature`` first, so the policy is the one that was sampled from. All sums are in fp32.
    """
    num, size = logits.shape
    assert targets.shape == (num,)
    block = min(num, _CPU_ROWS if logits.device.type == "cpu" else _CUDA_ROWS)
    scores_buffer = torch.empty(block, size, dtype=torch.float32, device=logits.device)
    probabilities_buffer = torch.empty_like(scores_buffer)
    logprobs = torch.empty(num, dtype=torch.float32, device=logits.device)
    entropy = torch.empty_like(logprobs)
    for start in range(0, num, block):
        rows = slice(start, min(start + block, num))
        scores = scores_buffer[: rows.stop - start].copy_(logits[rows])
        if temperature != 1.0:
            scores.div_(temperature)
        scores.sub_(scores.amax(dim=1, keepdim=True))
        probabilities = torch.softmax(scores, dim=1, out=probabilities_buffer[: rows.stop - start])
        logits[rows] = probabilities
        # The largest score is 0 now, so the sum of all exponentials is one over its probability.
        log_total = -probabilities.amax(dim=1).log()
        logprobs[rows] = scores.gather(1, targets[rows, None]).squeeze(1) - log_total
        # A multiplication and a sum: faster than linalg.vecdot, which splits few rows badly over threads.
        entropy[rows] = log_total - scores.mul_(probabilities).sum(dim=1)
    return logprobs, entropy


@torch.no_grad()
def logits_gradient_(
    probabilities: Tensor, targets: Tensor, logprobs: Tensor, upstream: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """The gradient to the logits, (N, V), in the memory of ``probabilities``.

    ``upstream`` (N,) fp32 is the gradient to the log-probabilities; row n becomes
    ``upstream[n] / temperature * (onehot(targets[n]) - probabilities[n])``.
    """
    scale = upstream / temperature
    probabilities.mul_(-scale[:, None].to(probabilities.dtype))
    # 1 - p from the fp32 log-probability: a p near 1 that was rounded to bf16 would lose it.
    exact = (-torch.expm1(logprobs) * scale).to(probabilities.dtype)
    # Not scatter_, which first copies all of the tensor on a CPU.
    rows = torch.arange(targets.shape[0], device=targets.device)
    return probabilities.index_put_((rows, targets), exact)
