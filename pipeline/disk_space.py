"""A full disk, told from other errors. Called by pipeline.orchestrator."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)


def explain_full_disk(error: OSError | sqlite3.OperationalError, folder: Path) -> str | None:
    """What to tell the user where ``error`` means that there is no room left below ``folder``; else None."""
    is_full_file = isinstance(error, OSError) and error.errno in _FULL
    is_full_database = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname == "SQLITE_FULL"
    if not (is_full_file or is_full_database):
        return None
    usage = shutil.disk_usage(folder)
    return (
        f"no room to write: {error} ({usage.free / 2**20:.0f} MiB of {usage.total / 2**30:.1f} GiB free at "
        f"{folder}); nothing was overwritten, the last checkpoint is whole: make room, then go on with: "
        f"train_accelerated --resume {folder}"
    )
