"""The tests behind benchmarks.speculation_exactness: quiet when they should be, and not blind."""

from __future__ import annotations

import pytest
import torch

from benchmarks.speculation_exactness import holm, two_sample_p_values
from tests.references.exactness import smallest_p_value

NUM_SAMPLES = 3000
# Place by place what follows depends on what stood before: 4 tokens, 3 places.
TABLE = torch.softmax(2 * torch.randn((3, 4, 4), generator=torch.Generator().manual_seed(3)), dim=-1)


def drawn(seed: int, table: torch.Tensor = TABLE) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for _ in range(NUM_SAMPLES):
        sample, last = [], 0
        for place in range(3):
            last = int(torch.multinomial(table[place, last], 1, generator=generator))
            sample.append(last)
        samples.append(tuple(sample))
    return samples


def probabilities(samples: list[tuple[int, ...]]) -> list[torch.Tensor]:
    return [
        torch.stack([TABLE[place, last] for place, last in enumerate((0, *sample[:-1]))])
        for sample in samples
    ]


def bent() -> torch.Tensor:
    """The most likely token of every place a little too likely, as a rule that accepts too often makes it."""
    table = TABLE.clone()
    table.scatter_add_(2, table.argmax(dim=2, keepdim=True), torch.full((3, 4, 1), 0.2))
    return table / table.sum(dim=2, keepdim=True)


def test_samples_of_the_model_pass_and_samples_of_a_bent_one_do_not() -> None:
    for seed in range(5):
        samples = drawn(seed)
        assert smallest_p_value(samples, probabilities(samples)) > 1e-3
    wrong = drawn(9, bent())
    assert smallest_p_value(wrong, probabilities(wrong)) < 1e-6


def test_two_samples_agree_when_they_come_from_one_distribution_and_not_otherwise() -> None:
    first = drawn(0)
    for seed in range(1, 5):
        assert min(two_sample_p_values(first, drawn(seed), 3)) > 1e-3
    assert min(two_sample_p_values(first, drawn(9, bent()), 3)) < 1e-4
    ended = [sample[:2] for sample in first]
    assert min(two_sample_p_values(first, ended, 3)) < 1e-9


def test_holms_correction_is_the_textbooks() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.5]) == pytest.approx([1.0, 1.0])
