"""What `make train` achieves: gathers finished runs into one result file and prints the README's table.

    for seed in 0 1 2; do make train ARGS="--run-name seed$seed --seed $seed"; done
    python -m benchmarks.quickstart runs/seed0 runs/seed1 runs/seed2

Reads summary.json and metrics.jsonl of each, writes benchmarks/results/quickstart_cpu.json, trains nothing.
A test holds the README's table against that file.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.report import percent
from pipeline.metrics import read_metrics

RESULT = Path(__file__).parent / "results" / "quickstart_cpu.json"
_CURVE = ("rollout/reward_mean", "rollout/pass_rate", "rollout/completion_length", "step/seconds")


def gather(run: Path) -> dict[str, Any]:
    """The figures of one run; raises ValueError when it is not a finished, measured one."""
    path = run / "summary.json"
    if not path.is_file():
        raise ValueError(f"{path} is missing: give the folder of a finished run")
    summary = json.loads(path.read_text(encoding="utf-8"))
    evaluation = summary["evaluation"]
    if "difference" not in evaluation:
        raise ValueError(
            f"{path}: evaluation: nothing was measured before and after; run with evaluation.enabled"
        )
    steps = read_metrics(run / "metrics.jsonl")
    return {
        **{key: summary[key] for key in ("model", "mode", "seed", "num_steps", "num_completions", "seconds")},
        **{key: summary[key] for key in ("isolation_level", "hardware", "versions")},
        "evaluation": {
            key: evaluation[key]
            for key in ("tasks", "samples_per_task", "temperature", "max_completion_length")
        },
        "before": evaluation["before"]["pass_at_1"],
        "after": evaluation["after"]["pass_at_1"],
        "difference": evaluation["difference"],
        "curve": {name: [round(step[name] or 0.0, 4) for step in steps] for name in _CURVE},
    }


def table(result: dict[str, Any]) -> str:
    """The README's table, in Markdown."""
    lines = [
        "| seed | pass@1 before | after | difference | minutes |",
        "|---|---|---|---|---|",
    ]
    for run in result["runs"]:
        cells = [percent(run["before"]), percent(run["after"]), percent(run["difference"], "+")]
        lines.append(f"| {run['seed']} | {' | '.join(cells)} | {run['seconds']['total'] / 60:.1f} |")
    median = statistics.median(run["difference"]["mean"] for run in result["runs"])
    lines.append(f"| median | | | {100 * median:+.1f} | |")
    return "\n".join(lines)


def main() -> None:
    """Gather the runs named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    runs = [gather(run) for run in parser.parse_args().runs]
    command = 'make train ARGS="--seed N"'
    result = {"command": command, "runs": sorted(runs, key=lambda run: int(run["seed"]))}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))


if __name__ == "__main__":
    main()
