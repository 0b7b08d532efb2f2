"""Reads a run folder for the report: steps, spans, tasks, rollouts, evaluations, settings.

Opens run.db read-only and beside the run that writes it. Draws nothing.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.yaml_text import read_mapping
from pipeline.host.files import no_folder, read_object
from pipeline.host.spans import Span
from pipeline.record.ledger_tables import check_version, open_to_read

_WHENS = ("before", "after")

MAX_SPANS = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A committed step; ``ended_s`` is when it was closed, in seconds since 1970."""

    step: int
    ended_s: float
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRow(Span):
    """A span as run.db keeps it, with the step that closed after it."""

    span_id: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Where a run stands: "running", "finished", "stopped" or "not started".

    One that was interrupted after its last step, while it was measured, is "stopped": it can be resumed.
    """

    status: str
    step: int
    max_steps: int


class RunReader:
    """One run folder. Every method reads it anew, so that a run in progress can be followed."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError, naming the folder or file, for what is no run folder or has no readable run.db.

        ``path`` may be relative; links in it are followed once.
        """
        if not path.is_dir():
            raise ValueError(f"run folder {str(path)!r} {no_folder(path)}; give the folder of a run")
        self.path = path.resolve()
        self.name = self.path.name
        self._file = self.path / "run.db"
        if not (self.path / "config.yaml").is_file():
            raise ValueError(f"{str(path)!r} is not a run folder: it has no config.yaml")
        if not self._file.is_file():
            raise ValueError(f"{str(path)!r} has no run.db: its run has not begun, or is not one of ours")
        try:
            with closing(self._open()) as database:
                check_version(database, self._file)
        except sqlite3.Error as error:
            raise ValueError(f"{self._file} is not a run database, or is damaged: {error}") from error

    def _open(self) -> sqlite3.Connection:
        database = open_to_read(self._file)
        database.row_factory = sqlite3.Row
        return database

    def query(self, sql: str, values: Iterable[object] = ()) -> list[sqlite3.Row]:
        """The rows of a query. Raises ValueError, naming the file, where it cannot be read."""
        try:
            with closing(self._open()) as database:
                return database.execute(sql, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise ValueError(f"{self._file} cannot be read: {error}") from error

    def steps(self, after: int = 0) -> list[StepRow]:
        """Committed steps with a number above ``after``, in order."""
        rows = self.query(
            "SELECT step, committed_at, metrics FROM steps WHERE status = 'committed' AND step > ?"
            " ORDER BY step",
            (after,),
        )
        return [
            StepRow(step=row["step"], ended_s=row["committed_at"], metrics=json.loads(row["metrics"]))
            for row in rows
        ]

    def spans(self, after: int = 0) -> list[SpanRow]:
        """Spans with an id above ``after``, in the order of their ends.

        At most the last MAX_SPANS: a page with more is slow on a small machine.
        """
        rows = self.query(
            "SELECT span_id, step, stage, name, draw_id, num_tokens, started_at AS started_s,"
            " ended_at AS ended_s FROM spans WHERE span_id > ? ORDER BY span_id DESC LIMIT ?",
            (after, MAX_SPANS),
        )
        return [SpanRow(**dict(row)) for row in reversed(rows)]

    def tasks(self, task_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Prompt, level and tests of the given tasks, by task_id."""
        marks = ", ".join("?" * len(task_ids))
        rows = self.query(f"SELECT * FROM tasks WHERE task_id IN ({marks})", task_ids)
        return {row["task_id"]: dict(row) for row in rows}

    def events(self) -> list[tuple[float, str, str]]:
        """What was worth noting: time in seconds since 1970, kind, text."""
        rows = self.query("SELECT time, kind, text FROM events ORDER BY event_id DESC LIMIT 500")
        return [(row["time"], row["kind"], row["text"]) for row in reversed(rows)]

    def newest_event(self, kind: str) -> str | None:
        """The text of the last event of that kind, None where there is none."""
        rows = self.query("SELECT text FROM events WHERE kind = ? ORDER BY event_id DESC LIMIT 1", (kind,))
        return rows[0]["text"] if rows else None

    def edition(self) -> list[int]:
        """Another one where what was read before may no longer be the run, or lacks more than later steps.

        So it is after the run went back to a checkpoint, was measured, ended, or goes on after its end.
        """
        ((num_rewinds,),) = self.query("SELECT COUNT(*) FROM runs WHERE rewound_to IS NOT NULL")
        names = (*(f"evaluation_{when}.json" for when in _WHENS), "summary.json")
        return [num_rewinds, *(int((self.path / name).exists()) for name in names)]

    def started_s(self) -> float:
        """When the run first began, in seconds since 1970."""
        (row,) = self.query("SELECT MIN(started_at) AS started_s FROM runs")
        return float(row["started_s"] or 0.0)

    def settings(self) -> dict[str, Any]:
        """config.yaml as it lies in the folder. Raises ConfigError where it is no YAML mapping."""
        return read_mapping(self.path / "config.yaml")

    def json_file(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the folder, None where there is none. Raises ValueError for a damaged one."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            return read_object(path)
        except ValueError as error:
            raise ValueError(f"{error}; delete it to go without") from error

    def evaluation(self) -> dict[str, Any]:
        """That of summary.json, empty where there is none. Raises ValueError for a damaged one."""
        told = (self.json_file("summary.json") or {}).get("evaluation") or {}
        if not isinstance(told, dict) or not all(isinstance(told.get(when) or {}, dict) for when in _WHENS):
            path = self.path / "summary.json"
            raise ValueError(f"{path}: field 'evaluation': must be an object; delete it to go without")
        return told

    def _max_steps(self) -> int:
        training = self.settings().get("training") or {}
        steps = training.get("max_steps") or 0 if isinstance(training, dict) else None
        if not isinstance(steps, int):
            raise ValueError(f"{self.path / 'config.yaml'}: training.max_steps: must be a whole number")
        return steps

    def state(self) -> RunState:
        """Where the run stands now."""
        is_running = lock_owner(self.path) is not None
        (row,) = self.query("SELECT COALESCE(MAX(step), 0) AS step FROM steps WHERE status = 'committed'")
        step, max_steps = int(row["step"]), self._max_steps()
        if is_running:
            status = "running"
        elif step >= max_steps > 0 and (self.path / "summary.json").exists():
            status = "finished"
        else:
            # Where nothing was drawn it did not come as far as training.
            has_drawn = bool(self.query("SELECT 1 FROM draws LIMIT 1"))
            status = "stopped" if step or has_drawn else "not started"
        return RunState(status=status, step=step, max_steps=max_steps)


def lock_owner(path: Path) -> int | None:
    """The process that holds the run folder's lock, None where nobody does."""
    try:
        with (path / ".lock").open("r", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdecimal() else None
            return None
    except FileNotFoundError:
        return None
