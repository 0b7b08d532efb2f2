"""Does it matter which task is asked? Curricula against uniform draws: steps to a held-out pass rate.

    python -m benchmarks.curriculum --cores 2 --seeds 0 1 2

Every run is train_accelerated with the same settings, seeds and number of steps, so of completions; only the
curriculum differs. Checkpoints are measured when a run is over, on the held-out ladder, all by the same
command with the same seed. A step count is where straight lines between the measured points first reach
--target; one that never does is said so. The mean over the curve (pass@1 averaged over the steps) is less
noisy, and is given as well. benchmarks.whole_runs.contest says how a contest is interrupted and gone on with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import table_text
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.training_run import Contender, accelerated
from configs.load import load_config
from pipeline.record.metrics import read_metrics

UNIFORM, BY_RATE = "uniform", "success_rate"
# Whether the curriculum is on in an arm.
ARMS = {UNIFORM: False, BY_RATE: True}
_PLAIN: Mapping[str, object] = {
    "curriculum.strategy": "success_rate",
    "curriculum.warmup_steps": 0,
    "curriculum.stages": [],
    "curriculum.skip_ahead.enabled": False,
    "refill.enabled": False,
}
_REPORTED = ("rollout/zero_signal_share", "rollout/pass_rate", "rollout/reward_mean")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet, a seed of all arms after the other."""
    entries = [
        contest.Entry(
            contender=contender(arm, given.mode),
            number=seed,
            run_name=f"curriculum-{arm}-{seed}",
            num_steps=given.steps,
            seed=seed,
        )
        for seed in given.seeds
        for arm in ARMS
    ]
    return contest.hold(
        entries,
        lambda entry, folder: {"curve": contest.curve_of(folder, given), **_draws(folder)},
        given,
    )


def contender(arm: str, mode: str) -> Contender:
    """The command of an arm."""
    settings = {**_PLAIN, "curriculum.enabled": ARMS[arm]}
    return accelerated(arm, mode, {f"acceleration.{name}": value for name, value in settings.items()})


def _draws(folder: Path) -> dict[str, Any]:
    """What was asked in a run, and what came of it."""
    config, rows = load_config(folder / "config.yaml"), read_metrics(folder / "metrics.jsonl")
    return {
        "num_completions": len(rows) * config.completions_per_step,
        "means": {metric: statistics.fmean(row.get(metric) or 0.0 for row in rows) for metric in _REPORTED},
        # Draws of each level over the whole run.
        "offered": {key: value for key, value in rows[-1].items() if key.startswith("curriculum/offered")},
    }


def mean_over_curve(curve: Sequence[Mapping[str, float]]) -> float:
    """pass@1 averaged over the steps, on straight lines between the points."""
    steps, means = ([point[key] for point in curve] for key in ("step", "mean"))
    return float(np.trapezoid(means, steps) / (steps[-1] - steps[0]))


def table(result: Mapping[str, Any]) -> str:
    """The figures in Markdown: every seed, and what the arms differ by from uniform draws, seed by seed."""
    runs, settings = result["runs"], result["settings"]
    target = settings["target"]
    head = ["draws", f"steps to {100 * target:g} %", "pass@1, mean over the curve", "pass@1 at the end"]
    head += ["groups without signal", "completions"]
    rows = [_row(arm, list(own.values()), target) for arm in ARMS if (own := contest.runs_of(runs, arm))]
    above = (
        f"{settings['model']}, mode {settings['mode']}, {settings['steps']} steps, {settings['tasks']}, "
        f"{settings['samples']} samples a task; each cell one value a seed."
    )
    text = table_text(head, rows, above=above)
    if gains := above_uniform(runs):
        each = ", ".join(f"{100 * value:+.1f}" for value in gains)
        mean = f"{100 * statistics.fmean(gains):+.1f} points"
        text += f"\n\n{BY_RATE} minus {UNIFORM}, mean over the curve: {mean} ({each})."
    return text


def _row(arm: str, own: Sequence[Mapping[str, Any]], target: float) -> list[str]:
    steps = [contest.reached(run["curve"], target, "step") for run in own]
    return [
        f"`{arm}`",
        ", ".join("not reached" if one is None else f"{one:.1f}" for one in steps),
        ", ".join(f"{100 * mean_over_curve(run['curve']):.1f} %" for run in own),
        ", ".join(f"{100 * run['curve'][-1]['mean']:.1f} %" for run in own),
        ", ".join(f"{100 * run['means']['rollout/zero_signal_share']:.0f} %" for run in own),
        ", ".join(str(run["num_completions"]) for run in own),
    ]


def above_uniform(runs: Mapping[str, Any]) -> list[float]:
    """Mean over the curve of draws by pass rate minus that of uniform ones, of every seed that has both."""
    return [
        mean_over_curve(own["curve"]) - mean_over_curve(other["curve"])
        for own, other in contest.pairs(runs, BY_RATE, UNIFORM)
    ]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.options(__doc__, "curriculum", seed="of what is measured; --seeds are those of the runs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the runs (%(default)s)")
    parser.add_argument("--mode", default="balanced", help="the mode of all arms (%(default)s)")
    parser.add_argument("--target", type=float, default=0.12, help="pass@1 to be reached (%(default)s)")
    contest.add_measured_options(parser, save_every=6)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
