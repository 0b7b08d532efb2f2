"""Where the CPU time of one sandbox run goes: owner, zygote, children; user, system, page faults.

Compares programs that differ in one step, so that a step's cost is the difference of two rows. Uses
what the kernel counts of each process, so it costs the run nothing and needs no tool. Called by
``sandbox.py --profile``.
"""

from __future__ import annotations

import os
from typing import Final

from benchmarks.sandbox.contenders import Usage, live_usage, own_usage
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, Outcome, StdioTest

_NUM_RUNS: Final = 1000
_SOURCE: Final = "def f(x):\n    return x + 1\n"
_CALLS: Final = tuple(CallTest(args=(index,), expected=index + 1) for index in range(7))
_CHECK: Final = "def check(f):\n" + "".join(f"    assert f({x}) == {x + 1}\n" for x in range(7))
_EMPTY: Final = (StdioTest(stdin="", expected_stdout=""),)


def _requests() -> dict[str, ExecutionRequest]:
    typed = f"from typing import List\n{_SOURCE}"
    return {
        "stdio, empty program": ExecutionRequest(solution="", entry_point="", stdio_tests=_EMPTY),
        "call, 1 call": ExecutionRequest(solution=_SOURCE, entry_point="f", call_tests=_CALLS[:1]),
        "call, 7 calls": ExecutionRequest(solution=_SOURCE, entry_point="f", call_tests=_CALLS),
        "call, 7 calls, typing": ExecutionRequest(solution=typed, entry_point="f", call_tests=_CALLS),
        "judge, 7 calls": ExecutionRequest(solution=_SOURCE, entry_point="f", check_source=_CHECK),
    }


def profile() -> str:
    """A table in Markdown: milliseconds of CPU (user + system) and page faults a run."""
    lines = [
        "| ms of CPU a run (user + system), page faults | owner | zygote | children | all |",
        "|---|---|---|---|---|",
    ]
    with SandboxPool(allow_unsafe=True, recycle_after=10 * _NUM_RUNS) as pool:
        for name, request in _requests().items():
            _repeat(pool, request, 20)
            before = _parts(pool)
            _repeat(pool, request, _NUM_RUNS)
            parts = [after - start for after, start in zip(_parts(pool), before, strict=True)]
            cells = [_cell(part) for part in (*parts, sum(parts, start=Usage()))]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _repeat(pool: SandboxPool, request: ExecutionRequest, num_runs: int) -> None:
    for _ in range(num_runs):
        result = pool.run(request)
        assert result.outcome is Outcome.PASS, result


def _parts(pool: SandboxPool) -> tuple[Usage, Usage, Usage]:
    """Owner; the zygote and its launcher; the children that have ended."""
    live = live_usage(os.getpid())
    # The launcher waits for none before the zygote ends.
    launchers = set(pool.worker_pids)
    zygote = sum((alive for alive, _ in live.values()), start=Usage())
    children = sum((ended for pid, (_, ended) in live.items() if pid not in launchers), start=Usage())
    return own_usage(), zygote, children


def _cell(usage: Usage) -> str:
    user_ms, system_ms = (1e3 * seconds / _NUM_RUNS for seconds in (usage.user_s, usage.system_s))
    return f"{user_ms:.2f} + {system_ms:.2f}, {usage.num_faults / _NUM_RUNS:.0f}"
