"""The RewardResult: one score with everything needed to explain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.result import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """The score of one completion.

    ``reward`` is the weighted sum that GRPO sees, or NaN when ``outcome`` is ``INFRA_ERROR`` (such a
    rollout leaves its group's statistics). ``breakdown`` maps each reward's name to its unweighted
    score in [0, 1]. ``passed`` says that all tests passed. ``detail`` is the sandbox's short reason.
    ``cached`` says that the verdict came from the cache, ``seconds`` what scoring cost.
    """

    reward: float
    breakdown: Mapping[str, float]
    outcome: Outcome
    passed: bool
    detail: str
    cached: bool
    seconds: float
