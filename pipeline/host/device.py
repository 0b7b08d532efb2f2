"""The device that a run works on, what it can do, and the precision and length of rows that follow.

Settings that need a GPU, or a package that need not be installed, are refused before any model is loaded, and
by a dry run; none of the packages is imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from configs.acceleration_schema import ROW_TOKENS
from configs.errors import ConfigError, Problem, wrong_value
from configs.schema import Config
from pipeline.host.limits import read_text

# NVIDIA's driver, the same under WSL, AMD's.
_GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
_MPS_PIPES = "/tmp/nvidia-mps"
_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
# Of CUDA 13, for which torch and vLLM are built.
LEAST_DRIVER = Version("580")
# The first with products in fp8.
FP8_CAPABILITY = (8, 9)
# Of x86 and of Arm.
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_INT8_FLAG = "avx512_vnni"
_INSTALL = {
    "bitsandbytes": "pip install bitsandbytes",
    "liger_kernel": "pip install liger-kernel",
    "unsloth": "pip install -e '.[unsloth]'",
}


def may_have_gpu() -> bool:
    """Whether it is worth asking torch for a GPU: without a driver's device file there is none."""
    return any(path.exists() for path in _GPU_DEVICES)


def has_mps(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether NVIDIA MPS runs here; without it kernels of two processes never overlap on a card."""
    return (Path(variables.get("CUDA_MPS_PIPE_DIRECTORY", _MPS_PIPES)) / "control").exists()


def nvidia_driver(version: Path | None = None) -> str:
    """The version of NVIDIA's driver; empty where there is none, or another system's (WSL, AMD)."""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", read_text(version or _DRIVER_VERSION))
    return found[1] if found else ""


def _old_driver() -> str:
    """The version of NVIDIA's driver where it is too old for a torch that would use it; else empty."""
    found = nvidia_driver() if may_have_gpu() else ""
    if not found or Version(found) >= LEAST_DRIVER or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    # As below.
    import torch

    return found if torch.version.cuda is not None else ""


def choose_device(config: Config) -> str:
    """Return "cpu" or "cuda" for ``runtime.device``.

    On a cluster it is what the setting says: the other nodes may have what this one has not.

    Raises:
        ValueError: "cuda" is asked for on a machine without a CUDA device, or it is not said that a GPU
            whose driver is too old is to be left alone.
    """
    if config.cluster.is_joined:
        return config.runtime.device
    available = torch_sees_gpu()
    if config.runtime.device != "cpu" and not available and (driver := _old_driver()):
        raise ValueError(
            f"runtime.device: {config.runtime.device!r}: this machine's NVIDIA driver is {driver}, too old "
            f"for torch and vLLM; install {LEAST_DRIVER} or newer, or set it to 'cpu' (or, for commands "
            "without that setting, the variable CUDA_VISIBLE_DEVICES to nothing)"
        )
    if config.runtime.device == "cuda" and not available:
        raise ValueError("runtime.device: 'cuda' was asked for, but torch sees no CUDA device; use 'cpu'")
    if config.runtime.device == "auto":
        return "cuda" if available else "cpu"
    return config.runtime.device


def for_device(config: Config, device: str, *, is_here: bool = True) -> Config:
    """``config`` with ``training.bf16``, ``generation.dtype``, ``quantization`` and rows' lengths decided.

    The host begins thousands of kernels for a row: where rows are short, a GPU waits for it.
    Emulated bf16 products take four times as long as fp32 ones (torch 2.13, AVX-512 without its bf16 part).
    On a cluster, and on a card of another machine, which ``is_here`` tells, both are bf16 and nothing is in 8
    bits: what is there is not known here.
    """
    is_bf16 = not is_here or config.cluster.is_joined or has_bf16(device)
    changes: dict[str, Any] = {}
    if config.training.bf16 is None:
        changes["training"] = config.training.model_copy(update={"bf16": is_bf16})
    engine: dict[str, str] = {}
    if config.generation.dtype == "auto":
        without = "float32" if device == "cpu" else "float16"
        engine["dtype"] = "bfloat16" if is_bf16 else without
    if config.generation.quantization == "auto":
        engine["quantization"] = _low_precision(config, device) if is_here else "none"
    if (packing := config.acceleration.token_packing).max_tokens is None:
        packing = packing.model_copy(update={"max_tokens": ROW_TOKENS["cpu" if device == "cpu" else "cuda"]})
        changes["acceleration"] = config.acceleration.model_copy(update={"token_packing": packing})
    if engine:
        changes["generation"] = config.generation.model_copy(update=engine)
    return config.model_copy(update=changes)


def _low_precision(config: Config, device: str) -> str:
    """The quantisation that this machine has products for, else "none"."""
    generation = config.generation
    if generation.engine != "vllm" or config.cluster.is_joined:
        return "none"
    if device != "cpu":
        return "fp8" if _has_fp8(device) else "none"
    # What is compiled keeps the kernels that it began with.
    return "int8" if generation.enforce_eager is not False and has_int8() else "none"


def check_precision(config: Config, device: str) -> None:
    """Raises ValueError where int8 on a CPU, or bf16 or fp8 on a GPU, has no instructions for it.

    On a GPU vLLM would refuse it, later; on a CPU int8 gave other products (by 98 % on AVX2, oneDNN 3.12).
    """
    if config.cluster.is_joined:
        return
    if device == "cpu":
        if config.generation.quantization == "int8" and not has_int8():
            raise ValueError(
                "generation.quantization: value int8: this processor has no AVX-512 VNNI, without which sums "
                "of products overflow; set it to auto or none"
            )
        return
    _check_fp8(config, device)
    if has_bf16(device):
        return
    for field, is_asked, instead in (
        ("generation.dtype: value bfloat16", config.generation.dtype == "bfloat16", "auto or float16"),
        ("training.bf16: value true", config.training.bf16, "null or false"),
    ):
        if is_asked:
            raise ValueError(
                f"{field}: this GPU has no bf16 (compute capability below 8.0); set it to {instead}"
            )


def _check_fp8(config: Config, device: str) -> None:
    generation = config.generation
    for field, value, instead in (
        ("quantization", generation.quantization, "none"),
        ("kv_cache_dtype", generation.kv_cache_dtype, "auto"),
    ):
        if value.startswith("fp8") and not _has_fp8(device):
            least = ".".join(map(str, FP8_CAPABILITY))
            found = ".".join(map(str, _capability(device) or ("not known",)))
            raise ValueError(
                f"generation.{field}: value {value}: this GPU has no fp8 (its compute capability is "
                f"{found}, needed is {least}); set it to {instead}"
            )


def _has_fp8(device: str) -> bool:
    """Whether every GPU here computes in fp8; no where there is none to ask."""
    least = _capability(device)
    return least is not None and least >= FP8_CAPABILITY


def _capability(device: str) -> tuple[int, int] | None:
    """The least of the GPUs here; None where there is none to ask."""
    if device == "cpu":
        return None
    # As below.
    import torch

    return min(map(torch.cuda.get_device_capability, range(torch.cuda.device_count())), default=None)


def has_bf16(device: str) -> bool:
    """Whether there are instructions for products in bf16, which take four times as long emulated."""
    if device == "cpu":
        return not BF16_FLAGS.isdisjoint(processor_flags())
    # As below.
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def has_int8() -> bool:
    """Whether the processor sums products of 8 bits in 32; others keep the sum of two in 16, too few."""
    return _INT8_FLAG in processor_flags()


def processor_flags() -> frozenset[str]:
    """What the processor can do, in the kernel's words."""
    return frozenset((processor_field("flags") or processor_field("Features")).split())


def processor_field(name: str) -> str:
    """What /proc/cpuinfo says of the first processor's ``name``; empty where it says nothing."""
    pairs = (line.partition(":") for line in read_text(Path("/proc/cpuinfo")).splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")


def torch_sees_gpu() -> bool:
    """Whether torch can use a CUDA device; it is not asked where there can be none."""
    if not may_have_gpu():
        return False
    # Imported here: most starts on a CPU need not wait for torch in this process.
    import torch

    return torch.cuda.is_available()


def num_gpus(device: str) -> int:
    """The GPUs of this machine for ``device``; none on a CPU."""
    if device == "cpu":
        return 0
    # As above.
    import torch

    return torch.cuda.device_count()


def refuse_unusable_packages(config: Config, device: str) -> None:
    """Raise ConfigError for settings of the trainer that ``device``, or what is installed, cannot serve."""
    if problems := list(_gpu_problems(config, device)):
        raise ConfigError(problems)


def refuse_conflicts(config: Config, _: str) -> None:
    """Raise ConfigError for settings of the trainer that do not go with each other, on whatever machine."""
    if problems := list(_conflicts(config)):
        raise ConfigError(problems)


def _gpu_problems(config: Config, device: str) -> Iterator[Problem]:
    """Values that need a GPU, and some an installed package."""
    training = config.training
    for field, value, default, package in (
        ("lora.load_in_4bit", config.lora.load_in_4bit, False, "bitsandbytes"),
        ("model.loader", config.model.loader, "transformers", "unsloth"),
        ("training.optim", training.optim, "adamw_torch", "bitsandbytes"),
        ("training.use_liger_kernel", training.use_liger_kernel, False, "liger_kernel"),
        ("training.activation_offloading", training.activation_offloading, False, None),
    ):
        if value == default:
            continue
        if device == "cpu":
            allowed = "another value on a CPU; this one needs a CUDA GPU (the run's device is cpu)"
            yield wrong_value(field, value, allowed, "runtime.device")
        elif package is not None and importlib.util.find_spec(package) is None:
            allowed = f"with the package {package}, which is not installed: {_INSTALL[package]}"
            yield wrong_value(field, value, allowed)


def _conflicts(config: Config) -> Iterator[Problem]:
    """Values that do not go with the value of another field."""
    loader, lora, training = config.model.loader, config.lora, config.training
    if lora.load_in_4bit and not lora.enabled:
        allowed = "false, or true with lora.enabled: true"
        yield wrong_value("lora.load_in_4bit", True, allowed, "lora.enabled")
    if loader == "unsloth" and not lora.enabled:
        allowed = "transformers, or unsloth with lora.enabled: true"
        yield wrong_value("model.loader", loader, allowed, "lora.enabled")
    for other, is_on in (
        ("acceleration.token_packing.enabled", config.acceleration.token_packing.enabled),
        ("acceleration.shared_prompt", config.acceleration.shared_prompt),
    ):
        if loader == "unsloth" and is_on:
            why = "(its attention knows no rows of sequences)"
            allowed = f"transformers, or unsloth with {other}: false {why}"
            yield wrong_value("model.loader", loader, allowed, other)
    if training.optim == "adamw_8bit" and config.runtime.trainer_ranks > 1:
        allowed = "adamw_torch, or adamw_8bit with runtime.trainer_ranks: 1 (it knows no sharded weights)"
        yield wrong_value("training.optim", training.optim, allowed, "runtime.trainer_ranks")
    if training.use_liger_kernel and loader == "unsloth":
        allowed = "false, or true with model.loader: transformers (Unsloth has kernels of its own)"
        yield wrong_value("training.use_liger_kernel", True, allowed, "model.loader")
