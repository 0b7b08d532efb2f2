"""A generator that is started again when its process dies or falls silent.

    request ─► engine ─✗─► kill what is left ─► start ─► the newest weights ─► the same request again

A new engine begins with the model's own weights, so it gets the last published ones before it gets a request:
whoever publishes keeps that file until a later update has been handed over. Requests wait meanwhile; a weight
update does not, it is loaded when the engine is back. What dies asleep, or on the way there, is started again
when it is to wake: the memory is another's until then. How often is pipeline.host.restarts's matter. To
the rest of the pipeline it is a Generator like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol, TypeVar

from pipeline.errors import StageError
from pipeline.generation.generator import Generator, GeneratorError, GeneratorLostError
from pipeline.host.restarts import RestartLimit
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate

T = TypeVar("T")


class Engine(Generator, Protocol):
    """A generator whose process can be ended without its help."""

    async def kill(self) -> None:
        """End every process of the engine at once, whatever they are doing."""
        ...


class SupervisedGenerator:
    """``engine``, and after its end the ones that ``start`` makes; ``name`` is for messages.

    ``start`` has a deadline of its own, and raises StageError when it fails.
    """

    def __init__(
        self, engine: Engine, start: Callable[[], Awaitable[Engine]], *, limit: RestartLimit, name: str
    ) -> None:
        self._engine: Engine | None = engine  # None while there is none
        self._start = start
        self._limit = limit
        self._name = name
        self._wanted: WeightUpdate | None = None  # what the engine must hold; None for the base weights
        self._loading = asyncio.Lock()
        self._restarting: asyncio.Task[None] | None = None
        self._may_wake = asyncio.Event()  # not set from ``sleep`` to ``wake``
        self._may_wake.set()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See pipeline.generation.generator.Generator; after a restart the request is made again.

        What had been yielded before stays, and its like of the second try is left out.

        Raises:
            TooManyRestartsError: the engine died too often.
            GeneratorError: the request itself failed, in an engine that is well.
        """
        received: set[int] = set()
        while True:
            engine = await self._running()
            try:
                async with aclosing(engine.generate(request)) as stream:  # type: ignore[type-var]
                    async for completion in stream:
                        if completion.index in received:
                            continue
                        received.add(completion.index)
                        yield completion
                        if len(received) == request.num_generations:
                            return
                return
            except GeneratorLostError as error:
                self._lose(engine, str(error))

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See pipeline.generation.generator.Generator.

        Returns at once where the engine is being started again: it takes ``update`` before its next request.
        """
        async with self._loading:
            self._wanted = update
            self._may_wake.set()
            loaded = await self._ask(lambda engine: engine.update_weights(update), GeneratorLostError)
            return loaded or WeightsLoaded(policy_version=update.policy_version, pause_s=0.0)

    async def sleep(self) -> None:
        """See pipeline.generation.generator.Generator; an engine that is being started is waited for."""
        engine = await self._running()
        self._may_wake.clear()
        try:
            await engine.sleep()
        except GeneratorLostError as error:
            self._lose(engine, str(error))

    async def wake(self) -> None:
        """See pipeline.generation.generator.Generator; what died meanwhile is started again from here on."""
        self._may_wake.set()
        await self._ask(lambda engine: engine.wake(), GeneratorLostError)

    async def stats(self) -> dict[str, float]:
        """See pipeline.generation.generator.Generator; a new engine counts from zero."""
        engine = self._engine
        if engine is None:
            return {}
        try:
            return await engine.stats()
        except GeneratorError as error:
            self._lose(engine, str(error))
            return {}

    async def reset(self) -> None:
        """See Generator; an engine that cannot (an update was cut off) is replaced."""
        async with self._loading:
            self._wanted = None
            self._may_wake.set()
            await self._ask(lambda engine: engine.reset(), GeneratorError)

    async def close(self) -> None:
        """End the engine, or its start."""
        if self._restarting is not None:
            self._restarting.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._restarting
        if self._engine is not None:
            await self._engine.close()

    async def _ask(self, ask: Callable[[Engine], Awaitable[T]], fatal: type[GeneratorError]) -> T | None:
        """What the engine answers; None where it is being started, or is lost by an error that is ``fatal``.

        Raises what its restart raised, if it was given up.
        """
        engine = self._engine
        if engine is not None:
            try:
                return await ask(engine)
            except fatal as error:
                self._lose(engine, str(error))
        if self._restarting is not None and self._restarting.done():
            self._restarting.result()
        return None

    async def _running(self) -> Engine:
        """The engine; waits for its restart, which has deadlines, and raises what that raised."""
        while self._engine is None:
            assert self._restarting is not None
            await asyncio.shield(self._restarting)
        return self._engine

    def _lose(self, engine: Engine, reason: str) -> None:
        """Begin a restart, unless another request has noticed the same end before."""
        if self._engine is engine:
            self._engine = None
            self._restarting = asyncio.create_task(self._bring_back(engine, reason), name=self._name)
            # Its error is for those who wait; where nobody does, it is not an error of the loop.
            self._restarting.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _bring_back(self, lost: Engine, reason: str) -> None:
        await lost.kill()
        await self._may_wake.wait()
        while True:
            self._limit.admit(self._name, reason)
            try:
                fresh = await self._start()
            except StageError as error:
                reason = str(error)
                continue
            try:
                async with self._loading:
                    if self._wanted is not None:
                        await fresh.update_weights(self._wanted)
                    self._engine = fresh
                    return
            except GeneratorError as error:
                # A trainer that sends its weights may hold newer ones by now: the next try takes those.
                reason = str(error)
                await fresh.kill()
            except BaseException:
                await fresh.kill()
                raise
