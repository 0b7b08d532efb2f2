"""From scored groups to the samples of one optimiser step, with the step's rollout metrics.

The metrics (pipeline.record.metric_names) are of rollouts, their age, and scores by reward and by level.
Pure. A rollout that could not be scored gets no sample and no part in any statistics of scores. Does not pad
or pack (pipeline.training.batching does).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from configs.schema import GrpoConfig
from pipeline.messages import Rollout, RolloutGroup, TrainBatch, TrainingSample, is_flat
from pipeline.rollouts.advantages import group_advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What went into a batch: rollout metrics by name, and the number of samples."""

    metrics: Mapping[str, float]
    num_samples: int


def make_batch(
    step: int, groups: Sequence[RolloutGroup], grpo: GrpoConfig, policy_version: int
) -> tuple[TrainBatch, BatchReport]:
    """Build the batch that step ``step`` trains on with weights of ``policy_version``.

    With ``mask_truncated_completions`` a completion that hit the length limit counts in its group's
    statistics but has an empty loss mask, as in TRL (DAPO, arXiv:2503.14476).
    """
    rewards = [[rollout.result.reward for rollout in group.rollouts] for group in groups]
    advantages = group_advantages(rewards, scale_rewards=grpo.scale_rewards)
    samples = [
        _sample(rollout, advantage, grpo, policy_version)
        for group, values in zip(groups, advantages, strict=True)
        for rollout, advantage in zip(group.rollouts, values, strict=True)
        if not rollout.result.is_infra_error
    ]
    batch = TrainBatch(
        step=step, samples=tuple(samples), num_tokens=sum(sum(sample.loss_mask) for sample in samples)
    )
    metrics = {
        **_rollout_metrics(groups),
        **_staleness_metrics(groups, policy_version),
        **breakdown_metrics(groups),
    }
    return batch, BatchReport(metrics=metrics, num_samples=len(samples))


def _sample(rollout: Rollout, advantage: float, grpo: GrpoConfig, policy_version: int) -> TrainingSample:
    completion = rollout.completion
    num_prompt_tokens = len(rollout.prompt_ids)
    is_masked = grpo.mask_truncated_completions and completion.finish_reason == "length"
    return TrainingSample(
        token_ids=rollout.prompt_ids + completion.token_ids,
        num_prompt_tokens=num_prompt_tokens,
        loss_mask=(0,) * num_prompt_tokens + (0 if is_masked else 1,) * len(completion.token_ids),
        old_logprobs=(0.0,) * num_prompt_tokens + completion.logprobs,
        advantage=advantage,
        policy_version=completion.min_policy_version,
        on_policy=(0,) * num_prompt_tokens
        + tuple(int(version == policy_version) for version in completion.token_versions),
    )


def _rollout_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    scored = [rollout for rollout in rollouts if not rollout.result.is_infra_error]
    rewards = [rollout.result.reward for rollout in scored]
    num_flat = sum(is_flat(group) for group in groups)
    num_cached = sum(rollout.completion.num_cached_tokens for rollout in rollouts)
    return {
        "rollout/reward_mean": statistics.fmean(rewards),
        "rollout/reward_std": statistics.pstdev(rewards),
        "rollout/pass_rate": statistics.fmean(rollout.result.passed for rollout in scored),
        "rollout/completion_length": statistics.fmean(len(r.completion.token_ids) for r in rollouts),
        "rollout/prompt_cached_share": num_cached / sum(len(rollout.prompt_ids) for rollout in rollouts),
        "rollout/truncated_share": statistics.fmean(r.completion.finish_reason == "length" for r in rollouts),
        "rollout/syntax_failure_share": statistics.fmean(
            rollout.result.breakdown.get("syntax", 0.0) == 0.0 for rollout in scored
        ),
        "rollout/zero_signal_share": num_flat / len(groups),
        "rollout/infra_error_share": 1 - len(scored) / len(rollouts),
    }


def _staleness_metrics(groups: Sequence[RolloutGroup], policy_version: int) -> dict[str, float]:
    """How old what is trained on is, by completion (its oldest token) and by token."""
    completions = [
        rollout.completion
        for group in groups
        for rollout in group.rollouts
        if not rollout.result.is_infra_error
    ]
    oldest = [policy_version - completion.min_policy_version for completion in completions]
    ages = [policy_version - version for completion in completions for version in completion.token_versions]
    return {
        "train/staleness_mean": statistics.fmean(oldest),
        "train/staleness_max": float(max(oldest)),
        "train/token_staleness_mean": statistics.fmean(ages) if ages else 0.0,
        "rollout/mixed_version_share": statistics.fmean(
            completion.min_policy_version < completion.max_policy_version for completion in completions
        ),
    }


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
