"""The way of new weights: from the trainer to a file, from there to the generators.

    trainer.publish ─► write ─► (the next step may be trained) ─► load ─► generator.update_weights

Writing and loading are two calls, so that the next step is trained while the generators load. Does not decide
when weights may change.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.generation.generator import Generator
from pipeline.host.spans import WEIGHTS
from pipeline.messages import WeightUpdate
from pipeline.record.context import Context
from pipeline.weights.files import remove_weights

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


class WeightPublisher:
    """Weights by way of ``folder``; a version's file stays until the next one is loaded."""

    def __init__(self, context: Context, trainer: TrainerHandle, generator: Generator, folder: Path) -> None:
        self._config = context.config
        self._timeline = context.timeline
        self._trainer = trainer
        self._generator = generator
        self._folder = folder
        self._loaded: WeightUpdate | None = None  # a generator may start again, and reads it then

    async def write(self, version: int) -> WeightUpdate:
        """Have the trainer write its weights, which are ``version``."""
        with self._timeline.span(WEIGHTS, f"write version {version}"):
            update = await self._trainer.publish(str(self._folder))
        written = update.policy_version
        assert written == version, f"the trainer published {written}, not {version}"
        generation = self._config.generation
        return replace(
            update,
            mode=generation.weight_update_mode,
            recompute_kv_cache=generation.recompute_kv_cache,
        )

    async def load(self, update: WeightUpdate) -> float:
        """Bring ``update`` to the generators; returns for how many seconds they paused."""
        with self._timeline.span(WEIGHTS, f"load version {update.policy_version}"):
            loaded = await self._generator.update_weights(update)
        if self._loaded is not None:
            await asyncio.to_thread(remove_weights, self._loaded)
        self._loaded = update
        return loaded.pause_s
