"""Updates of an engine in fp8: vLLM's own quantisation and reload of its layers, with the kernel left out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.online import fp8
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_processing,
    record_metadata_for_reloading,
)
from vllm.model_executor.model_loader.weight_utils import default_weight_loader

from pipeline.generation.vllm.held_weights import held_parts, whole
from pipeline.generation.vllm.transfer import FileUpdateInfo, FileWeightTransferEngine
from pipeline.generation.vllm.updates import WeightUpdates
from pipeline.messages import WeightUpdate
from pipeline.weights.files import write_weights
from pipeline.weights.receipts import differing, receipt_of

ROWS, WIDTH, WORDS = 24, 40, 16
_MODEL: Any = SimpleNamespace(quantization="fp8_per_channel", dtype=torch.bfloat16)


class Model(nn.Module):
    """A matrix that vLLM quantises a row at a time, and a norm that stays; loaded as vLLM's loader does."""

    def __init__(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        super().__init__()
        linear: Any = object.__new__(LinearBase)
        nn.Module.__init__(linear)
        linear.tp_size = 1
        method: Any = object.__new__(fp8.Fp8PtpcOnlineLinearMethod)
        method.out_dtype = method.input_dtype = torch.bfloat16
        linear.quant_method = method
        method.create_weights(
            linear, WIDTH, [ROWS], WIDTH, ROWS, torch.bfloat16, weight_loader=default_weight_loader
        )
        linear.update_param_tp_status = lambda: None
        self.proj, self.norm = linear, nn.LayerNorm(WIDTH, dtype=torch.bfloat16, bias=False)
        record_metadata_for_reloading(self)
        self.load_weights(weights)
        finalize_layerwise_processing(self, _MODEL)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        for name, weight in weights:
            parameter = self.get_parameter(name)
            getattr(parameter, "weight_loader", default_weight_loader)(parameter, weight)


@pytest.fixture(autouse=True)
def _no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(process_weights_after_loading=lambda layer: None)
    monkeypatch.setattr(fp8, "init_fp8_linear_kernel", lambda **_: kernel)
    monkeypatch.setattr(fp8, "expose_input_quant_key", lambda layer, kernel: None)
    monkeypatch.setattr("vllm.model_executor.parameter.get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr("vllm.model_executor.parameter.get_tensor_model_parallel_world_size", lambda: 1)


def weights_of(seed: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    sizes = {"proj.weight": (ROWS, WIDTH), "norm.weight": (WIDTH,)}
    return {name: torch.randn(size, generator=random).bfloat16() for name, size in sizes.items()}


def transfer_engine(model: Model) -> FileWeightTransferEngine:
    engine: Any = object.__new__(FileWeightTransferEngine)
    engine.model, engine.model_config, engine.device = model, _MODEL, torch.device("cpu")
    engine.merged, engine.adapter, engine.given = {}, {}, {}
    made: FileWeightTransferEngine = engine
    return made


def update(engine: FileWeightTransferEngine, path: Path, weights: dict[str, Tensor], version: int) -> None:
    write_weights(weights.items(), str(path), version, torch.bfloat16)
    engine.start_weight_update()
    engine.receive_weights(FileUpdateInfo(path=str(path), kind="full", policy_version=version))
    engine.finish_weight_update()


def test_an_update_quantises_the_new_weights_as_a_start_does(tmp_path: Path) -> None:
    first, *later = (weights_of(seed) for seed in range(3))
    model = Model(first.items())
    engine = transfer_engine(model)
    assert model.proj.weight.dtype == torch.float8_e4m3fn
    places = {name: value.data_ptr() for name, value in model.named_parameters()}
    for version, weights in enumerate(later, start=1):
        update(engine, tmp_path / f"{version}.safetensors", weights, version)
        held, fresh = dict(model.named_parameters()), dict(Model(weights.items()).named_parameters())
        assert held.keys() == fresh.keys() == {"proj.weight", "proj.weight_scale", "norm.weight"}
        assert all(torch.equal(held[name].float(), fresh[name].float()) for name in held)
        # Where captured graphs read them.
        assert {name: value.data_ptr() for name, value in held.items()} == places
        near = held["proj.weight"].float() * held["proj.weight_scale"].t()
        # Three bits of a mantissa.
        torch.testing.assert_close(near.t(), weights["proj.weight"].float(), rtol=2**-4, atol=0.02)


def test_the_receipt_of_a_quantised_engine_is_of_what_it_was_given_and_of_what_it_holds_as_it_came(
    tmp_path: Path,
) -> None:
    first, second, other = (weights_of(seed) for seed in range(3))
    model = Model(first.items())
    engine = transfer_engine(model)
    update(engine, tmp_path / "1.safetensors", second, 1)
    published = receipt_of(second.items(), 1)

    def held() -> dict[str, int]:
        parts, unread = held_parts(model, 1)
        assert unread == []
        return {**engine.given, **whole([parts])}

    assert differing(published, held()) == []
    assert differing(receipt_of(other.items(), 1), held()) == ["norm.weight differs", "proj.weight differs"]
    with torch.no_grad():
        model.norm.weight[0] += 1.0
    assert differing(published, held()) == ["norm.weight differs"]
    # A tensor that did not come is missing: nothing here is taken on trust.
    update(engine, tmp_path / "2.safetensors", {"norm.weight": second["norm.weight"]}, 2)
    assert "proj.weight is missing" in differing(receipt_of(second.items(), 2), {**engine.given})


def receipt(answers: list[dict[str, Any]]) -> dict[str, int]:
    """What WeightUpdates makes of the ``answers`` of an engine's processes."""

    async def collective_rpc(method: str, args: object) -> list[dict[str, Any]]:
        assert method == "weight_receipt"
        return answers

    engine = cast(Any, SimpleNamespace(collective_rpc=collective_rpc))
    updates = WeightUpdates(engine, "", None, weight_timeout_s=1.0)
    update = WeightUpdate(policy_version=1, path="", num_bytes=0, receipt={"proj.weight": 1})
    held, unread = asyncio.run(updates._receipt(update))
    assert unread == ()
    return held


def test_processes_that_were_given_different_weights_end_the_update() -> None:
    part = ("norm.weight", 0, 0, 5)
    given = {"norm.weight": 4, "proj.weight": 1}
    one: dict[str, Any] = {"parts": [part], "unread": [], "merged": {}, "adapter": {}, "given": given}
    assert receipt([one, one]) == {"norm.weight": 5, "proj.weight": 1}
    with pytest.raises(RuntimeError, match="given different weights"):
        receipt([one, {**one, "given": {**given, "proj.weight": 2}}])
