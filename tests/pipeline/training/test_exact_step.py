"""On real recorded groups every way of saving work gives the gradient of the plain step, in fp32.

The model is the built-in one cut to four layers; ``python -m benchmarks.train_step`` checks the whole one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from benchmarks.recording import load_recording
from configs.schema import Config, ModelConfig
from pipeline.messages import TrainBatch
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.training import backward
from pipeline.training.ranks import Ranks
from tests.pipeline.training.builders import assert_each_near, gradients
from tests.pipeline.two_ranks import TwoRanks

pytestmark = pytest.mark.slow

NUM_LAYERS = 4
PLAIN = {"skip_zero_advantages": False, "shared_prompt": False, "token_packing": {"enabled": False}}
ALL: dict[str, object] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The reference: the recorded groups, and their loss and gradient in the plain form."""

    folder: Path
    batch: TrainBatch
    loss: float
    gradient: dict[str, Tensor]


def make_config(acceleration: dict[str, object], **training: object) -> Config:
    return Config.model_validate(
        {
            "acceleration": acceleration,
            "training": {"bf16": False, "gradient_accumulation_steps": 3, **training},
            "grpo": {"num_generations": 4},
        }
    )


def recorded() -> TrainBatch:
    """Four completions each of three recorded groups; the last is taken for one without signal."""
    samples = load_recording("short").batch.samples
    chosen = [*samples[:4], *samples[8:12]]
    chosen += [replace(sample, advantage=0.0) for sample in samples[16:20]]
    assert len({sample.token_ids[: sample.num_prompt_tokens] for sample in chosen}) == 3
    return TrainBatch(step=1, samples=tuple(chosen))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder = tmp_path_factory.mktemp("cut")
    source = resolve_model(ModelConfig())
    model = load_model(source)
    decoder = model.base_model
    decoder.layers = nn.ModuleList(list(cast(nn.ModuleList, decoder.layers))[:NUM_LAYERS])
    model.config.num_hidden_layers = NUM_LAYERS
    model.save_pretrained(str(folder))
    load_tokenizer(source).save_pretrained(str(folder))
    batch = recorded()
    loss, gradient = gradients(Ranks(), make_config(PLAIN), folder, batch)
    return Plain(folder=folder, batch=batch, loss=loss, gradient=gradient)


def assert_exact(plain: Plain, loss: float, gradient: dict[str, Tensor]) -> None:
    assert loss == pytest.approx(plain.loss, abs=1e-5)
    assert_each_near(gradient, plain.gradient)


@pytest.mark.parametrize(
    ("acceleration", "training"),
    [
        pytest.param({**PLAIN, "token_packing": {"enabled": True}}, {}, id="packing"),
        pytest.param({**PLAIN, "shared_prompt": True, "shared_prefix": False}, {}, id="shared prompt"),
        pytest.param({**PLAIN, "shared_prompt": True, "shared_prefix": True}, {}, id="shared prefix"),
        pytest.param({**PLAIN, "skip_zero_advantages": True}, {}, id="skip"),
        pytest.param(ALL, {}, id="all"),
        pytest.param({"token_packing": {"max_tokens": 300}}, {}, id="all, accumulated over many rows"),
        pytest.param(ALL, {"gradient_checkpointing": True}, id="all, checkpointed"),
        pytest.param(
            {**PLAIN, "shared_prompt": True},
            {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4},
            id="shared prompt, accumulated",
        ),
    ],
)
def test_each_technique_keeps_the_gradient(
    plain: Plain, acceleration: dict[str, object], training: dict[str, object]
) -> None:
    config = make_config(acceleration, **training)
    assert_exact(plain, *gradients(Ranks(), config, plain.folder, plain.batch))


def test_two_ranks_keep_the_gradient(plain: Plain, pair: TwoRanks) -> None:
    loss, gradient = pair.run(gradients, make_config(ALL), plain.folder, plain.batch)[0]
    assert_exact(plain, loss, gradient)


def test_logits_in_small_chunks_keep_the_gradient(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "LOGITS_ROWS", {"cpu": 37})
    assert_exact(plain, *gradients(Ranks(), make_config(ALL), plain.folder, plain.batch))


def test_the_comparison_can_fail(plain: Plain) -> None:
    """A sample less is another gradient."""
    fewer = TrainBatch(step=1, samples=plain.batch.samples[1:])
    loss, gradient = gradients(Ranks(), make_config(ALL), plain.folder, fewer)
    with pytest.raises(AssertionError):
        assert_exact(plain, loss, gradient)
    assert max(float(value.abs().max()) for value in plain.gradient.values()) > 1e-3
    assert torch.isfinite(torch.tensor(loss))
