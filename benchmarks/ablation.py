"""Every technique alone and left out: trained samples/s of whole runs.

    python -m benchmarks.ablation --mode aggressive --cores 2 --repeats 2
    python -m benchmarks.ablation --only shared_prompt packing

``all`` is the mode as it comes; ``no-X`` is the mode without X; ``plain`` is the pipeline with every
technique of the table (configs.techniques) off but bf16, which the baseline has as well; ``only-X`` is plain
with X on. A technique that the mode leaves off has no row ``no-X``; one that does nothing without others, or
with these settings, has no row ``only-X``. Rows take turns, in the other direction in every other repeat, and
ratios are formed within a repeat. A run of less than 20 steps has no trial of overlap: its stages run beside
each other. What was measured of techniques that are no longer there is kept, in a table of its own.
benchmarks.whole_runs.contest says how a contest is interrupted and gone on with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import in_turns, table_text
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.training_run import accelerated
from configs.load import MODES, load_config, resolve
from configs.schema import Config
from configs.techniques import BY_KEY, TECHNIQUES, Scalar
from configs.yaml_text import dump_value

ALL, PLAIN = "all", "plain"
# On in plain as well.
_ALWAYS = ("bf16",)
_FIGURES = ("alone: times plain", "left out: times all")
# What a technique needs to have anything to do: key -> key.
_NEEDS = {
    "in_flight": "asynchrony",
    "skip_ahead": "curriculum",
    "placement": "streaming",
    "shared_prefix": "shared_prompt",
}


def rows(mode: str, shared: Sequence[str], config: Path | None) -> dict[str, Mapping[str, Scalar]]:
    """By name, what each row for ``mode`` changes of it, with the settings that all runs share."""
    full = load_config(config, mode, shared)
    every_off = {
        path: value
        for technique in TECHNIQUES
        if technique.key not in _ALWAYS
        for path, value in technique.off.items()
    }
    found: dict[str, Mapping[str, Scalar]] = {ALL: {}, PLAIN: every_off}
    for key, technique in BY_KEY.items():
        if technique.is_on(full) and technique.idle(full) is None:
            found[f"no-{key}"] = technique.off
        acts_alone = technique.idle(_with(mode, shared, config, technique.on)) is None
        if key not in (*_NEEDS, *_ALWAYS) and acts_alone:
            found[f"only-{key}"] = {**every_off, **technique.on}
    return found


def _key(row: str) -> str:
    """The technique that ``row`` is about; nothing of ALL and PLAIN."""
    return row.partition("-")[2]


def _with(mode: str, shared: Sequence[str], file: Path | None, values: Mapping[str, Scalar]) -> Config:
    own = (f"{path}={dump_value(value)}" for path, value in values.items())
    return resolve(file, mode, (*shared, *own)).config


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet."""
    chosen = {
        name: settings
        for name, settings in rows(given.mode, given.set, given.config).items()
        if given.only is None or _key(name) in ("", *given.only)
    }
    num_tails = {
        name: contest.steps_ahead(_with(given.mode, given.set, given.config, settings))
        for name, settings in chosen.items()
    }
    entries = [
        contest.counted(
            accelerated(name, given.mode, chosen[name]),
            repeat,
            given,
            f"ablation-{given.mode}-{name}-{repeat}",
            num_tails[name],
        )
        for name, repeat in in_turns(list(chosen), given.repeats)
    ]
    name_of = {key: technique.name for key, technique in BY_KEY.items()}
    return contest.hold(
        entries,
        lambda entry, folder: {"technique": name_of.get(_key(entry.contender.name), "")},
        given,
    )


def ratios(runs: contest.Runs, name: str) -> list[float]:
    """The speed of a row with one technique over plain's, of one without over all's, within each repeat."""
    return contest.speed_ratios(runs, name, PLAIN if name.startswith("only-") else ALL)


def table(result: Mapping[str, Any]) -> str:
    """Every technique in Markdown: class, source of the gain, and what it measured alone and left out."""
    runs, settings = result["runs"], result["settings"]
    # Of the mode as it comes: what was run with other settings shows its figures all the same.
    pending = rows(settings["mode"], (), None)
    lines = []
    for key, technique in BY_KEY.items():
        switch, *_ = technique.off
        name = f"{technique.name} (`{switch}`)"
        lines.append(
            [name, technique.exactness, technique.gain, *_cells(runs, key, pending), technique.guard]
        )
    head = ["technique (setting)", "exact?", "where the gain comes from", *_FIGURES, "guard"]
    return table_text(head, lines, above=_above(result))


def measured_table(result: Mapping[str, Any]) -> str:
    """Those techniques alone that were measured, in Markdown."""
    runs = result["runs"]
    every = [[technique.name, *_cells(runs, key)] for key, technique in BY_KEY.items()]
    lines = [line for line in every if any(line[1:])]
    return table_text(["technique", *_FIGURES], lines, above=_above(result))


def _above(result: Mapping[str, Any]) -> str:
    """What was run, and how fast all and plain were."""
    runs, settings = result["runs"], result["settings"]
    told = ", ".join(
        f"{name} {statistics.median(run['speed']['samples_per_s'] for run in own):.2f} trained samples/s"
        for name in (ALL, PLAIN)
        if (own := contest.runs_of(runs, name).values())
    )
    return (
        f"{settings['model']}, mode {settings['mode']}, {settings['cores']} cores of "
        f"{result['hardware']['cpu']}; {settings['steps']} steps after {settings['warmup']}: {told}."
        f"{contest.of_several_machines(runs)}"
    )


def dropped_table(result: Mapping[str, Any]) -> str:
    """What was measured of techniques that are no longer there, in Markdown."""
    runs = result["runs"]
    names = {_key(key.rpartition("/")[0]): run["technique"] for key, run in runs.items() if run["technique"]}
    lines = [
        [name, *_cells(runs, key)]
        for key, name in names.items()
        if key not in BY_KEY and any(_cells(runs, key))
    ]
    if not lines:
        return "Every technique that was measured is still there."
    return table_text(["technique", *_FIGURES], lines)


def _cells(runs: contest.Runs, key: str, pending: Collection[str] = ()) -> list[str]:
    """Alone and left out; where it was not measured empty, or said of the rows that are ``pending``."""
    cells = []
    for name in (f"only-{key}", f"no-{key}"):
        values = ratios(runs, name)
        each = f" ({', '.join(f'{value:.2f}' for value in values)})" if len(values) > 1 else ""
        missing = "not measured yet" if name in pending else ""
        cells.append(f"{statistics.median(values):.2f}{each}" if values else missing)
    return cells


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.options(__doc__, "ablation")
    parser.add_argument("--mode", choices=MODES, default="aggressive", help="(%(default)s)")
    parser.add_argument("--only", nargs="+", choices=tuple(BY_KEY), help="these techniques; default: all")
    contest.add_counted_options(parser, repeats=1, warmup=3)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
