"""Which device a run works on, in which precision, and how generation and training share cores and GPUs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.acceleration_schema import ROW_TOKENS
from configs.schema import Config
from pipeline.host.limits import read_text

# NVIDIA's driver, the same under WSL, AMD's.
_GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
_MPS_PIPES = "/tmp/nvidia-mps"
# Of processes that send weights to each other: left to itself torch ends the process in which a transfer is
# not through in time, and with a generator that died the trainer.
NCCL_ERRORS = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
# Where torch reads how it is to ask a card for memory.
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# Of a GPU's memory, what a generator takes by itself.
_SHARED, _OWN = 0.4, 0.9
# The first with products in fp8.
FP8_CAPABILITY = (8, 9)
# Of x86 and of Arm.
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
INT8_FLAG = "avx512_vnni"


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
    has_bf16 = config.cluster.is_joined or _has_bf16(device)
    changes: dict[str, Any] = {}
    if config.training.bf16 is None:
        changes["training"] = config.training.model_copy(update={"bf16": has_bf16})
    engine: dict[str, str] = {}
    if config.generation.dtype == "auto":
        without = "float32" if device == "cpu" else "float16"
        engine["dtype"] = "bfloat16" if has_bf16 else without
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
    return "int8" if generation.enforce_eager is not False and INT8_FLAG in processor_flags() else "none"


def check_precision(config: Config, device: str) -> None:
    """Raises ValueError where bf16 or fp8 is asked for on a GPU without: vLLM would refuse it, later."""
    if device == "cpu" or config.cluster.is_joined:
        return
    _check_fp8(config, device)
    if _has_bf16(device):
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


def _has_bf16(device: str) -> bool:
    if device == "cpu":
        return not BF16_FLAGS.isdisjoint(processor_flags())
    # As below.
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


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


def uses_ray(config: Config, device: str) -> bool:
    """Whether trainer ranks and generators are Ray's: where it is asked for, or there are several GPUs."""
    return config.cluster.address is not None or num_gpus(device) > 1


def num_gpus(device: str) -> int:
    """The GPUs of this machine for ``device``; none on a CPU."""
    if device == "cpu":
        return 0
    # As above.
    import torch

    return torch.cuda.device_count()


def check_tensor_parallel(config: Config, device: str) -> None:
    """Raises ValueError where a model cannot be split over so many GPUs."""
    generation = config.generation
    size = generation.tensor_parallel_size
    if size == 1:
        return
    field = f"generation.tensor_parallel_size: value {size}: must be"
    if device == "cpu":
        raise ValueError(f"{field} 1 on a CPU: a model is split over GPUs only")
    if generation.engine != "vllm":
        raise ValueError(f"{field} 1 with generation.engine {generation.engine!r}: only vllm splits a model")
    num_there = num_gpus(device)
    if size * generation.num_engines > num_there:
        allowed = num_there // generation.num_engines
        raise ValueError(
            f"{field} at most {max(1, allowed)}: this machine has {num_there} GPUs for "
            f"{generation.num_engines} engines (generation.num_engines)"
        )


def check_residence(config: Config, device: str) -> None:
    """Raises ValueError for a resident engine where there are several GPUs: Ray, which shares them out, does
    not know it.
    """
    num_there = num_gpus(device)
    for field in ("keep_alive", "attach"):
        if num_there > 1 and getattr(config.runtime, field):
            raise ValueError(
                f"runtime.{field}: value true: a resident engine takes the first GPU, where a trainer may "
                f"be, and there are {num_there}; set it to false, or show one only (CUDA_VISIBLE_DEVICES=0)"
            )


def check_sleep(config: Config, device: str) -> None:
    """Raises ValueError where the engine is to give memory back and has none that a trainer could use."""
    if config.generation.sleep_while_training is not True or sleeps(config, device, num_gpus(device)):
        return
    if config.generation.engine != "vllm":
        reason = f"generation.engine {config.generation.engine!r} cannot"
    else:
        reason = "generator and trainer share no GPU here" if device != "cpu" else "there is no GPU to share"
    raise ValueError(
        f"generation.sleep_while_training: value true: must be auto or false: {reason}; only vLLM gives "
        "memory back, and only on a GPU that both use"
    )


def sleeps(config: Config, device: str, num_gpus: int) -> bool:
    """Whether the engine gives its memory back while the trainer works, where the two run in turn."""
    generation = config.generation
    wants_to = generation.sleep_while_training is not False and generation.engine == "vllm"
    return wants_to and device == "cuda" and is_shared(config, device, num_gpus)


def takes_turns(config: Config) -> bool:
    """Whether an engine that ``sleeps`` does so in every step: then the two never hold memory at once."""
    acceleration = config.acceleration
    # Without either nothing could run beside the trainer.
    has_choice = acceleration.max_staleness > 0 or acceleration.stream_steps
    return config.generation.sleep_while_training is True or not has_choice


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShares:
    """Of a GPU: what a trainer rank takes, and a generator (the number of its GPUs where it is split)."""

    rank: float
    generator: float


def gpu_shares(config: Config, num_gpus: int) -> GpuShares:
    """The shares on a machine with ``num_gpus``, such that no two ranks ever share a GPU.

    Split, a rank and a generator have their GPUs to themselves; colocated, each rank leaves
    ``generation.gpu_memory_utilization`` of its GPU to whole generators. A generator that is split over GPUs
    (``generation.tensor_parallel_size``) shares with nobody. ``runtime.placement`` auto splits where there
    are GPUs enough. Raises ValueError where that cannot be.
    """
    generation, num_ranks = config.generation, config.runtime.trainer_ranks
    num_generator_gpus = generation.num_engines * generation.tensor_parallel_size
    if num_ranks > num_gpus:
        raise ValueError(
            f"runtime.trainer_ranks: value {num_ranks}: there are {num_gpus} GPUs, and every rank needs one "
            f"of its own; set it to at most {num_gpus}"
        )
    placement, share = config.runtime.placement, engine_share(config, beside_trainer=True)
    is_enough = num_ranks + num_generator_gpus <= num_gpus
    must_split = placement == "split" or generation.tensor_parallel_size > 1
    if must_split and not is_enough:
        is_asked = placement == "split"
        setting = "runtime.placement: value split" if is_asked else "generation.tensor_parallel_size"
        raise ValueError(
            f"{setting}: {num_ranks} trainer ranks (runtime.trainer_ranks) and {num_generator_gpus} GPUs of "
            "generators (generation.num_engines times generation.tensor_parallel_size) do not share, so they "
            f"need {num_ranks + num_generator_gpus} GPUs; there are {num_gpus}"
        )
    if must_split or (placement == "auto" and is_enough):
        return GpuShares(rank=1.0, generator=float(generation.tensor_parallel_size))
    taken = share * math.ceil(generation.num_engines / num_gpus)
    if taken >= 1.0 or (num_ranks > 1 and taken >= 0.5):
        needed = "half of one each" if num_ranks > 1 else "some of one"
        raise ValueError(
            f"generation.gpu_memory_utilization: value {share}: generators would take {taken:g} of a GPU "
            f"that trainer ranks share with them, and these need more than {needed}; set it lower, or "
            "generation.num_engines or runtime.trainer_ranks"
        )
    return GpuShares(rank=1.0 - taken, generator=share)


def engine_share(config: Config, *, beside_trainer: bool) -> float:
    """What of a GPU's memory a generator takes."""
    return config.generation.gpu_memory_utilization or (_SHARED if beside_trainer else _OWN)


def sends_weights(config: Config, device: str, num_gpus: int) -> bool:
    """Whether the trainer sends new weights to the generators, instead of writing them to a file.

    Over NCCL, or where all are on one card by CUDA IPC, since NCCL cannot have two processes on one. Raises
    ValueError where ``runtime.weight_transport`` asks for it and neither can be.
    """
    transport = config.runtime.weight_transport
    if device == "cpu" or transport == "file":
        return transport == "collective"
    has_own_gpus = config.cluster.is_joined or gpu_shares(config, num_gpus).rank == 1.0
    if transport == "collective":
        if has_own_gpus or num_gpus == 1:
            return True
        raise ValueError(
            "runtime.weight_transport: value collective: generators share several GPUs with trainer ranks, "
            "and NCCL cannot have two processes on one; set it to auto or file, or runtime.placement to split"
        )
    return has_own_gpus and not config.lora.enabled and config.generation.engine == "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuThreads:
    """Threads of all generators together, and of all trainer ranks together."""

    generators: int
    trainer: int


def cpu_threads(config: Config, num_cores: int) -> CpuThreads:
    """The threads of the two on ``num_cores``: all cores for each, or each its half where they are split.

    ``runtime.generator_threads`` and ``runtime.trainer_threads`` go before; there are never more than cores
    for generators, since those wait for each other at every layer.
    """
    runtime = config.runtime
    own = max(1, num_cores // 2) if runtime.placement == "split" else num_cores
    rest = max(1, num_cores - own) if runtime.placement == "split" else num_cores
    return CpuThreads(
        generators=min(runtime.generator_threads or own, num_cores), trainer=runtime.trainer_threads or rest
    )


def is_shared(config: Config, device: str, num_gpus: int) -> bool:
    """Whether generation and training compete for the same cores or the same GPU."""
    if config.cluster.is_joined or config.runtime.placement == "split":
        return False
    return device == "cpu" or gpu_shares(config, num_gpus).rank < 1.0
