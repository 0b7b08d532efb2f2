"""What the modes learn against the baseline at equal samples: held-out pass@1 after training, several seeds.

    python -m benchmarks.quality --cores 2 --seeds 0 1 2

Every run is the command that users type, with the settings that they get and the same number of steps, so of
completions; one process does all the measuring afterwards, with the same tasks, samples and seed for all. The
base model is measured once. Differences are to the baseline, paired by task: each side's pass rate of a task
is its mean over the seeds. Their 95 % intervals are percentile bootstraps over tasks and seeds together (of
each side's seeds apart: a seed does not make two trainers alike). What is done is on disk, in --output, and
is not done again, and runs that benchmarks.modes left with --keep are taken as they are: start the same
command again after an interruption, as often as it takes; --limit stops after so many runs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.modes import add_run_options, add_whole_run_options, measurement_of, terms_of
from benchmarks.report import percent, run_to_the_end
from benchmarks.result_store import ResultStore
from benchmarks.training_run import (
    BASELINE,
    CONTENDERS,
    Contender,
    Measurement,
    Terms,
    checkpoints,
    drop_optimiser_states,
    pass_at_1,
    pass_rates,
    train_whole,
    watched_of,
)
from configs.load import load_config
from pipeline.evaluation.passk import Estimate

RESULT = Path(__file__).parent / "results" / "quality_cpu.json"
BASE = "base"
_NUM_RESAMPLES = 10_000
_TAIL = 0.025
Counts = Mapping[str, Sequence[int]]


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet, a seed of all contenders after the other."""
    command = " ".join(["python -m benchmarks.quality", *sys.argv[1:]])
    store = ResultStore(given.output, _settings(given), command)
    terms = terms_of(given, save_steps=given.save_every)
    config = load_config(_file(given), None, given.set)
    measurement = measurement_of(given, config)
    if BASE not in store:
        counts = pass_rates(config.model.name, measurement, terms, name=BASE)
        store.add(BASE, {"contender": BASE, "pass_at_1": pass_at_1(counts), "tasks": counts})
    by_name = {contender.name: contender for contender in CONTENDERS}
    num_done = 0
    for seed in given.seeds:
        for name in given.only:
            if (key := f"{name}/{seed}") in store:
                continue
            if given.limit is not None and num_done >= given.limit:
                return store.result()
            record = _measure_one(by_name[name], seed, measurement, terms, given)
            store.add(key, {"contender": name, "seed": seed, **record})
            num_done += 1
            print(f"{key}: pass@1 {record['pass_at_1']['mean']:.3f}", file=sys.stderr, flush=True)
    return store.result()


def _measure_one(
    contender: Contender, seed: int, measurement: Measurement, terms: Terms, given: argparse.Namespace
) -> dict[str, Any]:
    folder = train_whole(contender, terms, num_steps=given.steps, seed=seed)
    drop_optimiser_states(folder)
    trained = checkpoints(folder)[given.steps]
    counts = pass_rates(str(trained), measurement, terms, name=f"{folder.name}-{given.steps}")
    record = {
        "pass_at_1": pass_at_1(counts),
        "tasks": counts,
        "command_s": watched_of(folder).seconds,
        "num_completions": given.steps * load_config(folder / "config.yaml").completions_per_step,
    }
    if not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def difference(left: Sequence[Counts], right: Sequence[Counts]) -> Estimate:
    """How much pass@1 of ``right`` is above that of ``left``; one table of counts for each seed of a side.

    Raises ValueError where no task was judged for every seed of both.
    """
    tasks = sorted(set.intersection(*(_judged(counts) for counts in (*left, *right))))
    if not tasks:
        raise ValueError("no task was judged in all runs")
    rates = [_rates(side, tasks) for side in (left, right)]
    rng = np.random.default_rng(0)
    means = np.empty(_NUM_RESAMPLES)
    for index in range(_NUM_RESAMPLES):
        chosen = rng.integers(len(tasks), size=len(tasks))
        sides = [one[rng.integers(len(one), size=len(one))].mean(axis=0)[chosen].mean() for one in rates]
        means[index] = sides[1] - sides[0]
    low, high = np.quantile(means, [_TAIL, 1 - _TAIL])
    mean = float(rates[1].mean() - rates[0].mean())
    return Estimate(mean=mean, low=float(low), high=float(high), num_tasks=len(tasks))


def _judged(counts: Counts) -> set[str]:
    return {task_id for task_id, (_, judged) in counts.items() if judged > 0}


def _rates(seeds: Sequence[Counts], tasks: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Pass rates, (seeds, tasks)."""
    return np.array([[counts[task][0] / counts[task][1] for task in tasks] for counts in seeds])


def by_contender(result: Mapping[str, Any], name: str) -> list[Counts]:
    """The counts of a contender's seeds."""
    return [run["tasks"] for run in result["runs"].values() if run["contender"] == name]


def compared(result: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Each mode's difference to the baseline, where both were measured."""
    baseline = by_contender(result, BASELINE)
    return {
        contender.name: asdict(difference(baseline, own))
        for contender in CONTENDERS
        if contender.name != BASELINE and baseline and (own := by_contender(result, contender.name))
    }


def table(result: Mapping[str, Any]) -> str:
    """The figures in Markdown."""
    settings, differences = result["settings"], compared(result)
    base = result["runs"][BASE]["pass_at_1"]
    lines = [
        f"{settings['model']}, {settings['steps']} steps; {settings['tasks']}, {settings['samples']} samples "
        f"a task at temperature 1; before training {percent(base)}.",
        "",
        "| | pass@1 of each seed | mean | above the baseline (95 %) | share of the baseline's |",
        "|---|---|---|---|---|",
    ]
    means = {}
    for contender in CONTENDERS:
        own = [run for run in result["runs"].values() if run["contender"] == contender.name]
        if not own:
            continue
        means[contender.name] = statistics.fmean(run["pass_at_1"]["mean"] for run in own)
        each = ", ".join(
            f"{100 * run['pass_at_1']['mean']:.1f}" for run in sorted(own, key=lambda run: run["seed"])
        )
        cells = [f"`{contender.name}`", each, f"{100 * means[contender.name]:.1f} %", "", ""]
        if contender.name in differences:
            cells[3] = percent(differences[contender.name], "+")
            cells[4] = f"{means[contender.name] / means[BASELINE]:.2f}" if means[BASELINE] else ""
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _file(given: argparse.Namespace) -> Path | None:
    return Path(given.config) if given.config else None


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    names = ("cores", "steps", "save_every", "tasks", "samples", "seed", "set", "config")
    model = load_config(_file(given), None, given.set).model.name
    return {"model": model, **{name: getattr(given, name) for name in names}}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = tuple(contender.name for contender in CONTENDERS)
    parser.add_argument("--only", nargs="+", choices=names, default=list(names), help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the runs")
    parser.add_argument("--limit", type=int, help="stop after so many runs; later ones go on")
    add_whole_run_options(parser)
    add_run_options(parser, RESULT)
    given = parser.parse_args(arguments)
    for name in ("steps", "save_every", "samples"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: value {getattr(given, name)}: at least 1")
    return given


def main() -> int:
    """Measure what the command line says; 2 for one that cannot be run, 1 for a run that failed."""
    return run_to_the_end(lambda: measure(parse()), table)


if __name__ == "__main__":
    sys.exit(main())
