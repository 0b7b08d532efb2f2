"""What this process may have of the machine, and what it ran out of: cores, memory, disk.

The machine's figures, or its container's where those are less. A full disk is told from other errors. The
kernel's out-of-memory killer ends a process by SIGKILL and tells it nothing: whether it has been at work is
seen from its counters. Reads files of /proc and /sys only, in the layouts of both versions of control groups.
"""

from __future__ import annotations

import ctypes
import shutil
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from configs.command_line import DISK_FULL

# Above this a cgroup's limit is none.
_NO_LIMIT = 2**60
_GIB = 2**30
_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
# For the environment of a process whose large tensors come and go: glibc keeps what they leave, of any size
# and from any thread. Memory that comes from the kernel anew is cleared first, which on a virtual machine
# took a fifth of a training step.
KEEPING_ALLOCATOR: Mapping[str, str] = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**40),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}
# Less than this share of the memory free is little.
_SCARCE = 0.2


def core_quota(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> float | None:
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
    meminfo: Path = Path("/proc/meminfo"), root: Path = _CGROUPS, membership: Path = _MEMBERSHIP
) -> tuple[float, float]:
    """GiB of memory and of what is free of it: the machine's, or the container's where that is less."""
    kib = _counts(meminfo)
    total, free = 1024 * kib.get("MemTotal", 0), 1024 * kib.get("MemAvailable", 0)
    for folder in _cgroup_folders(root, membership, "memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = read_text(folder / limit_name), read_text(folder / used_name)
            if limit.isdigit() and used.isdigit() and int(limit) < _NO_LIMIT:
                # Pages of files that nobody needs count as used, and are given back when memory is wanted.
                stat = _counts(folder / "memory.stat")
                cached = stat.get("total_inactive_file") or stat.get("inactive_file", 0)
                total = min(total, int(limit))
                free = min(free, max(0, int(limit) - int(used) + cached))
    return total / _GIB, free / _GIB


def anonymous_bytes() -> float:
    """The memory of this process that no file stands behind; 0 where the kernel does not tell."""
    return 1024.0 * _counts(Path("/proc/self/status")).get("RssAnon", 0)


def return_freed_memory() -> None:
    """Give memory that this process has freed back to a machine that has little; without glibc, nothing.

    glibc keeps it for the next tensors (``KEEPING_ALLOCATOR``), and no other process can use it.
    """
    total, free = memory()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and free < _SCARCE * total:
        trim(0)


def disk(folder: Path) -> tuple[float, float]:
    """GiB of the file system on which ``folder`` lies, or will lie, and what is free of it; 0 for none."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if place.is_dir():
            usage = shutil.disk_usage(place)
            return usage.total / _GIB, usage.free / _GIB
    return 0.0, 0.0


def _cgroup_folders(root: Path, membership: Path, controller: str) -> list[Path]:
    """This process's cgroup and those above it, its own first, as folders of either version."""
    folders: list[Path] = []
    for line in read_text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        base = (
            root / controller if controller in controllers.split(",") else root if not controllers else None
        )
        if base is not None:
            own = Path(path.lstrip("/"))
            folders += [base / own, *(base / parent for parent in own.parents)]
    # In a container the mount may begin with its own cgroup, whatever the membership says.
    folders += [root, root / controller, root / f"{controller},cpuacct"]
    return list(dict.fromkeys(folders))


def _counts(path: Path) -> dict[str, int]:
    """The numbers in a file with lines of a name and a number, of kB where /proc says so."""
    rows = (line.split() for line in read_text(path).splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def read_text(path: Path) -> str:
    """What a small file says, without white space around it; "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def explain_full_disk(error: OSError | sqlite3.OperationalError, folder: Path, *, advice: str) -> str | None:
    """What to tell the user where ``error`` means that there is no room left below ``folder``; else None.

    ``advice`` says what is lost, and what to do once there is room.
    """
    is_full_file = isinstance(error, OSError) and error.errno in DISK_FULL
    is_full_database = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname == "SQLITE_FULL"
    if not (is_full_file or is_full_database):
        return None
    usage = shutil.disk_usage(folder)
    return (
        f"no room to write: {error} ({usage.free / 2**20:.0f} MiB of {usage.total / 2**30:.1f} GiB free at "
        f"{folder}); {advice}"
    )


def num_oom_kills(counters: Iterable[Path] | None = None) -> int:
    """Processes that the kernel has killed for want of memory, so far; 0 where it does not tell.

    Told by the first of the ``counters`` that counts them: those of the process's own cgroup, of those around
    it, and of the whole machine, where other containers' processes count too.
    """
    if counters is None:
        folders = _cgroup_folders(_CGROUPS, _MEMBERSHIP, "memory")
        files = [folder / name for folder in folders for name in ("memory.events", "memory.oom_control")]
        counters = (*files, Path("/proc/vmstat"))
    return next((counts["oom_kill"] for path in counters if "oom_kill" in (counts := _counts(path))), 0)


def memory_figures(shared: Path = Path("/dev/shm")) -> str:
    """Memory of the machine, or of the container if it has less, and of shared memory, in one line."""
    total, free = memory()
    shared_total, shared_free = disk(shared)
    return (
        f"{free:.1f} of {total:.1f} GiB of memory available, "
        f"{shared}: {shared_free:.1f} of {shared_total:.1f} GiB free"
    )


def why_killed(num_oom_kills_before: int) -> str:
    """What to say of a process that was killed, and not by this run; the count is that of its start."""
    num_more = num_oom_kills() - num_oom_kills_before
    if num_more > 0:
        cause = f"the kernel's out-of-memory killer has ended {num_more} process(es) meanwhile"
    else:
        cause = "the kernel's out-of-memory killer has not been at work"
    return f"{cause} ({memory_figures()})"
