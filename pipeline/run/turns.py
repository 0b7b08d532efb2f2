"""The engine gives its memory back while the trainer works, where the two share a card and run in turn.

    a step's groups are there ─► engine asleep ─► trainer's step ─┬─► so are the next one's: it sleeps on
                                                                  └─► trainer lets go ─► awake ─► weights

When it is whose turn is not decided here (pipeline.run.overlap_trial). The trainer keeps weights and
optimiser on the card, and gives back what it computed with.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pipeline.generation.generator import Generator
from pipeline.host.device import num_gpus
from pipeline.host.shares import sleeps, takes_turns
from pipeline.host.spans import WEIGHTS
from pipeline.record.run_folder import Context

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


class Turns:
    """Who has the card's memory. Unless the engine ``sleeps`` it keeps its own, and nothing is done.

    With ``always`` it sleeps through every step, so that the trainer may count on what it gives back.
    """

    def __init__(self, context: Context, generator: Generator, trainer: TrainerHandle, device: str) -> None:
        self.sleeps = sleeps(context.config, device, num_gpus(device))
        self.always = self.sleeps and takes_turns(context.config)
        self.is_asleep = False
        self._generator = generator
        self._trainer = trainer
        self._timeline = context.timeline
        self._fell_asleep_s = 0.0
        self._asleep_s = self._turning_s = 0.0  # since the last ``drain``

    async def to_trainer(self) -> None:
        """Have the engine give its memory back, once it has ended what it writes."""
        if not self.sleeps or self.is_asleep:
            return
        started_s = time.perf_counter()
        # Before: half asleep it has to be woken as well.
        self.is_asleep = True
        with self._timeline.span(WEIGHTS, "the engine gives its memory back"):
            await self._generator.sleep()
        self._fell_asleep_s = time.perf_counter()
        self._turning_s += self._fell_asleep_s - started_s

    async def to_generator(self) -> None:
        """Have the trainer let go of what it computed with, and the engine take its memory again."""
        if not self.is_asleep:
            return
        started_s = time.perf_counter()
        with self._timeline.span(WEIGHTS, "the engine takes its memory again"):
            await self._trainer.release_memory()
            await self._generator.wake()
        self.is_asleep = False
        self._asleep_s += started_s - self._fell_asleep_s
        self._turning_s += time.perf_counter() - started_s

    def drain(self) -> dict[str, float]:
        """The metrics since the last call; none where the engine has not slept."""
        if not self.is_asleep and not self._turning_s:
            return {}
        found = {"generation/asleep_s": self._asleep_s, "generation/sleep_wake_s": self._turning_s}
        self._asleep_s = self._turning_s = 0.0
        return found
