"""Which stage did what from when to when, for the report's timeline and the exported trace.

Spans are kept in memory until the step that they belong to is closed, then in run.db (Ledger.note_spans). It
measures and decides nothing; who reads it is pipeline.report. Called by the producer and the training loop,
in one event loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

GENERATION = "generation"
REWARDS = "rewards"
TRAINER = "trainer"
WAITING = "trainer waits"
WEIGHTS = "weights"
CHECKPOINT = "checkpoint"
EVALUATION = "evaluation"
GIVEN_UP = " (given up)"
# In the order in which work passes through them.
STAGES = (GENERATION, REWARDS, WAITING, TRAINER, WEIGHTS, CHECKPOINT, EVALUATION)

Interval = tuple[float, float]

# A run that closes no step (its trainer is gone, say) keeps no more than this in memory.
_MAX_OPEN = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpan:
    """``stage``, one of STAGES, did ``name`` from ``started_s`` to ``ended_s`` (seconds since 1970).

    ``draw_id`` is set where it was for one draw, ``num_tokens`` where tokens were written or trained on.
    """

    stage: str
    name: str
    started_s: float
    ended_s: float
    draw_id: int | None = None
    num_tokens: int | None = None


class Timeline:
    """Collects spans; with ``enabled`` false it keeps none."""

    def __init__(self, *, enabled: bool = True, clock: Callable[[], float] = time.time) -> None:
        self._enabled = enabled
        self._clock = clock
        self._spans: deque[StageSpan] = deque(maxlen=_MAX_OPEN)

    @contextmanager
    def span(self, stage: str, name: str, *, num_tokens: int | None = None) -> Iterator[None]:
        """Note the block; one that fails or is cancelled is noted as GIVEN_UP, up to its end."""
        started_s, mark = self._clock(), GIVEN_UP
        try:
            yield
            mark = ""
        finally:
            self.note(stage, name + mark, started_s, num_tokens=num_tokens)

    def now(self) -> float:
        """The clock of the spans, seconds since 1970."""
        return self._clock()

    def note(
        self,
        stage: str,
        name: str,
        started_s: float,
        *,
        ended_s: float | None = None,
        draw_id: int | None = None,
        num_tokens: int | None = None,
    ) -> None:
        """Note what began at ``started_s`` and ended at ``ended_s``, or just now."""
        assert stage in STAGES
        if self._enabled:
            self._spans.append(
                StageSpan(
                    stage=stage,
                    name=name,
                    started_s=started_s,
                    ended_s=self._clock() if ended_s is None else ended_s,
                    draw_id=draw_id,
                    num_tokens=num_tokens,
                )
            )

    def drain(self) -> tuple[StageSpan, ...]:
        """What was noted since the last call, in the order of the ends."""
        spans = tuple(self._spans)
        self._spans.clear()
        return spans


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals, in order, that cover the same time."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
