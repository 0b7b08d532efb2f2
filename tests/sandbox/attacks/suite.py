"""The whole red-team suite and the way to run one case of it.

Needs nothing but the standard library and the sandbox, so that it also runs as another user under
another interpreter. Called by ``test_attacks.py`` and ``__main__.py``.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Final

from sandbox.pool import SandboxPool
from sandbox.result import ExecutionRequest, Outcome
from tests.sandbox.attacks import (
    calls,
    channels,
    clocks,
    exits,
    files,
    introspection,
    lies,
    memory,
    oddities,
    processes,
    programs,
    results,
    sources,
    swaps,
    testers,
)
from tests.sandbox.attacks.case import Case
from tests.sandbox.attacks.targets import Targets

ATTACKS: Final[tuple[Case, ...]] = (
    *exits.CASES,
    *lies.CASES,
    *swaps.CASES,
    *introspection.CASES,
    *channels.CASES,
    *files.CASES,
    *processes.CASES,
    *calls.CASES,
    *memory.CASES,
    *clocks.CASES,
    *results.CASES,
    *sources.CASES,
    *testers.CASES,
    *programs.CASES,
)
ODDITIES: Final = oddities.CASES
# CPU seconds that no answer may cost the trusted side: it would stall all of its other runs.
_MAX_OWNER_CPU_S: Final = 1.5


def run_case(pool: SandboxPool, targets: Targets, case: Case, mode: str) -> str:
    """Run a case and then the program that follows it; what was not as it must be, or ""."""
    result = _run(pool, targets, case.request(mode))
    if isinstance(result, str):
        return result
    outcome, detail, num_passed, num_tests = result
    if outcome not in case.expected:
        return f"{outcome} ({detail}), not {'/'.join(sorted(case.expected))}"
    if (num_passed == num_tests) != (outcome is Outcome.PASS):
        return f"{outcome} with {num_passed} of {num_tests} tests passed"
    touched = targets.touched()
    if touched:
        return f"reached {touched}"
    following = _run(pool, targets, case.next_request(mode))
    if isinstance(following, str):
        return f"next program: {following}"
    if following[0] is not Outcome.PASS:
        return f"next program: {following[0]} ({following[1]})"
    return ""


def _run(
    pool: SandboxPool, targets: Targets, request: ExecutionRequest
) -> tuple[Outcome, str, int, int] | str:
    filled = dataclasses.replace(request, solution=targets.fill(request.solution))
    started = time.thread_time()
    try:
        result = pool.run(filled)
    except ValueError as error:
        # The task's fault, says the pool: no candidate may bring it to say so.
        return f"ValueError: {error}"[:200]
    owner_s = time.thread_time() - started
    if owner_s > _MAX_OWNER_CPU_S:
        return f"{owner_s:.1f} s of CPU on the trusted side"
    return result.outcome, result.detail, result.num_passed, result.num_tests
