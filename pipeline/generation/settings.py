"""What an engine needs to start: environment, cores, settings. Light: no vllm, no torch."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.conditions import max_engine_length
from configs.schema import Config, SpeculativeConfig
from pipeline.host.device import num_gpus
from pipeline.host.files import cache_root
from pipeline.host.shares import NCCL_ERRORS, cpu_threads, engine_share, is_shared, sleeps

# Beside torch's package or in it; wheels differ.
_OPENMP_PLACES = ("lib", "../torch.libs")
_COMPILED = {"VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
# Of an adapter that vLLM 0.31 runs beside the weights.
LARGEST_LORA_RANK = 512
_GPU_BATCHED_TOKENS = 8192
# Of our words for quantisation those that are not vLLM's.
_QUANTIZATION = {"none": None, "auto": None, "fp8": "fp8_per_channel"}
# A host without a run ends itself after this long.
IDLE_DEADLINE_S = 1800.0
_Region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def engine_environment(config: Config, device: str) -> dict[str, str]:
    """Environment variables of the engine's processes."""
    variables = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if not runs_eagerly(config, device):
        variables |= compile_cache()
    if device == "cuda":
        variables |= NCCL_ERRORS
    if device == "cpu":
        # vLLM binds only what it starts as a fresh interpreter; see pipeline.generation.vllm.worker.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        variables["OMP_NUM_THREADS"] = str(engine_threads(config))
        # Turns of a loop, about 0.2 ms. A thread that slept at each barrier would be woken thousands of times
        # a second, which halves the speed of few sequences; one that went on would take the trainer's core.
        variables["GOMP_SPINCOUNT"] = "10000"
        if (preload := _preload()) is not None:
            variables["LD_PRELOAD"] = preload
        if runs_eagerly(config, device):
            # vLLM compiles a few helpers of its sampler even then, which takes longer than they save.
            variables["TORCH_COMPILE_DISABLE"] = "1"
    return variables


def runs_eagerly(config: Config, device: str) -> bool:
    """``generation.enforce_eager``, decided."""
    eager = config.generation.enforce_eager
    return device == "cpu" if eager is None else eager


def engine_cores(config: Config, index: int) -> tuple[int, ...]:
    """The cores for the threads of engine ``index``, or () where the kernel is to place them.

    Engines that leave cores free are not bound: another run on this machine would be bound to the same ones.
    """
    cores, num_threads = sorted(os.sched_getaffinity(0)), engine_threads(config)
    if num_threads * config.generation.num_engines != len(cores):
        return ()
    return tuple(cores[index * num_threads : (index + 1) * num_threads])


def engine_threads(config: Config) -> int:
    """Of one engine on a CPU."""
    # Cores that this process may not use would be waited for at every barrier.
    num_threads = cpu_threads(config, len(os.sched_getaffinity(0))).generators
    # Several engines share them.
    return max(1, num_threads // config.generation.num_engines)


def _preload() -> str | None:
    """torch's OpenMP library, to be first in a process: with two of them, two teams would share its cores.

    vLLM sets this for the interpreters that it starts.
    """
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return None
    for place in _OPENMP_PLACES:
        found = sorted((Path(torch.origin).parent / place).resolve().glob("libgomp*.so*"))
        if found:
            return ":".join([str(found[0]), *filter(None, [os.environ.get("LD_PRELOAD")])])
    return None


def bind_threads(cores: Sequence[int]) -> str:
    """Bind this thread's OpenMP team, itself included, to one of ``cores`` each; returns why not, or "".

    Threads that meet at a barrier hundreds of times a token lose much where the kernel moves two of them to
    one core. vLLM binds them by environment variables, which only a fresh interpreter reads; the engine's
    processes are forked. The team keeps its threads until this thread ends. Needs GNU's OpenMP as the
    process's first library (``_preload``): a second copy would have threads of its own.
    """
    program = ctypes.CDLL(None)
    try:
        parallel, thread_number = program.GOMP_parallel, program.omp_get_thread_num
    except AttributeError:
        return "torch's GNU OpenMP was not preloaded"

    def bind(_: object) -> None:
        os.sched_setaffinity(0, {cores[thread_number()]})

    # What a compiler makes of "#pragma omp parallel".
    parallel(_Region(bind), None, ctypes.c_uint(len(cores)), ctypes.c_uint(0))
    return ""


def compile_cache() -> dict[str, str]:
    """Variables that keep compiled kernels where a later start finds them; what the user has set stays.

    With ``generation.enforce_eager`` off an engine compiles the model at its first start, for a minute or
    more. vLLM and torch name what they compile by all that it depends on, so the folder may serve every model
    and version; it is the user's to delete.
    """
    root = cache_root() / "compiled"
    return {name: os.environ.get(name, str(root / folder)) for name, folder in _COMPILED.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine of the model in the folder ``model`` needs to start.

    ``arguments`` are those of vLLM's AsyncEngineArgs that the configuration decides. ``shares_gpu`` says that
    a trainer is on the same card, ``sleeps`` that memory can be given back to it. With ``lora_rank`` adapters
    of that rank run beside the weights; without, they are merged into them. ``on_cpu`` forks the engine's
    process from the caller's instead of starting an interpreter (its OpenMP variables must be set already)
    and has the model in it too; its threads are bound to ``cores``, one each, unless there are none, and only
    the argument ``seed`` rules what is drawn. A trainer that sends weights has to answer within
    ``weight_timeout_s``. ``speculation`` has its draft model as a folder; ``index`` is the engine's number in
    its run.
    """

    model: str
    arguments: Mapping[str, Any]
    shares_gpu: bool = False
    sleeps: bool = False
    lora_rank: int | None = None
    on_cpu: bool = False
    cores: tuple[int, ...] = ()
    weight_timeout_s: float = 120.0
    speculation: SpeculativeConfig | None = None
    index: int = 0


def engine_settings(config: Config, model_path: str, device: str, index: int = 0) -> EngineSettings:
    """What engine number ``index`` of this configuration needs."""
    generation, lora = config.generation, config.lora
    shares_gpu = _shares_gpu(config, device)
    arguments = {
        # None of those below, nor of the engine's own: pipeline.generation.vllm_arguments refuses them.
        **generation.engine_kwargs,
        "trust_remote_code": config.model.trust_remote_code,
        "dtype": generation.dtype,
        # Of prompt and completion.
        "max_model_len": max_engine_length(config),
        "max_num_seqs": generation.max_num_seqs,
        "enforce_eager": runs_eagerly(config, device),
        "gpu_memory_utilization": engine_share(config, beside_trainer=shares_gpu),
        "enable_prefix_caching": generation.enable_prefix_caching,
        "kv_cache_memory_bytes": round(generation.kv_cache_gb * 2**30) if device == "cpu" else None,
        # Engines with one seed would draw the same random numbers for different groups.
        "seed": config.training.seed + index,
        "tensor_parallel_size": generation.tensor_parallel_size,
        "max_num_batched_tokens": _batched_tokens(config, device),
        "quantization": _QUANTIZATION.get(generation.quantization, generation.quantization),
        "kv_cache_dtype": generation.kv_cache_dtype,
        "attention_backend": generation.attention_backend,
    }
    return EngineSettings(
        model=model_path,
        arguments=arguments,
        # Before the driver's own time is over: it can only say that the engine is silent.
        weight_timeout_s=0.8 * config.runtime.weight_update_timeout_s,
        shares_gpu=shares_gpu,
        sleeps=shares_gpu and sleeps(config, device, num_gpus(device)),
        # vLLM's LoRA kernels for a CPU copy the factors once a token; its ranks end at 512.
        lora_rank=lora.r if lora.enabled and device == "cuda" and lora.r <= LARGEST_LORA_RANK else None,
        # The host's environment has the OpenMP variables that a CPU's processes need.
        on_cpu=device == "cpu",
        cores=engine_cores(config, index) if device == "cpu" else (),
        speculation=speculation_settings(config),
        index=index,
    )


def _shares_gpu(config: Config, device: str) -> bool:
    """Whether a trainer is on the engine's card."""
    num_there = num_gpus(device)
    return num_there > 0 and is_shared(config, device, num_there)


def _batched_tokens(config: Config, device: str) -> int | None:
    """What the engine reads in one forward; on a GPU vLLM's own choice for a library is 2,048."""
    generation, speculative = config.generation, config.acceleration.speculative
    if device == "cpu":
        asked = generation.max_num_batched_tokens
        return None if asked is None else max(asked, generation.max_num_seqs)
    # With adapters and drafts a forward has to hold a draft of every sequence.
    least = generation.max_num_seqs * (speculative.num_tokens + 1 if speculative.enabled else 1)
    return max(generation.max_num_batched_tokens or _GPU_BATCHED_TOKENS, least)


def speculation_settings(config: Config) -> SpeculativeConfig | None:
    """How the engine drafts ahead, with the draft model on disk; None where it does not.

    Raises:
        ValueError: the draft model can be had neither from a folder nor from the hub.
    """
    speculative = config.acceleration.speculative
    if not speculative.enabled:
        return None
    if speculative.draft_model is None:
        return speculative
    # Imported here: only a draft model needs torch in the driver.
    from pipeline.models.find import resolve_draft_model

    return speculative.model_copy(update={"draft_model": str(resolve_draft_model(config))})
