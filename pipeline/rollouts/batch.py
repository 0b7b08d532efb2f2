"""From scored groups to advantages and the samples of one optimiser step, with the step's rollout metrics.

Advantages are relative to the group: plain arithmetic on rewards. The metrics (pipeline.record.metric_names)
are of rollouts, their age, and scores by reward and by level. Pure. A rollout that could not be scored gets
no sample and no part in any statistics of scores. Does not pad or pack (pipeline.training.batching does).
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from configs.schema import Config, GrpoConfig
from curriculum.task import Task
from pipeline.messages import Rollout, RolloutGroup, TrainBatch, TrainingSample, is_flat
from rewards.extract import extract_code

EPSILON = 1e-4
ScaleRewards = Literal["group", "batch", "none"]


def make_batch(step: int, groups: Sequence[RolloutGroup], grpo: GrpoConfig, part: int = 0) -> TrainBatch:
    """Build the batch, or ``part`` of it, that step ``step`` trains on, with weights of version step - 1.

    With ``mask_truncated_completions`` an answer that hit the length limit counts in its group's statistics
    but is masked in the loss, as in TRL (DAPO, arXiv:2503.14476). In the first
    ``warm_start_steps`` the advantages are those of ``warm_start_advantages``, and what has none is masked.
    """
    is_warm_start = step <= grpo.warm_start_steps
    if is_warm_start:
        advantages = [warm_start_advantages(group) for group in groups]
    else:
        rewards = [[rollout.result.reward for rollout in group.rollouts] for group in groups]
        advantages = group_advantages(rewards, scale_rewards=grpo.scale_rewards)
    samples = [
        _sample(
            rollout,
            advantage,
            step - 1,
            _loss_mask(rollout, advantage, grpo, is_warm_start=is_warm_start),
        )
        for group, values in zip(groups, advantages, strict=True)
        for rollout, advantage in zip(group.rollouts, values, strict=True)
        if not rollout.result.is_infra_error
    ]
    return TrainBatch(step=step, samples=tuple(samples), part=part)


def batch_metrics(step: int, groups: Sequence[RolloutGroup], config: Config) -> dict[str, float]:
    """What is to be said of the rollouts that step ``step`` trained on."""
    is_warm_start = step <= config.grpo.warm_start_steps
    return {
        **_rollout_metrics(groups, config.generation.assistant_prefill, is_warm_start=is_warm_start),
        **_staleness_metrics(scored(groups), step - 1),
        **breakdown_metrics(groups),
    }


def _loss_mask(
    rollout: Rollout, advantage: float, grpo: GrpoConfig, *, is_warm_start: bool
) -> tuple[int, ...]:
    """For each token of the completion, length C, whether it is trained on; feedback never is."""
    if is_warm_start and advantage == 0.0:
        return (0,) * len(rollout.completion.token_ids)
    # In a warm start what came before the answer that passed did not.
    counts = [int(not is_warm_start)] * len(rollout.earlier) + [1]
    if grpo.mask_truncated_completions:
        ends = zip(counts, rollout.finish_reasons, strict=True)
        counts = [0 if reason == "length" else count for count, reason in ends]
    return rollout.mask(counts)


def _sample(
    rollout: Rollout, advantage: float, policy_version: int, loss_mask: tuple[int, ...]
) -> TrainingSample:
    completion = rollout.completion
    num_prompt_tokens = len(rollout.prompt_ids)
    return TrainingSample(
        token_ids=rollout.prompt_ids + completion.token_ids,
        num_prompt_tokens=num_prompt_tokens,
        loss_mask=(0,) * num_prompt_tokens + loss_mask,
        old_logprobs=(0.0,) * num_prompt_tokens + completion.logprobs,
        advantage=advantage,
        policy_version=completion.min_policy_version,
        on_policy=(0,) * num_prompt_tokens
        + tuple(int(version == policy_version) for version in completion.token_versions),
    )


def lacks_signal(group: RolloutGroup, *, is_warm_start: bool) -> bool:
    """Whether the rewards of ``group`` are all equal; in a warm start whether no answer passed.

    There what passed is learned from and nothing else, whatever the others earned.
    """
    if is_warm_start:
        return not any(rollout.result.passed for rollout in group.rollouts)
    return is_flat(group)


def _rollout_metrics(
    groups: Sequence[RolloutGroup], prefill: str, *, is_warm_start: bool
) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    judged = scored(groups)
    rewards = [rollout.result.reward for rollout in judged]
    num_without = sum(lacks_signal(group, is_warm_start=is_warm_start) for group in groups)
    read = [
        (rollout.completion.num_cached_tokens, rollout.num_read)
        for rollout in rollouts
        if rollout.completion.num_cached_tokens is not None
    ]
    num_missing = sum(
        not _has_program(prefill + rollout.completion.text, group.task)
        for group in groups
        for rollout in group.rollouts
    )
    return {
        **_correlation(judged),
        **_turn_metrics(judged),
        "rollout/reward_mean": statistics.fmean(rewards),
        "rollout/reward_std": statistics.pstdev(rewards),
        "rollout/pass_rate": statistics.fmean(rollout.result.passed for rollout in judged),
        "rollout/completion_length": statistics.fmean(r.num_sampled for r in rollouts),
        **({"rollout/prompt_cached_share": _share_of(read)} if read else {}),
        "rollout/truncated_share": statistics.fmean(
            reason == "length" for rollout in rollouts for reason in rollout.finish_reasons
        ),
        "rollout/syntax_failure_share": statistics.fmean(
            rollout.result.breakdown.get("syntax", 0.0) == 0.0 for rollout in judged
        ),
        "rollout/no_program_share": num_missing / len(rollouts),
        "rollout/zero_signal_share": num_without / len(groups),
        "rollout/infra_error_share": 1 - len(judged) / len(rollouts),
    }


def _share_of(pairs: Sequence[tuple[int, int]]) -> float:
    return sum(part for part, _ in pairs) / sum(whole for _, whole in pairs)


def _turn_metrics(scored: Sequence[Rollout]) -> dict[str, float]:
    """What later turns did; nothing where none has one."""
    later = [rollout for rollout in scored if rollout.earlier]
    if not later:
        return {}
    failed = len(later) + sum(not rollout.result.passed for rollout in scored if not rollout.earlier)
    return {
        "rollout/turns": statistics.fmean(len(rollout.earlier) + 1 for rollout in scored),
        "rollout/feedback_tokens": statistics.fmean(rollout.num_feedback_tokens for rollout in scored),
        "rollout/first_turn_pass_rate": 1 - failed / len(scored),
        "rollout/repaired_share": statistics.fmean(rollout.result.passed for rollout in later),
    }


def _has_program(answer: str, task: Task) -> bool:
    """Whether what is run of the answer is something, and names what the task asks for."""
    code = extract_code(answer, task.entry_point, task.prompt)
    name = re.escape(task.entry_point.rpartition(".")[2])
    return bool(code.strip()) and re.search(rf"\b{name}\b", code) is not None


def _correlation(scored: Sequence[Rollout]) -> dict[str, float]:
    """Of reward and share of tests passed; nothing where one of the two is the same everywhere."""
    pairs = [
        (one.result.reward, one.result.breakdown["tests"])
        for one in scored
        if "tests" in one.result.breakdown
    ]
    if len({reward for reward, _ in pairs}) < 2 or len({tests for _, tests in pairs}) < 2:
        return {}
    rewards, tests = zip(*pairs, strict=True)
    return {"rollout/reward_tests_correlation": statistics.correlation(rewards, tests)}


def scored(groups: Sequence[RolloutGroup]) -> list[Rollout]:
    """Those that could be scored, in the order of the groups."""
    return [rollout for group in groups for rollout in group.rollouts if not rollout.result.is_infra_error]


def _staleness_metrics(rollouts: Sequence[Rollout], policy_version: int) -> dict[str, float]:
    """How old what is trained on is, by completion (its oldest token) and by token that was sampled."""
    completions = [rollout.completion for rollout in rollouts]
    oldest = [policy_version - completion.min_policy_version for completion in completions]
    ages = [
        policy_version - version
        for rollout in rollouts
        for version, is_sampled in zip(rollout.completion.token_versions, rollout.sampled, strict=True)
        if is_sampled
    ]
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


def group_advantages(groups: Sequence[Sequence[float]], scale_rewards: ScaleRewards) -> list[list[float]]:
    """Advantages of G groups of rewards, in the same shape: ``(r - mean) / (std + 1e-4)``.

    The mean is the group's; the standard deviation (Bessel-corrected, as in TRL) is the group's or the
    whole batch's, or is left out (arXiv:2402.03300, arXiv:2503.20783, arXiv:2508.08221). A NaN reward is an
    infrastructure error: it leaves the statistics and its advantage is NaN, so that it gets no training
    sample. A group whose rewards are all equal, or which has a single reward left, gets exact zeros.
    """
    batch_std = _std([reward for rewards in groups for reward in rewards if not math.isnan(reward)])
    return [_one_group(rewards, scale_rewards, batch_std) for rewards in groups]


def warm_start_advantages(group: RolloutGroup) -> list[float]:
    """1 for the first of each passing completion of the group, 0 for all others; NaN as ``group_advantages``.

    With the others masked the policy gradient of a policy's own completions is then that of the mean
    log-probability of verified answers, supervised training on rejection samples (RAFT, arXiv:2304.06767);
    of an older policy's, with the ratio and its clipping (RAFT++, arXiv:2504.11343).
    """
    seen: set[tuple[int, ...]] = set()
    advantages = []
    for rollout in group.rollouts:
        token_ids = rollout.completion.token_ids
        is_kept = rollout.result.passed and token_ids not in seen
        if is_kept:
            seen.add(token_ids)
        advantages.append(math.nan if rollout.result.is_infra_error else float(is_kept))
    return advantages


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
