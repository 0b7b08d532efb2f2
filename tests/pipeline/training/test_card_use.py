"""Memory and MFU of a trainer's GPU, on a card that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline.messages import TrainingSample
from pipeline.models.loading import head_of
from pipeline.training.memory import CardUse, needed_flops, peak_flops, shape_of, training_flops
from pipeline.training.trainer import Trainer
from tests.pipeline.fake_stages import is_documented
from tests.pipeline.tiny_model import make_config, make_groups, make_model

METRICS = ("train/gpu_memory_gb", "train/mfu")


class FakeCard:
    """Holds what it is told, and forgets the peak when it is asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.reserved = 0
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
        monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: self.reserved)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self._reset)

    def _reset(self, device: torch.device) -> None:
        self.reserved = 0


def sample(prompt: tuple[int, ...], num_own: int) -> TrainingSample:
    token_ids = prompt + tuple(range(num_own))
    return TrainingSample(
        token_ids=token_ids,
        num_prompt_tokens=len(prompt),
        loss_mask=(0,) * len(prompt) + (1,) * num_own,
        old_logprobs=(0.0,) * len(token_ids),
        advantage=1.0,
        policy_version=0,
    )


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA GeForce GTX 1080", None),
    ],
)
def test_the_peak_is_the_data_sheets_and_of_an_unknown_card_none(name: str, peak: float | None) -> None:
    assert peak_flops(name) == peak


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_step_on_a_known_card_has_its_memory_and_its_share_of_the_peak(
    num_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = FakeCard(monkeypatch, "NVIDIA A100-SXM4-80GB")
    model = make_model()
    use = CardUse(make_config(), model, torch.device("cuda"), num_ranks)
    samples = [sample((1, 2, 3), 4), sample((1, 2, 3), 2)]
    card.reserved = 3_500_000_000
    found = use.metrics(samples, 0.5)
    flops = training_flops(needed_flops(shape_of(model, ""), samples), is_frozen=False)
    assert found == {
        "train/gpu_memory_gb": 3.5,
        "train/mfu": pytest.approx(flops / (0.5 * 312e12 * num_ranks)),
    }
    assert tuple(found) == METRICS and all(is_documented(name) for name in METRICS)
    assert use.metrics(samples, 0.5)["train/gpu_memory_gb"] == 0, "the next step's peak is its own"


def test_an_unknown_card_has_no_share_of_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCard(monkeypatch, "a card of next year")
    use = CardUse(make_config(), make_model(), torch.device("cuda"), 1)
    assert tuple(use.metrics([sample((1,), 1)], 0.5)) == METRICS[:1]


def test_operations_are_those_of_every_matrix_and_token_and_prompts_count_once() -> None:
    """Against the model's own matrices: the linear layers, forward and backward, and attention besides."""
    model = make_model()
    shape = shape_of(model, "")
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    head = head_of(model)
    layers = sum(module.weight.numel() for module in linear if module is not head)
    assert isinstance(head, torch.nn.Linear)
    samples = [sample((1, 2, 3), 4), sample((1, 2, 3), 2), sample((9, 9), 1)]
    num_tokens, num_trained = 3 + 2 + 4 + 2 + 1, 4 + 2 + 1
    pairs = (6 + 3) + (4 * 3 + 10) + (2 * 3 + 3) + (1 * 2 + 1)
    attention = 12 * shape.layers * shape.query_width * pairs
    products = layers * num_tokens + head.weight.numel() * num_trained
    needed = needed_flops(shape, samples)
    assert needed["attention"] == attention and needed["head"] == 6 * head.weight.numel() * num_trained
    assert training_flops(needed, is_frozen=False) == 6 * products + attention
    assert training_flops(needed, is_frozen=True) == pytest.approx(4 * products + attention)


def test_a_step_on_a_cpu_has_neither(folder: Path) -> None:
    result = Trainer(make_config(), folder).step(make_groups((4, 6), [[5, 3], [2, 7]]))
    assert not set(METRICS) & set(result.metrics)
