"""The process that ends what a killed run leaves behind.

    driver ──pipe──► guard: at the end of the pipe, SIGKILL to every process that bears the run's mark

Most of a run's processes die with their parent. Some of Ray's do not: they look whether process 1 has become
their parent, and where orphans go to another one (a desktop session, a container's supervisor) they stay. So
each run has a mark in its environment, which its processes inherit, and this guard, which waits for the end
of the driver. It runs on the standard library alone. Started by pipeline.launch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

MARK = "CODE_GRPO_RUN"
# Processes that end by themselves are given this long; new ones may appear meanwhile.
_GRACE_S = 1.0
_ROUNDS_S = 5.0


@contextmanager
def guarded() -> Iterator[None]:
    """Mark the processes that are started in the block; if this process dies in it, they are ended."""
    mark = f"{os.getpid()}-{uuid4().hex[:12]}"
    reads, writes = os.pipe()
    guard = subprocess.Popen(
        [sys.executable, "-S", "-E", "-P", __file__, mark],
        stdin=reads,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A Ctrl-C or a kill of the driver's group is not for it.
        start_new_session=True,
    )
    os.close(reads)
    os.environ[MARK] = mark
    try:
        yield
    finally:
        del os.environ[MARK]
        guard.kill()
        guard.wait()
        os.close(writes)


def marked(mark: str) -> list[int]:
    """The processes whose environment, as it was at their start, bears ``mark``."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def main() -> None:
    """Wait for the end of standard input, then end what bears the mark."""
    while os.read(0, 1):
        pass
    time.sleep(_GRACE_S)
    deadline = time.monotonic() + _ROUNDS_S
    while time.monotonic() < deadline and (pids := marked(sys.argv[1])):
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
