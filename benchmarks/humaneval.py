"""What the default run does to HumanEval: gathers one comparison, prints the README's table.

    train_accelerated --run-name default
    evaluate_humaneval --model smollm2-135m-instruct --against runs/default/checkpoints/step-000036 \\
        --greedy --output humaneval.jsonl
    python -m benchmarks.humaneval humaneval.jsonl_report.json --run runs/default

Reads the report of the second command and the summary of the run, writes
benchmarks/results/humaneval_cpu.json; generates and scores nothing. A test holds the README's table against
that file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, make_parser, percent, table_text

RESULT = RESULTS / "humaneval_cpu.json"


def gather(report: Path, run: Path) -> dict[str, Any]:
    """The comparison in ``report`` with what the run was. Raises ValueError for files that are not these."""
    found, summary = _read(report), _read(run / "summary.json")
    if "comparison" not in found:
        raise ValueError(f"{report}: compares no two models; make it with --model BASE --against TRAINED")
    (base, before), (trained, after) = found["reports"].items()
    if Path(trained).resolve().parent.parent != run.resolve():
        raise ValueError(f"{report}: its second model is {trained}, which is no checkpoint of --run {run}")
    comparison = found["comparison"]
    return {
        "tasks": found["tasks"],
        "settings": found["settings"],
        "model": base,
        "checkpoint": Path(trained).name,
        "run": {
            key: summary[key]
            for key in ("mode", "seed", "num_steps", "num_completions", "hardware", "versions")
        },
        "before": _side(before),
        "after": _side(after),
        "difference": comparison["difference"],
        "test": comparison["test"],
        "p_value": comparison["p_value"],
        "num_lost": len(comparison["first_better"]),
        "num_won": len(comparison["second_better"]),
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    return found


def _side(report: dict[str, Any]) -> dict[str, Any]:
    return {"pass_at_1": report["pass_at_k"]["1"], "outcomes": report["outcomes"]}


def table(result: dict[str, Any]) -> str:
    """The README's table, in Markdown."""
    run, settings = result["run"], result["settings"]
    head = (
        f"{result['tasks']}: samples a task {settings['num samples']}, temperature "
        f"{settings['temperature']}, at most {settings['max completion length']} tokens"
    )
    trained = f"after {run['num_steps']} steps, mode {run['mode']}, seed {run['seed']}"
    counts = (
        f"difference ({result['num_won']} tasks won, {result['num_lost']} lost; {result['test']}, "
        f"p = {result['p_value']:.2f})"
    )
    rows = [
        [f"`{result['model']}`", percent(result["before"]["pass_at_1"])],
        [trained, percent(result["after"]["pass_at_1"])],
        [counts, percent(result["difference"], "+")],
    ]
    return table_text([head, "pass@1 (95 %)"], rows)


def main() -> int:
    """Gather the report named on the command line; 2 for one that cannot be used."""
    parser = make_parser(__doc__, prints_result=False)
    parser.add_argument("report", type=Path, help="STEM_report.json of evaluate_humaneval --against")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run that was measured")
    parser.add_argument("--output", type=Path, default=RESULT, help="result file (%(default)s)")
    given = parser.parse_args()
    try:
        result = gather(given.report, given.run)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
