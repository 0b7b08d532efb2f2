"""How near steps come to the time of their slowest stage alone, in three orders of the same work.

    python -m benchmarks.async_overlap --output benchmarks/results/async_overlap_cpu.json

The loops, the buffer, the ledger, the reward pool and the queues are the pipeline's own; generator, reward
workers and trainer are Ray actors that sleep for recorded costs, so that two cores hold them all. Lengths of
completions, seconds of scores, the optimiser's share of training and the cost of a weight update in relation
to a step are those of recorded runs; a mix scales the three stages so that one of them takes --step-s seconds
a step by itself, and each of the others --others of that. "synchronous" generates all, then scores all, then
trains; "on-policy overlap" is max_staleness 0 with streamed steps; "asynchronous" is max_staleness 1.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from typing import Any, get_args

from benchmarks.async_overlap.costs import (
    STAGES,
    Order,
    Shape,
    StageCosts,
    make_costs,
    on_policy_bound_s,
    own_times,
    read_recorded,
)
from benchmarks.async_overlap.loops import make_config, run, start_rewards
from benchmarks.report import hardware, make_parser, publish, table_text
from pipeline.ray_start import running_ray

_NUM_FILLING = 3


async def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run every mix in every order; one row each."""
    recorded = read_recorded()
    record = recorded.run
    shape = Shape(
        groups_per_step=record.groups_per_step,
        num_generations=record.num_generations,
        num_generating=given.places,
        num_reward_workers=given.workers,
    )
    rows = []
    pool = start_rewards(make_config("asynchronous", shape, given.steps))
    try:
        for slowest in given.mixes:
            costs = make_costs(slowest, given.others, given.step_s, recorded, shape)
            for order in get_args(Order):
                rows.append(await _measure_one(slowest, order, costs, shape, pool, given.steps))
    finally:
        pool.close()
    return rows


async def _measure_one(
    slowest: str, order: Order, costs: StageCosts, shape: Shape, pool: Any, num_steps: int
) -> dict[str, Any]:
    times = await run(order, costs, shape, pool, num_steps)
    counted, waited = times.seconds[_NUM_FILLING:], times.waited_s[_NUM_FILLING:]
    step_s = statistics.fmean(counted)
    own = own_times(costs, shape, order)
    row = {
        "slowest": slowest,
        "order": order,
        "step_s": step_s,
        "own_s": own,
        "ratio": step_s / max(own.values()),
        "trainer_waited_s": statistics.fmean(waited),
        "seconds": list(times.seconds),
    }
    if order == "on-policy overlap":
        bound_s = on_policy_bound_s(costs, shape, num_steps)
        row |= {"bound_s": bound_s, "over_bound": step_s / bound_s}
    return row


def table(result: dict[str, Any]) -> str:
    """The figures in Markdown."""
    rows = [
        [
            row["slowest"],
            row["order"],
            f"{row['step_s']:.2f} s",
            f"{row['ratio']:.2f}",
            f"{row['over_bound']:.2f}" if "over_bound" in row else "",
        ]
        for row in result["rows"]
    ]
    head = ["slowest stage", "order", "step", "over the slowest stage alone", "over the on-policy bound"]
    return table_text(head, rows)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--step-s", type=float, default=3.0, help="the slowest stage's own time (%(default)s)"
    )
    parser.add_argument(
        "--others", type=float, default=0.6, help="the other stages' share of it (%(default)s)"
    )
    parser.add_argument("--steps", type=int, default=15, help="steps of each run (%(default)s)")
    parser.add_argument("--places", type=int, default=16, help="completions written at once (%(default)s)")
    parser.add_argument("--workers", type=int, default=4, help="reward workers (%(default)s)")
    parser.add_argument("--mixes", nargs="+", choices=STAGES, default=list(STAGES), help="default: all")
    given = parser.parse_args(arguments)
    if given.steps <= _NUM_FILLING:
        parser.error(f"--steps: value {given.steps}: more than {_NUM_FILLING}, which fill the pipeline")
    if not 0.0 < given.others <= 1.0 or given.step_s <= 0.0:
        parser.error("--others: above 0 and at most 1; --step-s: above 0")
    return given


def main() -> None:
    """Measure what the command line says."""
    given = parse_arguments()
    with running_ray():
        rows = asyncio.run(measure(given))
    settings = {key: getattr(given, key) for key in ("step_s", "others", "steps", "places", "workers")}
    publish({"hardware": hardware(), "settings": settings, "rows": rows}, "async_overlap", table, given)


if __name__ == "__main__":
    main()
