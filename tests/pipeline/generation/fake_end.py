"""The process of an engine, for the handle to it: answers as a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pipeline.messages import Completion, WeightsLoaded
from tests.pipeline.rollouts.groups import completion


class FakeEnd:
    """Notes what it is asked for; a completion needs a permit. After an update it ``holds`` that version.

    Where that is None it never answers an update.
    """

    def __init__(self, pid: int = 7, holds: int | None = 1) -> None:
        self.pid = pid
        self.log: list[str] = []
        self.permits = asyncio.Semaphore(0)
        self.num_given_up = 0
        self._holds = holds

    async def call(self, method: str, *arguments: object) -> Any:
        self.log.append(method)
        if method != "update_weights":
            return None
        if self._holds is None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.num_given_up += 1
                raise
        assert self._holds is not None
        return WeightsLoaded(policy_version=self._holds, pause_s=0.01)

    async def stream(self, method: str, *arguments: Any) -> AsyncIterator[Completion]:
        (request,) = arguments
        self.log.append(f"{method} {request.request_id}")
        for index in range(request.num_generations):
            await self.permits.acquire()
            yield completion(index)

    async def close(self) -> None: ...

    async def kill(self) -> None: ...
