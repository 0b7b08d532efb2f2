from __future__ import annotations

import pickle
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.record.audit import audit
from pipeline.record.ledger import Ledger
from pipeline.record.ledger_tables import LedgerError, num_trained, reading
from tests.pipeline.record.test_ledger import score, step, train


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


def test_only_what_older_checkpoints_are_removed_for_has_to_outlast_a_loss_of_power(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "run.db")) as ledger:

        def said(change: Callable[[], object]) -> list[str]:
            lines: list[str] = []
            ledger._db.set_trace_callback(lines.append)
            change()
            ledger._db.set_trace_callback(None)
            return [line for line in lines if line.startswith(("PRAGMA", "COMMIT"))]

        durable = ["PRAGMA synchronous = FULL", "COMMIT", "PRAGMA synchronous = NORMAL"]
        draw_ids = score(ledger, *[(0, 0)] * 2)
        assert said(lambda: train(ledger, 1, draw_ids[0])) == durable
        assert said(lambda: train(ledger, 2, draw_ids[1], is_saved=False)) == ["COMMIT"]
        assert said(lambda: ledger.note_checkpoint(2, "step-000002")) == durable
        assert said(lambda: ledger.record_draw("t", 3, 2)) == ["COMMIT"]
        with pytest.raises(AssertionError, match="does not follow"):
            ledger.commit_step(step(9), [], {}, "step-000009")
        assert ledger._db.execute("PRAGMA synchronous").fetchone() == (1,)


def test_the_state_of_a_step_is_kept_while_it_is_the_last_and_where_it_has_a_checkpoint(
    tmp_path: Path,
) -> None:
    with closing(Ledger(tmp_path / "run.db")) as ledger:
        for number in range(1, 5):
            (draw_id,) = score(ledger, (number - 1, number - 1))
            train(ledger, number, draw_id, is_saved=number == 1)
            if number == 3:
                ledger.note_checkpoint(3, "step-000003")
        kept = [ledger.load_state(number) for number in range(1, 5)]
    assert kept == [{"sampler": 1}, {}, {"sampler": 3}, {"sampler": 4}]


def test_what_is_wrong_with_a_ledger_is_told_by_another_process_too() -> None:
    """The baseline trains in one of its own, from which an error comes pickled."""
    error = LedgerError(Path("runs/x/run.db"), sqlite3.OperationalError("database or disk is full"))
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, LedgerError) and str(again) == str(error) and "disk is full" in str(again)


def test_what_was_trained_on_is_counted_step_by_step_without_what_was_lost(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    assert num_trained(path, 9) is None
    with closing(Ledger(path)) as ledger:
        for number in (1, 2, 3):
            train(ledger, number, *score(ledger, (number - 1, number - 1)))
        of_a_draw = num_trained(path, 1)
        assert of_a_draw is not None and of_a_draw > 0
        assert num_trained(path, 9) == 3 * of_a_draw and num_trained(path, 2) == 2 * of_a_draw
        ledger.rewind(2)
    assert num_trained(path, 9) == 2 * of_a_draw
