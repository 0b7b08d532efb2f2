"""Completions, rollouts and groups as these tests need them."""

from __future__ import annotations

import math

from curriculum.task import Task
from pipeline.messages import Completion, Rollout, RolloutGroup
from rewards.result import RewardResult
from sandbox.result import Outcome

TASK = Task(task_id="t", prompt="p", entry_point="f", check_source="def check(f): pass")


def completion(
    index: int = 0, version: int = 0, *, newest: int | None = None, length: int = 2, finish: str = "stop",
    cached: int = 0,
) -> Completion:  # fmt: skip
    """Of ``length`` tokens 7, 8, ..., all of ``version`` or some as new as ``newest``."""
    return Completion(
        index=index,
        token_ids=tuple(range(7, 7 + length)),
        logprobs=tuple(-0.5 / place for place in range(1, length + 1)),
        text=f"answer {index}",
        finish_reason=finish,
        min_policy_version=version,
        max_policy_version=version if newest is None else newest,
        num_cached_tokens=cached,
    )


def rollout(
    reward: float, *, index: int = 0, finish: str = "stop", version: int = 0, cached: int = 0
) -> Rollout:
    """Its newest token may be of the next version; a reward of NaN is an infrastructure error."""
    is_lost = math.isnan(reward)
    return Rollout(
        prompt_ids=(1, 2, 3),
        completion=completion(index, version, newest=version + 1, finish=finish, cached=cached),
        result=RewardResult(
            reward=reward,
            breakdown={} if is_lost else {"syntax": float(reward > 0)},
            outcome=Outcome.INFRA_ERROR if is_lost else Outcome.PASS if reward == 1 else Outcome.WRONG,
            passed=reward == 1,
            detail="",
            cached=False,
            seconds=0.0,
        ),
    )


def group(*rollouts: Rollout, draw_id: int = 1) -> RolloutGroup:
    """The group of a draw."""
    return RolloutGroup(draw_id=draw_id, task=TASK, rollouts=rollouts)
