"""Group-relative advantages: from the rewards of a group's completions to one number each.

Pure arithmetic on floats; knows nothing of tokens, models or buffers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

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
