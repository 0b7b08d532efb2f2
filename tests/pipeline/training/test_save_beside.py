"""A checkpoint that is written while the next step is being computed is that of the step before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.models.loading import load_model
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_samples, save_model


def test_a_checkpoint_beside_an_open_step_is_of_the_step_before_and_of_no_other(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model")
    trainer = Trainer(make_config(), model)
    batch = make_samples([(5, 9), (3, 16), (7, 4), (5, 4)], [1.2, -0.7, 0.4, -1.5])
    trainer.accumulate(batch)
    saved = trainer.save_beside(tmp_path / "step-000000", 0)
    before = dict(load_model(model).named_parameters())
    for name, weight in load_model(saved).named_parameters():
        assert torch.equal(weight, before[name])
    trainer.step(replace(batch, part=1))
    with pytest.raises(RuntimeError, match="past step 0"):
        trainer.save_beside(tmp_path / "late", 0)
    assert not (tmp_path / "late").exists()
    trainer.save_beside(tmp_path / "step-000001", 1)
    assert Trainer(make_config(), model).load(tmp_path / "step-000001") == 1
