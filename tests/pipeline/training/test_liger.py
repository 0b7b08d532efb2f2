"""Liger's kernels go into the layers of the model that computes, and its loss does not.

They run on a GPU alone; what the package does to a model is seen where it is installed.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2

from pipeline.training.compilation import fuse_layers
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_model, make_samples
from tests.pipeline.training.builders import ADVANTAGES, LENGTHS

ASKED: list[tuple[Any, dict[str, bool]]] = []


@pytest.fixture
def fake_liger(monkeypatch: pytest.MonkeyPatch) -> None:
    patch = ModuleType("liger_kernel.transformers.monkey_patch")
    patch.MODEL_TYPE_TO_APPLY_LIGER_FN = {"llama": None}  # type: ignore[attr-defined]
    patch._apply_liger_kernel_to_instance = (  # type: ignore[attr-defined]
        lambda model, **kernels: ASKED.append((model, kernels))
    )
    transformers = ModuleType("liger_kernel.transformers")
    transformers.monkey_patch = patch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", transformers)
    monkeypatch.setattr(sys.modules[__name__], "ASKED", [])


@pytest.mark.usefixtures("fake_liger")
def test_the_model_that_computes_gets_all_kernels_but_those_of_the_loss(folder: Path) -> None:
    trainer = Trainer(make_config(training={"use_liger_kernel": True, "bf16": True}), folder)
    ((model, kernels),) = ASKED
    assert next(model.parameters()).dtype == torch.bfloat16 and model is not trainer.model
    assert {name for name, is_on in kernels.items() if is_on} == {"rope", "rms_norm", "swiglu"}
    assert {name for name, is_on in kernels.items() if not is_on} == {
        "cross_entropy",
        "fused_linear_cross_entropy",
    }
    trainer.step(make_samples(LENGTHS, ADVANTAGES))


@pytest.mark.usefixtures("fake_liger")
def test_a_kind_of_model_that_liger_does_not_know_trains_without_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model: Any = make_model()
    model.config.model_type = "another"
    with caplog.at_level(logging.WARNING):
        fuse_layers(model)
    assert not ASKED and "Liger has no kernels for another" in caplog.text


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_the_package_changes_the_layers_of_a_loaded_model_and_not_its_forward(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("liger_kernel")
    for module in (modeling_llama, modeling_qwen2):
        # The package writes into the modules: they are as before after the test.
        for name in [name for name in vars(module) if name.endswith(("RMSNorm", "MLP", "pos_emb"))]:
            monkeypatch.setattr(module, name, getattr(module, name))
    settings = Qwen2Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model: Any = make_model() if kind == "llama" else Qwen2ForCausalLM(settings)  # type: ignore[no-untyped-call]
    forward = model.forward.__func__
    fuse_layers(model)
    layer = model.model.layers[0]
    for part in (layer.mlp, layer.input_layernorm, layer.post_attention_layernorm, model.model.norm):
        assert "liger" in part.forward.__func__.__module__
    assert model.forward.__func__ is forward
    module = modeling_llama if kind == "llama" else modeling_qwen2
    assert "liger" in module.apply_rotary_pos_emb.__module__
