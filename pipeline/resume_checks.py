"""What --resume refuses to go on from, said before anything is started and before anything is written.

A damaged checkpoint is passed over where an earlier whole one is there (pipeline.checkpoint); only where none
is left does a run end here. Called by pipeline.orchestrator.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pipeline.checkpoint import find_faults
from pipeline.heldout import earlier_measurement
from pipeline.ledger_schema import check_database
from pipeline.metrics import read_metrics


def refuse_damaged_run(run: Path) -> None:
    """Raise ValueError, naming the file and what can be done, where the run in ``run`` cannot be resumed."""
    _check_ledger(run / "run.db")
    faults = find_faults(run)
    if faults and all(faults.values()):
        said = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise ValueError(
            f"{run}/checkpoints: none of its checkpoints is whole ({said}); put a copy of one back, or "
            "remove them all to begin the run anew from its first step"
        )
    if (run / "metrics.jsonl").exists():
        read_metrics(run / "metrics.jsonl")
    earlier_measurement(run / "evaluation_before.json")


def _check_ledger(path: Path) -> None:
    if not path.exists() or path.stat().st_size == 0:
        return
    # Not read-only: a killed process may have left its last steps in the log beside the file.
    database = sqlite3.connect(path)
    try:
        check_database(database, path)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is not a run database, or is damaged: {error}") from None
    finally:
        database.close()
