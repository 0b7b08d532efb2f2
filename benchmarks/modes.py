"""The baseline against the three modes: trained samples/s, memory, and time to a held-out pass rate.

    python -m benchmarks.modes --cores 2 --repeats 2            # speed and memory
    python -m benchmarks.modes --cores 2 --repeats 2 --curve    # and the time to a held-out pass rate

The baseline is ``train_code_grpo``: TRL's own trainer on the same model, tasks, rewards, sampling and batch;
it generates with Transformers, and with TRL's own vLLM where --only names "baseline-vllm" too. Every run is
the command that users type with its default number of steps, in processes of its own, held to the same cores;
contenders take turns, in the other direction in every other repeat. Not counted are the first --warmup steps
and, of a run that works ahead, one more of the last than it does. The trial of a run that shares its cores
takes 8 to 12 steps where it finds the stages faster in turn, which is inside the warm-up, and up to 19 where
it looks at both at once a second time. With --curve its checkpoints are measured when it is over, all by the
same command, so that no contender's clock holds a measurement; the time is that since its training began. How
a contest is interrupted and gone on with says benchmarks.whole_runs.contest; benchmarks.quality takes the
runs that --keep leaves.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.report import in_turns, median_and_each, positive, table_text
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.training_run import Contender, accelerated
from configs.load import MODES, load_config

BASELINE = "baseline"
BASELINE_VLLM = "baseline-vllm"
CONTENDERS: Mapping[str, Contender] = {
    BASELINE: Contender(
        name=BASELINE, command="train_code_grpo", arguments=("--baseline-engine", "transformers")
    ),
    BASELINE_VLLM: Contender(
        name=BASELINE_VLLM, command="train_code_grpo", arguments=("--baseline-engine", "vllm")
    ),
    **{mode: accelerated(mode, mode, {}) for mode in MODES},
}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet."""
    num_tails = {mode: contest.steps_ahead(load_config(given.config, mode, given.set)) for mode in MODES}
    entries = [
        whole_run(name, repeat, given.seed + repeat, given, num_tail=num_tails.get(name, 0))
        for name, repeat in in_turns(given.only, given.repeats)
    ]
    if given.baseline_steps is not None:
        shorter = {"num_steps": given.baseline_steps, "num_warmup": 1}
        entries = [e if e.contender.name in num_tails else replace(e, **shorter) for e in entries]
    for entry in entries:
        if entry.num_steps <= (num := entry.num_warmup + entry.num_tail):
            name = entry.contender.name
            raise ValueError(f"--steps {entry.num_steps}: {name} has {num} steps that are not counted")
    return contest.hold(
        entries,
        lambda entry, folder: {"curve": contest.curve_of(folder, given) if given.curve else []},
        given,
    )


def whole_run(
    name: str, number: int, seed: int, given: argparse.Namespace, *, num_tail: int | None = None
) -> contest.Entry:
    """A run under the name that all benchmarks of these contenders give it: they share their runs."""
    return contest.Entry(
        contender=CONTENDERS[name],
        number=number,
        run_name=f"{name}-{seed}",
        num_steps=given.steps,
        seed=seed,
        num_warmup=0 if num_tail is None else given.warmup,
        num_tail=num_tail or 0,
    )


def add_only_option(parser: argparse.ArgumentParser) -> None:
    """Which of the contenders run; TRL with vLLM only where it is asked for."""
    default = [name for name in CONTENDERS if name != BASELINE_VLLM]
    parser.add_argument(
        "--only", nargs="+", choices=CONTENDERS, default=default, help=f"default: all but {BASELINE_VLLM}"
    )


def times_baseline(runs: contest.Runs, name: str, baseline: str = BASELINE) -> str:
    """The median of the speeds over the baseline's, with each of them; empty where there is none."""
    return median_and_each(contest.speed_ratios(runs, name, baseline))


def with_signal(runs: contest.Runs, name: str) -> str:
    """The median of trained samples/s whose groups had a gradient, and how many times the baseline's."""
    speeds = {
        key: run["speed"]["samples_per_s"] * (1 - run["speed"]["means"]["rollout/zero_signal_share"])
        for key, run in runs.items()
    }
    times = [one / other for one, other in contest.pairs(speeds, name, BASELINE) if other]
    said = f"{statistics.median(contest.runs_of(speeds, name).values()):.2f}"
    return f"{said} ({statistics.median(times):.2f})" if times else said


def table(result: Mapping[str, Any]) -> str:
    """The figures in Markdown."""
    runs, settings = result["runs"], result["settings"]
    target = settings["target"]
    has_curve = any(run["curve"] for run in runs.values())
    baselines = [name for name in (BASELINE, BASELINE_VLLM) if contest.runs_of(runs, name)] or [BASELINE]
    head = ["", "trained samples/s", *(f"times {name} (of each repeat)" for name in baselines)]
    head += ["of them with signal (times baseline)", "s a step", "completions written a step", "peak memory"]
    rows = [
        _row(
            name,
            own,
            [*(times_baseline(runs, name, baseline) for baseline in baselines), with_signal(runs, name)],
            target,
        )
        for name in CONTENDERS
        if (own := list(contest.runs_of(runs, name).values()))
    ]
    above = (
        f"{settings['model']}, {settings['cores']} cores of {result['hardware']['cpu']}; "
        f"{settings['steps']} steps, counted after {settings['warmup']} of warm-up; medians of the "
        "repeats."
    )
    if (shorter := settings.get("baseline_steps")) is not None:
        above += f" Of a baseline {shorter} steps, counted after the first."
    above += contest.of_several_machines(runs)
    return table_text([*head, f"time to {100 * target:g} %"] if has_curve else head, rows, above=above)


def _row(name: str, own: Sequence[Mapping[str, Any]], times: Sequence[str], target: float) -> list[str]:
    def median(key: str) -> float:
        return float(statistics.median(run["speed"][key] for run in own))

    cells = [
        f"`{name}`",
        f"{median('samples_per_s'):.2f}",
        *times,
        f"{median('step_s'):.1f}",
        f"{median('rollouts_per_step'):.0f}",
        f"{statistics.median(run['peak_mb'] for run in own) / 1e3:.1f} GB",
    ]
    curves = [run["curve"] for run in own if run["curve"]]
    if curves:
        seconds = [contest.reached(curve, target, "time_s") for curve in curves]
        cells.append(", ".join("not reached" if one is None else f"{one / 60:.1f} min" for one in seconds))
    return cells


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.options(__doc__, "modes")
    add_only_option(parser)
    parser.add_argument("--repeats", type=positive, default=2, help="runs of each contender (%(default)s)")
    parser.add_argument(
        "--warmup", type=positive, default=12, help="steps that are not counted (%(default)s)"
    )
    parser.add_argument(
        "--baseline-steps",
        type=positive,
        help="steps of a baseline's run, which has no trial: all but its first are counted (as --steps); "
        "give a learning rate near zero then, or its answers are longer than those of later steps",
    )
    parser.add_argument("--curve", action="store_true", help="measure the checkpoints")
    parser.add_argument("--target", type=float, default=0.15, help="pass@1 to be reached (%(default)s)")
    contest.add_measured_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
