"""Rollouts for people to read: what the model wrote for a task at a step, and how that changed.

Samples are found in run.db through RunReader; every answer is bounded. Examples are pairs from before and
after, of two sources: tasks that were trained on more than once (first and last step), and the held-out
tasks, which are measured before and after training. Of each group the completion with the median reward is
shown, so that neither the luckiest nor the worst one stands for all.
"""

from __future__ import annotations

import difflib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pipeline.report.reader import RunReader

_MAX_ROWS = 500
# The latest attempt only: what an earlier one wrote was not trained on.
_SAMPLES = """
    SELECT steps.step, draws.draw_id, draws.task_id, draws.status, draws.reason, rollouts.place,
           rollouts.completion, rollouts.num_tokens, rollouts.finish_reason, rollouts.reward,
           rollouts.breakdown, rollouts.outcome, rollouts.detail, rollouts.passed, rollouts.cached,
           rollouts.seconds, rollouts.min_policy_version, rollouts.max_policy_version,
           rollouts.turns
    FROM draws JOIN rollouts USING (draw_id, attempt) LEFT JOIN steps USING (step_id)
"""
# Not of a step whose texts were dropped (output.text_steps).
_HAS_TEXT = (
    "EXISTS (SELECT 1 FROM rollouts WHERE rollouts.draw_id = draws.draw_id"
    " AND rollouts.attempt = draws.attempt AND rollouts.completion != '')"
)


def find_samples(
    reader: RunReader,
    *,
    task: str = "",
    first_step: int | None = None,
    last_step: int | None = None,
    outcome: str = "",
    draw_id: int | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """Matching rollouts, those of the newest draw first; at most _MAX_ROWS.

    None and "" do not restrict. ``task`` is a part of the task's id, in whatever case.
    """
    asked = (
        ("instr(lower(draws.task_id), lower(?))", task or None),
        ("steps.step >= ?", first_step),
        ("steps.step <= ?", last_step),
        ("rollouts.outcome = ?", outcome or None),
        ("draws.draw_id = ?", draw_id),
    )
    given = {condition: value for condition, value in asked if value is not None}
    where = f"WHERE {' AND '.join(given)}" if given else ""
    # From the newest draw back: SQLite then walks the key and stops at the limit.
    sql = f"{_SAMPLES} {where} ORDER BY draws.draw_id DESC, rollouts.place LIMIT ? OFFSET ?"
    limits = (max(0, min(limit, _MAX_ROWS)), max(0, offset))
    return [_as_sample(row) for row in reader.query(sql, [*given.values(), *limits])]


def _samples_of_draws(reader: RunReader, draw_ids: Sequence[int]) -> list[dict[str, Any]]:
    """All rollouts of these draws, in their order."""
    some = "draws.draw_id IN (SELECT value FROM json_each(?))"
    sql = f"{_SAMPLES} WHERE {some} ORDER BY draws.draw_id, rollouts.place"
    return [_as_sample(row) for row in reader.query(sql, [json.dumps(draw_ids)])]


def _as_sample(row: sqlite3.Row) -> dict[str, Any]:
    """A row as JSON's types; ``breakdown`` unpacked, flags as booleans."""
    return dict(row) | {
        "breakdown": json.loads(row["breakdown"]),
        "turns": json.loads(row["turns"]),
        "passed": bool(row["passed"]),
        "cached": bool(row["cached"]),
        "seconds": round(row["seconds"], 4),
    }


def spread_of_samples(reader: RunReader, num_samples: int) -> list[dict[str, Any]]:
    """About ``num_samples`` rollouts of trained draws, whole groups, spread evenly over the run."""
    query = f"SELECT draw_id FROM draws WHERE status = 'trained' AND {_HAS_TEXT} ORDER BY draw_id"
    draw_ids = [row["draw_id"] for row in reader.query(query)]
    if not draw_ids or num_samples <= 0:
        return []
    query = "SELECT COUNT(*) AS num FROM rollouts JOIN draws USING (draw_id, attempt) WHERE draw_id = ?"
    (row,) = reader.query(query, (draw_ids[0],))
    num_draws = min(_MAX_ROWS, max(2, num_samples // max(1, row["num"])))
    if len(draw_ids) > num_draws:
        draw_ids = [draw_ids[round(i * (len(draw_ids) - 1) / (num_draws - 1))] for i in range(num_draws)]
    return _samples_of_draws(reader, draw_ids)


NUM_EXAMPLES = 12
# Tasks that are compared, those first whose two steps lie furthest apart.
_MAX_CANDIDATES = 400


def examples(reader: RunReader) -> list[dict[str, Any]]:
    """The pairs, largest changes of the mean reward first, gains and losses in turn."""
    return _heldout_examples(reader) + _training_examples(reader)


def _training_examples(reader: RunReader) -> list[dict[str, Any]]:
    rows = reader.query(
        "SELECT task_id, step, MIN(draw_id) AS draw_id FROM draws JOIN steps USING (step_id)"
        f" WHERE draws.status = 'trained' AND {_HAS_TEXT} GROUP BY task_id, step ORDER BY step"
    )
    draws: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        draws[row["task_id"]].append((row["step"], row["draw_id"]))
    ends = [(steps[0], steps[-1]) for steps in draws.values() if len(steps) > 1]
    ends.sort(key=lambda pair: pair[0][0] - pair[1][0])
    chosen = [draw_id for pair in ends[:_MAX_CANDIDATES] for _, draw_id in pair]
    groups: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for sample in _samples_of_draws(reader, chosen):
        groups[sample["task_id"]][sample["step"]].append(sample)
    pairs = []
    for task_id, by_step in groups.items():
        first, last = min(by_step), max(by_step)
        pairs.append(_pair(task_id, f"step {first}", f"step {last}", by_step[first], by_step[last]))
    return _most_changed("training", pairs)


def _heldout_examples(reader: RunReader) -> list[dict[str, Any]]:
    found = {}
    for when in ("before", "after"):
        record = reader.json_file(f"evaluation_{when}.json")
        by_task: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for sample in (record or {}).get("samples", []):
            by_task[sample["task_id"]].append({"completion": sample["text"], **sample["result"]})
        found[when] = by_task
    before, after = found["before"], found["after"]
    pairs = [
        _pair(task_id, "before training", "after training", before[task_id], after[task_id])
        for task_id in before.keys() & after.keys()
    ]
    return _most_changed("held-out", pairs)


def _pair(
    task_id: str,
    before_label: str,
    after_label: str,
    before: Sequence[dict[str, Any]],
    after: Sequence[dict[str, Any]],
) -> dict[str, Any] | None:
    """The example of one task, None where one side has no score."""
    sides = [_side(before_label, before), _side(after_label, after)]
    if sides[0] is None or sides[1] is None:
        return None
    return {
        "task_id": task_id,
        "before": sides[0],
        "after": sides[1],
        "change": sides[1]["mean"] - sides[0]["mean"],
    }


def _side(label: str, group: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    scored = sorted((one for one in group if one["reward"] is not None), key=lambda one: float(one["reward"]))
    if not scored:
        return None
    shown = scored[len(scored) // 2]
    names = ("completion", "reward", "breakdown", "outcome", "detail", "passed")
    return {
        **{name: shown[name] for name in names},
        "label": label,
        "rewards": [round(float(one["reward"]), 4) for one in scored],
        "num_passed": sum(bool(one["passed"]) for one in scored),
        "mean": sum(float(one["reward"]) for one in scored) / len(scored),
    }


def _most_changed(kind: str, pairs: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Gains and losses in turn, the largest first, so that neither hides the other."""
    known = [pair | {"kind": kind} for pair in pairs if pair is not None]
    gains = sorted((pair for pair in known if pair["change"] > 0), key=lambda pair: -pair["change"])
    losses = sorted((pair for pair in known if pair["change"] <= 0), key=lambda pair: pair["change"])
    mixed: list[dict[str, Any]] = []
    while (gains or losses) and len(mixed) < NUM_EXAMPLES:
        mixed += [side.pop(0) for side in (gains, losses) if side]
    return [
        pair | {"diff": line_diff(pair["before"]["completion"], pair["after"]["completion"])}
        for pair in mixed[:NUM_EXAMPLES]
    ]


def line_diff(before: str, after: str) -> list[tuple[str, str]]:
    """Lines with "-" (only before), "+" (only after) or " " (both)."""
    old, new = before.splitlines(), after.splitlines()
    found: list[tuple[str, str]] = []
    # Not ndiff, whose search for similar lines takes the cube of their number, and recurses as deep.
    for what, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            found += [(" ", line) for line in old[i:j]]
        else:
            found += [*(("-", line) for line in old[i:j]), *(("+", line) for line in new[k:m])]
    return found
