"""The processes of a run, by what they do, read from /proc; and the duty of a parent to find orphans.

Called by benchmarks.chaos_run. Signals nobody.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One living process; ``command`` is its command line, or its title where it has set one."""

    pid: int
    parent: int
    command: str


def adopt_orphans() -> None:
    """From now on whoever loses their parent below this process becomes its child, and is found there."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(pid: int) -> list[Process]:
    """The living processes below ``pid``, parents before children."""
    by_parent: dict[int, list[Process]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := _read(int(entry.name))) is not None:
            by_parent[process.parent].append(process)
    found: list[Process] = []
    parents = [pid]
    for parent in parents:
        found += by_parent[parent]
        parents += [process.pid for process in by_parent[parent]]
    return found


def by_kind(driver: int) -> dict[str, list[int]]:
    """The processes below ``driver`` by the part they play in a run; a kind that is missing has none."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for process in descendants(driver):
        if kind := _kind(process, kinds):
            kinds[kind].append(process.pid)
    return {"driver": [driver], **kinds}


def _kind(process: Process, known: dict[str, list[int]]) -> str | None:
    command = process.command
    if "pipeline.generation.host" in command and process.parent not in known["generator"]:
        return "generator"
    if process.parent in known["generator"]:
        return "engine child"
    if "pipeline.training.rank:" in command or command.startswith("ray::TrainerRank"):
        return "trainer"
    if "rewards.worker:" in command or command.startswith("ray::RewardWorker"):
        return "reward worker"
    return "zygote" if "sandbox.main" in command else None


def _read(pid: int) -> Process | None:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    return None if state in "ZX" else Process(pid=pid, parent=int(parent), command=command.strip())
