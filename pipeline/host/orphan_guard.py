"""The process that ends what a killed run leaves behind.

    driver ──pipe──► guard: at the end of the pipe, SIGKILL to every process of the run's family

Most of a run's processes die with their parent. Some of Ray's do not: they look whether process 1 has become
their parent, and where orphans go to another one (a desktop session, a container's supervisor) they stay;
others report the end of their node for minutes to a server that is gone too. So each run has a mark in its
environment, which its processes inherit, and this guard, which waits for the end of the driver. A process
that gives itself a title writes it over the mark, as Ray's do: so the guard gets to know the family while it
lives. It runs on the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import select
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
# Python takes longer than that from its start to its first title.
_LOOK_S = 0.25
# Between fork and exec a process shows its parent's environment or none: it is looked at so often.
_NUM_LOOKS = 4


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


class Family:
    """The processes that were started with ``mark``, and theirs."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._strangers: dict[int, int] = {}  # how often each was looked at
        self._born: dict[int, bytes] = {}  # when, which tells a process from a later one of its number

    def look(self) -> list[int]:
        """Get to know the processes that have begun since the last look; returns the members that live."""
        present = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._strangers = {pid: looks for pid, looks in self._strangers.items() if pid in present}
        known = {pid for pid, looks in self._strangers.items() if looks >= _NUM_LOOKS}
        # A parent's number is nearly always the smaller one.
        for pid in sorted(present - known - set(self._born)):
            with contextlib.suppress(OSError):
                parent, born = _origin(pid)
                # What runs as another user cannot be read; its parent is known all the same.
                if parent in self._born or self._is_marked(pid):
                    self._born[pid] = born
                    self._strangers.pop(pid, None)
                    continue
            self._strangers[pid] = self._strangers.get(pid, 0) + 1
        self._born = {pid: born for pid, born in self._born.items() if pid in present and _is(pid, born)}
        return sorted(self._born)

    def _is_marked(self, pid: int) -> bool:
        return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _origin(pid: int) -> tuple[int, bytes]:
    """Its parent, and when it began; raises OSError when it is gone."""
    # The second field is a name, which may hold spaces and brackets.
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[1]), fields[19]


def _is(pid: int, born: bytes) -> bool:
    try:
        return _origin(pid)[1] == born
    except OSError:
        return False


def main() -> None:
    """Wait for the end of standard input, then end the family."""
    family = Family(sys.argv[1])
    while not select.select([0], [], [], _LOOK_S)[0] or os.read(0, 1):
        family.look()
    family.look()
    time.sleep(_GRACE_S)
    deadline = time.monotonic() + _ROUNDS_S
    while time.monotonic() < deadline and (pids := family.look()):
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
