"""The tables of run.db, how the file is opened, and the rows of the processes that write to it.

Knows what may be stored, not what it means to a run.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pipeline.errors import StageError
from pipeline.host.files import no_folder

SCHEMA_VERSION = 6
BUSY_TIMEOUT_S = 10.0

_SCHEMA = """
CREATE TABLE runs (          -- one row a process that wrote here, and one each time that it went back
    run_id INTEGER PRIMARY KEY, started_at REAL NOT NULL, ended_at REAL, pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    rewound_to INTEGER,      -- the step that it began from, NULL where it did not go back
    -- Its terms, if it had any.
    groups_per_step INTEGER, num_generations INTEGER, max_staleness INTEGER, max_gated INTEGER
);
CREATE TABLE steps (         -- a rewound step keeps its row; its number is then used again
    step_id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES runs (run_id),
    step INTEGER NOT NULL CHECK (step >= 1),
    status TEXT NOT NULL CHECK (status IN ('committed', 'rewound')),
    policy_version INTEGER NOT NULL,
    checkpoint TEXT,         -- the folder in checkpoints/ with the weights and the optimiser of this step
    metrics TEXT NOT NULL, state TEXT NOT NULL,
    draw_ids TEXT NOT NULL,
    layout TEXT NOT NULL,    -- how the trainer computed it, as JSON: what a replay has to do alike
    last_call_id INTEGER NOT NULL, seconds REAL NOT NULL,
    num_tokens INTEGER NOT NULL, committed_at REAL NOT NULL
);
CREATE UNIQUE INDEX one_committed_row_a_step ON steps (step) WHERE status = 'committed';
CREATE TABLE draws (         -- status: pipeline.record.draw_states; attempt counts how often it was requeued
    draw_id INTEGER PRIMARY KEY, task_id TEXT NOT NULL, step_issued INTEGER NOT NULL,
    policy_version_issued INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0,
    status TEXT NOT NULL CHECK (status IN ('issued', 'scored', 'trained', 'dropped', 'failed')),
    reason TEXT, step_id INTEGER REFERENCES steps (step_id),
    basis TEXT,              -- what its rollouts rest on (pipeline.run.resume), where their tokens are kept
    issued_at REAL NOT NULL,
    CHECK ((status = 'trained') = (step_id IS NOT NULL)),
    CHECK (status NOT IN ('dropped', 'failed') OR reason IS NOT NULL)
);
CREATE INDEX draws_by_status ON draws (status);
CREATE INDEX draws_by_step ON draws (step_id) WHERE step_id IS NOT NULL;
CREATE TABLE rollouts (      -- reward is NULL after an infrastructure error
    draw_id INTEGER NOT NULL REFERENCES draws (draw_id), attempt INTEGER NOT NULL, place INTEGER NOT NULL,
    run_id INTEGER NOT NULL REFERENCES runs (run_id), rollout_id TEXT NOT NULL,
    completion TEXT NOT NULL, num_tokens INTEGER NOT NULL, finish_reason TEXT NOT NULL,
    min_policy_version INTEGER NOT NULL, max_policy_version INTEGER NOT NULL,
    reward REAL, breakdown TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL,
    passed INTEGER NOT NULL, cached INTEGER NOT NULL, seconds REAL NOT NULL,
    receipt TEXT NOT NULL,   -- of its newest weights, as the engine held them; '' for those of the start
    turns TEXT NOT NULL,     -- the answers before the last one, with the feedback on them, as JSON
    PRIMARY KEY (draw_id, attempt, place)
);
CREATE TABLE weights (       -- each update; held is NULL where the engine did not get so far, or began again
    run_id INTEGER NOT NULL REFERENCES runs (run_id), policy_version INTEGER NOT NULL,
    published TEXT NOT NULL, held TEXT,  -- codes of receipts: pipeline.weights.receipts
    digests BLOB NOT NULL,   -- what was published, 8 bytes a tensor, by name
    loaded_at REAL NOT NULL,
    PRIMARY KEY (run_id, policy_version)
);
CREATE TABLE tokens (        -- of the latest attempt, while a resume could use them: see the ledger
    draw_id INTEGER NOT NULL REFERENCES draws (draw_id), place INTEGER NOT NULL,
    token_ids BLOB NOT NULL, logprobs BLOB NOT NULL, version_runs TEXT NOT NULL,
    PRIMARY KEY (draw_id, place)
);
CREATE TABLE trained_tokens (-- of the draws that were trained on, for a replay
    draw_id INTEGER NOT NULL REFERENCES draws (draw_id), place INTEGER NOT NULL,
    token_ids BLOB NOT NULL, logprobs BLOB NOT NULL, version_runs TEXT NOT NULL,
    PRIMARY KEY (draw_id, place)
);
CREATE TABLE sampler_calls ( -- what the sampler was asked and told, in order; a step says how far it had come
    call_id INTEGER PRIMARY KEY, kind TEXT NOT NULL CHECK (kind IN ('draw', 'release', 'record')),
    draw_id INTEGER NOT NULL REFERENCES draws (draw_id),
    num_passed INTEGER NOT NULL, num_samples INTEGER NOT NULL, max_policy_version INTEGER NOT NULL,
    has_signal INTEGER,      -- of a "record": whether the rewards differed
    skipped TEXT NOT NULL    -- of a "draw": the tasks that the sampler passed over for it, as JSON
);
CREATE TABLE gated (         -- draws that were dropped because their group had no signal
    draw_id INTEGER PRIMARY KEY REFERENCES draws (draw_id),
    step INTEGER NOT NULL,   -- that would have trained on it: another draw took its place
    num_tokens INTEGER NOT NULL, is_solved INTEGER NOT NULL
);
CREATE TABLE events (
    event_id INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE tasks (         -- as they were when the run began, or was last resumed
    task_id TEXT PRIMARY KEY, prompt TEXT NOT NULL, entry_point TEXT NOT NULL, difficulty INTEGER NOT NULL,
    family TEXT NOT NULL, source TEXT NOT NULL, tests TEXT NOT NULL
);
CREATE TABLE spans (         -- what a stage did, in seconds since 1970; step is the one that closed after it
    span_id INTEGER PRIMARY KEY, step INTEGER NOT NULL, stage TEXT NOT NULL, name TEXT NOT NULL,
    draw_id INTEGER, num_tokens INTEGER, started_at REAL NOT NULL, ended_at REAL NOT NULL
);
CREATE INDEX spans_by_step ON spans (step);
"""


class LedgerError(StageError):
    """run.db could not be read or written (a full disk, a lock); the message names the file."""

    def __init__(self, path: Path, error: sqlite3.Error) -> None:
        super().__init__(
            f"ledger {path}: {error}; what was committed before is kept: free some space if the disk is "
            "full, then go on with --resume (or start again, if this was the start)"
        )
        self._given = (path, error)

    def __reduce__(self) -> tuple[type[LedgerError], tuple[Path, sqlite3.Error]]:
        return type(self), self._given


def open_ledger(path: Path) -> sqlite3.Connection:
    """The database at ``path``, made where there is none; in autocommit: transactions are begun by hand.

    Raises ValueError for a file that is no ledger, is damaged or of another schema version; LedgerError where
    it cannot be written.
    """
    database = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        # Asked first: switching the journal writes, and the file may be somebody else's.
        is_new = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,)
        if not is_new:
            check_database(database, path)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA foreign_keys = ON")
        if is_new:
            version = f"PRAGMA user_version = {SCHEMA_VERSION};"
            database.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}{version}COMMIT;")
    except BaseException as error:
        database.close()
        if isinstance(error, sqlite3.OperationalError):
            raise LedgerError(path, error) from error
        if isinstance(error, sqlite3.DatabaseError):
            raise ValueError(f"{path} is not a run database, or is damaged: {error}") from error
        raise
    return database


@contextmanager
def transaction(database: sqlite3.Connection, path: Path, *, is_durable: bool = False) -> Iterator[None]:
    """A transaction on the database at ``path``: all or nothing. Raises LedgerError where SQLite fails.

    It outlasts an end of every process at once, with ``is_durable`` also a loss of power.
    """
    try:
        if is_durable:
            database.execute("PRAGMA synchronous = FULL")
        with database:
            database.execute("BEGIN IMMEDIATE")
            yield
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        raise LedgerError(path, error) from error
    finally:
        if is_durable:
            with suppress(sqlite3.Error):
                database.execute("PRAGMA synchronous = NORMAL")


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The run database at ``path``, for one who only reads.

    Raises ValueError when there is none, or it is damaged or of another schema version.
    """
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} {no_folder(path.parent)}; give the folder of a run")
    if not path.is_file():
        raise ValueError(f"{path} does not exist; give the folder of a run")
    try:
        with closing(open_to_read(path)) as database:
            check_database(database, path)
            yield database
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is not a run database, or is damaged: {error}") from error


@contextmanager
def glancing(path: Path) -> Iterator[sqlite3.Connection]:
    """As ``reading``, for one who asks for little: the file, which may be gigabytes, is not read whole."""
    try:
        with closing(open_to_read(path)) as database:
            yield database
    except sqlite3.Error as error:
        raise ValueError(f"{path} is not a run database of this version, or is damaged: {error}") from error


def known_checkpoints(path: Path) -> frozenset[str] | None:
    """The names of the checkpoints that committed steps of the run database at ``path`` refer to.

    None where nothing says it: there is no database, or it cannot be read.
    """
    query = "SELECT checkpoint FROM steps WHERE status = 'committed' AND checkpoint IS NOT NULL"
    with suppress(ValueError), glancing(path) as database:
        return frozenset(name for (name,) in database.execute(query))
    return None


def num_trained(path: Path, step: int) -> int | None:
    """How many scored completions the steps up to ``step`` were trained on; None where nothing says it."""
    query = (
        "SELECT COUNT(*) FROM steps JOIN draws USING (step_id) JOIN rollouts USING (draw_id, attempt)"
        " WHERE steps.status = 'committed' AND steps.step <= ? AND reward IS NOT NULL"
    )
    with suppress(ValueError), glancing(path) as database:
        return int(database.execute(query, (step,)).fetchone()[0]) or None
    return None


def num_replaced(path: Path) -> int:
    """How many completions were generated and scored and then replaced for want of signal."""
    query = "SELECT COUNT(*) FROM gated JOIN draws USING (draw_id) JOIN rollouts USING (draw_id, attempt)"
    with suppress(ValueError), glancing(path) as database:
        return int(database.execute(query).fetchone()[0])
    return 0


def open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing; also to what a killed process left in the log beside the file."""
    path = path.absolute()
    # A reader of a file with a log makes one where there is none; a run that is over leaves none.
    is_over = not path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro&immutable=1" if is_over else "mode=ro"
    return sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=BUSY_TIMEOUT_S)


def check_version(database: sqlite3.Connection, path: Path) -> None:
    """Raise ValueError unless ``database``, the file at ``path``, is of the schema that is read here."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: put a copy of it in its place, or start a new run")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}; "
            "resume with the program that wrote it, or start a new run"
        )


def check_database(database: sqlite3.Connection, path: Path) -> None:
    """Raise ValueError unless ``database``, the file at ``path``, is whole and of a schema read here."""
    check_version(database, path)
    (fault,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if fault != "ok":
        raise ValueError(
            f"{path} is damaged ({' '.join(fault.split())}): put a copy of it in its place, or start a new "
            "run from the last checkpoint with --model"
        )


def note_process(database: sqlite3.Connection, terms: Sequence[int], rewound_to: int | None = None) -> int:
    """Enter this process in ``runs``, with its terms, if any, and the step it went back to; the run_id."""
    cursor = database.execute(
        "INSERT INTO runs (started_at, pid, host, rewound_to, groups_per_step, num_generations,"
        " max_staleness, max_gated) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (time.time(), os.getpid(), socket.gethostname(), rewound_to, *(terms or (None,) * 4)),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def end_run(database: sqlite3.Connection, run_id: int) -> None:
    """Note that nothing more is written under ``run_id``."""
    database.execute("UPDATE runs SET ended_at = ? WHERE run_id = ?", (time.time(), run_id))
