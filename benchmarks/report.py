"""How a benchmark gives its result: a table, a file, and last one line of JSON. Called by the benchmarks."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """The options that ``publish`` reads."""
    parser.add_argument("--json-only", action="store_true", help="no table")
    parser.add_argument("--output", type=Path, help="where to write the JSON too")


def publish(
    result: dict[str, Any], name: str, table: Callable[[dict[str, Any]], str], given: argparse.Namespace
) -> None:
    """Print ``result`` as ``table`` shows it and as JSON, with the command that made it."""
    result = {"command": " ".join([f"python -m benchmarks.{name}", *sys.argv[1:]]), **result}
    if not given.json_only:
        print(table(result))
    if given.output is not None:
        given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


def run_to_the_end(measure: Callable[[], dict[str, Any]], table: Callable[[dict[str, Any]], str]) -> int:
    """Measure and print; returns 2 for a command line that cannot be run, 1 for a run that failed."""
    # What it has started is ended on the way out.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        result = measure()
    except (ValueError, RuntimeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    print(table(result))
    return 0


def percent(estimate: Mapping[str, float], sign: str = "") -> str:
    """An estimate with its interval; a ``sign`` of "+" for differences."""
    mean, low, high = (100 * estimate[key] for key in ("mean", "low", "high"))
    return f"{mean:{sign}.1f} % ({low:{sign}.1f} to {high:{sign}.1f})"
