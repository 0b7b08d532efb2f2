"""What the sandbox is worth on this host: its level, its walls, how to get missing ones, live runs.

The level comes from the canaries of ``canary.py``; the live runs show the whole machinery at work: honest
programs must pass in every mode, programs that cheat or reach out must not. They are harmless also where
nothing stops them. Changes nothing on the host.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sandbox.advice import LEVELS, REMEDIES, WALLS, missing
from sandbox.canary import Walls
from sandbox.pool import SAFE_LEVELS, SandboxPool
from sandbox.result import CallTest, ExecutionRequest, Limits, Outcome, StdioTest

_WIDTH: Final = 80
_NUM_TIMED: Final = 20
_LIMITS: Final = Limits(cpu_s=2.0, memory_bytes=256 * 1024**2)
_SHORT: Final = Limits(cpu_s=0.2, memory_bytes=256 * 1024**2)
_SECRET: Final = "a file of the host"
_CHECK: Final = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"
_HONEST: Final = "def f(x):\n    return x + 1\n"
_ALWAYS_EQUAL: Final = (
    "class Equal:\n    def __eq__(self, other):\n        return True\n\ndef f(x):\n    return Equal()\n"
)
# Each returns True where it succeeds.
_REACHES: Final = {
    "start a process": "import os\ndef f():\n    if os.fork() == 0:\n        os._exit(0)\n    return True\n",
    "open a socket": "import socket\ndef f():\n    socket.socket().close()\n    return True\n",
    "write a file": "def f():\n    open('selftest', 'w').close()\n    return True\n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """One program that was run: whether it should pass, what came of it."""

    name: str
    should_pass: bool
    outcome: str
    detail: str

    @property
    def is_right(self) -> bool:
        """Whether it came out as it should; a fault of the machinery never does."""
        return self.outcome != Outcome.INFRA_ERROR and self.should_pass == (self.outcome == Outcome.PASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selftest:
    """What was found. ``median_s`` is the wall time of one short run, by mode; ``start_s`` of a start."""

    walls: Walls
    live_runs: tuple[LiveRun, ...]
    median_s: dict[str, float]
    start_s: float

    @property
    def is_safe(self) -> bool:
        """Whether model code may run here: level L2 or better, and every live run came out right."""
        return self.walls.level() in SAFE_LEVELS and all(run.is_right for run in self.live_runs)


def run_selftest(without: frozenset[str] = frozenset()) -> Selftest:
    """Start a sandbox and try it, about a second in all; ``without`` leaves out walls, to see what then.

    Raises sandbox.worker.SandboxError where none can start.
    """
    started = time.perf_counter()
    with SandboxPool(allow_unsafe=True, without=without) as pool:
        start_s = time.perf_counter() - started
        with tempfile.TemporaryDirectory(prefix="sandbox-selftest-") as folder:
            os.chmod(folder, 0o755)
            secret = Path(folder) / "secret"
            secret.write_text(_SECRET)
            secret.chmod(0o644)
            live_runs = tuple(_try(pool, *program) for program in _programs(str(secret)))
        return Selftest(
            walls=pool.walls,
            live_runs=live_runs,
            median_s={mode: _median_s(pool, request) for mode, request in _honest().items()},
            start_s=start_s,
        )


def as_fields(found: Selftest) -> dict[str, object]:
    """For one line of JSON."""
    return {
        "level": found.walls.level(),
        "safe": found.is_safe,
        "walls": asdict(found.walls),
        "missing": {wall.name: REMEDIES[wall.remedy] for wall in missing(found.walls)},
        "live_runs": [{**asdict(run), "right": run.is_right} for run in found.live_runs],
        "median_ms": {mode: round(1000 * seconds, 2) for mode, seconds in found.median_s.items()},
        "start_s": round(found.start_s, 3),
        "host": _host(),
    }


def as_text(found: Selftest) -> str:
    """For people, 80 columns."""
    level = found.walls.level()
    lines = [f"Sandbox selftest on {_host()}", "", *_wrap(f"Level {level}: ", f"{LEVELS[level]}.")]
    if level not in SAFE_LEVELS:
        lines += _wrap("", "Model code is not run below L2 unless you allow it by name.")
    lines += ["", "Walls       state     what the wall stops"]
    for wall in WALLS:
        state = "in force" if getattr(found.walls, wall.name) else "MISSING"
        lines += _wrap(f"  {wall.name:<9} {state:<8}  ", wall.stops)
    lines += ["", *_remedy_lines(found.walls), *_live_lines(found), ""]
    times = ", ".join(f"{mode} {1000 * seconds:.1f} ms" for mode, seconds in found.median_s.items())
    lines += [f"One short run (median of {_NUM_TIMED}): {times}"]
    lines += [f"Starting a sandbox: {found.start_s:.2f} s"]
    verdict = "Model code may run here." if found.is_safe else "Model code should not run here."
    return "\n".join([*lines, "", f"{verdict} What the levels stop, and what not: SECURITY.md"])


def _remedy_lines(walls: Walls) -> Iterator[str]:
    absent = missing(walls)
    for remedy in dict.fromkeys(wall.remedy for wall in absent):
        names = ", ".join(wall.name for wall in absent if wall.remedy == remedy)
        yield f"To get {names}:"
        for step in REMEDIES[remedy]:
            yield from _wrap("  - ", step)
    if absent:
        yield ""


def _live_lines(found: Selftest) -> Iterator[str]:
    yield "Live runs                             should    did"
    for run in found.live_runs:
        should = "pass" if run.should_pass else "not pass"
        mark = "" if run.is_right else " <-- WRONG"
        # Where in the run it happened matters to nobody here.
        reason = f": {run.detail.rpartition(': ')[2]}" if run.detail else ""
        did = textwrap.shorten(f"{run.outcome}{mark}{reason}", _WIDTH - 48, placeholder=" ...")
        yield f"  {run.name:<34}  {should:<8}  {did}"


def _wrap(head: str, text: str) -> list[str]:
    # A blank head would be stripped from the first line.
    return textwrap.wrap(
        text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )


def _honest() -> dict[str, ExecutionRequest]:
    stdio = "print(int(input()) + 1)\n"
    return {
        "calls": ExecutionRequest(
            solution=_HONEST,
            entry_point="f",
            call_tests=(CallTest(args=(1,), expected=2), CallTest(args=(5,), expected=6)),
            limits=_LIMITS,
        ),
        "test program": _checked(_HONEST),
        "stdio": ExecutionRequest(
            solution=stdio,
            entry_point="",
            stdio_tests=(StdioTest(stdin="1\n", expected_stdout="2\n"),),
            limits=_LIMITS,
        ),
    }


def _checked(solution: str, limits: Limits = _LIMITS) -> ExecutionRequest:
    return ExecutionRequest(solution=solution, entry_point="f", check_source=_CHECK, limits=limits)


def _programs(secret: str) -> Iterator[tuple[str, bool, ExecutionRequest]]:
    """Name, whether it should pass, program."""
    for mode, request in _honest().items():
        yield f"honest: {mode}", True, request
    yield "cheat: exit with status 0", False, _checked("import os\ndef f(x):\n    os._exit(0)\n")
    yield "cheat: a value equal to everything", False, _checked(_ALWAYS_EQUAL)
    yield "an endless loop", False, _checked("def f(x):\n    while True:\n        pass\n", _SHORT)
    reader = f"def f():\n    return open({secret!r}).read() == {_SECRET!r}\n"
    for name, solution in {"read a host file": reader, **_REACHES}.items():
        tests = (CallTest(args=(), expected=True),)
        request = ExecutionRequest(solution=solution, entry_point="f", call_tests=tests, limits=_LIMITS)
        yield f"reach out: {name}", False, request


def _try(pool: SandboxPool, name: str, should_pass: bool, request: ExecutionRequest) -> LiveRun:
    result = pool.run(request)
    return LiveRun(name=name, should_pass=should_pass, outcome=result.outcome.value, detail=result.detail)


def _median_s(pool: SandboxPool, request: ExecutionRequest) -> float:
    times = []
    for _ in range(_NUM_TIMED):
        started = time.perf_counter()
        pool.run(request)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _host() -> str:
    user = "root" if os.geteuid() == 0 else f"uid {os.geteuid()}"
    return (
        f"Linux {platform.release().partition('-')[0]} {platform.machine()}, "
        f"Python {platform.python_version()}, {user}"
    )
