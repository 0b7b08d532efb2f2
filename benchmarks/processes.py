"""The processes of a run: its command started, all that came of it found, watched, and seen to be gone.

A run is the command that users type, in processes of its own; what they do is read from /proc. Memory is the
proportional set size of the command and everything below it, so that pages which processes share count once;
it is read every few seconds, so a shorter peak may be missed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pipeline.errors import StageError
from pipeline.processes.local import LocalProcess

_PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 5.0  # between two readings of memory
_POLL_S = 0.1
_LEAVE_S = 60.0
_DYING_S = 60.0
_NUM_LAST_LINES = 6
_ENGINE_MODULE = "pipeline.generation.host"
# The command; it ends with this process, should that be killed.
_PROGRAM = """
import sys
from sandbox.jail import die_with_parent
die_with_parent()
from pipeline.cli import {script}
sys.exit({script}())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One living process; ``command`` is its command line, or its title where it has set one."""

    pid: int
    parent: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a command took; ``peak_mb`` is that of all its processes together."""

    seconds: float
    peak_mb: float


def start(
    script: str, arguments: Sequence[str], *, log: Path, cores: Iterable[int] | None = None
) -> subprocess.Popen[bytes]:
    """Start a console script of the project; what it prints is appended to ``log``, ``cores`` hold it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    cores = os.sched_getaffinity(0) if cores is None else cores
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(script=script), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # Set before anything of it runs, so that all its threads and children keep to the cores.
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )


@contextlib.contextmanager
def orphans_adopted() -> Iterator[None]:
    """In this block whoever loses their parent below this process becomes its child, and is found there."""
    _adopt(True)
    try:
        yield
    finally:
        _adopt(False)


def _adopt(orphans: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0) != 0:
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


def newcomers(known: Container[int]) -> list[Process]:
    """The living processes below this one but for those in ``known``."""
    return [process for process in descendants(os.getpid()) if process.pid not in known]


def by_kind(driver: int) -> dict[str, list[int]]:
    """The processes below ``driver`` by the part they play in a run; a kind that is missing has none."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for process in descendants(driver):
        if kind := _kind(process, kinds):
            kinds[kind].append(process.pid)
    return {"driver": [driver], **kinds}


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send ``number`` to all that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_until_gone(
    process: subprocess.Popen[bytes], known: Container[int], deadline_s: float
) -> list[Process]:
    """Wait until ``process`` and all that came of it is gone, but for ``known``; kill what stays longer.

    Returns what had to be killed. Needs ``orphans_adopted``. Raises TimeoutError where something survives.
    """
    deadline = time.monotonic() + deadline_s
    stayed: list[Process] = []
    seen: set[int] = set()
    while left := newcomers(known):
        if time.monotonic() > deadline + _DYING_S:
            raise TimeoutError(f"still there {_DYING_S:.0f} s after SIGKILL: {told(left)}")
        if time.monotonic() > deadline:
            stayed = stayed or left
            kill(one.pid for one in left)
        seen.update(one.pid for one in left)
        process.poll()
        for pid in seen - {process.pid}:
            # Orphans are this process's to collect.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_POLL_S)
    process.poll()
    return stayed


def proportional_mb(pid: int) -> float:
    """Proportional set size in MB; the resident set where the kernel does not tell; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


@orphans_adopted()
def run_command(
    name: str, arguments: Sequence[str], *, cores: Sequence[int], log: Path, deadline_s: float
) -> Watched:
    """Run the console script ``name`` to its end; what it prints is appended to ``log``.

    Nothing that it started outlives this call. Raises RuntimeError with its last words where it fails,
    TimeoutError where it takes longer than ``deadline_s``.
    """
    others = frozenset(process.pid for process in descendants(os.getpid()))
    peak_mb, begun = 0.0, time.monotonic()
    process = start(name, arguments, log=log, cores=cores)
    try:
        looked_s = begun
        while process.poll() is None:
            if (now_s := time.monotonic()) - begun > deadline_s:
                raise TimeoutError(f"{name}: not done within {deadline_s:.0f} s: {last_words(log)}")
            if now_s - looked_s >= LOOK_S:
                peak_mb = max(peak_mb, sum(proportional_mb(one.pid) for one in newcomers(others)))
                looked_s = now_s
            time.sleep(_POLL_S)
        seconds = time.monotonic() - begun
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
        wait_until_gone(process, others, 0.0 if process.poll() is None else _LEAVE_S)
    if process.returncode != 0:
        raise RuntimeError(f"{name} ended with status {process.returncode}: {last_words(log)}")
    return Watched(seconds=seconds, peak_mb=peak_mb)


def told(processes: Sequence[Process]) -> str:
    """The first of ``processes`` in words."""
    return ", ".join(f"{process.pid} {process.command[:60]}" for process in processes[:6])


def last_words(log: Path) -> str:
    """The last lines of ``log``."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return " | ".join(lines[-_NUM_LAST_LINES:])


def _kind(process: Process, known: dict[str, list[int]]) -> str | None:
    command = process.command
    if _ENGINE_MODULE in command and process.parent not in known["generator"]:
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


class Worker:
    """A LocalProcess that is asked one thing at a time; ``name`` is what errors call it."""

    def __init__(
        self, name: str, target: str, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._process = LocalProcess(target, *arguments, environment=environment)

    def ask(self, method: str, *arguments: object, deadline_s: float) -> Any:
        """What ``method`` returns. Raises RuntimeError where it fails or is not done in ``deadline_s``."""
        try:
            return self._process.call(method, *arguments).result(deadline_s)
        except TimeoutError as error:
            raise RuntimeError(f"{self.name}: not done within {deadline_s:g} s") from error
        except StageError as error:
            raise RuntimeError(f"{self.name}: the worker failed:\n{error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
