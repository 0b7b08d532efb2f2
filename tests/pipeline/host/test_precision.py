"""What the configuration leaves to the device: bf16 where it has it, length of rows; what was set stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from configs.load import load_config
from configs.schema import Config
from pipeline.host import device as device_module
from pipeline.host.device import check_precision, choose_device, for_device
from pipeline.training.memory import limits

X86, ARM = "fpu avx2 avx512f", "fp asimd"


def precision(config: Config, device: str = "cpu") -> tuple[bool | None, str]:
    found = for_device(config, device)
    return found.training.bf16, found.generation.dtype


@pytest.mark.parametrize(
    ("field", "flags", "has_bf16"),
    [
        ("flags", X86, False),
        ("flags", f"{X86} avx512_bf16", True),
        ("flags", f"{X86} amx_bf16 amx_tile", True),
        ("Features", ARM, False),
        ("Features", f"{ARM} bf16", True),
        ("flags", "", False),
    ],
)
def test_a_cpu_without_bf16_instructions_computes_in_fp32(
    field: str, flags: str, has_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "processor_field", lambda name: flags if name == field else "")
    assert precision(Config()) == ((True, "bfloat16") if has_bf16 else (False, "float32"))


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_gpu_without_bf16_trains_in_fp32_and_generates_in_float16(
    has_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_supported(including_emulation: bool = True) -> bool:
        assert not including_emulation
        return has_bf16

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    assert precision(Config(), "cuda") == ((True, "bfloat16") if has_bf16 else (False, "float16"))


@pytest.mark.parametrize("flags", [X86, f"{X86} avx512_bf16"])
def test_what_was_set_stays_and_nodes_of_a_cluster_are_not_asked(
    flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "processor_field", lambda name: flags)
    for bf16, dtype in ((True, "float32"), (False, "bfloat16")):
        settings = {"training": {"bf16": bf16}, "generation": {"dtype": dtype}}
        assert precision(Config.model_validate(settings)) == (bf16, dtype)
    joined = {"cluster": {"address": "auto"}, "runtime": {"device": "cuda"}}
    assert precision(Config.model_validate(joined), "cuda") == (True, "bfloat16")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"generation": {"dtype": "bfloat16"}}, "generation.dtype: value bfloat16"),
        ({"training": {"bf16": True}}, "training.bf16: value true"),
    ],
)
def test_bf16_on_a_gpu_without_it_is_refused_before_anything_loads(
    settings: dict[str, object], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.model_validate(settings)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    with pytest.raises(ValueError, match=f"{field}: this GPU has no bf16.*set it to"):
        check_precision(config, "cuda")
    check_precision(config, "cpu")
    check_precision(for_device(Config(), "cuda"), "cuda")


def cards(monkeypatch: pytest.MonkeyPatch, *capabilities: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capabilities[index])


@pytest.mark.parametrize(
    ("capabilities", "settings", "expected"),
    [
        ([(8, 9)], {}, "fp8"),
        ([(9, 0), (12, 0)], {}, "fp8"),
        ([(8, 6)], {}, "none"),
        ([(9, 0), (8, 0)], {}, "none"),
        ([], {}, "none"),
        ([(9, 0)], {"generation": {"engine": "transformers"}}, "none"),
        ([(9, 0)], {"cluster": {"address": "auto"}, "runtime": {"device": "cuda"}}, "none"),
        ([(9, 0)], {"generation": {"quantization": "none"}}, "none"),
        ([(8, 0)], {"generation": {"quantization": "fp8"}}, "fp8"),
    ],
)
def test_mode_aggressive_generates_in_fp8_where_every_card_has_it(
    capabilities: list[tuple[int, int]],
    settings: dict[str, dict[str, object]],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards(monkeypatch, *capabilities)
    overrides = [
        f"{section}.{name}={value}" for section, named in settings.items() for name, value in named.items()
    ]
    config = load_config(mode="aggressive", overrides=overrides)
    assert for_device(config, "cuda").generation.quantization == expected
    if expected == "none":
        check_precision(for_device(config, "cuda"), "cuda")


@pytest.mark.parametrize(
    ("mode", "flags", "overrides", "expected"),
    [
        ("conservative", f"{X86} avx512_vnni", [], "none"),
        ("balanced", f"{X86} avx512_vnni", [], "none"),
        ("aggressive", f"{X86} avx512_vnni", [], "int8"),
        ("aggressive", X86, [], "none"),
        ("aggressive", ARM, [], "none"),
        ("aggressive", f"{X86} avx512_vnni", ["generation.enforce_eager=false"], "none"),
        ("aggressive", f"{X86} avx512_vnni", ["generation.engine=transformers"], "none"),
    ],
)
def test_mode_aggressive_generates_in_int8_on_a_cpu_with_such_products(
    mode: str, flags: str, overrides: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "processor_field", lambda name: flags)
    config = load_config(mode=mode, overrides=overrides)
    assert for_device(config, "cpu").generation.quantization == expected


def test_int8_on_a_cpu_without_such_products_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.model_validate({"generation": {"quantization": "int8"}})
    monkeypatch.setattr(device_module, "processor_field", lambda name: X86)
    with pytest.raises(ValueError, match=r"value int8: .* no AVX-512 VNNI.*set it to auto or none"):
        check_precision(config, "cpu")
    monkeypatch.setattr(device_module, "processor_field", lambda name: f"{X86} avx512_vnni")
    check_precision(config, "cpu")


@pytest.mark.parametrize(
    ("field", "value", "instead"),
    [
        ("quantization", "fp8", "none"),
        ("quantization", "fp8_per_tensor", "none"),
        ("kv_cache_dtype", "fp8_e5m2", "auto"),
    ],
)
def test_fp8_on_a_gpu_without_it_is_refused_before_anything_loads(
    field: str, value: str, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, (9, 0), (8, 6))
    config = Config.model_validate({"generation": {field: value}})
    with pytest.raises(
        ValueError, match=rf"{field}: value {value}: .* is 8\.6, .* 8\.9\); set it to {instead}"
    ):
        check_precision(config, "cuda")
    cards(monkeypatch, (9, 0), (8, 9))
    check_precision(config, "cuda")


@pytest.mark.parametrize(("device", "expected"), [("cpu", 4096), ("cuda", 16384)])
def test_a_row_is_longer_on_a_gpu_unless_it_is_set(device: str, expected: int) -> None:
    def row(given: int | None) -> int | None:
        packing = {"token_packing": {"max_tokens": given}}
        config = for_device(Config.model_validate({"acceleration": packing}), device)
        found = config.acceleration.token_packing.max_tokens
        assert limits(config)[0].max_tokens == found
        return found

    assert (row(None), row(512)) == (expected, 512)


@pytest.mark.parametrize("asked", ["auto", "cuda"])
@pytest.mark.parametrize(
    ("driver", "cuda", "visible", "has_card", "is_refused"),
    [
        ("570.124.06", "13.0", None, True, True),
        ("570.124.06", "13.0", "0", True, True),
        ("570.124.06", "13.0", "", True, False),
        ("570.124.06", None, None, True, False),
        ("580.65.06", "13.0", None, True, False),
        (None, "13.0", None, True, False),
        # A container that has no card sees the driver of its host all the same.
        ("570.124.06", "13.0", None, False, False),
    ],
)
def test_a_driver_too_old_for_torch_is_refused_rather_than_left_alone(
    asked: str,
    driver: str | None,
    cuda: str | None,
    visible: str | None,
    has_card: bool,
    is_refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = tmp_path / "version"
    if driver is not None:
        version.write_text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue\n", encoding="utf-8"
        )
    monkeypatch.setattr(device_module, "_DRIVER_VERSION", version)
    monkeypatch.setattr(device_module, "_GPU_DEVICES", (tmp_path if has_card else tmp_path / "none",))
    monkeypatch.setattr(device_module, "torch_sees_gpu", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    config = Config.model_validate({"runtime": {"device": asked}})
    if is_refused:
        with pytest.raises(ValueError, match=r"runtime\.device: .* driver is 570\.124\.06, .* 580 or newer"):
            choose_device(config)
    elif asked == "cuda":
        with pytest.raises(ValueError, match="sees no CUDA device"):
            choose_device(config)
    else:
        assert choose_device(config) == "cpu"
