from __future__ import annotations

import math

import pytest

from pipeline.rollouts.batch import group_advantages


def test_a_group_is_centred_and_scaled_by_its_unbiased_deviation() -> None:
    (advantages,) = group_advantages([[1.0, 0.0, 0.0, 1.0]], "group")
    expected = 0.5 / (math.sqrt(1 / 3) + 1e-4)
    assert advantages == pytest.approx([expected, -expected, -expected, expected])


def test_an_infrastructure_error_leaves_the_statistics() -> None:
    with_error, without = group_advantages([[1.0, math.nan, 0.0], [1.0, 0.0]], "group")
    assert math.isnan(with_error[1])
    assert [with_error[0], with_error[2]] == without


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
