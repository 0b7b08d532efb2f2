"""What run.db keeps for people to look at, and no resume reads: the tasks, and the spans of the stages.

Called by pipeline.ledger inside its transactions; read by pipeline.report.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from curriculum.task import Task
from pipeline.timeline import StageSpan
from sandbox.result import CallTest, StdioTest

_MAX_TESTS = 8
_MAX_TEXT = 4000


def note_tasks(database: sqlite3.Connection, tasks: Iterable[Task]) -> None:
    """Enter ``tasks``; one that is known by its id is overwritten."""
    rows = [
        (
            task.task_id,
            task.prompt,
            task.entry_point,
            task.difficulty,
            task.family,
            task.source,
            tests_text(task),
        )
        for task in tasks
    ]
    database.executemany("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def tests_text(task: Task) -> str:
    """The first tests of ``task`` as a person would write them, at most some thousand characters."""
    if task.check_source is not None:
        return _cut(task.check_source)
    tests: list[CallTest | StdioTest] = [*task.call_tests, *task.stdio_tests]
    lines = [
        _call_text(task.entry_point, test) if isinstance(test, CallTest) else _stdio_text(test)
        for test in tests[:_MAX_TESTS]
    ]
    num_more = len(tests) - len(lines)
    return "\n".join([*lines, f"... and {num_more} more"] if num_more else lines)


def _call_text(entry_point: str, test: CallTest) -> str:
    arguments = ", ".join(_cut(repr(value), 300) for value in test.args)
    return f"{entry_point}({arguments}) == {_cut(repr(test.expected), 300)}"


def _stdio_text(test: StdioTest) -> str:
    return f"input {_cut(test.stdin, 300)!r} must print {_cut(test.expected_stdout, 300)!r}"


def _cut(text: str, length: int = _MAX_TEXT) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def note_spans(database: sqlite3.Connection, step: int, spans: Sequence[StageSpan], num_steps: int) -> None:
    """Enter ``spans`` under ``step``; those of steps further back than ``num_steps`` are deleted."""
    database.executemany(
        "INSERT INTO spans (step, stage, name, draw_id, num_tokens, started_at, ended_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (step, span.stage, span.name, span.draw_id, span.num_tokens, span.started_s, span.ended_s)
            for span in spans
        ],
    )
    database.execute("DELETE FROM spans WHERE step <= ?", (step - num_steps,))


def forget_texts(database: sqlite3.Connection, step: int, num_steps: int) -> None:
    """When ``step`` got its checkpoint: empty the completions that steps further back trained on.

    Only those further back than ``num_steps`` that no resume could use; looks at what the last checkpoint
    had not looked at.
    """
    query = "SELECT COALESCE(MAX(step), 0) FROM steps WHERE checkpoint IS NOT NULL AND step < ?"
    (before,) = database.execute(query, (step,)).fetchone()
    database.execute(
        "UPDATE rollouts SET completion = '' WHERE draw_id IN ("
        "  SELECT draw_id FROM draws JOIN steps USING (step_id)"
        "  WHERE steps.status = 'committed' AND steps.step > ? AND steps.step <= ?"
        ") AND draw_id NOT IN (SELECT draw_id FROM tokens)",
        (before - num_steps, step - num_steps),
    )
