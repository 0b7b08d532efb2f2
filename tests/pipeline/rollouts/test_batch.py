from __future__ import annotations

import math
from dataclasses import replace

import pytest

from configs.schema import Config, GrpoConfig
from pipeline.messages import Rollout, RolloutGroup, VersionRun
from pipeline.rollouts.batch import batch_metrics, group_advantages, make_batch
from tests.pipeline.rollouts.groups import group, rollout

GRPO = GrpoConfig()


def metrics_of(*groups: RolloutGroup, step: int = 1) -> dict[str, float]:
    return batch_metrics(step, groups, Config())


def test_a_sample_is_prompt_and_completion_with_loss_on_the_completion_only() -> None:
    batch = make_batch(5, [group(rollout(1.0, version=3), rollout(0.0, version=4))], GRPO)
    first, second = batch.samples
    assert batch.step == 5
    assert first.token_ids == (1, 2, 3, 7, 8)
    assert first.num_prompt_tokens == 3
    assert first.loss_mask == (0, 0, 0, 1, 1)
    assert first.old_logprobs == (0.0, 0.0, 0.0, -0.5, -0.25)
    assert (first.policy_version, second.policy_version) == (3, 4), "of the oldest token"
    assert first.advantage > 0 > second.advantage
    assert batch.num_tokens == 4


def test_advantages_stay_within_their_own_group() -> None:
    groups = [group(rollout(1.0), rollout(0.0)), group(rollout(0.5), rollout(0.5))]
    batch = make_batch(1, groups, GrpoConfig(scale_rewards="none"))
    assert [sample.advantage for sample in batch.samples] == [0.5, -0.5, 0.0, 0.0]


def test_an_infrastructure_error_gets_no_sample_and_moves_no_advantage() -> None:
    whole = group(rollout(1.0), rollout(0.0), rollout(0.0))
    with_error = group(rollout(1.0), rollout(math.nan), rollout(0.0), rollout(0.0))
    without = make_batch(1, [whole], GRPO)
    batch, metrics = make_batch(1, [with_error], GRPO), metrics_of(with_error)
    assert batch.samples == without.samples
    assert len(batch.samples) == 3
    assert metrics["rollout/infra_error_share"] == 0.25
    assert metrics["rollout/reward_mean"] == pytest.approx(1 / 3)
    assert metrics["rollout/pass_rate"] == pytest.approx(1 / 3)
    assert metrics["rollout/syntax_failure_share"] == pytest.approx(2 / 3)
    assert with_error.rollouts[1].result.is_infra_error
    assert not any(math.isnan(value) for value in metrics.values())


@pytest.mark.parametrize(("mask", "num_tokens"), [(True, 2), (False, 4)])
def test_a_truncated_completion_counts_in_its_group_but_trains_only_unmasked(
    mask: bool, num_tokens: int
) -> None:
    groups = [group(rollout(0.0, finish="length"), rollout(1.0))]
    batch = make_batch(1, groups, GrpoConfig(mask_truncated_completions=mask))
    cut, finished = batch.samples
    assert cut.loss_mask == (0, 0, 0) + (0 if mask else 1,) * 2
    assert finished.loss_mask == (0, 0, 0, 1, 1)
    assert cut.advantage == -finished.advantage, "the cut one is in the mean"
    assert batch.num_tokens == num_tokens
    assert metrics_of(*groups)["rollout/truncated_share"] == 0.5


def test_an_answer_without_the_program_that_was_asked_for_is_counted() -> None:
    def saying(text: str) -> Rollout:
        one = rollout(0.0)
        return replace(one, completion=replace(one.completion, text=text))

    texts = ("def f(x):\n    return x\n", "Sorry, I cannot.", "def g(x):\n    return x\n", "")
    asked = group(rollout(1.0), *(saying(text) for text in texts))
    assert metrics_of(asked)["rollout/no_program_share"] == 4 / 5


@pytest.mark.parametrize(
    ("entry_point", "text"),
    [
        ("", "print(int(input()) + int(input()))\n```"),
        ("Solution.two_sum", "class Solution:\n    def two_sum(self, n):\n        return n\n```"),
        ("double", "double = lambda n: 2 * n\n```"),
    ],
    ids=["a whole program", "a method", "a name"],
)
def test_a_program_is_found_after_the_prefill_as_it_is_scored(entry_point: str, text: str) -> None:
    one = rollout(1.0)
    asked = group(replace(one, completion=replace(one.completion, text=text)))
    asked = replace(asked, task=replace(asked.task, entry_point=entry_point))
    assert metrics_of(asked)["rollout/no_program_share"] == 0


def test_how_far_the_reward_goes_with_the_tests_is_a_correlation() -> None:
    def paid(reward: float, tests: float) -> Rollout:
        one = rollout(reward)
        return replace(one, result=replace(one.result, breakdown={"syntax": 1.0, "tests": tests}))

    def correlation(*rollouts: Rollout) -> float | None:
        return metrics_of(group(*rollouts)).get("rollout/reward_tests_correlation")

    assert correlation(paid(0.2, 0.0), paid(0.6, 0.5), paid(1.0, 1.0)) == pytest.approx(1.0)
    assert correlation(paid(0.9, 0.0), paid(0.6, 0.5), paid(0.3, 1.0)) == pytest.approx(-1.0)
    assert correlation(paid(0.9, 0.5), paid(0.6, 0.5)) is None, "nothing to compare with"
    assert correlation(paid(0.6, 0.0), paid(0.6, 1.0), rollout(math.nan)) is None


def test_what_a_group_did_not_read_anew_is_a_share_of_its_prompts() -> None:
    metrics = metrics_of(group(rollout(0.0), rollout(1.0, cached=2)))
    assert metrics["rollout/prompt_cached_share"] == pytest.approx(2 / 6)


def test_what_is_not_known_to_have_been_cached_is_in_no_share_of_it() -> None:
    def unknown(reward: float) -> Rollout:
        one = rollout(reward)
        return replace(one, completion=replace(one.completion, num_cached_tokens=None))

    metrics = metrics_of(group(rollout(0.0), rollout(1.0, cached=2), unknown(1.0)), group(unknown(0.0)))
    assert metrics["rollout/prompt_cached_share"] == pytest.approx(2 / 6)
    assert "rollout/prompt_cached_share" not in metrics_of(group(unknown(1.0), unknown(0.0)))


def test_groups_without_signal_are_counted_whatever_could_not_be_scored_in_them() -> None:
    groups = [
        group(rollout(1.0), rollout(1.0), rollout(math.nan)),
        group(rollout(0.0), rollout(0.0), rollout(0.0)),
        group(rollout(1.0), rollout(0.0), rollout(0.0)),
        group(rollout(1.0), rollout(0.5), rollout(math.nan)),
    ]
    assert metrics_of(*groups)["rollout/zero_signal_share"] == 0.5


def test_staleness_is_the_age_of_a_samples_oldest_token() -> None:
    groups = [group(rollout(1.0, version=3), rollout(0.0, version=4))]
    metrics = metrics_of(*groups, step=5)
    assert metrics["train/staleness_mean"] == 0.5
    assert metrics["train/staleness_max"] == 1.0


def test_tokens_count_by_the_version_that_wrote_them() -> None:
    runs = (VersionRun(policy_version=3, num_tokens=1), VersionRun(policy_version=4, num_tokens=1))
    mixed = rollout(1.0, version=3)
    mixed = replace(mixed, completion=replace(mixed.completion, version_runs=runs))
    whole = rollout(0.0, version=4)
    whole = replace(whole, completion=replace(whole.completion, max_policy_version=4))
    unknown = rollout(0.5, version=3)  # 3 or 4: the oldest that it can be
    asked = group(mixed, whole, unknown)
    batch, metrics = make_batch(5, [asked], GRPO), metrics_of(asked, step=5)
    assert [sample.on_policy for sample in batch.samples] == [(0, 0, 0, 0, 1), (0, 0, 0, 1, 1), (0,) * 5]
    assert [sample.policy_version for sample in batch.samples] == [3, 4, 3]
    assert metrics["train/token_staleness_mean"] == pytest.approx(3 / 6)
    assert metrics["rollout/mixed_version_share"] == pytest.approx(2 / 3)
    assert metrics["train/staleness_max"] == 1


def test_runs_that_do_not_fit_the_tokens_are_no_completion() -> None:
    completion = rollout(1.0, version=3).completion
    for num_tokens, newest in ((1, 4), (2, 3)):
        runs = (
            VersionRun(policy_version=3, num_tokens=1),
            VersionRun(policy_version=newest, num_tokens=num_tokens - 1),
        )
        with pytest.raises(AssertionError):
            replace(completion, version_runs=runs)


def test_a_group_is_centred_and_scaled_by_its_unbiased_deviation() -> None:
    (advantages,) = group_advantages([[1.0, 0.0, 0.0, 1.0]], "group")
    expected = 0.5 / (math.sqrt(1 / 3) + 1e-4)
    assert advantages == pytest.approx([expected, -expected, -expected, expected])


def test_equal_rewards_give_exact_zeros_whatever_their_rounding() -> None:
    (advantages,) = group_advantages([[0.1 + 0.2] * 7], "group")
    assert advantages == [0.0] * 7


def test_a_single_valid_reward_and_an_empty_group_have_no_signal() -> None:
    one, none = group_advantages([[math.nan, 0.7], [math.nan, math.nan]], "group")
    assert math.isnan(one[0]) and one[1] == 0.0
    assert all(math.isnan(value) for value in none)


def test_batch_scaling_shares_one_deviation_and_none_keeps_the_difference() -> None:
    groups = [[1.0, 0.0], [0.6, 0.4]]
    batch = group_advantages(groups, "batch")
    assert batch[0][0] / batch[1][0] == pytest.approx(5.0)
    plain = group_advantages(groups, "none")
    assert plain[1] == pytest.approx([0.1, -0.1])
