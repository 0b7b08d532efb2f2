"""Which completions of a group are trained on: those whose rewards differ most (max-variance down-sampling).

PODS (arXiv:2504.13818): generating is cheap in parallel, training is not, so a large group is generated and a
part of it trained on. Of all subsets of m rewards the one of largest variance consists of the k lowest and
the m - k highest for some k, so m + 1 subsets are tried. Here advantages are computed from the whole group's
mean and standard deviation, before; PODS normalises within the part.

Approximate: the mean over the completions of a step becomes one over chosen completions, which favours the
extremes of each group. Pure.

Group-relative advantages: from the rewards of a group's completions to one number each.

Pure arithmetic on floats; knows nothing of tokens, models or buffers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

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


EPSILON = 1e-4
ScaleRewards = Literal["group", "batch", "none"]


def group_advantages(groups: Sequence[Sequence[float]], scale_rewards: ScaleRewards) -> list[list[float]]:
    """Advantages of G groups of rewards, in the same shape: ``(r - mean) / (std + 1e-4)``.

    The mean is the group's; the standard deviation (Bessel-corrected, as in TRL) is the group's or the
    whole batch's, or is left out (arXiv:2402.03300, arXiv:2503.20783, arXiv:2508.08221). A NaN reward is an
    infrastructure error: it leaves the statistics and its advantage is NaN, so that it gets no training
    sample. A group whose rewards are all equal, or which has a single reward left, gets exact zeros.
    """
    batch_std = _std([reward for rewards in groups for reward in rewards if not math.isnan(reward)])
    return [_one_group(rewards, scale_rewards, batch_std) for rewards in groups]


def has_signal(advantages: Sequence[float]) -> bool:
    """Whether a group's advantages move the policy at all."""
    return any(advantage != 0.0 and not math.isnan(advantage) for advantage in advantages)


def _one_group(rewards: Sequence[float], scale_rewards: ScaleRewards, batch_std: float) -> list[float]:
    valid = [reward for reward in rewards if not math.isnan(reward)]
    if not valid or max(valid) == min(valid):
        # Rounding of the mean would leave about 1e-17 here, and "no signal" is asked as "== 0".
        return [math.nan if math.isnan(reward) else 0.0 for reward in rewards]
    mean = math.fsum(valid) / len(valid)
    if scale_rewards == "none":
        scale = 1.0
    else:
        scale = (_std(valid) if scale_rewards == "group" else batch_std) + EPSILON
    return [(reward - mean) / scale for reward in rewards]


def _std(values: Sequence[float]) -> float:
    """The unbiased standard deviation; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
