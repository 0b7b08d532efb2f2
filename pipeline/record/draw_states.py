"""The one life of a draw: its states, and which may follow which.

A draw is one task that the sampler drew, from there to the step that trained on its group.

                        ┌──────────── requeue: too old ─────────────┐
                        ▼                                           │
    sampler.draw ─► ISSUED ──slot──► GENERATING ──► SCORING ──► SCORED ──take──► TRAINING ──► TRAINED
                        │                │            │  │         │
                        │                │            │  └─ no usable score: FAILED
                        └────────────────┴────────────┴────────────┴─ not wanted, or no signal: DROPPED

From GENERATING to TRAINING a draw holds a slot of the buffer, and the buffer releases it with whatever comes
after. run.db stores less: what is at work is lost with the process, so GENERATING and SCORING are stored as
ISSUED, and TRAINING, until the step is committed, as SCORED. Every change passes ``check_move``, in the
buffer by the states, in the ledger by those that are stored, so that both live by one table.

A resume alone goes back (``RESUMED``): it requeues what was open, what lost steps trained on, and groups
without signal that lost weights wrote (pipeline.record.ledger_rewind). Keeps no draw; it is the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class DrawState(StrEnum):
    """Where a draw is in its life."""

    ISSUED = "issued"
    GENERATING = "generating"
    SCORING = "scoring"
    SCORED = "scored"
    TRAINING = "training"
    TRAINED = "trained"
    DROPPED = "dropped"
    FAILED = "failed"

    @property
    def stored(self) -> DrawState:
        """What run.db says of a draw in this state."""
        return _STORED_AS.get(self, self)

    @property
    def has_slot(self) -> bool:
        """Whether a draw in this state holds a slot of the buffer."""
        return self in (self.GENERATING, self.SCORING, self.SCORED, self.TRAINING)


_STORED_AS: Final = {
    DrawState.GENERATING: DrawState.ISSUED,
    DrawState.SCORING: DrawState.ISSUED,
    DrawState.TRAINING: DrawState.SCORED,
}
FOLLOWING: Final[Mapping[DrawState, frozenset[DrawState]]] = {
    DrawState.ISSUED: frozenset({DrawState.GENERATING, DrawState.DROPPED}),
    DrawState.GENERATING: frozenset({DrawState.SCORING, DrawState.DROPPED}),
    DrawState.SCORING: frozenset({DrawState.SCORED, DrawState.DROPPED, DrawState.FAILED}),
    DrawState.SCORED: frozenset({DrawState.TRAINING, DrawState.ISSUED, DrawState.DROPPED}),
    DrawState.TRAINING: frozenset({DrawState.TRAINED}),
    DrawState.TRAINED: frozenset(),
    DrawState.DROPPED: frozenset(),
    DrawState.FAILED: frozenset(),
}
# By what is stored: as above, where the stored state changes.
FOLLOWING_STORED: Final[Mapping[DrawState, frozenset[DrawState]]] = {
    stored: frozenset(
        after.stored
        for state in DrawState
        if state.stored is stored
        for after in FOLLOWING[state]
        if after.stored is not stored
    )
    for stored in DrawState
    if stored.stored is stored
}
# What a resume may make of what is stored, besides leaving it.
RESUMED: Final[Mapping[DrawState, frozenset[DrawState]]] = {
    DrawState.ISSUED: frozenset({DrawState.ISSUED}),
    DrawState.SCORED: frozenset({DrawState.ISSUED}),
    DrawState.TRAINED: frozenset({DrawState.SCORED, DrawState.ISSUED}),
    DrawState.DROPPED: frozenset({DrawState.ISSUED}),
    DrawState.FAILED: frozenset(),
}


class DrawStateError(Exception):
    """A draw was to go from one state to another that may not follow it: a fault of this program."""

    def __init__(self, draw_id: int, state: str, following: frozenset[DrawState], target: DrawState) -> None:
        legal = f"may become {' or '.join(sorted(following))}" if following else "stays that"
        super().__init__(f"draw {draw_id} cannot become {target}: it is {state}, and {legal}")
        self._given = (draw_id, state, following, target)

    def __reduce__(self) -> tuple[type[DrawStateError], tuple[object, ...]]:
        return type(self), self._given


def check_move(draw_id: int, state: DrawState, target: DrawState) -> None:
    """Raise DrawStateError unless ``target`` may follow ``state``."""
    if target not in FOLLOWING[state]:
        raise DrawStateError(draw_id, state, FOLLOWING[state], target)


def check_stored_move(draw_id: int, stored: DrawState, target: DrawState) -> None:
    """The same for what run.db says of a draw."""
    if target not in FOLLOWING_STORED[stored]:
        raise DrawStateError(draw_id, stored, FOLLOWING_STORED[stored], target)
