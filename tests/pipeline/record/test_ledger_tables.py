from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from pipeline.record.audit import audit
from pipeline.record.ledger import Ledger
from pipeline.record.ledger_tables import reading


def contents(folder: Path) -> dict[str, bytes]:
    """The files in ``folder``; of the log's index, in which readers too hold their locks, the name alone."""
    return {path.name: b"" if path.suffix == ".db-shm" else path.read_bytes() for path in folder.iterdir()}


def test_who_reads_a_run_that_is_over_makes_no_file_beside_it_and_can_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Ledger(path).close()
    before = contents(tmp_path)
    with reading(path) as database:
        assert database.execute("SELECT COUNT(*) FROM runs").fetchone() == (1,)
        assert contents(tmp_path) == before, "as in a folder that one may not write"
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            database.execute("DELETE FROM runs")
    assert audit(tmp_path).violations == () and contents(tmp_path) == before


def test_what_a_killed_process_left_in_the_log_is_read_and_stays_there(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    ledger = Ledger(tmp_path / "run.db")
    ledger.record_draw("t", 1, 0)
    for file in tmp_path.glob("run.db*"):
        shutil.copy(file, killed)
    ledger.close()
    before = contents(killed)
    assert before.keys() == {"run.db", "run.db-wal", "run.db-shm"}
    for _ in range(2):
        with reading(killed / "run.db") as database:
            assert database.execute("SELECT task_id FROM draws").fetchall() == [("t",)]
        assert contents(killed) == before


def test_a_ledger_may_be_closed_twice(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    ledger = Ledger(path)
    ledger.close()
    ended = contents(tmp_path)
    ledger.close()
    assert contents(tmp_path) == ended
    with reading(path) as database:
        assert database.execute("SELECT COUNT(ended_at) FROM runs").fetchone() == (1,)
