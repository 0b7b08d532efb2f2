"""What a command left in the places that are not the user's: temporary folder, shared memory, cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.host.files import cache_root
from tests.processes import is_running, wait_until

_SHARED_MEMORY = Path("/dev/shm")
# torch's cache of compiled code, which later runs find again.
_TORCHS = "torchinductor_"


@contextmanager
def nothing_left() -> Iterator[str]:
    """A temporary folder for a command (TMPDIR); AssertionError if it left anything behind, and where.

    Shared memory counts as left if nobody has it open any more. In the cache something may be new, but not
    half-made. Both are the whole machine's, and other tests run beside this one: what is theirs goes away.
    """
    shared, cached = _shared_memory(), _half_made()

    def in_shared_memory() -> set[str]:
        new = _shared_memory() - shared
        return new - _open_files() if new else new

    def in_cache() -> set[str]:
        return _half_made() - cached

    with tempfile.TemporaryDirectory() as temporary:
        yield temporary
        left = [name for name in os.listdir(temporary) if not name.startswith(_TORCHS)]
    assert left == [], f"in the temporary folder: {left}"
    # Another test may be fetching a model.
    assert wait_until(lambda: not in_cache(), 500.0), f"in the cache: {in_cache()}"
    assert wait_until(lambda: not in_shared_memory()), f"in shared memory: {in_shared_memory()}"


def _shared_memory() -> set[str]:
    """All of it but the folders of runs that live, whose names end in their process."""
    return {
        str(path)
        for path in _SHARED_MEMORY.iterdir()
        if not ((pid := path.name.rpartition("-")[2]).isdigit() and is_running(int(pid)))
    }


def _half_made() -> set[str]:
    """What a file or folder of the cache is called until it is whole."""
    return {str(path) for path in cache_root().rglob(".*")}


def _open_files() -> set[str]:
    """The shared memory that a process of this machine has open or mapped."""
    held: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            held |= {line.split(maxsplit=5)[-1] for line in (process / "maps").read_text().splitlines()}
        with suppress(OSError):
            held |= {os.readlink(file) for file in (process / "fd").iterdir()}
    return held
