"""What the sampler was asked and told, call by call: with its state at a step a resume makes it what it was.

Writes and reads the table ``sampler_calls``; says nothing to the sampler (pipeline.resume does). Called by
pipeline.ledger inside its transactions.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.gate import is_flat
from pipeline.messages import RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerCall:
    """One call of the sampler: "draw" of ``task_id`` for ``step``, "put_back" of it, or "record".

    For "draw": the tasks that were ``skipped`` before it. For "record": ``num_passed`` of ``num_samples``,
    written by weights up to ``max_policy_version``, and whether their rewards differed.
    """

    kind: str
    task_id: str
    step: int
    num_passed: int
    num_samples: int
    max_policy_version: int
    has_signal: bool | None
    skipped: tuple[str, ...]


def note_call(database: sqlite3.Connection, kind: str, draw_id: int, skipped: Sequence[str] = ()) -> None:
    """Enter a "draw" or a "put_back"."""
    _insert(database, kind, draw_id, (0, 0, 0), None, skipped)


def note_record(database: sqlite3.Connection, group: RolloutGroup) -> None:
    """Enter the counts of a scored group; what could not be scored is not counted."""
    known = [rollout.result for rollout in group.rollouts if not rollout.result.is_infra_error]
    newest = max(rollout.completion.max_policy_version for rollout in group.rollouts)
    counts = (sum(result.passed for result in known), len(known), newest)
    _insert(database, "record", group.draw_id, counts, not is_flat(group), ())


def find_last_call(database: sqlite3.Connection) -> int:
    """The number of the last call, 0 before the first."""
    (last,) = database.execute("SELECT COALESCE(MAX(call_id), 0) FROM sampler_calls").fetchone()
    return int(last)


def calls_after(database: sqlite3.Connection, call_id: int) -> list[SamplerCall]:
    """The calls after that number, in order."""
    rows = database.execute(
        "SELECT kind, task_id, step_issued, num_passed, num_samples, max_policy_version, has_signal, skipped"
        " FROM sampler_calls JOIN draws USING (draw_id) WHERE call_id > ? ORDER BY call_id",
        (call_id,),
    )
    return [
        SamplerCall(
            kind=kind,
            task_id=task_id,
            step=step,
            num_passed=num_passed,
            num_samples=num_samples,
            max_policy_version=newest,
            has_signal=None if has_signal is None else bool(has_signal),
            skipped=tuple(json.loads(skipped)),
        )
        for kind, task_id, step, num_passed, num_samples, newest, has_signal, skipped in rows
    ]


def _insert(
    database: sqlite3.Connection,
    kind: str,
    draw_id: int,
    counts: tuple[int, int, int],
    has_signal: bool | None,
    skipped: Sequence[str],
) -> None:
    database.execute(
        "INSERT INTO sampler_calls (kind, draw_id, num_passed, num_samples, max_policy_version, has_signal,"
        " skipped) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (kind, draw_id, *counts, has_signal, json.dumps(list(skipped))),
    )
