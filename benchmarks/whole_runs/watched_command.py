"""One command of the project, as a user types it: held to cores, watched for memory, ended at a deadline.

Memory is the proportional set size of the command and everything below it, so that pages which processes
share count once; it is read every few seconds, so a shorter peak may be missed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import (
    adopt_orphans,
    by_kind,
    descendants,
    last_words,
    newcomers,
    start,
    wait_until_gone,
)

POLL_S = 5.0
_STEP_S = 0.2
_LEAVE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a command took: ``peak_mb`` of all processes together, and of each kind by itself."""

    seconds: float
    peak_mb: float
    kinds_mb: Mapping[str, float]


@dataclass(slots=True, kw_only=True)
class _Peaks:
    all_mb: float = 0.0
    kinds_mb: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def look(self, driver: int, others: frozenset[int]) -> None:
        """Read the memory of ``driver`` and of all that came after it but for ``others``."""
        kind_of = {pid: kind for kind, pids in by_kind(driver).items() for pid in pids}
        sums: dict[str, float] = defaultdict(float)
        for process in newcomers(others):
            sums[kind_of.get(process.pid, "other")] += proportional_mb(process.pid)
        self.all_mb = max(self.all_mb, sum(sums.values()))
        for kind, megabytes in sums.items():
            self.kinds_mb[kind] = max(self.kinds_mb[kind], megabytes)


def proportional_mb(pid: int) -> float:
    """Proportional set size in MB; the resident set where the kernel does not tell; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1e3
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def run_command(
    name: str, arguments: Sequence[str], *, cores: Sequence[int], log: Path, deadline_s: float
) -> Watched:
    """Run the console script ``name`` to its end; what it prints is appended to ``log``.

    Nothing that it started outlives this call. Raises RuntimeError with its last words where it fails,
    TimeoutError where it takes longer than ``deadline_s``.
    """
    adopt_orphans()
    others = frozenset(process.pid for process in descendants(os.getpid()))
    peaks, begun = _Peaks(), time.monotonic()
    process = start(name, arguments, log=log, cores=cores)
    try:
        looked_s = begun
        while process.poll() is None:
            if (now_s := time.monotonic()) - begun > deadline_s:
                raise TimeoutError(f"{name}: not done within {deadline_s:.0f} s: {last_words(log)}")
            if now_s - looked_s >= POLL_S:
                peaks.look(process.pid, others)
                looked_s = now_s
            time.sleep(_STEP_S)
        seconds = time.monotonic() - begun
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
        wait_until_gone(process, others, 0.0 if process.poll() is None else _LEAVE_S)
    if process.returncode != 0:
        raise RuntimeError(f"{name} ended with status {process.returncode}: {last_words(log)}")
    return Watched(seconds=seconds, peak_mb=peaks.all_mb, kinds_mb=dict(peaks.kinds_mb))
