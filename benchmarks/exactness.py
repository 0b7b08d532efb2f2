"""Do samples follow a model's distribution? Two chi-square tests with Holm's correction.

Used by benchmarks.speculation_exactness and tests/pipeline/generation/test_vllm_speculation.py. Sequences are
tuples of token ids; one that ended early says nothing about later places in the test against a model, and
counts as "ended" there in the test against other samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

# Expected counts below this are pooled.
_MIN_EXPECTED = 8.0
_NUM_BINS = 40
_ENDED = -1
Tokens = Sequence[Sequence[int]]


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
        p_values.append(chi_square_tail(statistic, num_bins - 1))
    return min(holm(p_values))


def two_sample_p_values(first: Tokens, second: Tokens, length: int) -> list[float]:
    """Holm's p-values that both come from one distribution: each of ``length`` places, then all jointly."""
    p_values = [
        _homogeneity(
            Counter(sample[place] if len(sample) > place else _ENDED for sample in first),
            Counter(sample[place] if len(sample) > place else _ENDED for sample in second),
        )
        for place in range(length)
    ]
    joint = [Counter(tuple(sample[:length]) for sample in samples) for samples in (first, second)]
    p_values.append(_homogeneity(*joint))
    return holm(p_values)


def _homogeneity(first: Counter[Any], second: Counter[Any]) -> float:
    """Pearson's chi-square test of two samples; rare values are pooled."""
    sizes = first.total(), second.total()
    share = min(sizes) / sum(sizes)
    rare = [key for key in first | second if (first[key] + second[key]) * share < _MIN_EXPECTED]
    cells = [(first[key], second[key]) for key in first | second if key not in set(rare)]
    pooled = (sum(first[key] for key in rare), sum(second[key] for key in rare))
    if sum(pooled) * share >= _MIN_EXPECTED:
        cells.append(pooled)
    if len(cells) < 2:
        return 1.0
    statistic = 0.0
    for cell in cells:
        for count, size in zip(cell, sizes, strict=True):
            expected = sum(cell) * size / sum(sizes)
            statistic += (count - expected) ** 2 / expected
    return chi_square_tail(statistic, len(cells) - 1)


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Probability that a chi-square variable exceeds ``statistic``."""
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def holm(p_values: Iterable[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    values = list(p_values)
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected, running = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(values) - rank) * values[index]))
        corrected[index] = running
    return corrected
