"""A full disk is told from other errors, and the user hears what to do."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from pipeline.host.limits import explain_full_disk


def test_a_database_that_cannot_grow_is_a_full_disk(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "run.db")
    database.execute("CREATE TABLE t (x)")
    database.execute("PRAGMA max_page_count = 3")
    with pytest.raises(sqlite3.OperationalError) as caught:
        database.execute("INSERT INTO t VALUES (zeroblob(100000))")
    text = explain_full_disk(caught.value, tmp_path, advice="--resume it")
    assert text is not None and "--resume it" in text and "MiB of" in text
    with pytest.raises(sqlite3.OperationalError) as other:
        database.execute("SELECT nothing FROM nowhere")
    assert explain_full_disk(other.value, tmp_path, advice="--resume it") is None
    database.close()


def test_a_file_that_cannot_grow_is_a_full_disk_and_a_missing_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
    assert caught.value.errno == errno.ENOSPC
    assert explain_full_disk(caught.value, tmp_path, advice="--resume it") is not None
    missing = FileNotFoundError(errno.ENOENT, "no such file")
    assert explain_full_disk(missing, tmp_path, advice="--resume it") is None
    text = explain_full_disk(caught.value, tmp_path, advice="start again")
    assert text is not None and "--resume" not in text and "start again" in text
