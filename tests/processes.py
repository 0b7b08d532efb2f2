"""What tests ask of processes that are not theirs: who is below whom, and who has ended."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def num_descriptors() -> int:
    """Open in this process, without what earlier tests left to the garbage collector."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def descendants(pid: int, num_generations: int = 100) -> set[int]:
    """Process ids below ``pid``, at most so many generations deep, from the parents in /proc; zombies too."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    frontier = {pid}
    for _ in range(num_generations):
        frontier = {child for child, parent in parents.items() if parent in frontier}
        if not frontier:
            break
        found |= frontier
    return found


def left_by_killed_owner(program: str) -> set[int]:
    """Run ``program``, which prints the id of a process of its own, and kill it: that and all below."""
    command, root = [sys.executable, "-c", program], Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        family = {pid, *descendants(pid)}
        owner.kill()
    return family


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Whether the condition held before the time was up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def all_gone(pids: Iterable[int], timeout_s: float = 30.0) -> bool:
    """Whether nothing is left of these processes in time, not even a zombie."""
    return wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), timeout_s)


def none_runs(pids: Iterable[int], timeout_s: float = 30.0) -> bool:
    """Whether these processes end in time; a zombie has ended."""
    return wait_until(lambda: not any(map(is_running, pids)), timeout_s)


def printed_under_hash_seeds(program: str) -> set[str]:
    """All that the Python ``program`` prints in processes that differ in the order of their sets."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
