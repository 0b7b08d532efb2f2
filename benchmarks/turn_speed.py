"""What a second answer costs in training: the speed of whole runs with one answer, and with two.

    python -m benchmarks.turn_speed --config configs/recipes/coder.yaml --task-set mbpp_training.jsonl

A conversation is longer than an answer, so its speed is that of tokens: of those that were sampled, in all
answers of a trained completion, and of these with the feedback between them, which generator and trainer
read. Runs take turns, in the other direction in every other repeat, and ratios are formed within a repeat.
A run of less than 20 steps has no trial of overlap: its stages run beside each other.
benchmarks.whole_runs.contest says how a contest is interrupted and gone on with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.report import in_turns, median_and_each, table_text
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.training_run import accelerated
from configs.load import MODES, load_config

ONE, TWO = "one answer", "two answers"
CONTENDERS = {ONE: 1, TWO: 2}
_SAMPLED = "rollout/completion_length"
_FEEDBACK = "rollout/feedback_tokens"
_Pair = tuple[Mapping[str, Any], Mapping[str, Any]]


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line says and is not there yet."""
    num_tail = contest.steps_ahead(load_config(given.config, given.mode, given.set))
    entries = [
        contest.counted(
            accelerated(name, given.mode, {"rollouts.max_turns": CONTENDERS[name]}),
            repeat,
            given,
            f"turn-speed-{CONTENDERS[name]}-{repeat}",
            num_tail,
        )
        for name, repeat in in_turns(list(CONTENDERS), given.repeats)
    ]
    return contest.hold(entries, lambda entry, folder: {}, given)


def tokens_per_s(run: Mapping[str, Any], *, with_feedback: bool = False) -> float:
    """Tokens of trained completions a second: those that were sampled, or these and their feedback's."""
    means = run["speed"]["means"]
    length = means[_SAMPLED] + (means.get(_FEEDBACK, 0.0) if with_feedback else 0.0)
    return float(run["speed"]["samples_per_s"] * length)


def table(result: Mapping[str, Any]) -> str:
    """The figures in Markdown."""
    runs, settings = result["runs"], result["settings"]
    rows = []
    for name in CONTENDERS:
        if not (own := list(contest.runs_of(runs, name).values())):
            continue
        pairs = contest.pairs(runs, name, ONE)
        rows.append(
            [
                name,
                f"{statistics.median(run['speed']['samples_per_s'] for run in own):.3f}",
                f"{statistics.median(run['speed']['means'][_SAMPLED] for run in own):.0f}",
                f"{statistics.median(map(tokens_per_s, own)):.0f}",
                _ratios(pairs),
                *_feedback_cells(own, pairs),
            ]
        )
    above = (
        f"{settings['model']}, mode {settings['mode']}, {settings['cores']} cores of "
        f"{result['hardware']['cpu']}; {settings['steps']} steps after {settings['warmup']}; medians of the "
        f"repeats.{contest.of_several_machines(runs)}"
    )
    head = [
        "",
        "trained samples/s",
        "sampled tokens of one",
        "sampled tokens/s",
        "times one answer",
        "feedback's tokens of one",
        "times one answer, these included",
    ]
    return table_text(head, rows, above=above)


def _feedback_cells(own: Sequence[Mapping[str, Any]], pairs: Sequence[_Pair]) -> list[str]:
    """Empty for one answer, and where runs of an earlier version did not count those tokens."""
    if not all(_FEEDBACK in run["speed"]["means"] for run in own):
        return ["", ""]
    length = statistics.median(run["speed"]["means"][_FEEDBACK] for run in own)
    return [f"{length:.0f}", _ratios(pairs, with_feedback=True)]


def _ratios(pairs: Sequence[_Pair], *, with_feedback: bool = False) -> str:
    speed = partial(tokens_per_s, with_feedback=with_feedback)
    return median_and_each([speed(one) / speed(other) for one, other in pairs])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.options(__doc__, "turn_speed")
    parser.add_argument("--mode", choices=MODES, default="balanced", help="(%(default)s)")
    contest.add_counted_options(parser, repeats=3, warmup=2)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
