"""Which layout of micro-batches trains fastest here: packed rows, or micro-batches of a few sequences.

Every layout has the same gradient, so the first parts of a run's steps are computed in one after the other,
and the fastest stays. A layout that is asked for gives way only where another is clearly faster: parts
differ, and other stages use the processor. Times come in as numbers; pipeline.training.trainer measures them,
and asks how the next part shall lie.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from configs.schema import Config

# Steps with fewer would be through with the trial when it begins to pay.
_LEAST_STEPS = 20
# The first parts meet cold caches.
_NUM_SETTLING = 1
_NUM_MEASURED = 3
_CLEARLY = 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How samples lie in a micro-batch."""

    packs: bool
    shares_prompts: bool

    def __str__(self) -> str:
        rows = "in packed rows" if self.packs else "without packing"
        prompts = "behind shared prompts" if self.shares_prompts else "with a prompt each"
        return f"{rows} {prompts}"


def _most_tokens(layout: Layout, config: Config) -> int:
    """The most tokens that a micro-batch of ``layout``, which packs nothing, can have."""
    generation, size = config.generation, config.training.per_device_train_batch_size
    if layout.shares_prompts:
        return generation.max_prompt_length + size * generation.max_completion_length
    return size * (generation.max_prompt_length + generation.max_completion_length)


class LayoutTrial:
    """``present`` is the layout of the next part; None of what is recorded after the verdict counts."""

    def __init__(
        self,
        layouts: Sequence[Layout],
        *,
        num_settling: int = _NUM_SETTLING,
        num_measured: int = _NUM_MEASURED,
    ) -> None:
        """The first of ``layouts`` is what is asked for."""
        assert layouts and num_settling >= 0 and num_measured > 0
        self._layouts = tuple(layouts)
        self._num_measured = num_measured
        self._num_left = num_settling
        self._seconds: dict[Layout, list[float]] = {layout: [] for layout in layouts}
        self.present = layouts[0]
        self.is_over = len(layouts) == 1

    @staticmethod
    def of_run(config: Config, *, supports_packing: bool) -> LayoutTrial:
        """The trial of a run; one that is over where there is nothing to choose or it would not pay.

        Ranks would have to agree, and a run that is to be repeated sample by sample
        (``generation.seed_requests``) may not depend on times: neither tries anything. Nor is a layout tried
        that may need more memory than packed rows have, nor a prompt of its own for each sequence: that is
        always more work, and twice the memory where prompts are long.
        """
        acceleration = config.acceleration
        asked = Layout(
            packs=acceleration.token_packing.enabled and supports_packing,
            shares_prompts=acceleration.shared_prompt and supports_packing,
        )
        is_tried = (
            config.training.max_steps >= _LEAST_STEPS
            and config.runtime.trainer_ranks == 1
            and not config.generation.seed_requests
        )
        other = Layout(packs=False, shares_prompts=asked.shares_prompts)
        fits = _most_tokens(other, config) <= acceleration.token_packing.max_tokens
        return LayoutTrial([asked, other] if is_tried and other != asked and fits else [asked])

    def record(self, seconds: float, num_tokens: int) -> str | None:
        """Count a part of ``num_tokens`` (of its sequences, prompts included); the verdict in words, once."""
        if self.is_over or num_tokens == 0:
            return None
        if self._num_left > 0:
            self._num_left -= 1
            return None
        self._seconds[self.present].append(1000 * seconds / num_tokens)
        # In turns: what else the processor does changes in the course of a run.
        self.present = min(self._layouts, key=lambda layout: len(self._seconds[layout]))
        return self._decide() if len(self._seconds[self.present]) == self._num_measured else None

    def _decide(self) -> str | None:
        self.is_over = True
        asked = self._layouts[0]
        medians = {layout: statistics.median(values) for layout, values in self._seconds.items()}
        fastest = min(medians, key=lambda layout: medians[layout])
        self.present = fastest if _CLEARLY * medians[fastest] < medians[asked] else asked
        told = ", ".join(f"{layout} {medians[layout]:.2f} s" for layout in self._layouts)
        why = "kept as asked" if self.present == asked else "clearly faster than what was asked for"
        return f"training {self.present}, {why}: for 1,000 tokens {told}"
