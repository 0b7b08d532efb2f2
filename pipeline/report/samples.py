"""Rollouts for people to read: what the model wrote for a task at a step, and why it scored so.

Reads run.db through RunReader; every answer is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.reader import RunReader

MAX_ROWS = 500
# The latest attempt only: what an earlier one wrote was not trained on.
_SAMPLES = """
    SELECT steps.step, draws.draw_id, draws.task_id, draws.status, draws.reason, rollouts.place,
           rollouts.completion, rollouts.num_tokens, rollouts.finish_reason, rollouts.reward,
           rollouts.breakdown, rollouts.outcome, rollouts.detail, rollouts.passed, rollouts.cached,
           rollouts.seconds, rollouts.min_policy_version, rollouts.max_policy_version
    FROM draws JOIN rollouts USING (draw_id, attempt) LEFT JOIN steps USING (step_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFilter:
    """Which rollouts are asked for; None and "" do not restrict. ``task`` is a part of the task's id."""

    task: str = ""
    first_step: int | None = None
    last_step: int | None = None
    outcome: str = ""
    draw_id: int | None = None
    limit: int = 100
    offset: int = 0


def find_samples(reader: RunReader, wanted: SampleFilter) -> list[dict[str, Any]]:
    """Matching rollouts, newest step first, in the order of draws; at most MAX_ROWS."""
    conditions: list[tuple[str, object]] = []
    if wanted.task:
        escaped = wanted.task.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        conditions.append(("draws.task_id LIKE ? ESCAPE '\\'", f"%{escaped}%"))
    if wanted.first_step is not None:
        conditions.append(("steps.step >= ?", wanted.first_step))
    if wanted.last_step is not None:
        conditions.append(("steps.step <= ?", wanted.last_step))
    if wanted.outcome:
        conditions.append(("rollouts.outcome = ?", wanted.outcome))
    if wanted.draw_id is not None:
        conditions.append(("draws.draw_id = ?", wanted.draw_id))
    where = " AND ".join(condition for condition, _ in conditions)
    # From the newest draw back: SQLite then walks the key and stops at the limit.
    sql = (
        f"{_SAMPLES} {'WHERE ' + where if where else ''}"
        " ORDER BY draws.draw_id DESC, rollouts.place LIMIT ? OFFSET ?"
    )
    limits = (max(0, min(wanted.limit, MAX_ROWS)), max(0, wanted.offset))
    return [as_sample(row) for row in reader.query(sql, [*(value for _, value in conditions), *limits])]


def samples_of_draws(reader: RunReader, draw_ids: Sequence[int]) -> list[dict[str, Any]]:
    """All rollouts of these draws, in their order."""
    marks = ", ".join("?" * len(draw_ids))
    sql = f"{_SAMPLES} WHERE draws.draw_id IN ({marks}) ORDER BY draws.draw_id, rollouts.place"
    return [as_sample(row) for row in reader.query(sql, draw_ids)]


def as_sample(row: Any) -> dict[str, Any]:
    """A row as JSON's types; ``breakdown`` unpacked, flags as booleans."""
    sample = {name: row[name] for name in row.keys()}  # noqa: SIM118 (sqlite3.Row iterates over values)
    return sample | {
        "breakdown": json.loads(row["breakdown"]),
        "passed": bool(row["passed"]),
        "cached": bool(row["cached"]),
        "seconds": round(row["seconds"], 4),
    }


def spread_of_samples(reader: RunReader, num_samples: int) -> list[dict[str, Any]]:
    """About ``num_samples`` rollouts of trained draws, whole groups, spread evenly over the run."""
    rows = reader.query("SELECT draw_id FROM draws WHERE status = 'trained' ORDER BY draw_id")
    draw_ids = [row["draw_id"] for row in rows]
    if not draw_ids or num_samples <= 0:
        return []
    (row,) = reader.query("SELECT COUNT(*) AS num FROM rollouts WHERE draw_id = ?", (draw_ids[0],))
    num_draws = max(2, num_samples // max(1, row["num"]))
    if len(draw_ids) > num_draws:
        draw_ids = [draw_ids[round(i * (len(draw_ids) - 1) / (num_draws - 1))] for i in range(num_draws)]
    return samples_of_draws(reader, draw_ids[:MAX_ROWS])
