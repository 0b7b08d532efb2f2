"""Which completions of a group are trained on: those whose rewards differ most (max-variance down-sampling).

PODS (arXiv:2504.13818): generating is cheap in parallel, training is not, so a large group is generated and a
part of it trained on. Of all subsets of m rewards the one of largest variance consists of the k lowest and
the m - k highest for some k, so m + 1 subsets are tried. Here advantages are computed from the whole group's
mean and standard deviation, before; PODS normalises within the part.

Approximate: the mean over the completions of a step becomes one over chosen completions, which favours the
extremes of each group. Pure. Called by pipeline.batch_builder and pipeline.step_feed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from configs.curriculum_schema import num_kept
from configs.schema import Config


def max_variance_subset(rewards: Sequence[float], size: int) -> tuple[int, ...]:
    """Indices, ascending, of ``size`` of ``rewards`` with the largest variance; O(n log n).

    NaN, which no completion that can be trained on has, is never chosen; where no more than ``size`` others
    are there, all are. Of parts that are as good the one is chosen that takes most evenly from both ends, and
    of equal rewards the first ones.
    """
    order = sorted(
        (index for index, reward in enumerate(rewards) if not math.isnan(reward)),
        key=lambda index: rewards[index],
    )
    if len(order) <= size:
        return tuple(sorted(order))
    # About the mean, so that the sums of squares do not cancel; whole-group shifts change no variance.
    mean = math.fsum(rewards[index] for index in order) / len(order)
    values = [rewards[index] - mean for index in order]
    splits = sorted(range(size + 1), key=lambda num_low: abs(2 * num_low - size))
    num_low = max(splits, key=lambda low: _spread(values[:low] + values[len(values) - size + low :]))
    lowest, highest = order[:num_low], order[num_low:]
    # From the upper end the first of equal rewards as well: sorting is stable, so they stand in front.
    highest.sort(key=lambda index: (-rewards[index], index))
    return tuple(sorted([*lowest, *highest[: size - num_low]]))


def kept_generations(config: Config) -> int | None:
    """Completions of a group that are trained on; None where down-sampling is off."""
    rollout_downsampling = config.acceleration.rollout_downsampling
    if not rollout_downsampling.enabled:
        return None
    return num_kept(rollout_downsampling.keep, config.grpo.num_generations)


def _spread(values: Sequence[float]) -> float:
    """The sum of squares about the mean, rounded so that equal spreads compare as equal."""
    total = math.fsum(values)
    return round(math.fsum(value * value for value in values) - total * total / len(values), 12)
