"""Whether generation and training run beside each other or in turn, and the sleep of an engine in turn.

Where the two share cores or a GPU (pipeline.host.shares), running them at once can be slower than in turn, so
both are measured over the first steps and the better is kept (``OverlapTrial``, which starts and pauses
nothing itself). In turn, all the steps that one version of the weights may serve are generated at once.

On one GPU "beside each other" is less than it sounds: without NVIDIA MPS kernels of two processes take turns
by time slices. What one gains then is the time in which the other leaves the card idle. In turn the engine
gives its memory back while the trainer works (``Turns``):

    a step's groups are there ─► engine asleep ─► trainer's step ─┬─► so are the next one's: it sleeps on
                                                                  └─► trainer lets go ─► awake ─► weights

The trainer keeps weights and optimiser on the card, and gives back what it computed with.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from configs.conditions import why_no_overlap_trial
from configs.schema import Config
from pipeline.generation.generator import Generator
from pipeline.host.device import has_mps, num_gpus
from pipeline.host.shares import is_shared, sleeps, takes_turns
from pipeline.host.spans import WEIGHTS
from pipeline.record.run_folder import Context

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle

# Steps that still contain what the order before them left over.
_NUM_SETTLING = 2
_NUM_MEASURED = 2
# So much slower in its first measured step, and the second order is given up.
_HOPELESS = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a trial found: seconds for a thousand tokens that were written or trained on, in each order.

    ``has_slices`` says that the two share a GPU's time when they run beside each other.
    """

    overlaps: bool
    overlap_s: float
    alternate_s: float
    has_slices: bool = False

    def __str__(self) -> str:
        kept = "beside each other" if self.overlaps else "in turn"
        how = " by time slices (NVIDIA MPS does not run)" if self.has_slices else ""
        return (
            f"generation and training run {kept}: {self.overlap_s:.2f} s for 1,000 tokens written or trained "
            f"on beside each other{how}, {self.alternate_s:.2f} s in turn"
        )


class OverlapTrial:
    """Overlap first, then alternation, ``num_measured`` steps each, then the faster one for good.

    Where that is overlap, it is measured once more as the run goes on in it: completions have become shorter
    since the first time, and what a step costs beside its tokens counts for more. The steps right after a
    change are not counted. Where alternation is clearly slower in its first measured step, it ends there. In
    turn, ``block`` steps are generated at once (see RolloutBuffer.alternate): whole blocks are measured then,
    wherever the first of them begins, after all that can be left of the order before.
    """

    def __init__(
        self,
        *,
        num_settling: int = _NUM_SETTLING,
        num_measured: int = _NUM_MEASURED,
        block: int = 1,
        has_slices: bool = False,
    ) -> None:
        assert num_settling >= 0 and num_measured > 0 and block > 0
        self._block = block
        self._has_slices = has_slices
        self._num_settling = max(num_settling, block + 1) if block > 1 else num_settling
        self._num_measured = math.ceil(num_measured / block) * block
        self._num_left = num_settling  # steps that are not counted
        self._measured: dict[bool, list[tuple[float, int]]] = {True: [], False: []}  # overlaps -> (s, tokens)
        self._is_second_look = False
        self._is_over = False
        self.overlaps = True

    @staticmethod
    def of_run(config: Config, device: str, num_gpus: int) -> OverlapTrial | None:
        """The trial that a run needs; None where it has nothing to decide or would not pay."""
        is_wanted = why_no_overlap_trial(config) is None and is_shared(config, device, num_gpus)
        if is_wanted and sleeps(config, device, num_gpus) and takes_turns(config):
            return None
        has_slices = device == "cuda" and not has_mps()
        block = config.acceleration.max_staleness + 1
        return OverlapTrial(block=block, has_slices=has_slices) if is_wanted else None

    def record(self, step_s: float, num_tokens: int) -> Verdict | None:
        """Count a step that has ended; the verdict, once. ``overlaps`` says how the next step shall run.

        ``num_tokens`` were written for it or trained on in it: prompts count once a group, its completions
        twice, those of groups that were replaced once.
        """
        if self._is_over:
            return None
        if self._num_left > 0:
            self._num_left -= 1
            return None
        measured = self._measured[self.overlaps]
        measured.append((step_s, max(1, num_tokens)))
        is_whole = len(measured) == self._num_measured
        if self.overlaps and not self._is_second_look:
            if is_whole:
                self._turn_to(overlap=False)
            return None
        overlap_s, alternate_s = (self._for_thousand(order) for order in (True, False))
        is_hopeless = not self.overlaps and self._block == 1 and alternate_s >= _HOPELESS * overlap_s
        if not is_whole and not is_hopeless:
            return None
        if not self.overlaps and overlap_s <= alternate_s:
            self._is_second_look = True
            self._turn_to(overlap=True)
            return None
        self._is_over = True
        self.overlaps = overlap_s <= alternate_s
        return Verdict(
            overlaps=self.overlaps,
            overlap_s=overlap_s,
            alternate_s=alternate_s,
            has_slices=self._has_slices,
        )

    def _turn_to(self, *, overlap: bool) -> None:
        self.overlaps, self._num_left, self._measured[overlap] = overlap, self._num_settling, []

    def _for_thousand(self, overlaps: bool) -> float:
        """Seconds for a thousand tokens: the median step, or all steps where they make a block together."""
        steps = self._measured[overlaps]
        if self._block > 1:
            return 1000 * sum(step_s for step_s, _ in steps) / sum(num_tokens for _, num_tokens in steps)
        return statistics.median(1000 * step_s / num_tokens for step_s, num_tokens in steps)


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
