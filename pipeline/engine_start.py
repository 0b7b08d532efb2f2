"""Start the generator that the configuration names.

Called by pipeline.orchestrator and pipeline.evaluate; the only place that knows both engines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import ray
import torch

from configs.schema import Config
from pipeline.generator import Generator
from pipeline.vllm_actor import start_vllm_generator


def choose_device(config: Config) -> str:
    """Return "cpu" or "cuda" for ``runtime.device``.

    Raises:
        ValueError: "cuda" is asked for on a machine without a CUDA device.
    """
    available = torch.cuda.is_available()
    if config.runtime.device == "cuda" and not available:
        raise ValueError("runtime.device: 'cuda' was asked for, but torch sees no CUDA device; use 'cpu'")
    if config.runtime.device == "auto":
        return "cuda" if available else "cpu"
    return config.runtime.device


def start_ray() -> None:
    """Start a private Ray on this machine, unless this process is already connected to one."""
    if ray.is_initialized():
        return
    ray.init(
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        configure_logging=False,
    )


@asynccontextmanager
async def running_generator(config: Config, model_path: str, device: str) -> AsyncIterator[Generator]:
    """A started generator, closed on the way out.

    Raises:
        GeneratorError: the engine did not start within ``runtime.startup_timeout_s``.
    """
    generator: Generator
    if config.generation.engine == "vllm":
        start_ray()
        generator = await start_vllm_generator(config, model_path, device)
    else:
        # Imported here: the vLLM path never needs it.
        from pipeline.transformers_engine import TransformersEngine

        generator = TransformersEngine(config, model_path, device)
    try:
        yield generator
    finally:
        await generator.close()
