"""What the stages of a benchmarked pipeline cost, and how many of each there are: plain numbers.

``benchmarks.async_overlap`` makes them, and ``benchmarks.sleeping_stages`` sleeps for them. Measures nothing.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Seconds that each piece of work takes. Lists are gone through in turn, and begun again at their end.

    ``completion_s``: one completion in one place of the engines. ``reward_s``: one score in one reward
    worker. ``train_group_s``: forward and backward of one group. ``optimizer_s``: what an optimiser step
    costs besides, once. ``publish_s``: the trainer writes its weights. ``update_s``: the generators take
    them, of which generation stands still for ``pause_s``.
    """

    completion_s: tuple[float, ...]
    reward_s: tuple[float, ...]
    train_group_s: float
    optimizer_s: float = 0.0
    publish_s: float = 0.0
    update_s: float = 0.0
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        assert self.completion_s and self.reward_s
        assert 0.0 <= self.pause_s <= self.update_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """How much runs beside each other.

    ``num_generating``: completions that are written at once. ``is_streamed``: a group goes to the trainer as
    soon as it can, instead of when its whole step is there. ``is_update_beside``: the trainer goes on with
    the next step while the generators take its weights.
    """

    groups_per_step: int
    num_generations: int
    max_staleness: int
    num_generating: int
    num_reward_workers: int
    is_streamed: bool = False
    is_update_beside: bool = False


def own_times(costs: StageCosts, shape: PipelineShape) -> dict[str, float]:
    """Seconds that one step takes of each stage by itself: no pipeline with these stages can be faster."""
    number = shape.groups_per_step * shape.num_generations
    training_s = shape.groups_per_step * costs.train_group_s + costs.optimizer_s + costs.publish_s
    return {
        "generation": number * statistics.fmean(costs.completion_s) / shape.num_generating + costs.pause_s,
        "rewards": number * statistics.fmean(costs.reward_s) / shape.num_reward_workers,
        "training": training_s + (0.0 if shape.is_update_beside else costs.update_s),
    }
