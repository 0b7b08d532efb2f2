"""What `make train` achieves: gathers finished runs into result files and prints their tables.

    for seed in 4 5 6; do make train ARGS="--run-name seed$seed --seed $seed"; done
    python -m benchmarks.quickstart runs/seed4 runs/seed5 runs/seed6

    evaluate_humaneval --model smollm2-135m-instruct --against runs/seed5/checkpoints/step-000100 \\
        --greedy --output humaneval.jsonl
    python -m benchmarks.quickstart runs/seed5 --humaneval humaneval.jsonl_report.json

Reads summary.json, metrics.jsonl and evaluation_before.json and evaluation_after.json of each run, or the
report of HumanEval and the summary of its run; writes benchmarks/results/quickstart_cpu.json or
humaneval_cpu.json. Trains, generates and scores nothing. Tests hold README and docs/results.md against these.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, make_parser, percent, table_text, write_result
from curriculum.sources import load_named_tasks
from pipeline.evaluation.evaluate import EvaluatedSample
from pipeline.evaluation.heldout import earlier_measurement
from pipeline.host.files import read_object
from pipeline.record.metrics import read_metrics

RESULT = RESULTS / "quickstart_cpu.json"
HUMANEVAL_RESULT = RESULTS / "humaneval_cpu.json"
_WHEN = ("before", "after")
_CURVE = ("rollout/reward_mean", "rollout/pass_rate", "rollout/completion_length", "step/seconds")


def gather(run: Path) -> dict[str, Any]:
    """The figures of one run; raises ValueError when it is not a finished, measured one."""
    path = run / "summary.json"
    summary = read_object(path)
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
        "answers": {when: _answers(run / f"evaluation_{when}.json", evaluation["tasks"]) for when in _WHEN},
        "curve": {name: [round(step[name] or 0.0, 4) for step in steps] for name in _CURVE},
    }


def _answers(path: Path, tasks: str) -> dict[str, Any]:
    """What the answers of one measurement are like; raises ValueError when it is missing or damaged."""
    report = earlier_measurement(path)
    if report is None:
        raise ValueError(f"{path} is missing: give the folder of a finished, measured run")
    return count_answers(report.samples, {task.task_id: task.difficulty for task in load_named_tasks(tasks)})


def count_answers(samples: Sequence[EvaluatedSample], levels: Mapping[str, int]) -> dict[str, Any]:
    """Judged and passed samples by the level of their task, those without syntax, and characters of all.

    Samples that could not be judged are left out.
    """
    judged = [sample for sample in samples if not sample.result.is_infra_error]
    num_judged = Counter(levels[sample.task_id] for sample in judged)
    num_passed = Counter(levels[sample.task_id] for sample in judged if sample.result.passed)
    return {
        "judged": {str(level): num_judged[level] for level in sorted(num_judged)},
        "passed": {str(level): num_passed[level] for level in sorted(num_judged)},
        "without_syntax": sum(not sample.result.breakdown["syntax"] for sample in judged),
        "characters": sum(len(sample.text) for sample in judged),
    }


def answers_table(result: Mapping[str, Any]) -> str:
    """What became of the answers, over all runs, in Markdown: docs/results.md."""
    before, after = (_cells([run["answers"][when] for run in result["runs"]]) for when in _WHEN)
    head = ["all runs together", "before", "after"]
    return table_text(head, [[name, before[name], after[name]] for name in before])


def _cells(answers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What all of ``answers`` are like together, by the names of the rows."""
    judged, passed = Counter[str](), Counter[str]()
    for one in answers:
        judged.update(one["judged"])
        passed.update(one["passed"])
    num_bad, num_characters = (sum(one[name] for one in answers) for name in ("without_syntax", "characters"))
    return {
        **{f"pass@1, level {level}": f"{100 * passed[level] / judged[level]:.1f} %" for level in judged},
        "programs that do not compile": f"{100 * num_bad / judged.total():.0f} %",
        "characters of an answer, mean": f"{num_characters / judged.total():.0f}",
    }


def table(result: Mapping[str, Any]) -> str:
    """Every seed before and after, in Markdown: README and docs/results.md."""
    rows = []
    for run in result["runs"]:
        shares = [percent(run["before"]), percent(run["after"]), percent(run["difference"], "+")]
        rows.append([str(run["seed"]), *shares, f"{run['seconds']['total'] / 60:.1f}"])
    head = ["seed", "pass@1 before", "after", "difference", "minutes"]
    median = statistics.median(run["difference"]["mean"] for run in result["runs"])
    return f"{table_text(head, rows)}\n| median | | | {100 * median:+.1f} | |"


def gather_humaneval(report: Path, run: Path) -> dict[str, Any]:
    """The comparison in ``report`` with what the run was. Raises ValueError for files that are not these."""
    found, summary = read_object(report), read_object(run / "summary.json")
    if "comparison" not in found:
        raise ValueError(f"{report}: compares no two models; make it with --model BASE --against TRAINED")
    (base, before), (trained, after) = found["reports"].items()
    if Path(trained).resolve().parent.parent != run.resolve():
        raise ValueError(f"{report}: its second model is {trained}, which is no checkpoint of {run}")
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


def _side(report: dict[str, Any]) -> dict[str, Any]:
    return {"pass_at_1": report["pass_at_k"]["1"], "outcomes": report["outcomes"]}


def humaneval_table(result: dict[str, Any]) -> str:
    """HumanEval before and after a run, in Markdown: docs/results.md."""
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
    """Gather what the command line names; 2 for what cannot be used."""
    parser = make_parser(__doc__, prints_result=False)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--humaneval", type=Path, help="STEM_report.json of evaluate_humaneval --against")
    given = parser.parse_args()
    try:
        if given.humaneval is not None:
            compared = gather_humaneval(given.humaneval, given.runs[0])
            write_result(HUMANEVAL_RESULT, compared)
            print(humaneval_table(compared))
            return 0
        runs = sorted((gather(run) for run in given.runs), key=lambda run: int(run["seed"]))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    result = {"command": 'make train ARGS="--run-name seedN --seed N"', "runs": runs}
    write_result(RESULT, result)
    print(f"{table(result)}\n\n{answers_table(result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
