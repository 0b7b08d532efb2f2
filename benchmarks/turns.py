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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.report import percent, positive, table_text
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.training_run import counted_in, evaluated, task_counts
from configs.evaluation_options import FEEDBACK
from pipeline.evaluation.passk import share_difference
from pipeline.host.files import files_digest

CODER = "qwen2.5-coder-0.5b-instruct"


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line says and is not there yet; all that is there."""
    settings = {name: getattr(given, name) for name in ("cores", "seed", "tasks", "turns", "samples")}
    store = contest.ResultStore(given.output, settings)
    if len({key_of(model) for model in given.models}) < len(set(given.models)):
        names = ", ".join(given.models)
        raise ValueError(f"--models: {names}: two have one name; give each an --output of its own")
    asked = {f"{key_of(model)}/{kind}": (model, kind) for model in given.models for kind in given.feedback}
    for key in store.missing(asked, given.limit):
        store.add(key, measured(*asked[key], given))
    return store.result()


def key_of(model: str) -> str:
    """A name, or the last part of a folder's with what tells it from others of that name."""
    folder = Path(model)
    return f"{folder.name}-{files_digest(folder)[:6]}" if folder.is_dir() else folder.name


def measured(model: str, kind: str, given: argparse.Namespace) -> dict[str, Any]:
    """The command's own account of the turns of ``model`` with that feedback, done once."""
    how = [
        *("--turns", str(given.turns), "--feedback", kind),
        *("-n", str(given.samples), "--temperature", "0.8", "--seed", str(given.seed)),
    ]
    output = given.work / "turns" / f"{key_of(model)}-{Path(given.tasks).stem}-{kind}.jsonl"
    results, report = evaluated(output, model=model, tasks=given.tasks, how=how, given=given)
    (turns,) = json.loads(report.read_text(encoding="utf-8"))["turns"].values()
    return {**turns, "repairs": counted_in(results, _was_repaired)}


def _was_repaired(verdict: Mapping[str, Any]) -> bool | None:
    """Of an answer that failed; None of others, and where a turn was not judged."""
    if verdict["passed"] is not False:
        return None
    passed = [turn["passed"] for turn in verdict["turns"]]
    return None if None in passed else any(passed)


def table(result: Mapping[str, Any]) -> str:
    """Each model and kind of feedback, in Markdown; the first model of a kind is what others are above."""
    settings = result["settings"]
    first: dict[str, Mapping[str, Any]] = {}
    rows = []
    for key, found in result["runs"].items():
        model, _, kind = key.rpartition("/")
        base = first.setdefault(kind, found)
        rows.append(
            [
                model,
                f"`{kind}`",
                *(percent(estimate) for estimate in found["pass_after"]),
                _cell(found["repaired"]),
                "" if base is found else _cell(_repaired_more(base, found), "+"),
                # A result of an earlier version counted feedback always.
                _cell(found.get("resampled_by_answers")),
                _cell(found.get("above_resampled_by_answers"), "+"),
                _cell(found["resampled"]),
                _cell(found["above_resampled"], "+"),
            ]
        )
    turns = [f"passed after turn {number}" for number in range(1, settings["turns"] + 1)]
    above_them = "last turn above them"
    fresh = ["fresh answers, as many sampled tokens", above_them, "as many tokens", above_them]
    head = ["", "feedback", *turns, "repaired", "above the first model", *fresh]
    above = (
        f"{settings['tasks']}: {settings['samples']} answers a task at temperature 0.8; 95 % intervals over "
        "tasks, differences paired by task."
    )
    return table_text(head, rows, above=above)


def _repaired_more(base: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, float] | None:
    """How much more of its failed answers ``found`` repairs than ``base``; None where none failed.

    So it is for a result of an earlier version, which has no account of them.
    """
    if "repairs" not in base or "repairs" not in found:
        return None
    before, after = (task_counts(one["repairs"]) for one in (base, found))
    return asdict(share_difference(before, after)) if before and after else None


def _cell(estimate: Mapping[str, float] | None, sign: str = "") -> str:
    return "" if estimate is None else percent(estimate, sign)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.measuring_options(__doc__, "turns")
    parser.add_argument("--seed", type=int, default=0, help="of the answers (%(default)s)")
    parser.add_argument("--tasks", default="mbpp", help="what is measured on (%(default)s)")
    parser.add_argument("--models", nargs="+", default=[CODER], help="names or folders (%(default)s)")
    parser.add_argument(
        "--feedback", nargs="+", choices=FEEDBACK, default=["public", "verdict"], help="kinds (%(default)s)"
    )
    parser.add_argument("--turns", type=positive, default=2, help="answers at most (%(default)s)")
    parser.add_argument("--samples", type=positive, default=1, help="first answers of a task (%(default)s)")
    given = parser.parse_args(arguments)
    if given.turns < 2:
        parser.error(f"--turns: {given.turns} is not allowed; allowed: 2 or more")
    return given


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
