"""A contest of whole runs: who is trained with which seed, in turn, each once, and its result kept at once.

What is done stands in --output, the benchmark's result file, and is not done again: start the same command
again after an interruption, as often as it takes; --limit stops after so many runs. --work holds a run until
its result is there, with --keep for good. What the contenders are and what is read off their runs is up to
the benchmark.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import (
    RESULTS,
    RUN_PACKAGES,
    add_cores_option,
    circumstances,
    command_line,
    differing,
    end_on_sigterm,
    make_parser,
    other_circumstances,
    positive,
    write_result,
)
from benchmarks.whole_runs.training_run import (
    DATA_DIGESTS,
    Contender,
    checkpoints,
    config_digest,
    data_digests,
    drop_optimiser_states,
    evaluated,
    file_digest,
    pass_at_1,
    read_pass_rates,
    speed_of,
    train,
)
from configs.load import load_config
from configs.schema import Config
from pipeline.host.files import read_object
from pipeline.record.metrics import read_metrics

BASE = "base"  # the model as it was, before any training
_NOT_COMPARED = ("work", "keep", "limit", "output", "timeout", "only", "repeats", "seeds", "mbpp")
# Of what the file of --config says, and of the file of --mbpp; None for the hub's, whose prompts are others.
_DIGEST, _MBPP_DIGEST = "config_digest", "mbpp_digest"
# Settings that results of earlier versions do not have; these are gone on with.
_OF_LATE = (_DIGEST, _MBPP_DIGEST, "curve", "temperature", *DATA_DIGESTS)
Runs = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run of a contest: ``number`` is its repeat or its seed, ``run_name`` the name of its folder.

    Not counted in its speed are ``num_warmup`` steps and the ``num_tail`` last ones; without a warm-up it has
    none.
    """

    contender: Contender
    number: int
    run_name: str
    num_steps: int
    seed: int
    num_warmup: int = 0
    num_tail: int = 0

    @property
    def key(self) -> str:
        """What its result stands under."""
        return f"{self.contender.name}/{self.number}"


class ResultStore:
    """The runs in the file ``path``, by key; ``settings`` are those that make runs comparable."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Go on with what the file holds.

        Raises ValueError where it is of other settings, another processor or other versions, or is damaged.
        """
        self.path = path
        # As JSON gives it back: a tuple is a list, a path a text.
        self._settings = json.loads(json.dumps(settings, default=str))
        self._runs: dict[str, Any] = self._read() if path.exists() else {}

    def _read(self) -> dict[str, Any]:
        try:
            found = read_object(self.path)
            earlier, runs = found["settings"], dict(found["runs"])
            changed = other_circumstances(found, circumstances(*RUN_PACKAGES))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.path}: is no result of this benchmark ({error}); move it away"
            ) from error
        told = [
            f"{name} was {old!r}, is {new!r}"
            for name, old, new in [*differing(earlier, self._settings), *changed]
            if not (name in _OF_LATE and name not in earlier)
        ]
        if told and runs:
            raise ValueError(
                f"{self.path}: holds runs of other settings, of another processor or of other versions "
                f"({', '.join(told)}); give another --output"
            )
        return runs

    def missing(self, keys: Iterable[str], limit: int | None = None) -> Iterator[str]:
        """Those of ``keys`` that it has not; at most ``limit``."""
        return islice((key for key in keys if key not in self._runs), limit)

    def add(self, key: str, record: Mapping[str, Any], *, said: str = "done") -> None:
        """Keep ``record`` with what made it; it is on disk when this returns. ``said`` goes to stderr."""
        self._runs[key] = {**record, "command": command_line(), **circumstances(*RUN_PACKAGES)}
        write_result(self.path, self.result())
        print(f"{key}: {said}", file=sys.stderr, flush=True)

    def result(self) -> dict[str, Any]:
        """All of it."""
        return {
            "command": command_line(),
            "settings": self._settings,
            **circumstances(*RUN_PACKAGES),
            "runs": dict(self._runs),
        }


def open_store(given: argparse.Namespace) -> ResultStore:
    """The store of a command line; runs are comparable where the model, what --config says and all options
    are the same but those that say which runs, and where they go."""
    options = {name: value for name, value in vars(given).items() if name not in _NOT_COMPARED}
    options |= data_digests(given)
    if given.config is not None:
        options[_DIGEST] = config_digest(given.config)
    if hasattr(given, "mbpp"):
        options[_MBPP_DIGEST] = None if given.mbpp is None else file_digest(given.mbpp)
    model = load_config(given.config, getattr(given, "mode", None), given.set).model.name
    return ResultStore(given.output, {"model": model, **options})


def counted(contender: Contender, repeat: int, given: argparse.Namespace, name: str, num_tail: int) -> Entry:
    """The run ``name``, whose --steps are counted after --warmup and before its tail."""
    return Entry(
        contender=contender,
        number=repeat,
        run_name=name,
        num_steps=given.warmup + given.steps + num_tail,
        seed=given.seed + repeat,
        num_warmup=given.warmup,
        num_tail=num_tail,
    )


def hold(
    entries: Iterable[Entry], measure: Callable[[Entry, Path], Mapping[str, Any]], given: argparse.Namespace
) -> dict[str, Any]:
    """Train what is not in the store yet, keep what ``measure`` reads off each run's folder; all of it."""
    store = open_store(given)
    by_key = {entry.key: entry for entry in entries}
    for entry in map(by_key.__getitem__, store.missing(by_key, given.limit)):
        folder, watched = train(
            entry.contender, given, name=entry.run_name, num_steps=entry.num_steps, seed=entry.seed
        )
        drop_optimiser_states(folder)
        record = {
            "contender": entry.contender.name,
            "number": entry.number,
            **measure(entry, folder),
            "command_s": watched.seconds,
            "peak_mb": watched.peak_mb,
        }
        if entry.num_warmup:
            record["speed"] = speed_of(folder, num_warmup=entry.num_warmup, num_tail=entry.num_tail)
        store.add(entry.key, record)
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return store.result()


def pass_rates(model: str, given: argparse.Namespace, *, name: str) -> dict[str, list[int]]:
    """[passed, judged] of every task at --temperature; measured once for each ``name``.

    ``model`` is a folder or a name; one that was trained anew is measured anew.
    """
    length = load_config(given.config, None, given.set).evaluation.max_completion_length
    asked_at = f"{given.temperature:g}"
    how = ("-n", str(given.samples), "--temperature", asked_at, "--max-completion-length", str(length))
    file = f"{name}-{Path(given.tasks).stem}-{given.samples}-{given.seed}-{length}"
    return read_pass_rates(verdicts(model, given.tasks, (*how, "--seed", str(given.seed)), given, file=file))


def verdicts(model: str, tasks: str, how: Sequence[str], given: argparse.Namespace, *, file: str) -> Path:
    """The verdicts on ``tasks``, sampled as ``how`` says; made once for each ``file``."""
    output = given.work / "measured" / f"{file}.jsonl"
    return evaluated(output, model=model, tasks=tasks, how=how, given=given)[0]


def steps_ahead(config: Config) -> int:
    """How many steps of a run's end have less to do than others: those for which nothing follows."""
    staleness = config.acceleration.max_staleness
    return staleness + 1 if staleness else 0


def runs_of(runs: Runs, name: str) -> dict[int, Any]:
    """The runs of the contender ``name`` by their number."""
    own = {key.rpartition("/")[2]: run for key, run in runs.items() if key.rpartition("/")[0] == name}
    return {number: own[str(number)] for number in sorted(map(int, own))}


def pairs(runs: Runs, name: str, against: str) -> list[tuple[Any, Any]]:
    """The runs of two contenders that have the same number."""
    others = runs_of(runs, against)
    return [(run, others[number]) for number, run in runs_of(runs, name).items() if number in others]


def speed_ratios(runs: Runs, name: str, against: str) -> list[float]:
    """Trained samples/s of ``name`` over those of ``against``, within each repeat that has both."""
    return [
        own["speed"]["samples_per_s"] / other["speed"]["samples_per_s"]
        for own, other in pairs(runs, name, against)
    ]


def of_several_machines(runs: Runs) -> str:
    """Said above a table: which repeats mix machines or commits, as far as their runs say theirs."""
    machines: dict[str, set[str]] = defaultdict(set)
    commits: dict[str, set[str | None]] = defaultdict(set)
    for key, run in runs.items():
        if "hardware" in run:
            number = key.rpartition("/")[2]
            machines[number].add(json.dumps({**run["hardware"], "load_average_at_end": None}, sort_keys=True))
            commits[number].add(run.get("commit"))
    told = ""
    for what, found in (("machine and kernel", machines), ("commit", commits)):
        if mixed := ", ".join(number for number, kinds in found.items() if len(kinds) > 1):
            told += f" Repeats whose runs are not all of one {what}: {mixed}."
    return told


def curve_of(folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Pass rate over steps and training time; the first point is the model as it was."""
    model = load_config(folder / "config.yaml").model.name
    base = pass_rates(model, given, name=BASE)
    points = [{"step": 0, "time_s": 0.0, **pass_at_1(base)}]
    times_s = {row["step"]: row["time_s"] or 0.0 for row in read_metrics(folder / "metrics.jsonl")}
    for step, path in checkpoints(folder).items():
        counts = pass_rates(str(path), given, name=f"{folder.name}-{step}")
        points.append({"step": step, "time_s": times_s[step], **pass_at_1(counts)})
    return points


def reached(curve: Sequence[Mapping[str, float]], target: float, along: str) -> float | None:
    """Where straight lines between the points first reach ``target``, in ``along``; None where never."""
    if curve[0]["mean"] >= target:
        return float(curve[0][along])
    for before, after in pairwise(curve):
        if before["mean"] < target <= after["mean"]:
            share = (target - before["mean"]) / (after["mean"] - before["mean"])
            return float(before[along] + share * (after[along] - before[along]))
    return None


def measuring_options(description: str | None, benchmark: str) -> argparse.ArgumentParser:
    """The options of every contest, also of one that trains nothing."""
    parser = make_parser(description, prints_result=False)
    add_cores_option(parser, "--cores", "cores that every command may use")
    parser.add_argument("--timeout", type=float, default=14400.0, help="seconds that one command may take")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark"), help="folder of the runs")
    parser.add_argument("--limit", type=int, help="stop after so many runs; the next start goes on")
    result = RESULTS / f"{benchmark}_cpu.json"
    parser.add_argument("--output", type=Path, default=result, help="result file, gone on with (%(default)s)")
    return parser


def options(
    description: str | None,
    benchmark: str,
    *,
    seed: str | None = "of the first run; others count on from it",
) -> argparse.ArgumentParser:
    """The options of a contest that trains; ``seed`` says what --seed is of, None where nothing reads it."""
    parser = measuring_options(description, benchmark)
    if seed is not None:
        parser.add_argument("--seed", type=int, default=0, help=seed)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="for every contender; repeatable"
    )
    for option, field in (("--model", "model.name"), ("--task-set", "dataset.name")):
        parser.add_argument(
            option,
            action="append",
            dest="set",
            type=partial("{}={}".format, field),
            metavar="NAME",
            help=f"{field} of every contender",
        )
    parser.add_argument("--config", type=Path, metavar="FILE", help="for every contender")
    parser.add_argument("--keep", action="store_true", help="keep the runs when their result is there")
    return parser


def add_counted_options(parser: argparse.ArgumentParser, *, repeats: int, warmup: int) -> None:
    """How often each contender runs, and which of its steps are counted, for ``counted``."""
    for option, default, said in (
        ("--repeats", repeats, "runs of each"),
        ("--warmup", warmup, "steps that are not counted"),
        ("--steps", 6, "steps that are counted"),
    ):
        parser.add_argument(option, type=positive, default=default, help=f"{said} (%(default)s)")


def add_measured_options(parser: argparse.ArgumentParser, *, save_every: int = 12) -> None:
    """The options of contests that measure what whole runs have learnt."""
    parser.add_argument(
        "--steps", type=positive, default=36, help="optimiser steps of each run (%(default)s)"
    )
    parser.add_argument(
        *("--save-every", "--every"),
        type=positive,
        default=save_every,
        help="a checkpoint each so many (%(default)s)",
    )
    parser.add_argument("--tasks", default="ladder-heldout", help="what is measured on (%(default)s)")
    parser.add_argument("--samples", type=positive, default=4, help="samples of a task (%(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, help="of these samples (%(default)s)")


def run_to_the_end(measure: Callable[[], dict[str, Any]], table: Callable[[dict[str, Any]], str]) -> int:
    """Measure and print; returns 2 for a command line that cannot be run, 1 for a run that failed."""
    end_on_sigterm()
    try:
        result = measure()
    except (ValueError, RuntimeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    print(table(result))
    return 0
