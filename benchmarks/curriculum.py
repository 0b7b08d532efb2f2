"""Does it matter which task is asked? Curricula against uniform draws: steps to a held-out pass rate.

    python -m benchmarks.curriculum --cores 2 --seeds 0 1 2

Every run is train_accelerated with the same settings, seeds and number of steps, so of completions; only the
curriculum differs. Checkpoints are measured when a run is over, on the held-out ladder, all by the same
command with the same seed. A step count is where straight lines between the measured points first reach
--target; one that never does is said so. The mean over the curve (pass@1 averaged over the steps) is less
noisy, and is given as well. Arms other than the two defaults: skip_ahead (success_rate that also passes over
tasks without signal) and refill (success_rate that draws anew for groups without signal: more completions for
the same steps, which is why the completions are in the table).

What is done is on disk, in --output, and is not done again: start the same command again after an
interruption, as often as it takes. No run is started after --minutes. ``--simulate`` runs no model at all: it
plays the same curricula against benchmarks.simulated_learner, prints that, and writes nothing.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.modes import add_run_options, terms_of
from benchmarks.report import run_to_the_end
from benchmarks.result_store import ResultStore
from benchmarks.simulated_learner import simulate
from benchmarks.training_run import (
    Contender,
    Measurement,
    Terms,
    checkpoints,
    drop_optimiser_states,
    pass_at_1,
    pass_rates,
    train,
    watched_of,
)
from configs.curriculum_schema import CurriculumConfig
from configs.load import load_config
from pipeline.record.metrics import read_metrics

RESULT = Path(__file__).parent / "results" / "curriculum_cpu.json"
UNIFORM = "uniform"
_DEFAULT_ARMS = (UNIFORM, "success_rate")
# What each arm sets, of the settings that tell arms apart.
ARMS: Mapping[str, Mapping[str, str]] = {
    UNIFORM: {"curriculum.enabled": "false"},
    "success_rate": {"curriculum.enabled": "true"},
    "skip_ahead": {"curriculum.enabled": "true", "curriculum.skip_ahead.enabled": "true"},
    "refill": {"curriculum.enabled": "true", "refill.enabled": "true"},
}
_PLAIN = {
    "curriculum.strategy": "success_rate",
    "curriculum.warmup_steps": "0",
    "curriculum.stages": "[]",
    "curriculum.skip_ahead.enabled": "false",
    "refill.enabled": "false",
}
_REPORTED = ("rollout/zero_signal_share", "rollout/pass_rate", "rollout/reward_mean", "rollout/gated_groups")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet, a seed of all arms after the other."""
    command = " ".join(["python -m benchmarks.curriculum", *sys.argv[1:]])
    store = ResultStore(given.output, _settings(given), command)
    terms = terms_of(given, save_steps=given.every)
    begun = time.monotonic()
    for seed in given.seeds:
        for arm in given.arms:
            if (key := f"{arm}/{seed}") in store:
                continue
            if time.monotonic() - begun > 60 * given.minutes:
                return store.result()
            store.add(key, {"arm": arm, "seed": seed, **_measure_one(arm, seed, terms, given)})
            print(f"{key}: done", file=sys.stderr, flush=True)
    return store.result()


def contender(arm: str, mode: str) -> Contender:
    """The command of an arm."""
    settings = {**_PLAIN, **ARMS[arm]}
    chosen = tuple(
        word for name, value in settings.items() for word in ("--set", f"acceleration.{name}={value}")
    )
    return Contender(name=arm, command="train_accelerated", arguments=("--speedup-mode", mode, *chosen))


def _measure_one(arm: str, seed: int, terms: Terms, given: argparse.Namespace) -> dict[str, Any]:
    name = f"curriculum-{arm}-{seed}"
    folder = train(contender(arm, given.mode), terms, name=name, num_steps=given.steps, seed=seed)
    drop_optimiser_states(folder)
    config = load_config(folder / "config.yaml")
    measurement = Measurement(
        tasks=given.tasks,
        num_samples=given.samples,
        max_completion_length=config.evaluation.max_completion_length,
        seed=given.seed,
    )
    base = pass_rates(config.model.name, measurement, terms, name="base")
    curve = [{"step": 0, **pass_at_1(base)}]
    for step, path in checkpoints(folder).items():
        counts = pass_rates(str(path), measurement, terms, name=f"{name}-{step}")
        curve.append({"step": step, **pass_at_1(counts)})
    rows = read_metrics(folder / "metrics.jsonl")
    record = {
        "curve": curve,
        "num_completions": len(rows) * config.completions_per_step
        + sum(int(row.get("rollout/gated_groups") or 0) for row in rows) * config.grpo.num_generations,
        "means": {
            metric: statistics.fmean(row.get(metric) or 0.0 for row in rows)
            for metric in _REPORTED
            if metric in rows[0]
        },
        # Draws of each level over the whole run.
        "offered": {key: value for key, value in rows[-1].items() if key.startswith("curriculum/offered")},
        "command_s": watched_of(folder).seconds,
    }
    if not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def steps_to(curve: Sequence[Mapping[str, float]], target: float) -> float | None:
    """Where straight lines between the points first reach ``target``; None where they do not."""
    if curve[0]["mean"] >= target:
        return float(curve[0]["step"])
    for before, after in pairwise(curve):
        if before["mean"] < target <= after["mean"]:
            share = (target - before["mean"]) / (after["mean"] - before["mean"])
            return float(before["step"] + share * (after["step"] - before["step"]))
    return None


def mean_over_curve(curve: Sequence[Mapping[str, float]]) -> float:
    """pass@1 averaged over the steps, on straight lines between the points."""
    area = sum(
        (after["step"] - before["step"]) * (after["mean"] + before["mean"]) / 2
        for before, after in pairwise(curve)
    )
    return float(area / (curve[-1]["step"] - curve[0]["step"]))


def table(result: Mapping[str, Any]) -> str:
    """The figures in Markdown: every seed, and what the arms differ by from uniform draws, seed by seed."""
    runs, settings = result["runs"].values(), result["settings"]
    target = settings["target"]
    lines = [
        f"{settings['model']}, mode {settings['mode']}, {settings['steps']} steps, {settings['tasks']}, "
        f"{settings['samples']} samples a task; each cell one value a seed.",
        "",
        f"| draws | steps to {100 * target:g} % | pass@1, mean over the curve | pass@1 at the end | "
        "groups without signal | completions |",
        "|---|---|---|---|---|---|",
    ]
    for arm in ARMS:
        own = sorted((run for run in runs if run["arm"] == arm), key=lambda run: int(run["seed"]))
        if own:
            lines.append(_row(arm, own, target))
    for arm in ARMS:
        pairs = paired(result, arm)
        if arm != UNIFORM and pairs:
            each = ", ".join(f"{100 * value:+.1f}" for value in pairs)
            lines += ["", f"{arm} minus {UNIFORM}, mean over the curve: "
                      f"{100 * statistics.fmean(pairs):+.1f} points ({each})."]  # fmt: skip
    return "\n".join(lines)


def _row(arm: str, own: Sequence[Mapping[str, Any]], target: float) -> str:
    reached = [steps_to(run["curve"], target) for run in own]
    cells = [
        f"`{arm}`",
        ", ".join("not reached" if steps is None else f"{steps:.1f}" for steps in reached),
        ", ".join(f"{100 * mean_over_curve(run['curve']):.1f} %" for run in own),
        ", ".join(f"{100 * run['curve'][-1]['mean']:.1f} %" for run in own),
        ", ".join(f"{100 * run['means']['rollout/zero_signal_share']:.0f} %" for run in own),
        ", ".join(str(run["num_completions"]) for run in own),
    ]
    return f"| {' | '.join(cells)} |"


def paired(result: Mapping[str, Any], arm: str) -> list[float]:
    """Mean over the curve of ``arm`` minus that of uniform draws, of every seed that has both."""
    runs = result["runs"]
    return [
        mean_over_curve(run["curve"]) - mean_over_curve(runs[f"{UNIFORM}/{run['seed']}"]["curve"])
        for run in sorted(runs.values(), key=lambda run: int(run["seed"]))
        if run["arm"] == arm and f"{UNIFORM}/{run['seed']}" in runs
    ]


def simulated_table(seeds: Sequence[int], target: float = 0.5) -> str:
    """What the curricula do to a learner that is one number."""
    lines = [
        "SIMULATION: an item-response model in place of the language model (benchmarks.simulated_learner).",
        "",
        f"| draws | steps to a mean pass rate of {100 * target:g} %, by seed | groups drawn |",
        "|---|---|---|",
    ]
    for arm, settings in ARMS.items():
        curriculum = CurriculumConfig.model_validate(
            {
                "enabled": settings["curriculum.enabled"] == "true",
                "skip_ahead": {"enabled": "curriculum.skip_ahead.enabled" in settings},
            }
        )
        max_gated = 8 if "refill.enabled" in settings else 0
        runs = [simulate(curriculum, seed=seed, max_gated=max_gated) for seed in seeds]
        steps = ", ".join(str(run.steps_to(target)) for run in runs)
        lines.append(f"| `{arm}` | {steps} | {', '.join(str(run.num_drawn) for run in runs)} |")
    return "\n".join(lines)


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    file = Path(given.config) if given.config else None
    names = ("cores", "mode", "steps", "every", "target", "tasks", "samples", "seed", "set", "config")
    return {
        "model": load_config(file, given.mode, given.set).model.name,
        **{name: getattr(given, name) for name in names},
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=list(_DEFAULT_ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the runs (%(default)s)")
    parser.add_argument("--mode", default="balanced", help="the mode of all arms (%(default)s)")
    parser.add_argument("--steps", type=int, default=36, help="optimiser steps (%(default)s)")
    parser.add_argument("--every", type=int, default=6, help="steps between measurements (%(default)s)")
    parser.add_argument("--target", type=float, default=0.12, help="pass@1 to be reached (%(default)s)")
    parser.add_argument("--tasks", default="ladder-heldout", help="what is measured on (%(default)s)")
    parser.add_argument("--samples", type=int, default=4, help="samples of a task (%(default)s)")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run after so many")
    parser.add_argument("--simulate", action="store_true", help="no model: an item-response learner")
    add_run_options(parser, RESULT)
    given = parser.parse_args(arguments)
    for name in ("steps", "every", "samples"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: value {getattr(given, name)}: at least 1")
    return given


def main() -> int:
    """Measure what the command line says; 2 for one that cannot be run, 1 for a run that failed."""
    given = parse()
    if given.simulate:
        print(simulated_table(given.seeds))
        return 0
    return run_to_the_end(lambda: measure(given), table)


if __name__ == "__main__":
    sys.exit(main())
