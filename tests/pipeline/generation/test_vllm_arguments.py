"""vLLM's own arguments by hand: known, not ours, and where they can work; else refused beforehand."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from vllm.config.cache import CacheDType
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
from vllm.utils.import_utils import import_pynvml
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from configs.generation_schema import GenerationConfig
from configs.load import load_config
from configs.schema import Config
from configs.techniques import value_at
from pipeline.cli import train_accelerated
from pipeline.generation import settings, vllm_arguments
from pipeline.generation.vllm import cpu_kernels
from pipeline.generation.vllm.engine import VllmEngine, _engine_arguments, shared_cache_bytes
from pipeline.generation.vllm_arguments import OURS, check_vllm_arguments
from tests.pipeline import fake_host
from tests.pipeline.tiny_model import save_model

# Offline vLLM looks for the model on the disk as soon as it is told its name.
pytestmark = pytest.mark.usefixtures("online")


def test_the_names_that_are_read_are_those_that_vllm_has() -> None:
    fields = {field.name for field in dataclasses.fields(AsyncEngineArgs) if not field.name.startswith("_")}
    assert vllm_arguments._names(*vllm_arguments._ARGUMENTS) == fields
    assert vllm_arguments._names(*vllm_arguments._BACKENDS) == set(AttentionBackendEnum.__members__)
    assert OURS.keys() <= fields


def test_all_that_the_project_sets_is_refused_with_our_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "num_gpus", lambda device: 1)
    config = load_config(overrides=["generation.dtype=bfloat16", "lora.enabled=true"])
    plain = dataclasses.asdict(AsyncEngineArgs())
    set_here = set()
    for device in ("cpu", "cuda"):
        made = _engine_arguments(settings.engine_settings(config, "model", device))
        set_here |= {name for name, value in dataclasses.asdict(made).items() if value != plain[name]}
    assert len(set_here) > 10 and set_here <= OURS.keys()
    for name, setting in OURS.items():
        config = Config.model_validate({"generation": {"engine_kwargs": {name: 1}}})
        with pytest.raises(ValueError, match=f"generation.engine_kwargs.{name}: the project sets it"):
            check_vllm_arguments(config, "cuda")
        for word in setting.replace(",", "").split():
            if "." in word:
                value_at(Config(), word)


def test_every_setting_of_speculation_reaches_the_engine() -> None:
    speculative = {"enabled": True, "method": "ngram", "num_tokens": 5, "dynamic": False, "history_mb": 0.5}
    config = Config.model_validate({"acceleration": {"speculative": speculative}})
    made = settings.engine_settings(config, "model", "cpu")
    told = _engine_arguments(made).speculative_config
    assert told is not None and told["num_speculative_tokens"] == 5
    assert told["num_speculative_tokens_per_batch_size"] == [(1, config.generation.max_num_seqs, 5)]
    calls: list[tuple[object, ...]] = []

    async def collective_rpc(method: str, args: tuple[object, ...] = ()) -> list[str]:
        calls.append((method, *args))
        return [""]

    engine: Any = SimpleNamespace(
        _cores=(3, 4), _speculation=made.speculation, _engine=SimpleNamespace(collective_rpc=collective_rpc)
    )
    assert asyncio.run(VllmEngine._prepare(engine)) == ""
    assert ("bind_threads", (3, 4)) in calls
    assert ("begin_speculation", "ngram", 5, False, 2**19) in calls


def test_what_the_schema_allows_vllm_knows() -> None:
    fields = GenerationConfig.model_fields
    words = {settings._QUANTIZATION.get(w, w) for w in get_args(fields["quantization"].annotation)}
    assert words - {None} <= {cpu_kernels.INT8, *QUANTIZATION_METHODS}
    assert set(get_args(fields["kv_cache_dtype"].annotation)) <= set(get_args(CacheDType))


def test_arguments_reach_vllm() -> None:
    given = {
        "quantization": "fp8",
        "kv_cache_dtype": "fp8",
        "attention_backend": "FLASHINFER",
        "engine_kwargs": {"scheduling_policy": "priority", "stream_interval": 2},
    }
    config = Config.model_validate(
        {"generation": {"dtype": "bfloat16", **given}, "model": {"trust_remote_code": True}}
    )
    made = _engine_arguments(settings.engine_settings(config, "model", "cuda"))
    assert (made.quantization, made.kv_cache_dtype, made.attention_backend) == (
        *("fp8_per_channel", "fp8"),
        "FLASHINFER",
    )
    assert (made.scheduling_policy, made.stream_interval) == ("priority", 2)
    assert made.trust_remote_code and not _engine_arguments(fake_host.settings()).trust_remote_code


def test_the_cache_beside_a_trainer_is_what_the_models_own_weights_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model(tmp_path / "model")
    model = {"model": str(folder), "dtype": torch.bfloat16, "quantization": None}
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(**model, get_hidden_size=lambda: 8, get_vocab_size=lambda: 8),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8, max_num_seqs=1),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
        cache_config=SimpleNamespace(gpu_memory_utilization=0.5),
        lora_config=None,
        speculative_config=None,
    )
    card = SimpleNamespace(get_device_total_memory=lambda: 2**40)
    monkeypatch.setattr("pipeline.generation.vllm.engine.current_platform", card)
    left = shared_cache_bytes(config)
    assert left is not None
    # The logits of drafts are there as well, three times in fp32; the forward or an update may be more.
    config.speculative_config = SimpleNamespace(method="draft_model", num_speculative_tokens=1000)
    with_drafts = shared_cache_bytes(config)
    assert with_drafts is not None and 0 < left - with_drafts <= 3 * 4 * 1000 * 8
    config.speculative_config = None
    # The same weights once more, in a layout that nobody loads.
    shutil.copyfile(folder / "model.safetensors", folder / "consolidated.safetensors")
    assert shared_cache_bytes(config) == left
    # NVML does not say what a slice of a card has, or says what the whole card has.
    nvml = import_pynvml()

    def refuse() -> int:
        raise nvml.NVMLError(nvml.NVML_ERROR_NO_PERMISSION)

    for name in ("nvmlInit", "nvmlDeviceGetHandleByIndex"):
        monkeypatch.setattr(nvml, name, lambda *_: None)
    card.device_id_to_physical_device_id = lambda number: number
    for mode, expected in ((0, left), (1, None)):
        monkeypatch.setattr(nvml, "nvmlDeviceGetMigMode", lambda _, mode=mode: [mode, mode])
        assert shared_cache_bytes(config) == expected
    monkeypatch.setattr(nvml, "nvmlDeviceGetMigMode", lambda _: [0, 0])
    card.get_device_total_memory = refuse
    assert shared_cache_bytes(config) is None


REFUSED: dict[str, tuple[str, str, list[str]]] = {
    "unknown": ("engine_kwargs.scheduling_polcy=fcfs", "cuda", ["no such argument", "scheduling_policy"]),
    "ours": ("engine_kwargs.max_num_seqs=8", "cuda", ["set generation.max_num_seqs instead"]),
    "nobody's": ("engine_kwargs.logprobs_mode=raw_logits", "cpu", ["this project needs it as it is"]),
    "no such backend": ("attention_backend=FLASH_ATN", "cuda", ["FLASH_ATN", "did you mean FLASH_ATTN"]),
    "a backend on a CPU": ("attention_backend=FLASH_ATTN", "cpu", ["null on a CPU", "needs a CUDA GPU"]),
    "fp8 on a CPU": ("quantization=fp8", "cpu", ["none on a CPU", "needs a CUDA GPU"]),
    "int8 on a GPU": ("quantization=int8", "cuda", ["none, auto or fp8 on a GPU", "is for a CPU"]),
    "an fp8 cache on a CPU": ("kv_cache_dtype=fp8", "cpu", ["auto on a CPU", "needs a CUDA GPU"]),
    "bitsandbytes": ("quantization=bitsandbytes", "cuda", ["bitsandbytes", "none, auto, int8, fp8"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_argument_ends_a_dry_run_with_what_would_be_right(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    setting, device, expected = REFUSED[case]
    card = ["--gpu-memory", "24"] if device == "cuda" else []
    wanted = ["--set", f"generation.{setting}", "--set", f"runtime.device={device}"]
    assert train_accelerated(["--dry-run", *card, *wanted]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    for text in (f"generation.{setting.partition('=')[0]}", *expected):
        assert text in said


@pytest.mark.parametrize(
    "given",
    [
        {"quantization": "fp8"},
        {"kv_cache_dtype": "fp8"},
        {"attention_backend": "FLASH_ATTN"},
        {"engine_kwargs": {"scheduling_policy": "priority"}},
    ],
)
def test_another_engine_takes_none_of_it(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(ValueError, match=f"{name}: .* is not allowed; allowed: .* with this engine"):
        Config.model_validate({"generation": {"engine": "transformers", **given}})
    # A mode's wish is none of the user's.
    assert load_config(mode="aggressive", overrides=["generation.engine=transformers"])


def test_without_vllm_no_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    given = {"engine_kwargs": {"anything": 1}, "attention_backend": "ANY"}
    check_vllm_arguments(Config.model_validate({"generation": given}), "cuda")
