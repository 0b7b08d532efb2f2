"""A model's pass rate on audited tasks, as evaluate_humaneval measures it in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from configs.schema import ExecutionConfig

SAMPLES_A_TASK: Final = 4


def model_pass_rates(
    program: str, model: str, tasks: str, limit: int | None, execution: ExecutionConfig, folder: Path
) -> dict[str, float]:
    """The share of the model's answers to each task that pass, by task id; tasks without a verdict lack.

    ``program`` is evaluate_humaneval, whose files go to ``folder``. Raises ValueError where it fails.
    """
    samples = folder / "samples.jsonl"
    command = [program, "--model", model, "--tasks", tasks, "-n", str(SAMPLES_A_TASK)]
    command += ["--output", str(samples), "--timeout", str(execution.timeout)]
    command += [] if limit is None else ["--limit", str(limit)]
    for module in execution.modules:
        command += ["--module", module]
    command += ["--allow-unsafe"] if execution.allow_unsafe else []
    # No deadline: how long a model takes for a task set is not known here, and its own waits have theirs.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise ValueError(f"--model: value {model!r}: its pass rate cannot be measured (see above)")
    counts: dict[str, list[bool]] = {}
    for line in samples.with_name("samples.jsonl_results.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        # null: the sandbox could not judge it, which says nothing about the answer.
        if entry["passed"] is not None:
            counts.setdefault(entry["task_id"], []).append(entry["passed"])
    return {name: sum(passed) / len(passed) for name, passed in counts.items()}
