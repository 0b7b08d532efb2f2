from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from torch import Tensor, fx

from pipeline.training import compilation
from pipeline.training.compilation import compile_layers, uncompile_layers, why_not_on_gpu, why_not_with
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_model, make_samples
from tests.pipeline.training.builders import GROUP_ADVANTAGES, GROUP_LENGTHS, PADDED, relative_error

PACKED: Mapping[str, object] = {"token_packing": {"enabled": True, "max_tokens": 40}}
COMPILED = {"torch_compile": True}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the pipeline warned of; torch logs its own compilation."""
    ours = [record for record in caplog.records if record.name.startswith("pipeline.")]
    assert all(record.levelno == logging.WARNING for record in ours)
    return [record.getMessage() for record in ours]


def broken_backend(graph: fx.GraphModule, inputs: list[Tensor]) -> object:
    raise NotImplementedError("no kernel for this machine\nand a long dump")


def broken_kernels(graph: fx.GraphModule, inputs: list[Tensor]) -> object:
    def run(*args: Tensor) -> object:
        raise RuntimeError("the kernel crashed")

    return run


def test_a_gpu_needs_compute_capability_7_and_triton() -> None:
    assert why_not_on_gpu((7, 0), has_triton=True) is None
    assert why_not_on_gpu((12, 0), has_triton=True) is None
    assert "capability is 6.1, and 7.0 is needed" in str(why_not_on_gpu((6, 1), has_triton=True))
    assert "triton" in str(why_not_on_gpu((9, 0), has_triton=False))


def test_a_cpu_needs_a_compiler_that_works(tmp_path: Path) -> None:
    assert "no C++ compiler no-such-c++" in str(why_not_with("no-such-c++"))
    broken = tmp_path / "broken-c++"
    broken.write_text("#!/bin/sh\necho 'fatal error: omp.h: No such file' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert str(why_not_with(str(broken))).endswith("does not work: fatal error: omp.h: No such file")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_real_compiler_is_accepted() -> None:
    assert why_not_with("g++") is None


def test_a_machine_that_cannot_compile_trains_uncompiled_and_says_why_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "no-such-c++")
    trainer = Trainer(make_config(training=COMPILED), folder)
    for seed in (1, 2):
        trainer.step(make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES, seed=seed))
    (warning,) = warnings_of(caplog)
    assert "training.torch_compile" in warning and "no C++ compiler no-such-c++" in warning


@pytest.mark.parametrize("backend", [broken_backend, broken_kernels])
def test_a_failed_compilation_loses_no_batch(
    folder: Path, backend: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES)
    plain = Trainer(make_config(), folder)
    loss, expected = plain.gradients(batch)
    monkeypatch.setattr(compilation, "why_not_compile", lambda device: None)
    trainer = Trainer(make_config(training=COMPILED), folder)
    for layer in trainer._weights.compute_model.model.layers:
        layer.compile(backend=backend)
    ours_loss, ours = trainer.gradients(batch)
    assert ours_loss == pytest.approx(loss, rel=1e-6)
    assert relative_error(ours, expected) == 0.0
    trainer.step(batch)
    (warning,) = warnings_of(caplog)
    assert "goes on uncompiled" in warning and "long dump" not in warning
    assert "no kernel for this machine" in warning or "the kernel crashed" in warning


def test_compiling_the_layers_can_be_taken_back() -> None:
    model = make_model()
    assert compile_layers(model) == 2
    assert all(layer._compiled_call_impl is not None for layer in model.model.layers)
    uncompile_layers(model)
    assert all(layer._compiled_call_impl is None for layer in model.model.layers)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize(
    ("layout", "checkpointing"), [(PADDED, False), (PACKED, True)], ids=["padded", "packed-checkpointed"]
)
def test_the_compiled_gradient_equals_the_plain_one(
    folder: Path, layout: Mapping[str, object], checkpointing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    plain = Trainer(make_config(acceleration=layout), folder)
    training = {**COMPILED, "gradient_checkpointing": checkpointing}
    compiled = Trainer(make_config(acceleration=layout, training=training), folder)
    for seed in (1, 2):
        num = 8 if seed == 1 else 5
        batch = make_samples(GROUP_LENGTHS[:num], GROUP_ADVANTAGES[:num], seed=seed)
        loss, expected = plain.gradients(batch)
        ours_loss, ours = compiled.gradients(batch)
        assert ours_loss == pytest.approx(loss, rel=1e-5, abs=1e-6)
        assert relative_error(ours, expected) < 1e-5
    assert warnings_of(caplog) == []
    assert compiled._weights.compute_model.model.layers[0]._compiled_call_impl is not None
