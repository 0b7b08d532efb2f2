"""The Generator: what the rest of the pipeline knows of an inference engine.

Two real ones exist: pipeline.generation.vllm_generator (vLLM in a Ray actor) and
pipeline.generation.transformers_engine (the portable fallback).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from pipeline.errors import StageError
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate


class GeneratorError(StageError):
    """A generator failed or did not answer in time; the message names it."""


class GeneratorLostError(GeneratorError):
    """A generator's process is gone, or silent past its deadline: only a new one can go on."""


class Generator(Protocol):
    """Writes completions and takes new weights without a restart."""

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield ``request.num_generations`` completions, each as soon as it is finished."""
        ...

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """Load ``update``; completions in flight fare as its ``mode`` says. Returns what is held then.

        Raises GeneratorError when that is not this update, or when there is no answer in time.
        """
        ...

    async def stats(self) -> dict[str, float]:
        """Counts since the start; with speculative decoding tokens ``drafted`` and ``accepted``."""
        ...

    async def reset(self) -> None:
        """Go back to the base weights and policy version 0; requests that run are ended."""
        ...

    async def close(self) -> None:
        """End the engine and every process it owns."""
        ...


def require_version(loaded: WeightsLoaded, update: WeightUpdate, who: str) -> WeightsLoaded:
    """``loaded``, if it is the answer to ``update``; else raises GeneratorError, naming ``who``."""
    if loaded.policy_version != update.policy_version:
        raise GeneratorError(
            f"{who} holds weights {loaded.policy_version} after the update to {update.policy_version}: the "
            "versions of trainer and generators must agree"
        )
    return loaded
