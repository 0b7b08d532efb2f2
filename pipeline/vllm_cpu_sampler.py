"""Draws tokens on a CPU with one random number a row instead of one a vocabulary entry.

vLLM's own CPU sampler divides every probability by an exponential number; making those numbers is a
third of a decoding step of 64 small-model sequences. Here the cumulated probabilities are searched
instead (inverse transform sampling), in two levels, so that only one block of a row is cumulated token
by token. The distribution is the same. pipeline.vllm_worker puts it in place and tests it first; on a GPU
it is not used.
"""

from __future__ import annotations

import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p

_BLOCK = 256
# Keeps a search inside the mass when the last additions round differently.
_BELOW_ONE = 1 - 2.0**-50


class CpuTokenSampler(TopKTopPSampler):  # type: ignore[misc]
    """Takes the place of ``topk_topp_sampler`` in vLLM's sampler."""

    def forward_cpu(
        self,
        logits: torch.Tensor,
        generators: dict[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One token for each row of ``logits`` (B, V), (B,) int64, and what the logprobs mode asks for.

        ``generators`` holds those of the rows that have a seed of their own.
        """
        logits = apply_top_k_top_p(logits, k, p)
        logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
        uniform = torch.rand(len(logits), dtype=torch.float64)
        for row, generator in generators.items():
            uniform[row] = torch.rand((), dtype=torch.float64, generator=generator)
        tokens = inverse_transform(logprobs.exp(), uniform)
        if self.logprobs_mode == "processed_logits":
            return tokens, logits
        return tokens, logprobs if self.logprobs_mode == "processed_logprobs" else None


def inverse_transform(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The tokens at which the cumulated ``probabilities`` (B, V) exceed ``uniform`` (B,) of their sum.

    Sums are taken in fp64. A token without probability is never drawn.
    """
    num_rows, vocabulary = probabilities.shape
    if missing := -vocabulary % _BLOCK:
        probabilities = torch.nn.functional.pad(probabilities, (0, missing))
    blocks = probabilities.view(num_rows, -1, _BLOCK)
    block_ends = blocks.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    wanted = uniform[:, None] * _BELOW_ONE * block_ends[:, -1:]
    block = torch.searchsorted(block_ends, wanted, right=True)
    before = torch.where(block > 0, block_ends.gather(1, (block - 1).clamp(min=0)), 0.0)
    ends = blocks[torch.arange(num_rows), block[:, 0]].double().cumsum(dim=-1)
    wanted = torch.minimum(wanted - before, ends[:, -1:] * _BELOW_ONE)
    return (block * _BLOCK + torch.searchsorted(ends, wanted, right=True))[:, 0]
