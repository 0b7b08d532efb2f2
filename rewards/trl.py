"""The same rewards as one TRL reward function, plain or async.

For TRL's GRPOTrainer (and RLOOTrainer), in their signature. Imports neither TRL nor torch, and starts
nothing: scorer, pool and sandbox are the caller's. With TRL:

    execution = ExecutionConfig()  # modules=["numpy"] for programs that need it
    with start_sandbox(execution) as sandbox, Scorer(RewardsConfig(), execution, sandbox) as scorer:
        reward = make_reward_function({task.task_id: task for task in tasks}, scorer)
        GRPOTrainer(reward_funcs=reward, ...)  # the data set has the columns prompt and task_id

With a rewards.pool.RewardPool, ``make_async_reward_function`` scores a batch on all its workers at once;
TRL awaits it on a thread of its own, together with other async rewards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from curriculum.task import Task
from rewards.result import RewardResult
from rewards.scorer import Scorer

TrlCompletion = str | Sequence[Mapping[str, str]]
Rewards = list[float | None]


class AsyncScorer(Protocol):
    """What the async form needs of a pool; ``rewards.pool.RewardPool`` is the real one."""

    async def score(self, task: Task, text: str) -> RewardResult:
        """Score one answer; several may be under way at once."""
        ...


def make_reward_function(
    tasks_by_id: Mapping[str, Task], scorer: Scorer, *, prefill: str = ""
) -> Callable[..., Rewards]:
    """A reward function in TRL's signature that scores each completion as ``scorer`` does.

    It leaves alone what else it is given, the data set's other columns and TRL's own extras. ``prefill`` is
    text of the answer that stands at the end of the prompt already. The data set needs a column ``task_id``
    with keys of ``tasks_by_id``; ValueError for another. An infrastructure error gives None, which TRL leaves
    out of the group. Where TRL passes ``log_metric``, the pass rate and the shares of failures are logged
    under the names of pipeline.record.metric_names, and so are the seconds of scoring, the share found in the
    cache, and the mean of each part of the breakdown as rewards/PART.
    """

    def code_reward(
        prompts: Sequence[object],
        completions: Sequence[TrlCompletion],
        *,
        task_id: Sequence[str],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: object,
    ) -> Rewards:
        results = score_completions(tasks_by_id, scorer, task_id, completions, prefill)
        _log(results, log_metric)
        return trl_rewards(results)

    return code_reward


def make_async_reward_function(
    tasks_by_id: Mapping[str, Task], pool: AsyncScorer, *, prefill: str = ""
) -> Callable[..., Coroutine[Any, Any, Rewards]]:
    """As ``make_reward_function``, but a batch's completions are scored side by side by ``pool``.

    The pool belongs to one event loop: TRL's, from its first call on.
    """

    async def code_reward(
        prompts: Sequence[object],
        completions: Sequence[TrlCompletion],
        *,
        task_id: Sequence[str],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: object,
    ) -> Rewards:
        results = await score_concurrently(tasks_by_id, pool, task_id, completions, prefill)
        _log(results, log_metric)
        return trl_rewards(results)

    return code_reward


def score_completions(
    tasks_by_id: Mapping[str, Task],
    scorer: Scorer,
    task_ids: Sequence[str],
    completions: Sequence[TrlCompletion],
    prefill: str,
) -> list[RewardResult]:
    """The verdict on each completion, one after the other. Raises ValueError for an unknown task_id."""
    answers = _answers(tasks_by_id, task_ids, completions, prefill)
    return [scorer.score(task, text) for task, text in answers]


async def score_concurrently(
    tasks_by_id: Mapping[str, Task],
    pool: AsyncScorer,
    task_ids: Sequence[str],
    completions: Sequence[TrlCompletion],
    prefill: str,
) -> list[RewardResult]:
    """The verdicts in the order of ``completions``. Raises ValueError for an unknown task_id.

    The pool bounds how many are under way. When one raises, or this is cancelled, the others are cancelled.
    """
    answers = _answers(tasks_by_id, task_ids, completions, prefill)
    jobs = [asyncio.ensure_future(pool.score(task, text)) for task, text in answers]
    try:
        return await asyncio.gather(*jobs)
    finally:
        for job in jobs:
            job.cancel()


def trl_rewards(results: Sequence[RewardResult]) -> Rewards:
    """What TRL is told: None, which it leaves out of the group, after an infrastructure error."""
    return [None if result.is_infra_error else result.reward for result in results]


def completion_text(completion: TrlCompletion) -> str:
    """The text of a completion in TRL's plain (a string) or conversational (messages) form.

    Of messages it is the last of the assistant's: what a tool gave is not the model's, and what it wrote
    before it called one is no answer yet.
    """
    if isinstance(completion, str):
        return completion
    said = [message.get("content") for message in completion if message.get("role") == "assistant"]
    return (said[-1] or "") if said else ""


def reward_metrics(results: Sequence[RewardResult]) -> dict[str, float]:
    """Means over the completions that were judged, and the share that could not be."""
    judged = [result for result in results if not result.is_infra_error]
    metrics = {"rollout/infra_error_share": 1.0 - len(judged) / len(results)} if results else {}
    if not judged:
        return metrics
    num_syntax_failures = sum(result.breakdown.get("syntax") == 0.0 for result in judged)
    metrics["rollout/pass_rate"] = sum(result.passed for result in judged) / len(judged)
    metrics["rollout/syntax_failure_share"] = num_syntax_failures / len(judged)
    metrics["rewards/seconds_mean"] = sum(result.seconds for result in judged) / len(judged)
    # Who waited for an equal program kept no worker busy.
    metrics["rewards/seconds"] = sum(result.seconds for result in judged if not result.cached)
    metrics["rewards/cache_hit_rate"] = sum(result.cached for result in judged) / len(judged)
    # A reward may have no opinion of a completion (rewards.custom), and few run after a syntax failure.
    for name in dict.fromkeys(name for result in judged for name in result.breakdown):
        scores = [result.breakdown[name] for result in judged if name in result.breakdown]
        metrics[f"rewards/{name}"] = sum(scores) / len(scores)
    return metrics


def _log(results: Sequence[RewardResult], log_metric: Callable[[str, float], None] | None) -> None:
    if log_metric is not None:
        for metric, value in reward_metrics(results).items():
            log_metric(metric, value)


def _answers(
    tasks_by_id: Mapping[str, Task],
    task_ids: Sequence[str],
    completions: Sequence[TrlCompletion],
    prefill: str,
) -> list[tuple[Task, str]]:
    for name in task_ids:
        if name not in tasks_by_id:
            raise ValueError(
                f"column task_id: value {name!r}: no such task among the {len(tasks_by_id)} given"
            )
    return [
        (tasks_by_id[name], prefill + completion_text(completion))
        for name, completion in zip(task_ids, completions, strict=True)
    ]
