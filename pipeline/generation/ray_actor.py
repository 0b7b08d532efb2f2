"""A vLLM engine in a Ray actor: on a GPU, or on another node.

Apart from pipeline.generation.client, so that a run whose engine is a process of this machine imports Ray
later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import ray

from pipeline.errors import StageError
from pipeline.generation.host import is_gone
from pipeline.generation.settings import EngineSettings
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.processes.remote import ProcessGoneError

_CLOSE_TIMEOUT_S = 15.0
_CAUSE_LINES, _CAUSE_LENGTH = 8, 500


@ray.remote(num_cpus=0, max_restarts=0)
class VllmActor:
    """Runs one engine; every method is asynchronous, so requests overlap."""

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

    @ray.method(num_returns="streaming")  # type: ignore[untyped-decorator]
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
            raise fault_of(error) from error
        except (asyncio.CancelledError, GeneratorExit):
            # A stream that nobody reads goes on in the actor.
            ray.cancel(stream)
            raise

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See EngineLink."""
        loaded: WeightsLoaded = await self._call("update_weights", update)
        return loaded

    async def prepare(self) -> str:
        """See EngineLink."""
        return str(await self._call("prepare"))

    async def stats(self) -> dict[str, float]:
        """See EngineLink."""
        return dict(await self._call("stats"))

    async def reset(self) -> None:
        """See EngineLink."""
        await self._call("reset")

    async def close(self) -> None:
        """End the engine, then the actor."""
        with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
            await asyncio.wait_for(self._actor.close.remote(), _CLOSE_TIMEOUT_S)
        ray.kill(self._actor)

    async def kill(self) -> None:
        """See EngineLink; the engine's processes die with the actor."""
        ray.kill(self._actor)

    async def _call(self, method: str, *arguments: object) -> Any:
        try:
            return await getattr(self._actor, method).remote(*arguments)
        except ray.exceptions.RayError as error:
            raise fault_of(error) from error


async def start_actor(settings: EngineSettings, environment: Mapping[str, str], num_gpus: float) -> ActorLink:
    """Start an actor with its share of a GPU and load the engine there; raises StageError when that fails."""
    # Ray's decorator makes a class of its own, which type checkers do not see.
    actor_class: Any = VllmActor
    options = {"runtime_env": {"env_vars": dict(environment)}, "num_gpus": num_gpus}
    actor = actor_class.options(**options).remote()
    try:
        return ActorLink(actor, await actor.start.remote(settings))
    except BaseException as error:
        ray.kill(actor)
        if isinstance(error, ray.exceptions.RayError):
            raise fault_of(error) from error
        raise


def fault_of(error: ray.exceptions.RayError) -> StageError:
    """What happened in the actor, or to it or its node; Ray's own text is its whole traceback."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return StageError(f"{type(error.cause).__name__}: {error.cause}")
    # What follows the first lines is the log of the node.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()][:_CAUSE_LINES]
    return ProcessGoneError(f"{type(error).__name__}: {'; '.join(lines)}"[:_CAUSE_LENGTH])
