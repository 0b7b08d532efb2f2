"""How much processor time, memory and disk this process may have: the machine's, or its container's if less.

Reads files of /proc and /sys only, in the layouts of both versions of control groups.

A full disk, told from other errors.

What memory looks like, for the message about a process that was killed.

The kernel's out-of-memory killer ends a process by SIGKILL and tells it nothing. Whether it has been at work
is seen from its counter: of this container's cgroup where there is one, otherwise of the whole machine.
Reads files of /proc and /sys only.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path

# Above this a cgroup's limit is none.
_NO_LIMIT = 2**60
_GIB = 2**30


def core_quota(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> float | None:
    """The cores' worth of time that this process's cgroups allow, the least of them; None for no limit.

    Version 2 writes "QUOTA PERIOD" or "max PERIOD" into cpu.max, version 1 both into files of their own.
    """
    found = []
    for folder in _cgroup_folders(root, membership, "cpu"):
        words = read_text(folder / "cpu.max").split()
        if not words:
            words = [read_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        if len(words) == 2 and all(word.lstrip("-").isdigit() for word in words) and int(words[0]) > 0:
            found.append(int(words[0]) / int(words[1]))
    return min(found, default=None)


def memory(
    meminfo: Path = Path("/proc/meminfo"),
    root: Path = Path("/sys/fs/cgroup"),
    membership: Path = Path("/proc/self/cgroup"),
) -> tuple[float, float]:
    """GiB of memory and of what is free of it: the machine's, or the container's where that is less."""
    rows = [line.split() for line in read_text(meminfo).splitlines()]
    kib = {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
    total, free = 1024 * kib.get("MemTotal", 0), 1024 * kib.get("MemAvailable", 0)
    for folder in _cgroup_folders(root, membership, "memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = read_text(folder / limit_name), read_text(folder / used_name)
            if limit.isdigit() and used.isdigit() and int(limit) < _NO_LIMIT:
                # Pages of files that nobody needs count as used, and are given back when memory is wanted.
                cached = _inactive_file_bytes(folder / "memory.stat")
                total = min(total, int(limit))
                free = min(free, max(0, int(limit) - int(used) + cached))
    return total / _GIB, free / _GIB


def disk(folder: Path) -> tuple[float, float]:
    """GiB of the file system on which ``folder`` lies, or will lie, and what is free of it; 0 for none."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if place.is_dir():
            usage = shutil.disk_usage(place)
            return usage.total / _GIB, usage.free / _GIB
    return 0.0, 0.0


def _cgroup_folders(root: Path, membership: Path, controller: str) -> list[Path]:
    """The folders of this process's cgroup and of those above it, in either version's layout."""
    folders = [root, root / controller, root / f"{controller},cpuacct"]
    for line in read_text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        base = (
            root / controller if controller in controllers.split(",") else root if not controllers else None
        )
        if base is not None:
            own = Path(path.lstrip("/"))
            folders += [base / own, *(base / parent for parent in own.parents)]
    return list(dict.fromkeys(folders))


def _inactive_file_bytes(stat: Path) -> int:
    rows = dict(line.split()[:2] for line in read_text(stat).splitlines() if len(line.split()) == 2)
    return int(rows.get("total_inactive_file") or rows.get("inactive_file") or 0)


def read_text(path: Path) -> str:
    """What a small file says, without white space around it; "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


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
