"""A vLLM engine in a Ray actor, and the driver's handle to it.

``start_vllm_generator`` is called by pipeline.engine_start. The actor owns the engine's child process
and dies with the driver that made it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import ray

from configs.schema import Config
from pipeline.engine_settings import EngineSettings
from pipeline.generator import GeneratorError
from pipeline.messages import Completion, GenerationRequest, WeightUpdate

_CLOSE_TIMEOUT_S = 15.0


@ray.remote(num_cpus=0, max_restarts=0)
class VllmActor:
    """Runs one engine; every method is asynchronous, so requests overlap."""

    def __init__(self) -> None:
        self._engine: Any = None

    async def start(self, settings: EngineSettings) -> int:
        """Load the model; returns the actor's process id."""
        # Imported here so that only this process pays for vllm.
        from pipeline.vllm_engine import VllmEngine

        self._engine = VllmEngine(settings)
        return os.getpid()

    @ray.method(num_returns="streaming")  # type: ignore[untyped-decorator]
    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Stream the completions of one request."""
        async for completion in self._engine.generate(request):
            yield completion

    async def update_weights(self, update: WeightUpdate) -> float:
        """See VllmEngine.update_weights."""
        return float(await self._engine.update_weights(update))

    async def close(self) -> None:
        """End the engine's child process."""
        if self._engine is not None:
            await self._engine.close()


class VllmGenerator:
    """The driver's side of a VllmActor; see pipeline.generator.Generator."""

    def __init__(self, actor: Any, config: Config, pid: int) -> None:
        self._actor = actor
        self._generation_timeout_s = config.runtime.generation_timeout_s
        self._update_timeout_s = config.runtime.weight_update_timeout_s
        self.pid = pid

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield completions as they finish.

        Raises:
            GeneratorError: no completion came within ``runtime.generation_timeout_s``, or the actor died.
        """
        stream = self._actor.generate.remote(request)
        for received in range(request.num_generations):
            try:
                reference = await asyncio.wait_for(anext(stream), self._generation_timeout_s)
                yield await reference
            except TimeoutError as error:
                raise GeneratorError(
                    f"the vLLM generator (process {self.pid}) sent {received} of "
                    f"{request.num_generations} completions of {request.request_id} and then nothing for "
                    f"{self._generation_timeout_s:.0f} s (runtime.generation_timeout_s)"
                ) from error
            except ray.exceptions.RayError as error:
                raise GeneratorError(
                    f"the vLLM generator (process {self.pid}) failed: {_reason(error)}"
                ) from error

    async def update_weights(self, update: WeightUpdate) -> float:
        """See pipeline.generator.Generator.

        Raises:
            GeneratorError: the update took longer than ``runtime.weight_update_timeout_s``, or failed.
        """
        try:
            return float(
                await asyncio.wait_for(self._actor.update_weights.remote(update), self._update_timeout_s)
            )
        except TimeoutError as error:
            raise GeneratorError(
                f"the vLLM generator (process {self.pid}) did not load weights {update.policy_version} "
                f"within {self._update_timeout_s:.0f} s (runtime.weight_update_timeout_s)"
            ) from error
        except ray.exceptions.RayError as error:
            raise GeneratorError(
                f"the vLLM generator (process {self.pid}) failed to load weights "
                f"{update.policy_version}: {_reason(error)}"
            ) from error

    async def close(self) -> None:
        """End the engine, then the actor."""
        with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
            await asyncio.wait_for(self._actor.close.remote(), _CLOSE_TIMEOUT_S)
        ray.kill(self._actor)


def _reason(error: ray.exceptions.RayError) -> str:
    """What happened in the actor; Ray's own text is its whole traceback."""
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    return f"{type(cause).__name__}: {cause}"


async def start_vllm_generator(config: Config, model_path: str, device: str) -> VllmGenerator:
    """Start an actor and its engine.

    Raises:
        GeneratorError: it did not start within ``runtime.startup_timeout_s``, or failed.
    """
    generation = config.generation
    settings = _engine_settings(config, model_path, device)
    options: dict[str, Any] = {"runtime_env": {"env_vars": engine_environment(config, device)}}
    if device == "cuda":
        options["num_gpus"] = generation.gpu_memory_utilization
    # Ray's decorator makes a class of its own, which type checkers do not see.
    actor_class: Any = VllmActor
    actor = actor_class.options(**options).remote()
    try:
        pid = await asyncio.wait_for(actor.start.remote(settings), config.runtime.startup_timeout_s)
    except TimeoutError as error:
        ray.kill(actor)
        raise GeneratorError(
            f"vLLM did not start within {config.runtime.startup_timeout_s:.0f} s (runtime.startup_timeout_s)"
        ) from error
    except ray.exceptions.RayError as error:
        ray.kill(actor)
        raise GeneratorError(f"vLLM failed to start: {_reason(error)}") from error
    return VllmGenerator(actor, config, pid)


def _engine_settings(config: Config, model_path: str, device: str) -> EngineSettings:
    generation = config.generation
    longest = max(generation.max_completion_length, config.evaluation.max_completion_length)
    return EngineSettings(
        model=model_path,
        dtype=generation.dtype,
        max_model_len=generation.max_prompt_length + longest,
        max_num_seqs=generation.max_num_seqs,
        enforce_eager=generation.enforce_eager,
        gpu_memory_utilization=generation.gpu_memory_utilization,
        enable_prefix_caching=generation.enable_prefix_caching,
        kv_cache_memory_bytes=round(generation.kv_cache_gb * 2**30) if device == "cpu" else None,
        seed=config.training.seed,
        # vLLM 0.31.0 on CPU ends the engine on some seeded batches ("CPU Generator does not use offset").
        per_request_seeds=device != "cpu",
    )


def engine_environment(config: Config, device: str) -> dict[str, str]:
    """Environment variables of the engine's processes."""
    variables = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if device == "cpu":
        num_threads = config.runtime.generator_threads or os.cpu_count() or 1
        variables["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{num_threads - 1}" if num_threads > 1 else "0"
        variables["OMP_NUM_THREADS"] = str(num_threads)
        # The trainer shares the cores: threads that spin at a barrier would take them from it.
        variables["OMP_WAIT_POLICY"] = "PASSIVE"
    return variables
