"""The environment of an engine's processes; light, since it is set before anything else is imported.

Called by pipeline.launch, pipeline.engine_start and pipeline.vllm_actor.
"""

from __future__ import annotations

import os
from pathlib import Path

from configs.schema import Config

_MANY = 1 << 16
# NVIDIA's driver, the same under WSL, AMD's.
_GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))


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
    if device == "cpu":
        # Cores that this process may not use would be waited for at every barrier.
        num_threads = min(config.runtime.generator_threads or _MANY, len(os.sched_getaffinity(0)))
        # Several engines share them.
        num_threads = max(1, num_threads // config.generation.num_engines)
        # Threads stay where the kernel wants them among the allowed cores: the trainer is on the same ones.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        variables["OMP_NUM_THREADS"] = str(num_threads)
        # The trainer shares the cores: threads that spin at a barrier would take them from it.
        variables["OMP_WAIT_POLICY"] = "PASSIVE"
        if config.generation.enforce_eager:
            # vLLM compiles a few helpers of its sampler even then, which takes longer than they save.
            variables["TORCH_COMPILE_DISABLE"] = "1"
    return variables
