"""What a second answer after feedback is worth, beside fresh answers with as many tokens.

    python -m benchmarks.turns --tasks mbpp_test.jsonl

Runs ``evaluate_humaneval --turns`` for each model and each kind of feedback, with --samples answers a task at
temperature 0.8. Intervals are of 95 %, over tasks. Each measurement stands in --output when it is done, and
the same command goes on with the next; --limit stops after so many.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes import run_command
from benchmarks.report import RESULTS, command_line, percent, positive, table_text
from benchmarks.whole_runs import contest
from configs.evaluation_options import FEEDBACK

RESULT = RESULTS / "turns_cpu.json"
CODER = "qwen2.5-coder-0.5b-instruct"


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line says and is not there yet; all that is there."""
    settings = {name: getattr(given, name) for name in ("cores", "seed", "tasks", "turns", "samples")}
    store = contest.ResultStore(given.output, settings, command_line("turns"))
    num_left = given.limit
    for model in given.models:
        for kind in FEEDBACK:
            key = f"{Path(model).name}/{kind}"
            if key in store or num_left == 0:
                continue
            store.add(key, measured(model, kind, given))
            print(f"{key}: done", file=sys.stderr, flush=True)
            num_left = None if num_left is None else num_left - 1
    return store.result()


def measured(model: str, kind: str, given: argparse.Namespace) -> dict[str, Any]:
    """The command's own account of the turns of ``model`` with that feedback, done once."""
    folder = given.work / "turns"
    output = folder / f"{Path(model).name}-{Path(given.tasks).stem}-{kind}.jsonl"
    report = Path(f"{output}_report.json")
    if not report.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        terms = contest.terms_of(given)
        arguments = [
            *("--model", model, "--tasks", given.tasks, "--output", str(output)),
            *("--turns", str(given.turns), "--feedback", kind),
            *("-n", str(given.samples), "--temperature", "0.8", "--seed", str(given.seed)),
        ]
        log = folder / f"{output.stem}.log"
        run_command("evaluate_humaneval", arguments, cores=terms.cores, log=log, deadline_s=terms.deadline_s)
    (turns,) = json.loads(report.read_text(encoding="utf-8"))["turns"].values()
    return dict(turns)


def table(result: Mapping[str, Any]) -> str:
    """Each model and kind of feedback, in Markdown."""
    settings = result["settings"]
    rows = []
    for key, found in result["runs"].items():
        model, _, kind = key.rpartition("/")
        values = [found[name] for name in ("repaired", "resampled", "above_resampled")]
        signs = ("", "", "+")
        rows.append(
            [
                model,
                f"`{kind}`",
                *(percent(estimate) for estimate in found["pass_after"]),
                *("" if one is None else percent(one, sign) for one, sign in zip(values, signs, strict=True)),
            ]
        )
    turns = [f"passed after turn {number}" for number in range(1, settings["turns"] + 1)]
    head = ["", "feedback", *turns, "repaired", "fresh answers, as many tokens", "last turn above them"]
    above = (
        f"{settings['tasks']}: {settings['samples']} answers a task at temperature 0.8; 95 % intervals over "
        "tasks, the difference paired by task."
    )
    return table_text(head, rows, above=above)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.options(__doc__, RESULT)
    parser.add_argument("--tasks", default="mbpp", help="what is measured on (%(default)s)")
    parser.add_argument("--models", nargs="+", default=[CODER], help="names or folders (%(default)s)")
    parser.add_argument("--turns", type=positive, default=2, help="answers at most (%(default)s)")
    parser.add_argument("--samples", type=positive, default=1, help="first answers of a task (%(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
