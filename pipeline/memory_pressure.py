"""What memory looks like, for the message about a process that was killed.

The kernel's out-of-memory killer ends a process by SIGKILL and tells it nothing. Whether it has been at work
is seen from its counter: of this container's cgroup where there is one, otherwise of the whole machine.
Reads files of /proc and /sys only. Called by pipeline.engine_client, pipeline.trainer_group and
pipeline.stages.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

_COUNTERS = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
    Path("/proc/vmstat"),
)
_LIMITS = (
    (Path("/sys/fs/cgroup/memory.current"), Path("/sys/fs/cgroup/memory.max")),
    (
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ),
)
_GIB = 2**30
# Above this a cgroup's limit is none.
_NO_LIMIT = 2**60


def num_oom_kills(counters: Iterable[Path] = _COUNTERS) -> int:
    """Processes that the kernel has killed for want of memory, so far; 0 where it does not tell."""
    counts = [0]
    for path in counters:
        with contextlib.suppress(OSError, ValueError):
            words = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
            counts += [int(pair[1]) for pair in words if len(pair) == 2 and pair[0] == "oom_kill"]
    return max(counts)


def memory_figures(meminfo: Path = Path("/proc/meminfo"), shared: Path = Path("/dev/shm")) -> str:
    """Memory of the machine, of the container if it has a limit, and of shared memory, in one line."""
    parts = []
    with contextlib.suppress(OSError, KeyError, ValueError):
        rows = (line.split() for line in meminfo.read_text(encoding="utf-8").splitlines())
        kib = {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1}
        parts.append(
            f"{_gib(1024 * kib['MemAvailable'])} of {_gib(1024 * kib['MemTotal'])} of memory available"
        )
    for used, limit in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            limit_bytes = int(limit.read_text(encoding="utf-8"))
            if limit_bytes < _NO_LIMIT:
                parts.append(f"the container uses {_gib(int(used.read_text()))} of {_gib(limit_bytes)}")
    with contextlib.suppress(OSError):
        parts.append(f"{shared}: {_free(shared)}")
    return ", ".join(parts)


def why_killed(num_oom_kills_before: int) -> str:
    """What to say of a process that was killed, and not by this run; the count is that of its start."""
    num_more = num_oom_kills() - num_oom_kills_before
    if num_more > 0:
        cause = f"the kernel's out-of-memory killer has ended {num_more} process(es) meanwhile"
    else:
        cause = "the kernel's out-of-memory killer has not been at work"
    return f"{cause} ({memory_figures()})"


def _free(folder: Path) -> str:
    usage = shutil.disk_usage(folder)
    return f"{_gib(usage.free)} of {_gib(usage.total)} free"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
