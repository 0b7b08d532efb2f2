"""A lock on a file of the user's cache: one process makes what stands there, others wait for it.

Called by pipeline.models and pipeline.packaged_model.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_TIMEOUT_S = 1200.0  # longer than a download may take, and what is made of it
_POLL_S = 0.5


@contextmanager
def locked(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold an advisory lock on ``path``; the kernel frees it when its owner dies.

    Raises TimeoutError, naming the owner, when another process holds it longer than ``timeout_s`` seconds.
    """
    with path.open("a+") as handle:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    handle.seek(0)
                    owner = handle.read().strip() or "unknown"
                    raise TimeoutError(
                        f"{path}: still locked by process {owner} after {timeout_s:.0f} s"
                    ) from None
                time.sleep(_POLL_S)
        handle.seek(0)
        handle.truncate()
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield
