"""4-bit weights and Unsloth on a GPU; the refusals on a CPU are in test_packages.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from pipeline.host.device import refuse_unusable_packages
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_model
from pipeline.models.merging import merge_adapter
from pipeline.training.adapters import published_weights
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_samples

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

LENGTHS = [(5, 9), (3, 16), (7, 1), (5, 4)]
ADVANTAGES = [1.2, -0.7, 0.5, 0.4]


def make_trainer(**sections: Mapping[str, object]) -> tuple[Trainer, Path]:
    """A trainer of the built-in model on the GPU."""
    shared: dict[str, Mapping[str, object]] = {
        "model": {"loader": "transformers"},
        "training": {"bf16": True},
        "acceleration": {"shared_prompt": False, "token_packing": {"enabled": False}},
    }
    config = make_config(**{**shared, **sections})
    refuse_unusable_packages(config, "cuda")
    base = resolve_model(config.model)
    return Trainer(config, base, "cuda"), base


def learns(trainer: Trainer) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    before = {name: weight.detach().clone() for name, weight in published_weights(trainer.model)}
    assert trainer.step(batch).metrics["train/grad_norm"] > 0
    assert any(bool((weight != before[name]).any()) for name, weight in published_weights(trainer.model))


def test_four_bit_weights_are_trained_through_and_the_adapters_are_published_alone(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    trainer, base = make_trainer(lora={"enabled": True, "load_in_4bit": True})
    assert {str(weight.dtype) for weight in trainer.model.parameters()} >= {"torch.uint8", "torch.float32"}
    learns(trainer)
    published = {name: weight.detach().clone() for name, weight in trainer.named_weights()}
    assert published and all(".lora_" in name for name in published)
    assert trainer.published_adapter is not None
    saved = trainer.save(tmp_path / "step-000001", 1)
    # A generator adds them to its own weights, which differ from ours by their 4 bits.
    plain = load_model(merge_adapter(saved, base, tmp_path / "merged"))
    with torch.no_grad():
        ids = torch.arange(100, 120)[None]
        ours = trainer.model(ids.cuda()).logits.float().cpu().log_softmax(-1)
        theirs = plain(ids).logits.float().log_softmax(-1)
    assert float((theirs.exp() * (theirs - ours)).sum(-1).mean()) < 0.5
    resumed, _ = make_trainer(lora={"enabled": True, "load_in_4bit": True})
    resumed.load(saved)
    assert all(torch.equal(value, published[name]) for name, value in resumed.named_weights())


def test_unsloth_loads_a_policy_that_learns() -> None:
    pytest.importorskip("unsloth")
    trainer, _ = make_trainer(lora={"enabled": True}, model={"loader": "unsloth"})
    learns(trainer)
    assert trainer.published_adapter is not None
