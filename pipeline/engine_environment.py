"""The environment of an engine's processes; light, since it is set before anything else is imported.

Called by pipeline.launch, pipeline.engine_start and pipeline.vllm_actor.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from configs.schema import Config
from pipeline.compile_cache import compile_cache
from pipeline.placement import cpu_threads

# NVIDIA's driver, the same under WSL, AMD's.
_GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
# Beside torch's package or in it; wheels differ.
_OPENMP_PLACES = ("lib", "../torch.libs")


def may_have_gpu() -> bool:
    """Whether it is worth asking torch for a GPU: without a driver's device file there is none."""
    return any(path.exists() for path in _GPU_DEVICES)


def engine_environment(config: Config, device: str) -> dict[str, str]:
    """Environment variables of the engine's processes."""
    variables = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if not config.generation.enforce_eager:
        variables |= compile_cache()
    if device == "cpu":
        # vLLM binds only what it starts as a fresh interpreter; see pipeline.engine_threads.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        variables["OMP_NUM_THREADS"] = str(_num_threads(config))
        # Turns of a loop, about 0.2 ms. A thread that slept at each barrier would be woken thousands of times
        # a second, which halves the speed of few sequences; one that went on would take the trainer's core.
        variables["GOMP_SPINCOUNT"] = "10000"
        if (preload := _preload()) is not None:
            variables["LD_PRELOAD"] = preload
        if config.generation.enforce_eager:
            # vLLM compiles a few helpers of its sampler even then, which takes longer than they save.
            variables["TORCH_COMPILE_DISABLE"] = "1"
    return variables


def engine_cores(config: Config, index: int) -> tuple[int, ...]:
    """The cores for the threads of engine ``index``, or () where the kernel is to place them.

    Engines that leave cores free are not bound: another run on this machine would be bound to the same ones.
    """
    cores, num_threads = sorted(os.sched_getaffinity(0)), _num_threads(config)
    if num_threads * config.generation.num_engines != len(cores):
        return ()
    return tuple(cores[index * num_threads : (index + 1) * num_threads])


def _num_threads(config: Config) -> int:
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
