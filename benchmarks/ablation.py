"""Every technique alone and left out: trained samples/s of whole runs.

    python -m benchmarks.ablation --mode aggressive --cores 2 --repeats 2
    python -m benchmarks.ablation --only shared_prompt packing

``all`` is the mode as it comes; ``no-X`` is the mode without X; ``plain`` is the pipeline with every
technique of the table (configs.techniques) off but bf16, which the baseline has as well; ``only-X`` is plain
with X on. A technique that the mode leaves off has no row ``no-X``; one that does nothing without others, or
with these settings, has no row ``only-X``. Rows take turns, in the other direction in every other repeat, and
ratios are formed within a repeat. Results are kept one by one, in --output, as in benchmarks.modes. A run of
less than 20 steps has no trial of overlap: its stages run beside each other.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.modes import add_run_options, terms_of
from benchmarks.report import run_to_the_end
from benchmarks.result_store import ResultStore
from benchmarks.training_run import MODES, Contender, speed_of, train, watched_of
from configs.load import load_config, resolve
from configs.schema import Config
from configs.techniques import BY_KEY, TECHNIQUES, Scalar
from configs.yaml_text import dump_value

RESULT = Path(__file__).parent / "results" / "ablation_cpu.json"
ALL, PLAIN = "all", "plain"
# On in plain as well.
_ALWAYS = ("bf16",)
# What a technique needs to have anything to do: key -> key.
_NEEDS = {
    "in_flight": "asynchrony",
    "skip_ahead": "curriculum",
    "placement": "streaming",
    "shared_prefix": "shared_prompt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One configuration; ``against`` is the row that its ratio is to, ``settings`` what it changes."""

    name: str
    against: str | None
    technique: str
    settings: Mapping[str, Scalar]


def rows(mode: str, shared: Sequence[str], config: Path | None) -> list[Row]:
    """The rows for ``mode`` with the settings that all runs share."""
    full = load_config(config, mode, shared)
    every_off = {
        path: value
        for technique in TECHNIQUES
        if technique.key not in _ALWAYS
        for path, value in technique.off.items()
    }
    found = [
        Row(name=ALL, against=None, technique="", settings={}),
        Row(name=PLAIN, against=ALL, technique="", settings=every_off),
    ]
    for technique in TECHNIQUES:
        name = technique.name
        if technique.is_on(full) and technique.idle(full) is None:
            found.append(Row(name=f"no-{technique.key}", against=ALL, technique=name, settings=technique.off))
        if (
            technique.key not in (*_NEEDS, *_ALWAYS)
            and technique.idle(_with(mode, shared, config, technique.on)) is None
        ):
            alone = {**every_off, **technique.on}
            found.append(Row(name=f"only-{technique.key}", against=PLAIN, technique=name, settings=alone))
    return found


def _with(mode: str, shared: Sequence[str], file: Path | None, values: Mapping[str, Scalar]) -> Config:
    return resolve(file, mode, (*shared, *_assignments(values))).config


def _assignments(values: Mapping[str, Scalar]) -> list[str]:
    return [f"{path}={dump_value(value)}" for path, value in values.items()]


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet."""
    command = " ".join(["python -m benchmarks.ablation", *sys.argv[1:]])
    store = ResultStore(given.output, _settings(given), command)
    file = Path(given.config) if given.config else None
    chosen = [row for row in rows(given.mode, given.set, file) if _is_chosen(row, given.only)]
    for repeat in range(given.repeats):
        for row in chosen[:: -1 if repeat % 2 else 1]:
            if (key := f"{row.name}/{repeat}") not in store:
                record = _measure_one(row, given, repeat)
                store.add(key, {"row": row.name, "repeat": repeat, **record})
                print(f"{key}: {record['speed']['samples_per_s']:.2f} samples/s", file=sys.stderr, flush=True)
    return store.result()


def _is_chosen(row: Row, only: Sequence[str] | None) -> bool:
    return only is None or row.name in (ALL, PLAIN) or row.name.partition("-")[2] in only


def _measure_one(row: Row, given: argparse.Namespace, repeat: int) -> dict[str, Any]:
    arguments = [word for text in _assignments(row.settings) for word in ("--set", text)]
    contender = Contender(
        name=row.name,
        command="train_accelerated",
        arguments=("--speedup-mode", given.mode, *arguments),
    )
    file = Path(given.config) if given.config else None
    staleness = _with(given.mode, given.set, file, row.settings).acceleration.max_staleness
    num_tail = staleness + 1 if staleness else 0
    num_steps = given.warmup + given.steps + num_tail
    name = f"ablation-{given.mode}-{row.name}-{repeat}"
    folder = train(contender, terms_of(given), name=name, num_steps=num_steps, seed=given.seed + repeat)
    record = {
        "against": row.against,
        "technique": row.technique,
        "speed": speed_of(folder, num_warmup=given.warmup, num_tail=num_tail),
        "peak_mb": watched_of(folder).peak_mb,
    }
    if not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def ratios(runs: Mapping[str, Any], name: str) -> list[float]:
    """The row's speed over that of the row it is compared with, of each repeat that has both."""
    own = [run for run in runs.values() if run["row"] == name]
    return [
        run["speed"]["samples_per_s"] / runs[other]["speed"]["samples_per_s"]
        for run in sorted(own, key=lambda run: int(run["repeat"]))
        if run["against"] and (other := f"{run['against']}/{run['repeat']}") in runs
    ]


def table(result: Mapping[str, Any]) -> str:
    """The figures in Markdown: one line a technique, alone and left out."""
    runs, settings, hardware = result["runs"], result["settings"], result["hardware"]
    means = {
        name: statistics.median(run["speed"]["samples_per_s"] for run in runs.values() if run["row"] == name)
        for name in (ALL, PLAIN)
        if any(run["row"] == name for run in runs.values())
    }
    told = ", ".join(f"{name} {value:.2f} trained samples/s" for name, value in means.items())
    lines = [
        f"{settings['model']}, mode {settings['mode']}, {settings['cores']} cores of {hardware['cpu']}; "
        f"{settings['steps']} steps after {settings['warmup']}: {told}.",
        "",
        "| technique | exact? | alone: times plain | left out: times all |",
        "|---|---|---|---|",
    ]
    measured = {run["row"] for run in runs.values()}
    for key, technique in BY_KEY.items():
        names = (f"only-{key}", f"no-{key}")
        if measured.intersection(names):
            cells = [technique.name, technique.exactness, *(_cell(runs, name) for name in names)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(runs: Mapping[str, Any], name: str) -> str:
    values = ratios(runs, name)
    if not values:
        return ""
    each = f" ({', '.join(f'{value:.2f}' for value in values)})" if len(values) > 1 else ""
    return f"{statistics.median(values):.2f}{each}"


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    names = ("mode", "cores", "warmup", "steps", "seed", "set", "config")
    file = Path(given.config) if given.config else None
    model = load_config(file, given.mode, given.set).model.name
    return {"model": model, **{name: getattr(given, name) for name in names}}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=MODES, default="aggressive", help="(%(default)s)")
    parser.add_argument("--only", nargs="+", choices=tuple(BY_KEY), help="these techniques; default: all")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each row (%(default)s)")
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not counted (%(default)s)")
    parser.add_argument("--steps", type=int, default=6, help="steps that are counted (%(default)s)")
    add_run_options(parser, RESULT)
    given = parser.parse_args(arguments)
    for name in ("repeats", "warmup", "steps"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: value {getattr(given, name)}: at least 1")
    return given


def main() -> int:
    """Measure what the command line says; 2 for one that cannot be run, 1 for a run that failed."""
    return run_to_the_end(lambda: measure(parse()), table)


if __name__ == "__main__":
    sys.exit(main())
