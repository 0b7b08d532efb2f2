"""The way from the driver to a vLLM engine, and the one to a process of this machine.

It carries requests and weight updates and knows no deadlines (pipeline.vllm_actor has those). The way to a
Ray actor is in pipeline.engine_actor. Called by pipeline.vllm_actor and pipeline.resident_evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Protocol

from pipeline.engine_client import EngineClient
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.resident import IDLE_DEADLINE_S


class EngineLink(Protocol):
    """A way to an engine; a method raises StageError when it failed, EngineGoneError when the engine did."""

    pid: int

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See VllmEngine.generate."""
        ...

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See VllmEngine.update_weights."""
        ...

    async def prepare(self) -> str:
        """See VllmEngine.prepare."""
        ...

    async def stats(self) -> dict[str, float]:
        """See VllmEngine.stats."""
        ...

    async def reset(self) -> None:
        """See VllmEngine.reset."""
        ...

    async def close(self) -> None:
        """End the engine, or leave it to a later run."""
        ...

    async def kill(self) -> None:
        """End the engine at once, without its help."""
        ...


class HostLink:
    """An engine in an engine host."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.pid = client.pid

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See EngineLink."""
        return self._client.stream("generate", request)

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See EngineLink."""
        loaded: WeightsLoaded = await self._client.call("update_weights", update)
        return loaded

    async def prepare(self) -> str:
        """See EngineLink."""
        return str(await self._client.call("prepare"))

    async def stats(self) -> dict[str, float]:
        """See EngineLink."""
        return dict(await self._client.call("stats"))

    async def reset(self) -> None:
        """See EngineLink."""
        await self._client.call("reset")

    async def close(self) -> None:
        """See EngineLink."""
        if self._client.is_kept:
            print(
                f"the engine (process {self.pid}) stays for {IDLE_DEADLINE_S / 60:.0f} minutes: "
                "--attach uses it, --stop-resident ends it",
                file=sys.stderr,
            )
        await self._client.close()

    async def kill(self) -> None:
        """See EngineLink."""
        await self._client.kill()
