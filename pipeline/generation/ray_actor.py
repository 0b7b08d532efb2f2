"""A vLLM engine in a Ray actor of this machine, with its share of a GPU."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pipeline.errors import StageError
from pipeline.generation.client import EngineLink
from pipeline.generation.host import is_gone
from pipeline.generation.settings import EngineSettings
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.processes.ray_remote import RayProcess

_CLOSE_TIMEOUT_S = 15.0


class EngineActor:
    """One engine, in the actor. A call that fails because the engine has ended ends the process."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self, settings: EngineSettings) -> int:
        """Load the model; returns the actor's process id."""
        # Imported here so that only this process pays for vllm.
        from pipeline.generation.vllm.engine import VllmEngine

        self._engine = VllmEngine(settings)
        self._watch = asyncio.create_task(self._end_with_engine())
        return os.getpid()

    async def _end_with_engine(self) -> None:
        """What waits for a dead engine would wait for ever; without this process its callers are told."""
        reason = await self._engine.failure()
        print(f"the engine of process {os.getpid()} is gone: {reason}", file=sys.stderr, flush=True)
        os._exit(1)

    @asynccontextmanager
    async def _ending_with_engine(self) -> AsyncIterator[None]:
        """A call that fails because the engine has ended waits for the end of this process."""
        try:
            yield
        except Exception:
            if await is_gone(self._engine) and self._watch is not None:
                await self._watch
            raise

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Stream the completions of one request."""
        async with self._ending_with_engine():
            async for completion in self._engine.generate(request):
                yield completion

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See VllmEngine.update_weights."""
        async with self._ending_with_engine():
            loaded: WeightsLoaded = await self._engine.update_weights(update)
        return loaded

    async def prepare(self) -> str:
        """See VllmEngine.prepare."""
        return str(await self._engine.prepare())

    async def stats(self) -> dict[str, float]:
        """See VllmEngine.stats."""
        return dict(await self._engine.stats())

    async def reset(self) -> None:
        """See VllmEngine.reset."""
        await self._engine.reset()

    async def close(self) -> None:
        """End the engine's child process."""
        if self._watch is not None:
            self._watch.cancel()
        if self._engine is not None:
            await self._engine.close()


class RayEnd:
    """See EngineEnd: of an actor with an engine."""

    def __init__(self, actor: RayProcess, pid: int) -> None:
        self._actor = actor
        self.pid = pid

    async def call(self, method: str, *arguments: object) -> Any:
        """See EngineEnd."""
        return await asyncio.wrap_future(self._actor.call(method, *arguments))

    def stream(self, method: str, *arguments: object) -> AsyncIterator[Any]:
        """See EngineEnd."""
        return self._actor.stream(method, *arguments)

    async def close(self) -> None:
        """End the engine, then the actor."""
        with contextlib.suppress(TimeoutError, StageError):
            await asyncio.wait_for(self.call("close"), _CLOSE_TIMEOUT_S)
        self._actor.kill()

    async def kill(self) -> None:
        """See EngineEnd; the engine's processes die with the actor."""
        self._actor.kill()


async def start_actor(
    settings: EngineSettings, environment: Mapping[str, str], num_gpus: float
) -> EngineLink:
    """Start an actor with its share of a GPU and load the engine there; raises StageError when that fails."""
    target = f"{__name__}:{EngineActor.__name__}"
    actor = RayProcess(target, environment=environment, options={"num_gpus": num_gpus})
    try:
        return EngineLink(RayEnd(actor, await asyncio.wrap_future(actor.call("start", settings))))
    except BaseException:
        actor.kill()
        raise
