"""The RewardResult: one score with everything needed to explain it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.result import Outcome

_MAX_DETAIL = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """The score of one completion.

    ``reward`` is the weighted sum that GRPO sees, or NaN after an infrastructure error (such a rollout
    leaves its group's statistics). ``breakdown`` maps each reward's name to its unweighted score.
    ``passed`` says that all tests passed. ``detail`` is the sandbox's short reason. ``cached`` says that
    the verdict was found (in the cache, or with an identical program in flight) and not made for this
    completion; ``seconds`` is how long scoring it took now: next to nothing for one from the cache, the wait
    for one in flight.
    """

    reward: float
    breakdown: Mapping[str, float]
    outcome: Outcome
    passed: bool
    detail: str = ""
    cached: bool = False
    seconds: float = 0.0

    @property
    def is_infra_error(self) -> bool:
        """Whether scoring failed, not the answer: such a result says nothing about the program."""
        return self.outcome is Outcome.INFRA_ERROR


def infra_error(detail: str, seconds: float) -> RewardResult:
    """What is known of a completion that could not be scored, after ``seconds`` of trying."""
    return RewardResult(
        reward=math.nan,
        breakdown={},
        outcome=Outcome.INFRA_ERROR,
        passed=False,
        detail=detail,
        seconds=seconds,
    )


def one_line(error: BaseException) -> str:
    """The error's text as one line of bounded length, for a detail."""
    return " ".join(str(error).split())[:_MAX_DETAIL]
