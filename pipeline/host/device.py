"""The device that a run works on, what it can do, and the precision and length of rows that follow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.acceleration_schema import ROW_TOKENS
from configs.schema import Config
from pipeline.host.limits import read_text

# NVIDIA's driver, the same under WSL, AMD's.
_GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
_MPS_PIPES = "/tmp/nvidia-mps"
# The first with products in fp8.
FP8_CAPABILITY = (8, 9)
# Of x86 and of Arm.
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_INT8_FLAG = "avx512_vnni"


def may_have_gpu() -> bool:
    """Whether it is worth asking torch for a GPU: without a driver's device file there is none."""
    return any(path.exists() for path in _GPU_DEVICES)


def has_mps(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether NVIDIA MPS runs here; without it kernels of two processes never overlap on a card."""
    return (Path(variables.get("CUDA_MPS_PIPE_DIRECTORY", _MPS_PIPES)) / "control").exists()


def choose_device(config: Config) -> str:
    """Return "cpu" or "cuda" for ``runtime.device``.

    On a cluster it is what the setting says: the other nodes may have what this one has not.

    Raises:
        ValueError: "cuda" is asked for on a machine without a CUDA device.
    """
    if config.cluster.is_joined:
        return config.runtime.device
    available = torch_sees_gpu()
    if config.runtime.device == "cuda" and not available:
        raise ValueError("runtime.device: 'cuda' was asked for, but torch sees no CUDA device; use 'cpu'")
    if config.runtime.device == "auto":
        return "cuda" if available else "cpu"
    return config.runtime.device


def for_device(config: Config, device: str) -> Config:
    """``config`` with ``training.bf16``, ``generation.dtype``, ``quantization`` and rows' lengths decided.

    The host begins thousands of kernels for a row: where rows are short, a GPU waits for it.
    Emulated bf16 products take four times as long as fp32 ones (torch 2.13, AVX-512 without its bf16 part).
    On a cluster both are bf16 and nothing is in 8 bits: what the other nodes have is not known here.
    """
    is_bf16 = config.cluster.is_joined or has_bf16(device)
    changes: dict[str, Any] = {}
    if config.training.bf16 is None:
        changes["training"] = config.training.model_copy(update={"bf16": is_bf16})
    engine: dict[str, str] = {}
    if config.generation.dtype == "auto":
        without = "float32" if device == "cpu" else "float16"
        engine["dtype"] = "bfloat16" if is_bf16 else without
    if config.generation.quantization == "auto":
        engine["quantization"] = _low_precision(config, device)
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
    """Raises ValueError where bf16, fp8 or int8 is asked for without instructions for it.

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
