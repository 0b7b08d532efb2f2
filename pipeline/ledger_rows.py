"""Rollouts as rows of run.db, and back.

Token ids are kept as int32 and log-probabilities as float32, which is what engines compute them in: nothing
is lost on the way. Pure. Called by pipeline.ledger.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.messages import Completion, Rollout, VersionRun
from pipeline.metrics import finite_or_none
from rewards.result import RewardResult
from sandbox.result import Outcome

# The columns that ``rollout_of`` reads, of rollouts and tokens joined.
ROLLOUT_COLUMNS = (
    "rollout_id, token_ids, logprobs, version_runs, place, completion, finish_reason, min_policy_version,"
    " max_policy_version, reward, breakdown, outcome, detail, passed, cached, seconds"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """An open draw, made for ``step`` (as the sampler counts them, from 0).

    ``status`` is "issued" or "scored"; ``attempt`` counts how often it was made again.

    ``basis`` is what its rollouts rest on, None where their tokens are not kept.
    """

    draw_id: int
    task_id: str
    step: int
    attempt: int
    status: str
    basis: str | None = None


def rollout_row(rollout: Rollout, draw_id: int, attempt: int, run_id: int) -> tuple[object, ...]:
    """The row of ``rollouts``, in the order of its columns."""
    completion, result = rollout.completion, rollout.result
    return (
        draw_id,
        attempt,
        completion.index,
        run_id,
        rollout.rollout_id,
        completion.text,
        len(completion.token_ids),
        completion.finish_reason,
        completion.min_policy_version,
        completion.max_policy_version,
        finite_or_none(result.reward),
        json.dumps({name: finite_or_none(score) for name, score in result.breakdown.items()}),
        str(result.outcome),
        result.detail,
        result.passed,
        result.cached,
        result.seconds,
    )


def tokens_row(rollout: Rollout, draw_id: int) -> tuple[object, ...]:
    """The row of ``tokens``, in the order of its columns."""
    completion = rollout.completion
    return (
        draw_id,
        completion.index,
        array("i", completion.token_ids).tobytes(),
        array("f", completion.logprobs).tobytes(),
        json.dumps([[run.policy_version, run.num_tokens] for run in completion.version_runs]),
    )


def rollout_of(row: Sequence[object], prompt_ids: tuple[int, ...]) -> Rollout:
    """The rollout that ROLLOUT_COLUMNS hold; ``prompt_ids`` is its prompt, which is not stored."""
    rollout_id, token_ids, logprobs, version_runs, place, text, finish_reason, oldest, newest = row[:9]
    reward, breakdown, outcome, detail, passed, cached, seconds = row[9:]
    assert isinstance(token_ids, bytes) and isinstance(logprobs, bytes)
    assert isinstance(place, int) and isinstance(oldest, int) and isinstance(newest, int)
    assert isinstance(reward, float | None) and isinstance(seconds, float)
    return Rollout(
        rollout_id=str(rollout_id),
        prompt_ids=prompt_ids,
        completion=Completion(
            index=place,
            token_ids=tuple(array("i", token_ids)),
            logprobs=tuple(array("f", logprobs)),
            text=str(text),
            finish_reason=str(finish_reason),
            min_policy_version=oldest,
            max_policy_version=newest,
            version_runs=tuple(
                VersionRun(policy_version=version, num_tokens=num)
                for version, num in json.loads(str(version_runs))
            ),
        ),
        result=RewardResult(
            reward=_number(reward),
            breakdown={name: _number(score) for name, score in json.loads(str(breakdown)).items()},
            outcome=Outcome(str(outcome)),
            passed=bool(passed),
            detail=str(detail),
            cached=bool(cached),
            seconds=seconds,
        ),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value
