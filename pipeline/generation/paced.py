"""How many completions an engine writes at once: as many as its KV cache holds without throwing work away.

More than that and vLLM ends completions half-way, to compute them again later (preemption). The limit falls
by a share when that happens or the cache is nearly full, and grows by a group when there is room and someone
waits (AIMD, as TCP does it): the trainer's slots let requests come, so its demand is who waits here. Off
unless ``generation.adaptive_concurrency``. Made by pipeline.generation.start, around each engine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from pipeline.errors import StageError
from pipeline.generation.supervised import Engine
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate

# Of the KV cache: above the one the limit falls, below the other it may grow.
_FULL, _ROOMY = 0.95, 0.85
_FALL = 0.75
_PERIOD_S = 1.0


class ConcurrencyLimit:
    """Completions that may be in flight, between ``least`` and ``most``; it begins at ``most``."""

    def __init__(self, *, least: int, most: int) -> None:
        assert 0 < least <= most
        self._least = least
        self._most = most
        self._num_preemptions = 0.0
        self.value = most

    def update(self, stats: Mapping[str, float], *, num_in_flight: int, num_waiting: int) -> None:
        """Fit the limit to what an engine said, with ``num_waiting`` completions held back by it.

        It falls from what is in flight, which may be less than the limit: that is what did not fit; and then
        not again before so many have ended that the fall can be seen.
        """
        num_preemptions = stats.get("preemptions", 0.0)
        is_worse = num_preemptions > self._num_preemptions
        self._num_preemptions = num_preemptions
        usage = stats.get("kv_cache_usage", 0.0)
        if num_in_flight > self.value:
            return
        if is_worse or usage > _FULL:
            self.value = max(self._least, int(_FALL * min(self.value, max(num_in_flight, self._least))))
        elif usage < _ROOMY and num_waiting > 0:
            self.value = min(self._most, self.value + self._least)


class PacedEngine:
    """``engine`` with no more completions in flight than its KV cache takes; a group goes in whole.

    Its ``stats`` say how full that is: ``kv_cache_usage`` (0 to 1) and ``preemptions`` since its start.
    ``most`` is what the engine runs at once at all. Groups wait in the order in which they come; each that is
    at work has its deadlines, so the line moves.
    """

    def __init__(self, engine: Engine, *, group_size: int, most: int, period_s: float = _PERIOD_S) -> None:
        self._engine = engine
        self._limit = ConcurrencyLimit(least=min(group_size, most), most=max(most, group_size))
        self._period_s = period_s
        self._num_in_flight = 0
        self._waiting: deque[tuple[int, asyncio.Event]] = deque()
        self._watch: asyncio.Task[None] | None = None

    @property
    def limit(self) -> int:
        """Completions that may be in flight now."""
        return self._limit.value

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See pipeline.generation.generator.Generator; waits for its turn first."""
        num_owed = request.num_generations
        await self._enter(num_owed)
        try:
            async with aclosing(self._engine.generate(request)) as stream:  # type: ignore[type-var]
                async for completion in stream:
                    num_owed -= 1
                    self._leave(1)
                    yield completion
        finally:
            self._leave(num_owed)

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See pipeline.generation.generator.Generator."""
        return await self._engine.update_weights(update)

    async def stats(self) -> dict[str, float]:
        """See VllmEngine.stats."""
        return await self._engine.stats()

    async def reset(self) -> None:
        """See pipeline.generation.generator.Generator."""
        await self._engine.reset()

    async def close(self) -> None:
        """End the engine."""
        await self._stop_watching()
        await self._engine.close()

    async def kill(self) -> None:
        """End the engine without its help."""
        await self._stop_watching()
        await self._engine.kill()

    async def _enter(self, num_completions: int) -> None:
        if self._watch is None:
            self._watch = asyncio.create_task(self._follow_pressure(), name="KV cache pressure")
        turn = asyncio.Event()
        entry = (num_completions, turn)
        self._waiting.append(entry)
        self._let_in()
        try:
            await turn.wait()
        except asyncio.CancelledError:
            if turn.is_set():
                self._leave(num_completions)
            else:
                self._waiting.remove(entry)
            raise

    def _leave(self, num_completions: int) -> None:
        self._num_in_flight -= num_completions
        self._let_in()

    def _let_in(self) -> None:
        """Those whose turn it is; one group is let in whatever the limit is."""
        while self._waiting:
            num_completions, turn = self._waiting[0]
            if self._num_in_flight > 0 and self._num_in_flight + num_completions > self._limit.value:
                return
            self._waiting.popleft()
            self._num_in_flight += num_completions
            turn.set()

    async def _follow_pressure(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            try:
                stats = await self._engine.stats()
            except StageError:
                # Those who generate are told as well, and see to it.
                continue
            num_waiting = sum(num_completions for num_completions, _ in self._waiting)
            self._limit.update(stats, num_in_flight=self._num_in_flight, num_waiting=num_waiting)
            self._let_in()

    async def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
