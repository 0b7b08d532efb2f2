"""A step's scores by reward and by level, as metrics (pipeline.metric_names.FAMILIES).

Pure. Rollouts that could not be scored are left out. Called by pipeline.batch_builder.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from pipeline.messages import RolloutGroup


def breakdown_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """The mean unweighted score of each reward, and the share of passes of each level, of these groups."""
    scores: dict[str, list[float]] = defaultdict(list)
    passes: dict[int, list[bool]] = defaultdict(list)
    for group in groups:
        for rollout in group.rollouts:
            if rollout.result.is_infra_error:
                continue
            passes[group.task.difficulty].append(rollout.result.passed)
            for name, score in rollout.result.breakdown.items():
                scores[name].append(score)
    return {
        **{f"reward_part/{name}": statistics.fmean(values) for name, values in sorted(scores.items())},
        **{
            f"level_pass_rate/level_{level}": statistics.fmean(values)
            for level, values in sorted(passes.items())
        },
    }
