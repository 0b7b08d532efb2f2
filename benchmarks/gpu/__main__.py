"""The battery for one GPU: six stages in at most 56 minutes, each by itself, and one file of what they found.

    python -m benchmarks.gpu --output benchmarks/results/gpu.json
    python -m benchmarks.gpu kernels train_step          # these, again
    python -m benchmarks.gpu --device cpu --tiny         # every line of it on a CPU; its figures say nothing

The stages, most needed first: kernels, train_step, memory, sharding, generation, whole_run. Each has a
process and a time limit of its own; what it needs and is not installed it says, and is left out. The first
four need torch, transformers, peft and pydantic. Each part stands in the file when it is done: what is there
is not measured again, unless its stage is named. A part that fails is written down with its error, the rest
goes on, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.stage import Figures, Terms, gpu_circumstances
from benchmarks.processes import Worker
from benchmarks.report import (
    RESULTS,
    add_cores_option,
    command_line,
    differing,
    end_on_sigterm,
    make_parser,
    num_cores,
    own_cores,
    positive,
    table_text,
    write_result,
)
from benchmarks.train_step import __main__ as train_step
from pipeline.host.files import cache_root, read_object

RESULT: Final = RESULTS / "gpu.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A stage: its class as MODULE:CLASS, the packages without which it cannot be, and its seconds."""

    target: str
    needs: tuple[str, ...]
    limit_s: float


_TRAINER: Final = ("transformers", "peft")
STAGES: Final[Mapping[str, Planned]] = {
    "kernels": Planned(target="benchmarks.gpu.kernels:Kernels", needs=_TRAINER, limit_s=300),
    "train_step": Planned(target="benchmarks.gpu.train_step:TrainStep", needs=_TRAINER, limit_s=720),
    "memory": Planned(target="benchmarks.gpu.trainer:Memory", needs=_TRAINER, limit_s=420),
    "sharding": Planned(target="benchmarks.gpu.trainer:Sharding", needs=_TRAINER, limit_s=120),
    "generation": Planned(
        target="benchmarks.gpu.generation:Generation", needs=(*_TRAINER, "vllm"), limit_s=900
    ),
    "whole_run": Planned(
        target="benchmarks.gpu.whole_run:WholeRun", needs=(*_TRAINER, "vllm", "datasets", "trl"), limit_s=900
    ),
}


def run_stage(planned: Planned, terms: Terms, limit_s: float, done: Figures) -> Iterator[Figures]:
    """What there is before the first part and after each: figures and errors, or why it was left out.

    Parts that are ``done`` are not measured again.
    """
    if missing := [name for name in planned.needs if importlib.util.find_spec(name) is None]:
        yield {"skipped": f"{' and '.join(missing)} not installed"}
        return
    started = time.monotonic()
    parts, errors = dict(done), dict[str, str]()

    def elapsed_s() -> float:
        return time.monotonic() - started

    def left_s() -> float:
        return max(0.0, limit_s - elapsed_s())

    def found() -> Figures:
        return {"seconds": elapsed_s(), "parts": dict(parts), "errors": dict(errors)}

    with Worker("the stage", planned.target, terms) as worker:
        try:
            wanted = [part for part in worker.ask("parts", deadline_s=left_s()) if part not in parts]
        except RuntimeError as error:
            wanted, errors["all of it"] = [], str(error)
        # What the file says of a battery that is ended in the middle.
        errors |= dict.fromkeys(wanted, "not begun")
        yield found()
        for part in wanted:
            if left_s() == 0:
                errors[part] = f"not begun within the stage's {limit_s:.0f} s"
            else:
                try:
                    parts[part] = worker.ask("measure", part, deadline_s=left_s())
                    del errors[part]
                except RuntimeError as error:
                    errors[part] = str(error)
                said = errors[part][-300:] if part in errors else parts[part]
                print(f"  {part}: {said}", file=sys.stderr, flush=True)
            yield found()
        if left_s() > 0:
            # Killed, it would leave what its last part has on the card, and the next stage finds less of it.
            with suppress(RuntimeError):
                worker.ask("close", deadline_s=left_s())


def is_whole(stage: Figures) -> bool:
    """Whether nothing of a ``stage`` is missing in the file."""
    return "parts" in stage and not stage["errors"]


def read_earlier(path: Path, now: Figures) -> Figures:
    """The stages in the file ``path``, if there is one.

    Raises ValueError where they were measured on another card, with other versions, threads or tasks than
    ``now``: a table has one heading.
    """
    if not path.is_file():
        return {}
    earlier = read_object(path)
    # Results of earlier versions do not say these.
    then = {name: now[name] for name in ("threads", "task_set")} | earlier
    told = [f"{name} was {old}, is {new}" for name, old, new in differing(_heading(then), _heading(now))]
    if told:
        raise ValueError(
            f"{path}: holds figures of another machine or of other options ({', '.join(told)}); give another "
            "--output"
        )
    stages: Figures = earlier["stages"]
    return stages


def _heading(result: Figures) -> Figures:
    """What figures in one file must have in common."""
    cards = [card["name"] for card in result["hardware"]["gpus"]] or [result["hardware"]["cpu"]]
    options = {name: result[name] for name in ("device", "tiny", "threads", "task_set")}
    return {**options, "cards": cards, **result["versions"]}


def run(given: argparse.Namespace) -> Figures:
    """Measure what is asked for and not there yet; the file is written after every part."""
    result: Figures = {
        "device": given.device,
        "tiny": given.tiny,
        "threads": given.threads,
        # Of a file its name: where it lies is of this machine alone.
        "task_set": Path(given.task_set).name,
        **gpu_circumstances(),
    }
    result["stages"] = read_earlier(given.output, result)
    given.work.mkdir(parents=True, exist_ok=True)
    terms = Terms(
        device=given.device,
        is_tiny=given.tiny,
        work=given.work.resolve(),
        cores=own_cores(given.threads),
        task_set=given.task_set,
    )
    for name in given.stages or STAGES:
        earlier = result["stages"].get(name, {})
        if is_whole(earlier) and not given.stages:
            print(f"{name}: is there", file=sys.stderr)
            continue
        print(f"{name}:", file=sys.stderr, flush=True)
        limit_s = given.limit or STAGES[name].limit_s
        done = earlier.get("parts", {})
        for found in run_stage(STAGES[name], terms, limit_s, {} if given.stages else done):
            if done and "skipped" in found:
                print(f"  {found['skipped']}: what is there stays", file=sys.stderr)
                continue
            result["stages"][name] = {"command": command_line(), **found}
            if done:
                # One that is measured again stays until it is.
                result["stages"][name]["parts"] = {**done, **found["parts"]}
            write_result(given.output, result)
    return result


def table(result: Mapping[str, Any]) -> str:
    """Hardware, versions, a table of all figures, the commands that gave some, the training step's table."""
    rows, steps = [], []
    parts_of = dict[str, list[str]]()
    for name in (name for name in STAGES if name in result["stages"]):
        stage = result["stages"][name]
        if "skipped" in stage:
            rows.append([name, "", f"left out: {stage['skipped']}"])
            continue
        for part, figures in stage["parts"].items():
            if "train_step" in figures:
                steps.append(f"{part}:\n\n{train_step.table(figures['train_step'])}")
            if "command" in figures:
                parts_of.setdefault(figures["command"], []).append(part)
            rows.append([name, part, "; ".join(_told(figures)) or "below"])
        rows += [[name, part, f"failed: {_last(error)}"] for part, error in stage["errors"].items()]
    versions = ", ".join(f"{name} {value}" for name, value in result["versions"].items())
    cards = [
        f"{card['name']}, {card['memory_mb']} MB, driver {card['driver']}"
        for card in result["hardware"]["gpus"]
    ]
    above = f"{'; '.join(cards) or result['hardware']['cpu']}; {versions}."
    if result["tiny"]:
        above += " Tiny sizes: its figures say nothing."
    commands = "\n".join(f"- {'; '.join(parts)}: `{command}`" for command, parts in parts_of.items())
    texts = [table_text(["stage", "part", "figures"], rows, above=above), commands, *steps]
    return "\n\n".join(filter(None, texts))


def _told(figures: Figures) -> list[str]:
    """Each with its name; the instances of a kernel are one."""
    short: Figures = {}
    for key, value in figures.items():
        if key not in ("command", "train_step"):
            name = re.sub(r"void |at::native::|\(anonymous namespace\)::|<.*", "", key)
            short[name] = short[name] + value if name in short else value
    return [f"{name} {_shown(value)}" for name, value in short.items()]


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _last(error: str) -> str:
    """Its last line, so that it fits into a table."""
    return error.strip().splitlines()[-1].replace("|", "/")[:200]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = make_parser(__doc__, prints_result=False)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"default: all: {', '.join(STAGES)}")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that take a CPU seconds")
    add_cores_option(parser, "--threads", "cores, and threads", min(8, num_cores()))
    parser.add_argument(
        "--task-set", default="ladder", metavar="SET", help="tasks of whole runs, as --dataset (%(default)s)"
    )
    parser.add_argument("--limit", type=positive, help="seconds that each stage may take")
    parser.add_argument(
        "--work", type=Path, default=cache_root() / "gpu-battery", help="models and runs (%(default)s)"
    )
    parser.add_argument(
        "--output", type=Path, help="result file, gone on with (benchmarks/results/gpu.json; tiny: in --work)"
    )
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.stages if name not in STAGES]:
        parser.error(f"STAGE: value {unknown[0]!r}: one of {', '.join(STAGES)}")
    if given.device == "cpu" and not given.tiny:
        parser.error("--device: value 'cpu': with --tiny only, the sizes are a GPU's")
    given.output = given.output or (given.work / "tiny.json" if given.tiny else RESULT)
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where a part has failed, 2 for a file of another machine."""
    end_on_sigterm()
    given = parse(arguments)
    try:
        result = run(given)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(result))
    asked = [result["stages"][name] for name in given.stages or STAGES]
    return int(any(stage.get("errors") for stage in asked))


if __name__ == "__main__":
    sys.exit(main())
