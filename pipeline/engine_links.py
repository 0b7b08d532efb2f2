"""Ways from the driver to a vLLM engine: a process of this machine, or a Ray actor.

Both carry requests and weight updates and know no deadlines (pipeline.vllm_actor has those). Called by
pipeline.vllm_actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import ray

from pipeline.engine_client import EngineClient
from pipeline.engine_settings import EngineSettings
from pipeline.errors import StageError
from pipeline.messages import Completion, GenerationRequest, WeightUpdate
from pipeline.resident import IDLE_DEADLINE_S

_CLOSE_TIMEOUT_S = 15.0


class EngineLink(Protocol):
    """A way to an engine; every method raises StageError when the engine failed or is gone."""

    pid: int

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See VllmEngine.generate."""
        ...

    async def update_weights(self, update: WeightUpdate) -> float:
        """See VllmEngine.update_weights."""
        ...

    async def prepare(self) -> str:
        """See VllmEngine.prepare."""
        ...

    async def stats(self) -> dict[str, float]:
        """See VllmEngine.stats."""
        ...

    async def close(self) -> None:
        """End the engine, or leave it to a later run."""
        ...


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

    async def prepare(self) -> str:
        """See VllmEngine.prepare."""
        return str(await self._engine.prepare())

    async def stats(self) -> dict[str, float]:
        """See VllmEngine.stats."""
        return dict(await self._engine.stats())

    async def close(self) -> None:
        """End the engine's child process."""
        if self._engine is not None:
            await self._engine.close()


class ActorLink:
    """An engine in a VllmActor."""

    def __init__(self, actor: Any, pid: int) -> None:
        self._actor = actor
        self.pid = pid

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See EngineLink."""
        stream = self._actor.generate.remote(request)
        try:
            async for reference in stream:
                yield await reference
        except ray.exceptions.RayError as error:
            raise StageError(_reason(error)) from error
        except (asyncio.CancelledError, GeneratorExit):
            # A stream that nobody reads goes on in the actor.
            ray.cancel(stream)
            raise

    async def update_weights(self, update: WeightUpdate) -> float:
        """See EngineLink."""
        try:
            return float(await self._actor.update_weights.remote(update))
        except ray.exceptions.RayError as error:
            raise StageError(_reason(error)) from error

    async def prepare(self) -> str:
        """See EngineLink."""
        try:
            return str(await self._actor.prepare.remote())
        except ray.exceptions.RayError as error:
            raise StageError(_reason(error)) from error

    async def stats(self) -> dict[str, float]:
        """See EngineLink."""
        try:
            return dict(await self._actor.stats.remote())
        except ray.exceptions.RayError as error:
            raise StageError(_reason(error)) from error

    async def close(self) -> None:
        """End the engine, then the actor."""
        with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
            await asyncio.wait_for(self._actor.close.remote(), _CLOSE_TIMEOUT_S)
        ray.kill(self._actor)


class HostLink:
    """An engine in an engine host."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.pid = client.pid

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See EngineLink."""
        return self._client.stream("generate", request)

    async def update_weights(self, update: WeightUpdate) -> float:
        """See EngineLink."""
        return float(await self._client.call("update_weights", update))

    async def prepare(self) -> str:
        """See EngineLink."""
        return str(await self._client.call("prepare"))

    async def stats(self) -> dict[str, float]:
        """See EngineLink."""
        return dict(await self._client.call("stats"))

    async def close(self) -> None:
        """See EngineLink."""
        if self._client.is_kept:
            print(
                f"the engine (process {self.pid}) stays for {IDLE_DEADLINE_S / 60:.0f} minutes: "
                "--attach uses it, --stop-resident ends it",
                file=sys.stderr,
            )
        await self._client.close()


async def start_actor(settings: EngineSettings, environment: Mapping[str, str]) -> ActorLink:
    """Start an actor with its share of a GPU and load the engine there; raises StageError when that fails."""
    # Ray's decorator makes a class of its own, which type checkers do not see.
    actor_class: Any = VllmActor
    # A model that is split has its GPUs to itself; a whole one may share its GPU with the trainer.
    is_split = settings.tensor_parallel_size > 1
    num_gpus = settings.tensor_parallel_size if is_split else settings.gpu_memory_utilization
    options = {"runtime_env": {"env_vars": dict(environment)}, "num_gpus": num_gpus}
    actor = actor_class.options(**options).remote()
    try:
        return ActorLink(actor, await actor.start.remote(settings))
    except BaseException as error:
        ray.kill(actor)
        if isinstance(error, ray.exceptions.RayError):
            raise StageError(_reason(error)) from error
        raise


def _reason(error: ray.exceptions.RayError) -> str:
    """What happened in the actor; Ray's own text is its whole traceback."""
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    return f"{type(cause).__name__}: {cause}"
