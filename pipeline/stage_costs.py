"""What the stages of a pipeline cost, and how many of each there are: plain numbers, measured elsewhere.

``benchmarks.async_overlap`` runs real stages with such costs, ``pipeline.pipeline_model`` predicts the run,
and ``pipeline.plan`` scales them to other numbers of GPUs. Measures and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Seconds that each piece of work takes. Lists are gone through in turn, and begun again at their end.

    ``completion_s``: one completion in an engine that is as full as it shall be. ``reward_s``: one score in
    one reward worker. ``train_group_s``: forward and backward of one group over all trainer ranks.
    ``optimizer_s``: what an optimiser step costs besides, once. ``publish_s``: the trainer writes its
    weights. ``update_s``: the generators take them, of which generation stands still for ``pause_s``.
    ``spare_speed``: how much faster a completion is where the engine is not full, see ModelledEngine.
    """

    completion_s: tuple[float, ...]
    reward_s: tuple[float, ...]
    train_group_s: float
    optimizer_s: float = 0.0
    publish_s: float = 0.0
    update_s: float = 0.0
    pause_s: float = 0.0
    spare_speed: float = 0.0

    def __post_init__(self) -> None:
        assert self.completion_s and self.reward_s
        assert 0.0 <= self.pause_s <= self.update_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """How much runs beside each other.

    ``num_generating``: completions that all engines together write at once. ``is_streamed``: a group goes to
    the trainer as soon as it can, instead of when its whole step is there. ``is_update_beside``: the trainer
    goes on with the next step while the generators take its weights.
    """

    groups_per_step: int
    num_generations: int
    max_staleness: int
    num_generating: int
    num_reward_workers: int
    is_streamed: bool = False
    is_update_beside: bool = False
