"""The Rubric: how the parts of a verdict become one reward.

Knows the weights, what differs by source of tasks, and nothing of how a part is measured. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from configs.rewards_schema import RewardsConfig, SourceRewards, TestsMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is in force for the tasks of one source.

    ``weights`` has one for each part of the breakdown; a part of weight 0 need not run. ``tests_mode`` says
    whether some passed tests earn their share, or only all of them earn anything. ``syntax_failure_reward``
    is the constant reward of a program that does not compile.
    """

    weights: Mapping[str, float]
    tests_mode: TestsMode
    syntax_failure_reward: float

    def combine(self, breakdown: Mapping[str, float]) -> float:
        """The weighted sum of ``breakdown``; a part that is not in it counts nothing."""
        return math.fsum(self.weights[name] * score for name, score in breakdown.items())


class Rubric:
    """What ``rewards`` says, for every source of tasks; a source without an entry has the common rules."""

    def __init__(self, rewards: RewardsConfig) -> None:
        weights: dict[str, float] = rewards.weights.model_dump()
        weights |= zip(rewards.custom_names, rewards.custom_weights, strict=True)
        self._common = Rules(
            weights=weights,
            tests_mode=rewards.tests,
            syntax_failure_reward=rewards.syntax_failure_reward,
        )
        self._by_source = {
            source: _override(self._common, override) for source, override in rewards.per_source.items()
        }

    def rules(self, source: str) -> Rules:
        """What is in force for tasks of ``source``."""
        return self._by_source.get(source, self._common)

    def is_used(self, name: str) -> bool:
        """Whether the part ``name`` weighs anything for any source: else nothing of it need be started."""
        return any(rules.weights[name] != 0.0 for rules in (self._common, *self._by_source.values()))


def _override(common: Rules, override: SourceRewards) -> Rules:
    mode, failure = override.tests, override.syntax_failure_reward
    return Rules(
        weights={**common.weights, **override.weights},
        tests_mode=common.tests_mode if mode is None else mode,
        syntax_failure_reward=common.syntax_failure_reward if failure is None else failure,
    )
