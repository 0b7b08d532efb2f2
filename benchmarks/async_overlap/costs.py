"""What the stages of a step cost, scaled from recorded runs, and what no order of the work can beat.

Plain numbers; runs nothing.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.recording import load_recording
from benchmarks.report import RESULTS
from pipeline.measured_run import MeasuredRun, read_record

Order = Literal["synchronous", "on-policy overlap", "asynchronous"]
STAGES = ("generation", "rewards", "training")
_PROFILE = RESULTS / "train_step_profile_cpu.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Seconds that each piece of work takes. Lists are gone through in turn, and begun again at their end.

    ``completion_s``: one completion. ``reward_s``: one score in one reward worker. ``train_group_s``: forward
    and backward of one group. ``optimizer_s``: what an optimiser step costs besides, once. ``publish_s``: the
    trainer writes its weights. ``update_s``: the generator takes them, of which it stands still ``pause_s``.
    """

    completion_s: tuple[float, ...]
    reward_s: tuple[float, ...]
    train_group_s: float
    optimizer_s: float
    publish_s: float
    update_s: float
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A step's groups of ``num_generations`` completions, and how much is written and scored at once."""

    groups_per_step: int
    num_generations: int
    num_generating: int
    num_reward_workers: int

    @property
    def num_completions(self) -> int:
        """Of a step."""
        return self.groups_per_step * self.num_generations


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What real runs measured: a run, the seconds of scores, the optimiser's share of training."""

    run: MeasuredRun
    reward_s: tuple[float, ...]
    optimizer_share: float


def read_recorded() -> Recorded:
    """The records of benchmarks/data and benchmarks/results."""
    groups = load_recording("short").groups
    profile = json.loads(_PROFILE.read_text(encoding="utf-8"))["profile"]
    return Recorded(
        run=read_record(),
        reward_s=tuple(rollout.result.seconds for group in groups for rollout in group.rollouts),
        optimizer_share=profile["groups"]["optimiser, clipping and copy"]["share"],
    )


def make_costs(slowest: str, others: float, step_s: float, recorded: Recorded, shape: Shape) -> StageCosts:
    """Costs for which a step takes ``slowest`` ``step_s`` seconds by itself, and the other stages a share.

    The part of a recorded weight update in which generation went on is taken to be the trainer's own.
    """
    record = recorded.run
    own_s = {stage: step_s * (1.0 if stage == slowest else others) for stage in STAGES}
    update_s, pause_s = (value / record.step_s * step_s for value in (record.update_s, record.pause_s))
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
    generation_s = shape.num_completions * statistics.fmean(costs.completion_s) / shape.num_generating
    training_s = shape.groups_per_step * costs.train_group_s + costs.optimizer_s + costs.publish_s
    return {
        "generation": generation_s + costs.pause_s,
        "rewards": shape.num_completions * statistics.fmean(costs.reward_s) / shape.num_reward_workers,
        # Only where orders overlap does the trainer go on while weights are taken.
        "training": training_s + (costs.update_s if order == "synchronous" else 0.0),
    }


def on_policy_bound_s(costs: StageCosts, shape: Shape, num_steps: int) -> float:
    """What no on-policy order of the same work can beat: the mean over steps of the longest of three chains.

    Generation of all, then the score, the backward and the update that must follow the last of it; scoring of
    all after the first is written; training of all after the first group is written and scored.
    """
    num, size = shape.num_completions, shape.num_generations
    written = _first(costs.completion_s, num * num_steps)
    scored = _first(costs.reward_s, num * num_steps)
    end_s = costs.optimizer_s + costs.publish_s + costs.update_s
    bounds = []
    for start in range(0, num * num_steps, num):
        completions, scores = written[start : start + num], scored[start : start + num]
        chains = [a + b for a, b in zip(completions, scores, strict=True)]
        first_group_s = min(max(chains[group : group + size]) for group in range(0, num, size))
        generating_s = max(sum(completions) / shape.num_generating, max(completions)) + min(scores)
        scoring_s = min(completions) + max(sum(scores) / shape.num_reward_workers, max(scores))
        last_s = max(generating_s, scoring_s, max(chains)) + costs.train_group_s
        bounds.append(end_s + max(last_s, first_group_s + shape.groups_per_step * costs.train_group_s))
    return statistics.fmean(bounds)


def _first(costs: Sequence[float], count: int) -> list[float]:
    return list(itertools.islice(itertools.cycle(costs), count))
