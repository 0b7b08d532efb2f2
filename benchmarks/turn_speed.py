"""What a second answer costs in training: the speed of whole runs with one answer, and with two.

    python -m benchmarks.turn_speed --config configs/recipes/coder.yaml --task-set mbpp_training.jsonl

A conversation is longer than an answer, so its speed is that of tokens: of those that were sampled, in all
answers of a trained completion; feedback does not count. Runs take turns, in the other direction in every
other repeat, and ratios are formed within a repeat. A run of less than 20 steps has no trial of overlap: its
stages run beside each other.
benchmarks.whole_runs.contest says how a contest is interrupted and gone on with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report import in_turns, table_text
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.training_run import accelerated
from configs.load import MODES, load_config

ONE, TWO = "one answer", "two answers"
CONTENDERS = {ONE: 1, TWO: 2}
_LENGTH = "rollout/completion_length"


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


def tokens_per_s(run: Mapping[str, Any]) -> float:
    """Sampled tokens of trained completions a second."""
    speed = run["speed"]
    return float(speed["samples_per_s"] * speed["means"][_LENGTH])


def table(result: Mapping[str, Any]) -> str:
    """The figures in Markdown."""
    runs, settings = result["runs"], result["settings"]
    rows = []
    for name in CONTENDERS:
        if not (own := list(contest.runs_of(runs, name).values())):
            continue
        ratios = [tokens_per_s(one) / tokens_per_s(other) for one, other in contest.pairs(runs, name, ONE)]
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        rows.append(
            [
                name,
                f"{statistics.median(run['speed']['samples_per_s'] for run in own):.3f}",
                f"{statistics.median(run['speed']['means'][_LENGTH] for run in own):.0f}",
                f"{statistics.median(map(tokens_per_s, own)):.0f}",
                f"{statistics.median(ratios):.2f} ({each})" if ratios else "",
            ]
        )
    above = (
        f"{settings['model']}, mode {settings['mode']}, {settings['cores']} cores of "
        f"{result['hardware']['cpu']}; {settings['steps']} steps after {settings['warmup']}; medians of the "
        f"repeats.{contest.of_several_machines(runs)}"
    )
    head = ["", "trained samples/s", "sampled tokens of one", "sampled tokens/s", "times one answer"]
    return table_text(head, rows, above=above)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.options(__doc__, "turn_speed")
    parser.add_argument("--mode", choices=MODES, default="balanced", help="(%(default)s)")
    contest.add_counted_options(parser, repeats=3, warmup=2)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
