"""Do samples follow a model's distribution? A chi-square test of every place, with Holm's correction.

Sequences are tuples of token ids; one that ended early says nothing about later places.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.stats import chi2  # type: ignore[import-untyped]
from transformers import PreTrainedModel

from benchmarks.speculation_exactness import Tokens, holm

# A bin expects at least so many.
_MIN_EXPECTED = 8.0
_NUM_BINS = 40


def conditional_probabilities(
    model: PreTrainedModel, prompt: Sequence[int], samples: Tokens, temperature: float
) -> list[torch.Tensor]:
    """For each sample the model's probabilities at each of its places: (length, V), fp32.

    Each distinct sample is computed once, all in batches.
    """
    distinct = list(dict.fromkeys(tuple(sample) for sample in samples))
    longest = max(map(len, distinct))
    rows: dict[tuple[int, ...], torch.Tensor] = {}
    for start in range(0, len(distinct), 256):
        part = distinct[start : start + 256]
        ids = torch.tensor([[*prompt, *sample, *[0] * (longest - len(sample))] for sample in part])
        with torch.no_grad():
            logits = model(ids).logits[:, len(prompt) - 1 : -1].float()
        probabilities = torch.softmax(logits / temperature, dim=-1)
        for sample, row in zip(part, probabilities, strict=True):
            rows[sample] = row[: len(sample)]
    return [rows[tuple(sample)] for sample in samples]


def smallest_p_value(samples: Tokens, probabilities: Sequence[torch.Tensor]) -> float:
    """Holm's smallest p-value over the places of ``samples``, against the model's own probabilities.

    The probability integral transform of a discrete draw: with the tokens of a place in order of their
    probability, a random point of the drawn token's stretch of [0, 1] is uniform, whatever stood before it.
    At each place these points are counted in bins and compared with equal shares.
    """
    generator = torch.Generator().manual_seed(0)
    p_values = []
    for place in range(max(map(len, samples))):
        reached = [
            (sample[place], rows[place])
            for sample, rows in zip(samples, probabilities, strict=True)
            if len(sample) > place
        ]
        tokens = torch.tensor([token for token, _ in reached])[:, None]
        rows = torch.stack([row for _, row in reached]).double()
        drawn = rows.gather(1, tokens)
        before = torch.where(rows > drawn, rows, 0.0).sum(dim=1)
        # Of tokens equally likely the earlier ones come first.
        is_earlier = torch.arange(rows.shape[1]) < tokens
        before += torch.where((rows == drawn) & is_earlier, rows, 0.0).sum(dim=1)
        points = before + torch.rand(len(rows), generator=generator, dtype=torch.float64) * drawn[:, 0]
        num_bins = max(2, min(_NUM_BINS, int(len(rows) / _MIN_EXPECTED)))
        counts = torch.bincount((points * num_bins).long().clamp(max=num_bins - 1), minlength=num_bins)
        expected = len(rows) / num_bins
        statistic = float(((counts - expected) ** 2 / expected).sum())
        p_values.append(float(chi2.sf(statistic, num_bins - 1)))
    return min(holm(p_values))
