"""Engines with 8-bit weights, and their updates.

Of fp8 vLLM's own quantisation and reload of its layers, with the kernel left out; int8 with its kernel.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.online import fp8
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_processing,
    record_metadata_for_reloading,
)
from vllm.model_executor.model_loader.weight_utils import default_weight_loader

from configs.schema import Config
from pipeline.generation.vllm import cpu_kernels
from pipeline.generation.vllm.held_weights import held_parts, whole
from pipeline.generation.vllm.transfer import FileUpdateInfo, FileWeightTransferEngine
from pipeline.generation.vllm.updates import WeightUpdates
from pipeline.generation.vllm_generator import start_vllm_generator
from pipeline.host.device import has_int8
from pipeline.messages import Completion, WeightUpdate
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_model
from pipeline.models.merging import merged_weights, read_adapter
from pipeline.weights.files import write_weights
from pipeline.weights.receipts import code_of, differing, receipt_of
from tests.pipeline.adapter_files import RANK, publish_random_adapter
from tests.pipeline.conftest import RunningEngine
from tests.pipeline.generation.asking import forward_logprobs_of
from tests.pipeline.generation.test_vllm_engine import ask, collect, shaken
from tests.pipeline.tiny_model import save_byte_model

ROWS, WIDTH, WORDS = 24, 40, 16
int8_products = pytest.mark.skipif(not has_int8(), reason="this processor has no AVX-512 VNNI")
_MODEL: Any = SimpleNamespace(quantization="fp8_per_channel", dtype=torch.bfloat16)


def fp8_method() -> Any:
    method: Any = object.__new__(fp8.Fp8PtpcOnlineLinearMethod)
    method.out_dtype = method.input_dtype = torch.bfloat16
    return method


class Model(nn.Module):
    """A matrix that is quantised a row at a time, and a norm that stays; loaded as vLLM's loader does."""

    def __init__(self, weights: Iterable[tuple[str, Tensor]], method: Any = None) -> None:
        super().__init__()
        linear: Any = object.__new__(LinearBase)
        nn.Module.__init__(linear)
        linear.tp_size, linear.input_size, linear.output_size, linear.bias = 1, WIDTH, ROWS, None
        linear.quant_method = method = method or fp8_method()
        method.create_weights(
            linear, WIDTH, [ROWS], WIDTH, ROWS, torch.bfloat16, weight_loader=default_weight_loader
        )
        linear.update_param_tp_status = lambda: None
        self.proj, self.norm = linear, nn.LayerNorm(WIDTH, dtype=torch.bfloat16, bias=False)
        record_metadata_for_reloading(self)
        self.load_weights(weights)
        if method.uses_meta_device:
            finalize_layerwise_processing(self, _MODEL)
        else:
            method.process_weights_after_loading(linear)

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
    engine._is_adapted_base = engine._is_whole = True
    made: FileWeightTransferEngine = engine
    return made


def update(
    engine: FileWeightTransferEngine,
    path: Path,
    weights: dict[str, Tensor],
    version: int,
    is_quantised: bool = True,
) -> None:
    write_weights(weights.items(), str(path), version, torch.bfloat16)
    engine.start_weight_update()
    engine.receive_weights(
        FileUpdateInfo(path=str(path), kind="full", policy_version=version, is_quantised=is_quantised)
    )
    engine.finish_weight_update()


def test_after_an_update_that_was_cut_off_no_other_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM would go on in the layer that is half loaded: the engine has to be replaced."""
    first, later = (weights_of(seed) for seed in range(2))
    model = Model(first.items())
    engine = transfer_engine(model)

    def cut_off(weights: Iterable[tuple[str, Tensor]]) -> None:
        next(iter(weights))
        raise ConnectionError("the trainer is gone")

    with monkeypatch.context() as patch:
        patch.setattr(model, "load_weights", cut_off)
        with pytest.raises(ConnectionError):
            update(engine, tmp_path / "1.safetensors", later, 1)
    with pytest.raises(RuntimeError, match="an earlier update was cut off"):
        update(engine, tmp_path / "2.safetensors", first, 2)


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


def test_the_receipt_of_a_quantised_engine_is_of_all_weights_where_an_adapter_changes_some(
    tmp_path: Path,
) -> None:
    folder = save_byte_model(tmp_path / "model")
    _, published = publish_random_adapter(folder, tmp_path / "adapter", 1)
    loaded: list[str] = []
    model = SimpleNamespace(load_weights=lambda weights: loaded.extend(name for name, _ in weights))
    engine = transfer_engine(cast(Model, model))
    engine.model_config = SimpleNamespace(**vars(_MODEL), model=str(folder))
    engine.receive_weights(FileUpdateInfo(path=published.path, kind="adapter", policy_version=1))
    assert {name.split(".")[1] for name in loaded} == {"layers"}
    whole_model = receipt_of(merged_weights(read_adapter(published.path), folder, torch.bfloat16), 1)
    assert engine.given == engine.merged == whole_model
    assert whole_model.keys() > set(loaded)


def receipt(answers: list[dict[str, Any]]) -> dict[str, int]:
    """What WeightUpdates makes of the ``answers`` of an engine's processes."""

    async def collective_rpc(method: str, args: object) -> list[dict[str, Any]]:
        assert method == "weight_receipt"
        return answers

    engine = cast(Any, SimpleNamespace(collective_rpc=collective_rpc))
    updates = WeightUpdates(engine, "", None, weight_timeout_s=1.0)
    update = WeightUpdate(policy_version=1, path="", receipt={"proj.weight": 1})
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


def test_the_receipt_of_a_served_adapter_has_nothing_of_the_base_that_a_reset_gave(tmp_path: Path) -> None:
    _, published = publish_random_adapter(save_byte_model(tmp_path / "model"), tmp_path / "adapter", 1)
    name = next(iter(published.receipt))
    answer = {"given": {"base.weight": 5}, "parts": [(name, 0, 0, 7)], "unread": ()}

    async def collective_rpc(method: str, args: object) -> list[dict[str, Any]]:
        assert (method, args) == ("weight_receipt", (1, RANK))
        return [answer]

    engine, served = cast(Any, SimpleNamespace(collective_rpc=collective_rpc)), cast(Any, SimpleNamespace())
    updates = WeightUpdates(engine, "", served, weight_timeout_s=1.0)
    assert asyncio.run(updates._receipt(published)) == ({name: 7}, ())


def product(model: Model, rows: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = model.proj.quant_method.apply(model.proj, rows, bias)
    return found


@int8_products
@pytest.mark.parametrize("num_rows", [1, 7, 64])
@pytest.mark.parametrize("is_biased", [False, True])
def test_an_int8_layer_gives_the_product_of_what_was_rounded(num_rows: int, is_biased: bool) -> None:
    weights = weights_of(0)
    # A row that is far larger than the others has a step of its own, and one of zeros has no fault.
    weights["proj.weight"][0] *= 1000
    weights["proj.weight"][1] = 0
    random = torch.Generator().manual_seed(1)
    rows = torch.randn(3, num_rows, WIDTH, generator=random).bfloat16()
    bias = torch.randn(ROWS, generator=random).bfloat16() if is_biased else None
    found = product(Model(weights.items(), cpu_kernels.Int8LinearMethod()), rows, bias)

    def rounded(values: Tensor) -> Tensor:
        step = values.double().abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
        return (values.double() / step).round() * step

    exact = rows.double() @ weights["proj.weight"].double().t()
    expected = rounded(rows) @ rounded(weights["proj.weight"]).t() + (0 if bias is None else bias.double())
    assert found.shape == (3, num_rows, ROWS) and found.dtype == torch.bfloat16
    # The result is rounded to bf16, and a tie of rounding may fall the other way.
    error = (found.double() - expected).norm(dim=(0, 1)) / expected.norm(dim=(0, 1)).clamp(min=1e-9)
    assert float(error[2:].max()) < 2**-8 and float(error[0]) < 2**-8
    if bias is None:
        assert not found[..., 1].any()
        assert 1e-3 < float((found.double() - exact).norm() / exact.norm()) < 0.02


@int8_products
def test_an_update_of_an_int8_engine_quantises_the_new_weights_as_a_start_does(tmp_path: Path) -> None:
    first, *later = (weights_of(seed) for seed in range(3))
    model = Model(first.items(), cpu_kernels.Int8LinearMethod())
    engine = transfer_engine(model)
    rows = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(3)).bfloat16()
    before = product(model, rows)
    for version, weights in enumerate(later, start=1):
        update(engine, tmp_path / f"{version}.safetensors", weights, version)
        # What the kernel points to must not be freed.
        gc.collect()
        junk = [torch.full((ROWS, 1), 1e9) for _ in range(100)]
        found = product(model, rows)
        assert torch.equal(found, product(Model(weights.items(), cpu_kernels.Int8LinearMethod()), rows))
        assert not torch.equal(found, before) and len(junk) == 100
        parts, unread = held_parts(model, version)
        assert unread == []
        assert differing(receipt_of(weights.items(), version), {**engine.given, **whole([parts])}) == []
        before = found


@int8_products
def test_an_update_may_leave_int8_and_come_back_to_it(tmp_path: Path) -> None:
    first, second, third = (weights_of(seed) for seed in range(3))
    model = Model(first.items(), cpu_kernels.Int8LinearMethod())
    engine = transfer_engine(model)
    engine.model_config = SimpleNamespace(quantization="int8", dtype=torch.bfloat16)
    rows = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(3)).bfloat16()
    update(engine, tmp_path / "1.safetensors", second, 1, is_quantised=False)
    torch.testing.assert_close(product(model, rows), rows @ second["proj.weight"].t())
    assert "int8_kernel" not in vars(model.proj)
    # In 16 bits it is read where the kernel reads it, as of any engine.
    parts, unread = held_parts(model, 1)
    assert unread == [] and differing(receipt_of(second.items(), 1), whole([parts])) == []
    update(engine, tmp_path / "2.safetensors", third, 2)
    assert torch.equal(
        product(model, rows), product(Model(third.items(), cpu_kernels.Int8LinearMethod()), rows)
    )
    assert "cpu_linear" not in vars(model.proj)


@int8_products
@pytest.mark.slow
def test_a_running_int8_engine_takes_new_weights_and_stays_near_the_model(tmp_path: Path) -> None:
    config = Config.model_validate(
        {"generation": {"dtype": "float32", "quantization": "int8", "max_completion_length": 64}}
    )
    path = resolve_model(config.model)
    loop = asyncio.new_event_loop()
    generator = loop.run_until_complete(start_vllm_generator(config, str(path), "cpu"))
    engine = RunningEngine(generator=generator, model_path=path, loop=loop)

    def mean_difference(model: PreTrainedModel, completions: list[Completion]) -> float:
        prompt = ask(engine, "prompt", 1).prompt_ids
        found = torch.cat(forward_logprobs_of(model, prompt, completions))
        written = torch.tensor([logprob for one in completions for logprob in one.logprobs])
        return float((found - written).abs().mean())

    try:
        model = load_model(path)
        before = loop.run_until_complete(collect(engine, ask(engine, "before", 8)))
        # Rounded, but of these weights.
        assert 1e-3 < mean_difference(model, before) < 0.3
        shaken(model, 0, scale=0.1)
        new = write_weights(model.named_parameters(), str(tmp_path / "new"), 1, torch.float32)
        loop.run_until_complete(generator.update_weights(new))
        after = loop.run_until_complete(collect(engine, ask(engine, "after", 8)))
        assert {c.receipt for c in after} == {code_of(new.receipt)}
        now, then = (mean_difference(one, after) for one in (model, load_model(path)))
        assert now < then / 3
    finally:
        loop.run_until_complete(generator.close())
        loop.close()
