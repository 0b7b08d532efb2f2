"""The baseline against the three modes: trained samples/s, memory, and time to a held-out pass rate.

    python -m benchmarks.modes --cores 2 --repeats 2            # speed and memory
    python -m benchmarks.modes --cores 2 --repeats 2 --curve    # and the time to a held-out pass rate

The baseline is ``train_code_grpo``: TRL's own trainer on the same model, tasks, rewards, sampling and batch.
Every run is the command that users type with its default number of steps, in processes of its own, held to
the same cores; contenders take turns, in the other direction in every other repeat. Not counted are the first
--warmup steps (the trial of a run that shares its cores ends in them) and as many of the last as a run works
ahead. With --curve its checkpoints are measured when it is over, all by the same command, so that no
contender's clock holds a measurement; the time is that since its training began. Every result is on disk at
once, in --output, and is not measured again: start the same command again after an interruption. --work holds
the runs until then, with --keep for good: benchmarks.quality takes them from there.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import run_to_the_end
from benchmarks.result_store import ResultStore
from benchmarks.training_run import (
    BASELINE,
    CONTENDERS,
    Contender,
    Measurement,
    Terms,
    checkpoints,
    drop_optimiser_states,
    own_cores,
    pass_at_1,
    pass_rates,
    speed_of,
    time_at,
    train_whole,
    watched_of,
)
from configs.load import load_config
from configs.schema import Config

RESULT = Path(__file__).parent / "results" / "modes_cpu.json"


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet."""
    store = ResultStore(given.output, _settings(given), _command())
    terms = terms_of(given, save_steps=given.save_every)
    by_name = {contender.name: contender for contender in CONTENDERS}
    for name in given.only:
        if given.steps <= (uncounted := given.warmup + steps_ahead(by_name[name], given)):
            raise ValueError(f"--steps {given.steps}: {name} has {uncounted} steps that are not counted")
    for repeat in range(given.repeats):
        # Every other repeat runs backwards: nobody is always behind the same neighbour.
        for name in given.only[:: -1 if repeat % 2 else 1]:
            if (key := f"{name}/{repeat}") not in store:
                record = _measure_one(by_name[name], terms, given, repeat)
                store.add(key, {"contender": name, "repeat": repeat, **record})
                print(f"{key}: {record['speed']['samples_per_s']:.2f} samples/s", file=sys.stderr, flush=True)
    return store.result()


def _measure_one(
    contender: Contender, terms: Terms, given: argparse.Namespace, repeat: int
) -> dict[str, Any]:
    num_tail = steps_ahead(contender, given)
    seed = given.seed + repeat
    folder = train_whole(contender, terms, num_steps=given.steps, seed=seed)
    drop_optimiser_states(folder)
    watched = watched_of(folder)
    record = {
        "speed": speed_of(folder, num_warmup=given.warmup, num_tail=num_tail),
        "peak_mb": watched.peak_mb,
        "kinds_mb": dict(watched.kinds_mb),
        "command_s": watched.seconds,
        "curve": _curve(folder, terms, given) if given.curve else [],
    }
    if not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def _curve(folder: Path, terms: Terms, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Pass rate over training time; the first point is the model as it was."""
    config = load_config(folder / "config.yaml")
    measurement = measurement_of(given, config)
    base = pass_rates(config.model.name, measurement, terms, name="base")
    points = [{"step": 0, "time_s": 0.0, **pass_at_1(base)}]
    for step, path in checkpoints(folder).items():
        counts = pass_rates(str(path), measurement, terms, name=f"{folder.name}-{step}")
        points.append({"step": step, "time_s": time_at(folder, step), **pass_at_1(counts)})
    return points


def steps_ahead(contender: Contender, given: argparse.Namespace) -> int:
    """How many steps of the end have less to do than others: those for which nothing follows."""
    if contender.name == BASELINE:
        return 0
    file = Path(given.config) if given.config else None
    config = load_config(file, contender.name, given.set)
    staleness = config.acceleration.max_staleness
    return staleness + 1 if staleness else 0


def time_to(curve: Sequence[dict[str, Any]], target: float) -> float | None:
    """Seconds of training until pass@1 first is ``target``, on straight lines between what was measured."""
    for before, after in pairwise(curve):
        if before["mean"] < target <= after["mean"]:
            share = (target - before["mean"]) / (after["mean"] - before["mean"])
            return float(before["time_s"] + share * (after["time_s"] - before["time_s"]))
    return None


def ratios(runs: dict[str, Any], name: str) -> list[float]:
    """Speed over the baseline's, formed within each repeat that has both."""
    repeats = sorted(run["repeat"] for run in runs.values() if run["contender"] == name)
    return [
        runs[f"{name}/{repeat}"]["speed"]["samples_per_s"]
        / runs[f"{BASELINE}/{repeat}"]["speed"]["samples_per_s"]
        for repeat in repeats
        if f"{BASELINE}/{repeat}" in runs
    ]


def times_baseline(runs: dict[str, Any], name: str) -> str:
    """The median of ``ratios`` with each of them, in words; empty where there is none."""
    times = ratios(runs, name)
    each = ", ".join(f"{value:.2f}" for value in times)
    return f"{statistics.median(times):.2f} ({each})" if times else ""


def table(result: dict[str, Any]) -> str:
    """The figures in Markdown."""
    runs, settings = result["runs"], result["settings"]
    hardware = result["hardware"]
    lines = [
        f"{settings['model']}, {settings['cores']} cores of {hardware['cpu']}; {settings['steps']} steps, "
        f"counted after {settings['warmup']} of warm-up; medians of the repeats.",
        "",
        "| | trained samples/s | times baseline (of each repeat) | s a step | completions written a step "
        "| peak memory |" + (f" time to {100 * settings['target']:g} % |" if _has_curve(runs) else ""),
        "|---|---|---|---|---|---|" + ("---|" if _has_curve(runs) else ""),
    ]
    for contender in CONTENDERS:
        own = [run for run in runs.values() if run["contender"] == contender.name]
        if own:
            times = times_baseline(runs, contender.name)
            lines.append(_row(contender.name, own, times, settings["target"]))
    return "\n".join(lines)


def _row(name: str, own: list[dict[str, Any]], times: str, target: float) -> str:
    def median(key: str) -> float:
        return float(statistics.median(run["speed"][key] for run in own))

    cells = [
        f"`{name}`",
        f"{median('samples_per_s'):.2f}",
        times,
        f"{median('step_s'):.1f}",
        f"{median('rollouts_per_step'):.0f}",
        f"{statistics.median(run['peak_mb'] for run in own) / 1e3:.1f} GB",
    ]
    curves = [run["curve"] for run in own if run["curve"]]
    if curves:
        reached = [time_to(curve, target) for curve in curves]
        cells.append(", ".join("not reached" if one is None else f"{one / 60:.1f} min" for one in reached))
    return f"| {' | '.join(cells)} |"


def _has_curve(runs: dict[str, Any]) -> bool:
    return any(run["curve"] for run in runs.values())


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    file = Path(given.config) if given.config else None
    names = ("cores", "steps", "warmup", "save_every", "target", "tasks", "samples", "seed", "set", "config")
    return {
        "model": load_config(file, None, given.set).model.name,
        **{name: getattr(given, name) for name in names},
    }


def _command() -> str:
    return " ".join(["python -m benchmarks.modes", *sys.argv[1:]])


def terms_of(given: argparse.Namespace, *, save_steps: int | None = None) -> Terms:
    """What the options of ``add_run_options`` say."""
    return Terms(
        work=given.work,
        cores=own_cores(given.cores),
        deadline_s=given.timeout,
        shared=tuple(word for text in given.set for word in ("--set", text)),
        config=given.config,
        save_steps=save_steps,
    )


def add_run_options(parser: argparse.ArgumentParser, result: Path) -> None:
    """The options of benchmarks that train."""
    parser.add_argument("--cores", type=int, default=2, help="cores that every command may use (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; others count on from it")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="for every contender; repeatable"
    )
    parser.add_argument("--config", metavar="FILE", help="for every contender")
    parser.add_argument("--timeout", type=float, default=14400.0, help="seconds that one command may take")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark"), help="folder of the runs")
    parser.add_argument("--keep", action="store_true", help="keep the runs when their result is there")
    parser.add_argument("--output", type=Path, default=result, help="result file, gone on with (%(default)s)")


def add_whole_run_options(parser: argparse.ArgumentParser) -> None:
    """The options of benchmarks that measure what whole runs have learnt."""
    parser.add_argument("--steps", type=int, default=36, help="optimiser steps of each run (%(default)s)")
    parser.add_argument("--save-every", type=int, default=12, help="a checkpoint each so many (%(default)s)")
    parser.add_argument("--tasks", default="ladder-heldout", help="what is measured on (%(default)s)")
    parser.add_argument("--samples", type=int, default=4, help="samples of a task (%(default)s)")


def measurement_of(given: argparse.Namespace, config: Config) -> Measurement:
    """What the options of ``add_whole_run_options`` say of the measurement."""
    return Measurement(
        tasks=given.tasks,
        num_samples=given.samples,
        max_completion_length=config.evaluation.max_completion_length,
        seed=given.seed,
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = tuple(contender.name for contender in CONTENDERS)
    parser.add_argument("--only", nargs="+", choices=names, default=list(names), help="default: all")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each contender (%(default)s)")
    parser.add_argument("--warmup", type=int, default=12, help="steps that are not counted (%(default)s)")
    parser.add_argument("--curve", action="store_true", help="measure the checkpoints")
    parser.add_argument("--target", type=float, default=0.15, help="pass@1 to be reached (%(default)s)")
    add_whole_run_options(parser)
    add_run_options(parser, RESULT)
    given = parser.parse_args(arguments)
    for name in ("repeats", "warmup", "steps", "save_every", "samples"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: value {getattr(given, name)}: at least 1")
    return given


def main() -> int:
    """Measure what the command line says; 2 for one that cannot be run, 1 for a run that failed."""
    return run_to_the_end(lambda: measure(parse()), table)


if __name__ == "__main__":
    sys.exit(main())
