"""The Generator: what the rest of the pipeline knows of an inference engine.

Two real ones exist: pipeline.vllm_actor (vLLM in a Ray actor) and pipeline.transformers_engine (the
portable fallback). Called by the orchestrator and by evaluation; started by pipeline.engine_start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from pipeline.errors import StageError
from pipeline.messages import Completion, GenerationRequest, WeightUpdate


class GeneratorError(StageError):
    """A generator failed or did not answer in time; the message names it."""


class Generator(Protocol):
    """Writes completions and takes new weights without a restart."""

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield ``request.num_generations`` completions, each as soon as it is finished."""
        ...

    async def update_weights(self, update: WeightUpdate) -> float:
        """Load ``update`` between two tokens; returns the seconds for which generation stood still."""
        ...

    async def close(self) -> None:
        """End the engine and every process it owns."""
        ...
