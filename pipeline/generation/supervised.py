"""Generators made of generators: one that is started again when its process dies, and several behind one.

    request ─► engine ─✗─► kill what is left ─► start ─► the newest weights ─► the same request again

A new engine begins with the model's own weights, so it gets the last published ones before it gets a request:
whoever publishes keeps that file until a later update has been handed over. Requests wait meanwhile; a weight
update does not, it is loaded when the engine is back (one that comes while it loads the earlier ones waits
for that). What dies asleep, or on the way there, is started again when it is to wake: the memory is another's
until then. How often is pipeline.host.restarts's matter. To the rest of the pipeline it is a Generator like
any other.

Several behind one (``Dispatcher``): which of them a group goes to, and new weights for all of them at once.
A group stays whole on one generator. It goes to the one that had its task last, whose caches know the
prompt and whose history knows the answers, unless that one has more to do than the least busy by more than
a group; then to the least busy. A later turn goes to the one that had the first, on the same terms.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, TypeVar

from cachetools import LRUCache

from pipeline.errors import StageError
from pipeline.generation.generator import Generator, GeneratorError, GeneratorLostError
from pipeline.host.restarts import RestartLimit
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate

T = TypeVar("T")
_MAX_REMEMBERED = 65_536


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
        self._has_worked = False  # since it was started, or started again
        self._wanted: WeightUpdate | None = None  # what the engine must hold; None for the base weights
        self._loading = asyncio.Lock()
        self._restarting: asyncio.Task[None] | None = None
        self._may_wake = asyncio.Event()  # not set from ``sleep`` to ``wake``
        self._may_wake.set()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See pipeline.generation.generator.Generator; after a restart the request is made again.

        What had been yielded before stays, and its like of the second try is left out.

        Raises:
            StageError: the engine died too often.
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
                        self._has_worked = True
                        yield completion
                        if len(received) == request.num_generations:
                            return
                return
            except GeneratorLostError as error:
                self._lose(engine, str(error))

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See pipeline.generation.generator.Generator.

        Returns at once where the engine is being started again: it takes ``update`` before its next request.
        While a new engine loads earlier weights, that is waited for.
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
            self._limit.admit(self._name, reason, has_worked=self._has_worked)
            self._has_worked = False
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


class Dispatcher:
    """A Generator over ``generators``, at least one; it owns and closes them.

    ``update_timeout_s`` is for all of them together to load new weights.
    """

    def __init__(self, generators: Sequence[Generator], *, update_timeout_s: float) -> None:
        assert generators
        self._generators = tuple(generators)
        self._update_timeout_s = update_timeout_s
        self._loads = [0] * len(generators)  # completions asked for and not yet received
        # The generator that had a prompt last, or a request whose completions have later turns, and the
        # number of completions.
        self._last_of: LRUCache[tuple[int, ...] | str, tuple[int, int]] = LRUCache(_MAX_REMEMBERED)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See pipeline.generation.generator.Generator; the request's completions all come from one generator.

        Raises:
            GeneratorError: that generator failed; the message says which.
        """
        index = self._choose(request)
        num_owed = request.num_generations
        self._loads[index] += num_owed
        stream = self._generators[index].generate(request)
        try:
            async with aclosing(stream):  # type: ignore[type-var]
                async for completion in stream:
                    self._loads[index] -= 1
                    num_owed -= 1
                    yield completion
        except GeneratorError as error:
            raise GeneratorError(f"generator {index} of {len(self._generators)}: {error}") from error
        finally:
            self._loads[index] -= num_owed

    def _choose(self, request: GenerationRequest) -> int:
        least = min(self._loads)
        found = self._last_of.get(request.prompt_ids)
        is_asked_again = True
        if found is None:
            # A later turn is REQUEST/INDEX/turn N, of one completion; its prompt is nobody else's.
            found = self._last_of.get(request.request_id.rsplit("/", 2)[0])
            is_asked_again = found is None
        index, size = found or (self._loads.index(least), 0)
        if self._loads[index] > least + max(size, request.num_generations):
            index = self._loads.index(least)
        for key in (request.prompt_ids, request.request_id) if is_asked_again else ():
            self._last_of[key] = index, request.num_generations
        return index

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """Load ``update`` in all generators at once; the pause is the longest of theirs.

        Raises:
            GeneratorError: not all of them have it in time; the message names those and says why. The
                versions then differ, so nothing more may be generated.
        """
        indices = range(len(self._generators))
        answers = await asyncio.gather(*(self._update_one(index, update) for index in indices))
        loaded = [answer for answer in answers if isinstance(answer, WeightsLoaded)]
        faults = [answer for answer in answers if isinstance(answer, str)]
        if faults:
            raise GeneratorError(
                f"weights {update.policy_version} are in {len(loaded)} of {len(answers)} generators, and "
                f"their versions must agree: {'; '.join(faults)}"
            )
        # Each holds itself against the update. One that is being started again has no receipt yet.
        fullest = max(loaded, key=lambda one: len(one.receipt))
        return replace(fullest, pause_s=max(one.pause_s for one in loaded))

    async def stats(self) -> dict[str, float]:
        """The sums over all of them."""
        answers = await asyncio.gather(*(generator.stats() for generator in self._generators))
        names = {name for answer in answers for name in answer}
        return {name: sum(answer.get(name, 0.0) for answer in answers) for name in names}

    async def sleep(self) -> None:
        """See pipeline.generation.generator.Generator; raises what one of them raised."""
        await asyncio.gather(*(generator.sleep() for generator in self._generators))

    async def wake(self) -> None:
        """See pipeline.generation.generator.Generator; raises what one of them raised."""
        await asyncio.gather(*(generator.wake() for generator in self._generators))

    async def reset(self) -> None:
        """See pipeline.generation.generator.Generator; raises what one of them raised."""
        await asyncio.gather(*(generator.reset() for generator in self._generators))

    async def _update_one(self, index: int, update: WeightUpdate) -> WeightsLoaded | str:
        """Its answer, or what went wrong."""
        try:
            async with asyncio.timeout(self._update_timeout_s) as limit:
                return await self._generators[index].update_weights(update)
        except Exception as error:
            if limit.expired():
                return (
                    f"generator {index} did not load them within {self._update_timeout_s:g} s "
                    "(runtime.weight_update_timeout_s)"
                )
            return f"generator {index} failed: {str(error) or type(error).__name__}"

    async def close(self) -> None:
        """Close all of them; the first error, if any, is raised when all have been tried."""
        results = await asyncio.gather(
            *(generator.close() for generator in self._generators), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
