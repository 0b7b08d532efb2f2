"""run.db: the account of every draw, every rollout and every optimiser step of a run (SQLite, WAL).

A draw (one task drawn by the sampler) goes issued -> scored -> trained, or ends as dropped or failed
with the reason. Steps are numbered from 1; a step, its draws and the state that ``--resume`` needs
are committed in one transaction, so a ``kill -9`` at any moment leaves every draw trained exactly
once, open, or ended with a reason. What is committed survives the process; after a power cut the
last moments may be missing (``synchronous = NORMAL``), but what is there is consistent.

It decides nothing and holds no weights and no token ids: an open draw is generated again after a
resume. One process writes (see run_folder); others may read meanwhile. Called by the orchestrator.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.messages import Rollout, RolloutGroup, StepResult
from pipeline.metrics import finite_or_none

SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 10.0

_SCHEMA = """
CREATE TABLE runs (          -- one row a process that wrote here: the first run and each resume
    run_id INTEGER PRIMARY KEY, started_at REAL NOT NULL, ended_at REAL, pid INTEGER NOT NULL,
    host TEXT NOT NULL
);
CREATE TABLE steps (         -- a rewound step keeps its row; its number is then used again
    step_id INTEGER PRIMARY KEY, step INTEGER NOT NULL CHECK (step >= 1),
    status TEXT NOT NULL CHECK (status IN ('committed', 'rewound')),
    policy_version INTEGER NOT NULL, metrics TEXT NOT NULL, state TEXT NOT NULL,
    draw_ids TEXT NOT NULL, last_draw_id INTEGER NOT NULL, seconds REAL NOT NULL,
    num_tokens INTEGER NOT NULL, committed_at REAL NOT NULL
);
CREATE UNIQUE INDEX one_committed_row_a_step ON steps (step) WHERE status = 'committed';
CREATE TABLE draws (         -- attempt counts how often the draw was opened again by a resume
    draw_id INTEGER PRIMARY KEY, task_id TEXT NOT NULL, step_issued INTEGER NOT NULL,
    policy_version_issued INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0,
    status TEXT NOT NULL CHECK (status IN ('issued', 'scored', 'trained', 'dropped', 'failed')),
    reason TEXT, step_id INTEGER REFERENCES steps (step_id), issued_at REAL NOT NULL,
    CHECK ((status = 'trained') = (step_id IS NOT NULL)),
    CHECK (status NOT IN ('dropped', 'failed') OR reason IS NOT NULL)
);
CREATE INDEX draws_by_status ON draws (status);
CREATE TABLE rollouts (      -- reward is NULL after an infrastructure error
    rollout_id TEXT NOT NULL, draw_id INTEGER NOT NULL REFERENCES draws (draw_id),
    attempt INTEGER NOT NULL, completion TEXT NOT NULL, num_tokens INTEGER NOT NULL,
    finish_reason TEXT NOT NULL, min_policy_version INTEGER NOT NULL,
    max_policy_version INTEGER NOT NULL, reward REAL, breakdown TEXT NOT NULL, outcome TEXT NOT NULL,
    detail TEXT NOT NULL, passed INTEGER NOT NULL, cached INTEGER NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (rollout_id, attempt)
);
CREATE INDEX rollouts_by_draw ON rollouts (draw_id);
CREATE TABLE events (
    event_id INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """An open draw: ``status`` is "issued" or "scored"; ``attempt`` counts its earlier openings."""

    draw_id: int
    task_id: str
    step_issued: int
    policy_version_issued: int
    attempt: int
    status: str


class Ledger:
    """The run's account at ``path``; made when it is not there.

    Every method is one bounded transaction on the calling thread (milliseconds; at most
    ``BUSY_TIMEOUT_S`` when a reader blocks a checkpoint of the log). SQLite's errors (full disk, lock)
    pass through with the file's name noted, and then nothing of that call was written.
    """

    def __init__(self, path: Path) -> None:
        """Raises ValueError for a file that is no ledger or is of another schema version."""
        self._path = path
        # Autocommit, so that every transaction below is an explicit one.
        self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._db.close()
            if isinstance(error, sqlite3.OperationalError):
                error.add_note(f"ledger {path}")
                raise
            raise ValueError(f"{path} is not a run database, or is damaged: {error}") from error
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        with self._transaction():
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            is_empty = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0
            if is_empty:
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif version != SCHEMA_VERSION:
                raise ValueError(
                    f"{self._path} has schema version {version}, this program reads {SCHEMA_VERSION}; "
                    "resume with the program that wrote it, or start a new run"
                )
            row = (time.time(), os.getpid(), socket.gethostname())
            cursor = self._db.execute("INSERT INTO runs (started_at, pid, host) VALUES (?, ?, ?)", row)
            self._run_id = cursor.lastrowid

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite rolls back by itself on some errors (a full disk).
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            error.add_note(f"ledger {self._path}")
            raise

    def record_draw(self, task_id: str, step: int, policy_version: int) -> int:
        """Account for a task drawn for ``step`` while generators had ``policy_version``; its draw_id."""
        with self._transaction():
            cursor = self._db.execute(
                "INSERT INTO draws (task_id, step_issued, policy_version_issued, status, issued_at)"
                " VALUES (?, ?, ?, 'issued', ?)",
                (task_id, step, policy_version, time.time()),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def record_group(self, group: RolloutGroup) -> None:
        """Store a group's rollouts; its draw goes from issued to scored."""
        with self._transaction():
            self._move(group.draw_id, ("issued",), "scored")
            query = "SELECT task_id, attempt FROM draws WHERE draw_id = ?"
            task_id, attempt = self._db.execute(query, (group.draw_id,)).fetchone()
            assert task_id == group.task.task_id, (
                f"draw {group.draw_id} is of {task_id}, not of {group.task.task_id}"
            )
            self._db.executemany(
                f"INSERT INTO rollouts VALUES ({', '.join('?' * 15)})",
                [_rollout_row(rollout, group.draw_id, attempt) for rollout in group.rollouts],
            )

    def drop_draw(self, draw_id: int, reason: str) -> None:
        """End an open draw that will not be trained on by decision (too stale, no signal); say why."""
        with self._transaction():
            self._move(draw_id, ("issued", "scored"), "dropped", reason)

    def fail_draw(self, draw_id: int, reason: str) -> None:
        """End an open draw that could not be generated or scored; say why."""
        with self._transaction():
            self._move(draw_id, ("issued", "scored"), "failed", reason)

    def _move(self, draw_id: int, sources: tuple[str, ...], status: str, reason: str | None = None) -> None:
        cursor = self._db.execute(
            "UPDATE draws SET status = ?, reason = ? WHERE draw_id = ?"
            f" AND status IN ({', '.join('?' * len(sources))})",
            (status, reason, draw_id, *sources),
        )
        assert cursor.rowcount == 1, (
            f"draw {draw_id} cannot become {status}: it is not {' or '.join(sources)}"
        )

    def commit_step(
        self, result: StepResult, draw_ids: Sequence[int], extra_state: Mapping[str, Any]
    ) -> None:
        """Account for one optimiser step, all or nothing: its row, its draws (trained), the state.

        ``extra_state`` is JSON: the state of the sampler and of whatever else ``load_state`` must give
        back. Take it with no await between it and this call: draws recorded up to here count as made
        by that sampler state, later ones as not (see ``rewind``).
        """
        with self._transaction():
            last = self.last_step()
            assert result.step == last + 1, f"step {result.step} does not follow step {last}"
            last_draw_id = self._db.execute("SELECT COALESCE(MAX(draw_id), 0) FROM draws").fetchone()[0]
            metrics = {name: finite_or_none(value) for name, value in result.metrics.items()}
            cursor = self._db.execute(
                "INSERT INTO steps (step, status, policy_version, metrics, state, draw_ids, last_draw_id,"
                " seconds, num_tokens, committed_at) VALUES (?, 'committed', ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    result.step,
                    result.policy_version,
                    json.dumps(metrics),
                    json.dumps(extra_state, allow_nan=False),
                    json.dumps(list(draw_ids)),
                    last_draw_id,
                    result.seconds,
                    result.num_tokens,
                    time.time(),
                ),
            )
            query = "UPDATE draws SET status = 'trained', step_id = ? WHERE draw_id = ? AND status = 'scored'"
            for draw_id in draw_ids:
                changed = self._db.execute(query, (cursor.lastrowid, draw_id)).rowcount
                assert changed == 1, (
                    f"draw {draw_id} cannot be trained in step {result.step}: it is not scored"
                )

    def last_step(self) -> int:
        """The last committed step, 0 before the first."""
        query = "SELECT COALESCE(MAX(step), 0) FROM steps WHERE status = 'committed'"
        return int(self._db.execute(query).fetchone()[0])

    def load_state(self, step: int) -> dict[str, Any]:
        """The ``extra_state`` of a committed step; {} for step 0. Raises ValueError for any other step."""
        if step == 0:
            return {}
        return dict(json.loads(self._step_row(step)[0]))

    def _step_row(self, step: int) -> tuple[str, int]:
        query = "SELECT state, last_draw_id FROM steps WHERE step = ? AND status = 'committed'"
        row = self._db.execute(query, (step,)).fetchone()
        if row is None:
            raise ValueError(
                f"{self._path} has no committed step {step}; its last one is {self.last_step()}, "
                "so a checkpoint of that step belongs to another run"
            )
        return str(row[0]), int(row[1])

    def unfinished_draws(self) -> list[Draw]:
        """Draws issued or scored but not trained, oldest first; after ``rewind``: to be issued again."""
        rows = self._db.execute(
            "SELECT draw_id, task_id, step_issued, policy_version_issued, attempt, status FROM draws"
            " WHERE status IN ('issued', 'scored') ORDER BY draw_id"
        )
        return [
            Draw(
                draw_id=row[0],
                task_id=row[1],
                step_issued=row[2],
                policy_version_issued=row[3],
                attempt=row[4],
                status=row[5],
            )
            for row in rows
        ]

    def rewind(self, step: int) -> None:
        """Go back to the checkpoint of ``step`` (0: the start). Call it on every resume.

        Later steps are marked rewound. Draws made before ``step`` was committed and not trained by it
        are opened again, under their draw_id and with a new attempt; their rollouts stay. Draws made
        after it are dropped, with the reason: the sampler that ``load_state(step)`` restores makes
        them again, so opening them too would train on their tasks twice. Draws that had ended as
        dropped or failed stay so. Raises ValueError when ``step`` was never committed.
        """
        last_draw_id = self._step_row(step)[1] if step else 0
        again = f"rewound to step {step}: the restored sampler draws again"
        later = (
            "(status IN ('issued', 'scored')"
            " OR step_id IN (SELECT step_id FROM steps WHERE status = 'rewound'))"
        )
        with self._transaction():
            self._db.execute(
                "UPDATE steps SET status = 'rewound' WHERE step > ? AND status = 'committed'", (step,)
            )
            self._db.execute(
                "UPDATE draws SET status = 'dropped', step_id = NULL, reason = ?"
                f" WHERE draw_id > ? AND {later}",
                (again, last_draw_id),
            )
            self._db.execute(
                "UPDATE draws SET status = 'issued', step_id = NULL, reason = NULL, attempt = attempt + 1"
                f" WHERE draw_id <= ? AND {later}",
                (last_draw_id,),
            )
            self._event("rewind", f"to step {step}")

    def event(self, kind: str, text: str) -> None:
        """Note something worth keeping (a restart, a retry, a resume)."""
        with self._transaction():
            self._event(kind, text)

    def _event(self, kind: str, text: str) -> None:
        self._db.execute("INSERT INTO events (time, kind, text) VALUES (?, ?, ?)", (time.time(), kind, text))

    def close(self) -> None:
        """Note the end of this process's work and close the file."""
        with self._transaction():
            self._db.execute("UPDATE runs SET ended_at = ? WHERE run_id = ?", (time.time(), self._run_id))
        self._db.close()


def _rollout_row(rollout: Rollout, draw_id: int, attempt: int) -> tuple[object, ...]:
    completion, result = rollout.completion, rollout.result
    return (
        rollout.rollout_id,
        draw_id,
        attempt,
        completion.text,
        len(completion.token_ids),
        completion.finish_reason,
        completion.min_policy_version,
        completion.max_policy_version,
        finite_or_none(result.reward),
        json.dumps({name: finite_or_none(score) for name, score in result.breakdown.items()}),
        str(result.outcome),
        result.detail,
        result.passed,
        result.cached,
        result.seconds,
    )
