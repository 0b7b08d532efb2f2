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

A resume alone goes back (``RESUMED``, ``rewind``): it requeues what was open, what lost steps trained on, and
groups without signal that lost weights wrote. Keeps no draw; it is the rule.

The run goes back to its last checkpoint, of step k, whose weights are version k. Steps after k, and the
weights k + 1, k + 2, … that they made, are lost. Versions up to k are those of the restored weights and of
the steps before, in every process of the run. So of the draws that no step up to k trained on

- a scored group is used again if every token of it was written by a version up to k, and none by one older
  than k - max_staleness: it is what the restored run could have generated itself, it carries the
  log-probabilities of the policy that wrote it, and step k + 1 can train on it in time;
- all others are issued again, under their number and with the next attempt. Groups of lost weights are among
  them: their version numbers will be given once more, to other weights, so that their age could not be told
  and the bound on staleness would be broken unseen.

That every version in the file is one of the restored history holds by induction: the tokens of all others
are deleted here, before any are written. Draws that had ended as dropped or failed stay so, but for those
that were dropped for want of signal in what lost weights had written: they are issued again as well, for with
other weights their groups may have signal, and the sampler has to hear of them again. No draw is made
by the sampler a second time: see Ledger.sampler_calls.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from pipeline.host.spans import GIVEN_UP, TRAINER, WAITING

# Of a group that is replaced in a warm start, though its rewards differ.
NONE_PASSED: Final = "no signal: no answer passed, and a warm start learns from those alone"


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


def check_move(
    draw_id: int,
    state: DrawState,
    target: DrawState,
    following: Mapping[DrawState, frozenset[DrawState]] = FOLLOWING,
) -> None:
    """Raise DrawStateError unless ``target`` may follow ``state``, by one of the tables above."""
    if target not in following[state]:
        raise DrawStateError(draw_id, state, following[state], target)


def step_row(database: sqlite3.Connection, path: Path, step: int) -> tuple[str, int]:
    """State and last sampler call of a committed step, or of the start; raises ValueError for any other."""
    if step == 0:
        return "{}", 0
    query = "SELECT state, last_call_id FROM steps WHERE step = ? AND status = 'committed'"
    row = database.execute(query, (step,)).fetchone()
    if row is None:
        query = "SELECT COALESCE(MAX(step), 0) FROM steps WHERE status = 'committed'"
        (last,) = database.execute(query).fetchone()
        raise ValueError(
            f"{path} has no committed step {step}; its last one is {last}, "
            "so a checkpoint of that step belongs to another run"
        )
    return str(row[0]), int(row[1])


def rewind(database: sqlite3.Connection, path: Path, step: int, max_staleness: int) -> None:
    """Go back to ``step``: mark later steps as rewound, open their draws and those in flight again."""
    step_row(database, path, step)
    database.execute("UPDATE steps SET status = 'rewound' WHERE step > ? AND status = 'committed'", (step,))
    database.execute(
        "UPDATE draws SET status = 'scored', step_id = NULL"
        " WHERE step_id IN (SELECT step_id FROM steps WHERE status = 'rewound')"
    )
    database.execute(
        "UPDATE draws SET status = 'issued', basis = NULL, attempt = attempt + 1"
        " WHERE status IN ('issued', 'scored') AND draw_id NOT IN ("
        "  SELECT draw_id FROM draws JOIN tokens USING (draw_id)"
        "  JOIN rollouts USING (draw_id, attempt, place)"
        "  GROUP BY draw_id HAVING MIN(min_policy_version) >= ? AND MAX(max_policy_version) <= ?)",
        (step - max_staleness, step),
    )
    database.execute(
        "UPDATE draws SET status = 'issued', reason = NULL, basis = NULL, attempt = attempt + 1"
        " WHERE draw_id IN ("
        "  SELECT draw_id FROM gated JOIN draws USING (draw_id) JOIN rollouts USING (draw_id, attempt)"
        "  GROUP BY draw_id HAVING MAX(max_policy_version) > ?)",
        (step,),
    )
    database.execute("DELETE FROM gated WHERE draw_id IN (SELECT draw_id FROM draws WHERE status = 'issued')")
    database.execute(
        "DELETE FROM tokens WHERE draw_id NOT IN (SELECT draw_id FROM draws WHERE status = 'scored')"
    )
    # A killed process could not say so of what it had begun for a step that is done again: "step N: ...".
    database.execute(
        f"UPDATE spans SET name = name || '{GIVEN_UP}' WHERE stage IN (?, ?) AND name LIKE 'step %'"
        f" AND CAST(substr(name, 6) AS INTEGER) > ? AND name NOT LIKE '%{GIVEN_UP}'",
        (TRAINER, WAITING, step),
    )


def forget(database: sqlite3.Connection) -> None:
    """After a step: delete what no resume would use, the state of the step before it and tokens.

    The state where that step has no checkpoint. The tokens of trained draws that the last checkpoint's step
    or an earlier one trained on, and of those that weights wrote which that checkpoint does not have.
    """
    database.execute(
        "UPDATE steps SET state = '{}' WHERE checkpoint IS NULL AND status = 'committed'"
        " AND step = (SELECT MAX(step) - 1 FROM steps WHERE status = 'committed')"
    )
    query = "SELECT COALESCE(MAX(step), 0) FROM steps WHERE status = 'committed' AND checkpoint IS NOT NULL"
    (saved,) = database.execute(query).fetchone()
    database.execute(
        # The sign keeps SQLite from the index, which would begin with all draws that were ever trained on.
        "DELETE FROM tokens WHERE draw_id IN ("
        "  SELECT draw_id FROM tokens JOIN draws USING (draw_id) JOIN steps USING (step_id)"
        "  JOIN rollouts USING (draw_id, attempt, place) WHERE +draws.status = 'trained'"
        "  GROUP BY draw_id HAVING MIN(step) <= ? OR MAX(max_policy_version) > ?)",
        (saved, saved),
    )
