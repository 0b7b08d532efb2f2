"""MBPP: canonical solutions pass wherever they pass under plain Python; no cheating body passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from sandbox.pool import SandboxPool
from sandbox.result import Outcome
from tests.mbpp import MBPP, without_mbpp
from tests.sandbox.programs import CHEATS, GENEROUS, cheat, check_request, run_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), without_mbpp]

# Their tests use names that nobody defined: no candidate is ever called.
_BROKEN = {"MBPP/367", "MBPP/601", "MBPP/927"}

# One process for all tasks, a fork for each: prints the ids of those whose own tests pass. Solution
# and tests have a namespace each, for some entry points are named check themselves.
_PLAIN = """
import json, os, signal, sys
for line in open(sys.argv[1], encoding="utf-8"):
    problem = json.loads(line)
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            solution, tests = {}, {}
            exec(compile(problem["prompt"] + problem["canonical_solution"] + "\\n", "s", "exec"), solution)
            exec(compile(problem["test"], "t", "exec"), tests)
            tests["check"](solution[problem["entry_point"]])
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1] == 0:
        print(problem["task_id"], flush=True)
"""


@pytest.fixture(scope="module")
def problems() -> dict[str, dict[str, str]]:
    records = [json.loads(line) for line in MBPP.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {record["task_id"]: record for record in records}


def test_canonical_solutions_pass_wherever_they_pass_under_plain_python(
    workers: SandboxPool, problems: dict[str, dict[str, str]]
) -> None:
    command = [sys.executable, "-c", _PLAIN, str(MBPP)]
    # One task's solution turns a set into a tuple: the order must be the sandbox's.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    plain = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True, env=environment)
    passing = plain.stdout.split()
    assert len(problems) == 974 and len(passing) > 950
    requests = [
        check_request(problems[task_id], problems[task_id]["canonical_solution"], GENEROUS)
        for task_id in passing
    ]
    results = run_all(workers, requests)
    failed = {
        task_id: (result.outcome, result.detail)
        for task_id, result in zip(passing, results, strict=True)
        if result.outcome is not Outcome.PASS
    }
    assert failed == {}


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheating_body_passes_any_task(
    workers: SandboxPool, problems: dict[str, dict[str, str]], name: str
) -> None:
    tried = {task_id: problem for task_id, problem in problems.items() if task_id not in _BROKEN}
    requests = [check_request(problem, cheat(problem, name), GENEROUS) for problem in tried.values()]
    results = run_all(workers, requests)
    passed = [
        task_id for task_id, result in zip(tried, results, strict=True) if result.outcome is Outcome.PASS
    ]
    assert len(results) == 971
    assert passed == []
    assert Outcome.INFRA_ERROR not in {result.outcome for result in results}


def test_tests_that_fail_before_any_call_are_the_users_error(
    workers: SandboxPool, problems: dict[str, dict[str, str]]
) -> None:
    for task_id in sorted(_BROKEN):
        problem = problems[task_id]
        with pytest.raises(ValueError, match="NameError"):
            workers.run(check_request(problem, problem["canonical_solution"], GENEROUS))
