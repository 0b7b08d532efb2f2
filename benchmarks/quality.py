"""What the modes learn against the baseline at equal samples: held-out pass@1 after training, several seeds.

    python -m benchmarks.quality --cores 2 --seeds 0 1 2

Every run is the command that users type, with the settings that they get and the same number of steps, so of
completions; one command measures each when its run is over, with the same tasks, samples and seed for all.
The base model is measured once. Differences are to the first of ``CONTENDERS`` that was run, paired by
task: each side's pass rate of a task is its mean over the seeds. Their 95 % intervals are percentile
bootstraps over tasks and seeds together (of each side's seeds apart: a seed does not make two trainers
alike). Runs that benchmarks.modes left with --keep are taken as they are; benchmarks.whole_runs.contest says
how a contest is interrupted and gone on with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.modes import CONTENDERS, add_only_option, whole_run
from benchmarks.report import percent, table_text
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.training_run import checkpoints, pass_at_1
from configs.load import load_config
from pipeline.evaluation.passk import Estimate

_NUM_RESAMPLES = 10_000
_TAIL = 0.025
Counts = Mapping[str, Sequence[int]]


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet, a seed of all contenders after the other."""
    model = load_config(given.config, None, given.set).model.name
    store = contest.open_store(given)
    for base in store.missing([contest.BASE]):
        counts = contest.pass_rates(model, given, name=base)
        store.add(base, {"contender": base, "pass_at_1": pass_at_1(counts), "tasks": counts})

    def record(entry: contest.Entry, folder: Path) -> dict[str, Any]:
        trained = checkpoints(folder)[given.steps]
        counts = contest.pass_rates(str(trained), given, name=f"{folder.name}-{given.steps}")
        return {
            "pass_at_1": pass_at_1(counts),
            "tasks": counts,
            "num_completions": given.steps * load_config(folder / "config.yaml").completions_per_step,
        }

    entries = [whole_run(name, seed, seed, given) for seed in given.seeds for name in given.only]
    return contest.hold(entries, record, given)


def difference(left: Sequence[Counts], right: Sequence[Counts]) -> Estimate:
    """How much pass@1 of ``right`` is above that of ``left``; one table of counts for each seed of a side.

    Raises ValueError where no task was judged for every seed of both.
    """
    judged = [{task_id for task_id, (_, num) in counts.items() if num > 0} for counts in (*left, *right)]
    tasks = sorted(set.intersection(*judged))
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


def _rates(seeds: Sequence[Counts], tasks: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Pass rates, (seeds, tasks)."""
    return np.array([[counts[task][0] / counts[task][1] for task in tasks] for counts in seeds])


def compared(runs: contest.Runs) -> dict[str, dict[str, float]]:
    """The difference of each contender that was run to the first of them: that one to itself is none."""
    tasks = {name: [run["tasks"] for run in contest.runs_of(runs, name).values()] for name in CONTENDERS}
    ran = [name for name, own in tasks.items() if own]
    return {name: asdict(difference(tasks[ran[0]], tasks[name])) for name in ran[1:]}


def table(result: Mapping[str, Any]) -> str:
    """The figures in Markdown."""
    settings, runs = result["settings"], result["runs"]
    differences = compared(runs)
    rows, means = [], {}
    for name in CONTENDERS:
        rates = [run["pass_at_1"]["mean"] for run in contest.runs_of(runs, name).values()]
        if not rates:
            continue
        means[name] = statistics.fmean(rates)
        each = ", ".join(f"{100 * rate:.1f}" for rate in rates)
        cells = [f"`{name}`", each, f"{100 * means[name]:.1f} %", "", ""]
        if name in differences:
            against = next(iter(means.values()))
            cells[3] = percent(differences[name], "+")
            cells[4] = f"{means[name] / against:.2f}" if against else ""
        rows.append(cells)
    reference = next(iter(means), "the first")
    head = ["", "pass@1 of each seed", "mean", f"above {reference} (95 %)", f"share of {reference}'s"]
    before = percent(runs[contest.BASE]["pass_at_1"])
    above = (
        f"{settings['model']}, {settings['steps']} steps; {settings['tasks']}, {settings['samples']} "
        f"samples a task at temperature {settings.get('temperature', 1):g}; before training {before}."
        f"{contest.of_several_machines(runs)}"
    )
    return table_text(head, rows, above=above)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.options(__doc__, "quality", seed="of what is measured; --seeds are those of the runs")
    add_only_option(parser)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the runs")
    contest.add_measured_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
