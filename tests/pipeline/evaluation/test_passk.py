from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation.passk import TaskCount, mean_pass_at_k, paired_difference, pass_at_k


def _brute_force(num_samples: int, num_correct: int, k: int) -> float:
    draws = list(itertools.combinations([i < num_correct for i in range(num_samples)], k))
    return sum(any(draw) for draw in draws) / len(draws)


def _counts(num_samples: int, num_correct: list[int]) -> list[TaskCount]:
    return [
        TaskCount(task_id=str(i), num_samples=num_samples, num_correct=c) for i, c in enumerate(num_correct)
    ]


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_equals_the_share_of_all_draws_of_k_samples_with_a_pass(case: tuple[int, int, int]) -> None:
    assert pass_at_k(*case) == pytest.approx(_brute_force(*case))


@given(st.integers(2, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n - 1))))
def test_pass_at_k_rises_with_k_and_lies_in_the_unit_interval(case: tuple[int, int, int]) -> None:
    num_samples, num_correct, k = case
    assert 0 <= pass_at_k(num_samples, num_correct, k) <= pass_at_k(num_samples, num_correct, k + 1) <= 1


@pytest.mark.parametrize(("num_samples", "num_correct", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_refuses_what_cannot_be(num_samples: int, num_correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="value"):
        pass_at_k(num_samples, num_correct, k)


def test_the_interval_holds_the_mean_and_is_the_same_every_time() -> None:
    counts = _counts(4, [0, 1, 2, 4, 0, 0, 3, 1, 0, 2])
    estimate = mean_pass_at_k(counts, 1)
    assert estimate.mean == pytest.approx(13 / 40)
    assert 0 <= estimate.low < estimate.mean < estimate.high <= 1
    assert estimate == mean_pass_at_k(counts, 1)


def test_the_interval_is_near_the_normal_one_for_many_tasks() -> None:
    rates = [i % 5 for i in range(400)]
    estimate = mean_pass_at_k(_counts(4, rates), 1)
    values = [rate / 4 for rate in rates]
    deviation = math.sqrt(sum((value - 0.5) ** 2 for value in values) / len(values))
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * deviation / 20, rel=0.05)


def test_no_pass_at_all_does_not_mean_that_none_is_possible() -> None:
    nothing = mean_pass_at_k(_counts(4, [0] * 30), 1)
    assert (nothing.mean, nothing.low) == (0, 0)
    assert nothing.high == pytest.approx(0.1157, abs=1e-3)
    everything = mean_pass_at_k(_counts(4, [4] * 30), 1)
    assert (everything.mean, everything.high) == (1, 1)
    assert everything.low == pytest.approx(1 - nothing.high)


def test_mean_pass_at_k_needs_a_task() -> None:
    with pytest.raises(ValueError, match="at least one judged task"):
        mean_pass_at_k([], 1)


def test_a_paired_difference_is_narrower_than_the_tasks_spread() -> None:
    before = {str(i): (i % 10) / 10 for i in range(60)}
    after = {task_id: rate + (0.1 if int(task_id) % 3 else 0.0) for task_id, rate in before.items()}
    estimate = paired_difference(before, after)
    assert estimate.mean == pytest.approx(0.1 * 40 / 60)
    assert 0 < estimate.low < estimate.mean < estimate.high < 0.1


def test_a_paired_difference_changes_sign_with_its_order() -> None:
    before, after = {"a": 0.25, "b": 0.5, "c": 0.0}, {"c": 0.5, "b": 0.25, "a": 1.0}
    assert paired_difference(before, after).mean == pytest.approx(-paired_difference(after, before).mean)


def test_no_difference_at_all_does_not_mean_that_none_is_possible() -> None:
    rates = {str(i): (i % 3) / 2 for i in range(30)}
    estimate = paired_difference(rates, rates)
    assert (estimate.mean, estimate.low) == (0, -estimate.high)
    assert estimate.high == pytest.approx(0.1157, abs=1e-3)


def test_a_paired_difference_refuses_different_tasks() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        paired_difference({"a": 0.5}, {"b": 0.5})
