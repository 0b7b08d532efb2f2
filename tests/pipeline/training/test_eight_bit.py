"""AdamW with moments in 8 bits: bitsandbytes' where it is installed, elsewhere what is asked of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from pipeline.training.precision import make_moments
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config
from tests.pipeline.training.builders import assert_goes_on

_NESTED = "__bnb_optimizer_quant_state__"
ASKED: list[dict[str, Any]] = []


class FakeAdamW8bit(torch.optim.AdamW):
    """AdamW that saves its state as bitsandbytes does: in part one level deeper, and counts as numbers."""

    def __init__(self, params: Sequence[nn.Parameter], **settings: Any) -> None:
        ASKED.append(settings)
        super().__init__(params, **settings)

    def state_dict(self) -> dict[str, Any]:
        found = super().state_dict()
        state = {
            index: {
                "step": int(values["step"]),
                _NESTED: {name: value for name, value in values.items() if name != "step"},
            }
            for index, values in found["state"].items()
        }
        return {**found, "state": state}

    def load_state_dict(self, state_dict: Any) -> None:
        state = {
            index: {"step": torch.tensor(float(values["step"])), **values[_NESTED]}
            for index, values in state_dict["state"].items()
        }
        super().load_state_dict({**state_dict, "state": state})


@pytest.fixture(params=["fake", "real"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "real":
        pytest.importorskip("bitsandbytes")
        return "real"
    optim = ModuleType("bitsandbytes.optim")
    optim.AdamW8bit = FakeAdamW8bit  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bitsandbytes", ModuleType("bitsandbytes"))
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", optim)
    return "fake"


def test_a_resumed_trainer_goes_on_with_its_moments_in_8_bits(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    config = make_config(training={"optim": "adamw_8bit", "weight_decay": 0.01})
    first, resumed = Trainer(config, folder), Trainer(config, folder)
    make_moments(resumed._optimizer, has_sums=resumed._weights.has_sums)
    assert_goes_on(first, resumed, tmp_path / "step-000002")
    if kind == "fake":
        training = config.training
        assert ASKED[-1] == {
            "lr": training.learning_rate,
            "betas": (training.adam_beta1, training.adam_beta2),
            "eps": training.adam_epsilon,
            "weight_decay": 0.01,
        }
