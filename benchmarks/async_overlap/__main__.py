"""How near steps come to the time of their slowest stage alone, in four orders of the same work.

    python -m benchmarks.async_overlap --output benchmarks/results/async_overlap_cpu.json

The loops, the buffer, the ledger, the reward pool and the queues are the pipeline's own; generator, reward
workers and trainer are Ray actors that sleep for recorded costs, so that two cores hold them all. Lengths of
completions, seconds of scores, the optimiser's share of training and the cost of a weight update in relation
to a step are those of recorded runs. A mix scales the three stages so that one of them takes STEP_S seconds a
step by itself, and each of the others OTHERS of that; "recorded" leaves them in the relation in which the run
measured them, with 1 generator and with 4. "synchronous" generates all, then scores all, then trains;
"on-policy overlap" is max_staleness 0 with streamed steps; "asynchronous" is max_staleness 1, "two steps
ahead" 2.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from benchmarks.async_overlap.loops import Steps, make_config, run, start_rewards
from benchmarks.async_overlap.sleeping_stages import MAX_STALENESS, Order, Shape, StageCosts
from benchmarks.recording import RunCosts, load_recording, read_costs
from benchmarks.report import RESULTS, circumstances, make_parser, publish, table_text
from pipeline.cluster import running_ray
from pipeline.planning.plan import in_turn, step_time

STAGES = ("generation", "rewards", "training")
# Mixes as the run measured them, by their number of generators.
RECORDED = {"recorded": 1, "recorded, 4 generators": 4}
STEP_S, OTHERS = 3.0, 0.6
# Completions that a generator writes at once, and reward workers.
_NUM_PLACES, _NUM_WORKERS = 16, 4
_NUM_FILLING = 3
_PROFILE = RESULTS / "train_step_profile_cpu.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What real runs measured: a run, the seconds of scores, the optimiser's share of training."""

    run: RunCosts
    reward_s: tuple[float, ...]
    optimizer_share: float


def read_recorded() -> Recorded:
    """The records of benchmarks/data and benchmarks/results."""
    groups = load_recording("short").groups
    profile = json.loads(_PROFILE.read_text(encoding="utf-8"))["profile"]
    return Recorded(
        run=read_costs(),
        reward_s=tuple(rollout.result.seconds for group in groups for rollout in group.rollouts),
        optimizer_share=profile["groups"]["optimiser, clipping and copy"]["share"],
    )


def make_costs(mix: str, recorded: Recorded, shape: Shape) -> StageCosts:
    """Costs for which a step takes the slowest stage STEP_S seconds by itself, and the others a share.

    ``mix`` names that stage, or is one of RECORDED: with one generator the slowest then takes STEP_S.
    The part of a recorded weight update in which generation went on is taken to be the trainer's own.
    """
    record = recorded.run
    if mix in RECORDED:
        scale = STEP_S / max(record.own_s.values())
        own_s = {stage: scale * seconds for stage, seconds in record.own_s.items()}
    else:
        scale = STEP_S / record.step_s
        own_s = {stage: STEP_S * (1.0 if stage == mix else OTHERS) for stage in STAGES}
    update_s, pause_s = scale * record.update_s, scale * record.pause_s
    generation_s = (own_s["generation"] - pause_s) * shape.num_generating / shape.num_completions
    scoring_s = own_s["rewards"] * shape.num_reward_workers / shape.num_completions
    training_s = own_s["training"] - (update_s - pause_s)
    length, seconds = statistics.fmean(record.lengths), statistics.fmean(recorded.reward_s)
    return StageCosts(
        completion_s=tuple(generation_s * value / length for value in record.lengths),
        reward_s=tuple(scoring_s * value / seconds for value in recorded.reward_s),
        train_group_s=training_s * (1 - recorded.optimizer_share) / shape.groups_per_step,
        optimizer_s=training_s * recorded.optimizer_share,
        publish_s=update_s - pause_s,
        update_s=pause_s,
        pause_s=pause_s,
    )


def own_times(costs: StageCosts, shape: Shape, order: Order) -> dict[str, float]:
    """Seconds that one step takes of each stage by itself: no order of these stages can be faster."""
    generation_s = shape.num_completions * statistics.fmean(costs.completion_s) / shape.num_places
    training_s = shape.groups_per_step * costs.train_group_s + costs.optimizer_s + costs.publish_s
    return {
        "generation": generation_s + costs.pause_s,
        "rewards": shape.num_completions * statistics.fmean(costs.reward_s) / shape.num_reward_workers,
        # Only where orders overlap does the trainer go on while weights are taken.
        "training": training_s + (costs.update_s if order == "synchronous" else 0.0),
    }


def on_policy_bound_s(costs: StageCosts, shape: Shape, num_steps: int) -> float:
    """What no on-policy order of the same work can beat: the mean over steps of the longest of three chains.

    The steps that fill the pipeline are left out as in the measured mean. Chains: generation of all, then the
    score, the backward and the update that must follow the last of it; scoring of all after the first is
    written; training of all after the first group is written and scored.
    """
    num, size = shape.num_completions, shape.num_generations
    written, scored = (
        list(itertools.islice(itertools.cycle(one), num * num_steps))
        for one in (costs.completion_s, costs.reward_s)
    )
    end_s = costs.optimizer_s + costs.publish_s + costs.update_s
    bounds = []
    for start in range(num * _NUM_FILLING, num * num_steps, num):
        completions, scores = written[start : start + num], scored[start : start + num]
        chains = [a + b for a, b in zip(completions, scores, strict=True)]
        first_group_s = min(max(chains[group : group + size]) for group in range(0, num, size))
        generating_s = max(sum(completions) / shape.num_places, max(completions)) + min(scores)
        scoring_s = min(completions) + max(sum(scores) / shape.num_reward_workers, max(scores))
        last_s = max(generating_s, scoring_s, max(chains)) + costs.train_group_s
        bounds.append(end_s + max(last_s, first_group_s + shape.groups_per_step * costs.train_group_s))
    return statistics.fmean(bounds)


async def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run every mix in every order; one row each."""
    recorded = read_recorded()
    record = recorded.run
    shape = Shape(
        groups_per_step=record.groups_per_step,
        num_generations=record.num_generations,
        num_generating=_NUM_PLACES,
        num_reward_workers=_NUM_WORKERS,
    )
    rows = []
    pool = start_rewards(make_config("asynchronous", shape, given.steps))
    try:
        for mix in given.mixes:
            costs = make_costs(mix, recorded, shape)
            own = replace(shape, num_generators=RECORDED.get(mix, 1))
            for order in get_args(Order):
                steps = await run(order, costs, own, pool, given.steps)
                rows.append({"slowest": mix, "order": order, **_figures(order, costs, own, steps)})
                print(f"{mix}, {order}: {rows[-1]['step_s']:.2f} s", file=sys.stderr, flush=True)
    finally:
        pool.close()
    return rows


def planned_s(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> float | None:
    """What ``--plan`` says of the mix and order of ``row``; None where it knows no run to tell it from.

    Without staleness that is a run in the same order: here the first of another mix.
    """
    own_s, longest_s = row["own_s"], row["longest_s"]
    if row["order"] in MAX_STALENESS:
        return step_time(own_s, 0.0, longest_s)
    for other in rows:
        if other["order"] == row["order"] and other["slowest"] != row["slowest"]:
            share = other["step_s"] / in_turn(other["own_s"], other["longest_s"])
            return step_time(own_s, share, longest_s)
    return None


def _figures(order: Order, costs: StageCosts, shape: Shape, steps: Steps) -> dict[str, Any]:
    seconds = [step["step/seconds"] or 0.0 for step in steps]
    step_s = statistics.fmean(seconds[_NUM_FILLING:])
    own = own_times(costs, shape, order)
    figures = {
        "step_s": step_s,
        "own_s": own,
        "longest_s": max(costs.completion_s),
        "ratio": step_s / max(own.values()),
        "seconds": seconds,
    }
    if order == "on-policy overlap":
        bound_s = on_policy_bound_s(costs, shape, len(steps))
        figures |= {"bound_s": bound_s, "over_bound": step_s / bound_s}
    return figures


def table(result: dict[str, Any]) -> str:
    """The figures in Markdown."""
    rows = []
    for row in result["rows"]:
        told = planned_s(result["rows"], row)
        rows.append(
            [
                row["slowest"],
                row["order"],
                f"{row['step_s']:.2f} s",
                f"{row['ratio']:.2f}",
                f"{row['over_bound']:.2f}" if "over_bound" in row else "",
                "" if told is None else f"{told:.2f} s ({100 * (told / row['step_s'] - 1):+.0f} %)",
            ]
        )
    head = ["slowest stage", "order", "step", "over the slowest stage alone", "over the on-policy bound"]
    return table_text([*head, "the plan says"], rows)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=15, help="steps of each run (%(default)s)")
    mixes = [*STAGES, *RECORDED]
    parser.add_argument("--mixes", nargs="+", choices=mixes, default=mixes, help="default: all")
    given = parser.parse_args(arguments)
    if given.steps <= _NUM_FILLING:
        parser.error(f"--steps: value {given.steps}: more than {_NUM_FILLING}, which fill the pipeline")
    return given


def main() -> None:
    """Measure what the command line says."""
    given = parse_arguments()
    with running_ray():
        rows = asyncio.run(measure(given))
    sizes = {"step_s": STEP_S, "others": OTHERS, "places": _NUM_PLACES, "workers": _NUM_WORKERS}
    settings = {"steps": given.steps, **sizes}
    publish({"settings": settings, "rows": rows, **circumstances("ray")}, table, given)


if __name__ == "__main__":
    main()
