"""The SingleFlight: work that is asked for several times at once is done once.

For one event loop. Keeps no results: what has landed is the cache's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Flight(Generic[T]):
    """Work under way, and how many wait for it."""

    def __init__(self, work: asyncio.Task[T]) -> None:
        self.work = work
        self.num_waiters = 0


class SingleFlight(Generic[T]):
    """Joins callers of the same key to one piece of work.

    The work belongs to nobody among its waiters: one that is cancelled leaves, the last one to leave
    cancels the work. What the work raises, every waiter gets.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[T]] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._flights

    async def run(self, key: bytes, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work under way for ``key``, or of ``start()`` where there is none."""
        flight = self._flights.get(key)
        if flight is None:
            flight = _Flight(asyncio.create_task(start()))
            self._flights[key] = flight
            flight.work.add_done_callback(lambda work: self._landed(key, work))
        flight.num_waiters += 1
        try:
            return await asyncio.shield(flight.work)
        finally:
            flight.num_waiters -= 1
            if flight.num_waiters == 0 and not flight.work.done():
                # Forgotten at once: who asks from now on must not join work that is being cancelled.
                self._forget(key, flight.work)
                flight.work.cancel()

    def _landed(self, key: bytes, work: asyncio.Task[T]) -> None:
        self._forget(key, work)
        if not work.cancelled():
            # Marks the error as seen, for work whose waiters have all left.
            work.exception()

    def _forget(self, key: bytes, work: asyncio.Task[T]) -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.work is work:
            del self._flights[key]
