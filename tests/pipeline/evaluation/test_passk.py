from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation.passk import (
    TaskCount,
    compare,
    mcnemar,
    mean_pass_at_k,
    paired_difference,
    pass_at_k,
    share,
    share_difference,
    sign_flip,
    table_cells,
)


def _brute_force(num_samples: int, num_correct: int, k: int) -> float:
    draws = list(itertools.combinations([i < num_correct for i in range(num_samples)], k))
    return sum(any(draw) for draw in draws) / len(draws)


def _judged(correct_of: dict[str, tuple[int, int]]) -> list[TaskCount]:
    return [
        TaskCount(task_id=task_id, num_correct=correct, num_samples=total)
        for task_id, (correct, total) in correct_of.items()
    ]


def _counts(num_samples: int, num_correct: list[int]) -> list[TaskCount]:
    return _judged({str(index): (correct, num_samples) for index, correct in enumerate(num_correct)})


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


@pytest.mark.parametrize("num_tasks", [1, 5])
def test_tasks_that_agree_do_not_make_an_estimate_certain(num_tasks: int) -> None:
    half, all_right = _counts(2, [1] * num_tasks), _counts(2, [2] * num_tasks)
    spread = 1 - 0.025 ** (1 / num_tasks)
    for found in (mean_pass_at_k(half, 1), share(half)):
        assert (found.low, found.high) == pytest.approx((0.5 - spread / 2, 0.5 + spread / 2))
    for found in (paired_difference(half, all_right), share_difference(half, all_right)):
        assert (found.low, found.high) == pytest.approx((0.5 - 1.5 * spread, 0.5 + 0.5 * spread))
    risen = paired_difference(_counts(2, [0] * num_tasks), all_right)
    assert (risen.low, risen.high) == pytest.approx((1 - 2 * spread, 1))


def test_mean_pass_at_k_needs_a_task() -> None:
    with pytest.raises(ValueError, match="at least one judged task"):
        mean_pass_at_k([], 1)


def test_a_share_weighs_samples_alike_and_its_interval_draws_tasks() -> None:
    counts = _judged({"a": (0, 8), "b": (2, 2)})
    found = share(counts)
    assert found.mean == pytest.approx(0.2) and (found.low, found.high) == (0.0, 1.0)
    assert share(counts[:1]).low == 0 and 0.9 < share(counts[:1]).high < 1
    with pytest.raises(ValueError, match="at least one judged task"):
        share([])


def test_a_difference_of_shares_draws_the_same_tasks_for_both() -> None:
    before, after = _counts(2, [0, 1, 0, 2] * 20), _counts(3, [1, 2, 1, 3] * 20)
    found = share_difference(before, after)
    assert found.mean == pytest.approx(7 / 12 - 3 / 8) and found.low < found.mean < found.high
    # Tasks differ among each other far more than the two do in any of them.
    assert found.high - found.low < 0.5 * (share(before).high - share(before).low)
    same = share_difference(before, before)
    assert same.low == -same.high and same.high == pytest.approx(1 - 0.025 ** (1 / 80))
    # A task in which nothing failed has no share, and is in both draws all the same.
    assert share_difference(before[:-1], after).mean != share_difference(before, after).mean
    with pytest.raises(ValueError, match="at least one judged task"):
        share_difference([], after)


def test_a_paired_difference_is_narrower_than_the_tasks_spread() -> None:
    before = [i % 10 for i in range(60)]
    after = [correct + (1 if index % 3 else 0) for index, correct in enumerate(before)]
    estimate = paired_difference(_counts(10, before), _counts(10, after))
    assert estimate.mean == pytest.approx(0.1 * 40 / 60)
    assert 0 < estimate.low < estimate.mean < estimate.high < 0.1


def test_a_paired_difference_changes_sign_with_its_order() -> None:
    before, after = _counts(4, [1, 2, 0]), _counts(4, [4, 1, 2])[::-1]
    assert paired_difference(before, after).mean == pytest.approx(-paired_difference(after, before).mean)


def test_no_difference_at_all_does_not_mean_that_none_is_possible() -> None:
    counts = _counts(2, [i % 3 for i in range(30)])
    estimate = paired_difference(counts, counts)
    assert (estimate.mean, estimate.low) == (0, -estimate.high)
    assert estimate.high == pytest.approx(0.1157, abs=1e-3)


@pytest.mark.parametrize(
    ("first_only", "second_only", "p_value"),
    [(0, 0, 1.0), (5, 5, 1.0), (1, 5, 14 / 64), (0, 6, 2 / 64), (2, 10, 158 / 4096), (10, 2, 158 / 4096)],
)
def test_mcnemars_p_value_is_twice_the_binomial_tail(
    first_only: int, second_only: int, p_value: float
) -> None:
    assert mcnemar(first_only, second_only) == pytest.approx(p_value)


def test_mcnemars_p_value_of_thousands_of_tasks_is_a_number() -> None:
    assert mcnemar(1900, 2100) == pytest.approx(math.erfc(199 / math.sqrt(4000) / math.sqrt(2)), rel=0.02)


def test_greedy_answers_are_compared_by_mcnemars_test_and_each_tasks_winner_is_named() -> None:
    first = _judged({f"t{i}": (int(i < 4), 1) for i in range(12)})
    second = _judged({f"t{i}": (int(3 <= i < 11), 1) for i in range(12)})
    found = compare(first, second)
    assert (found.test, found.p_value) == ("exact McNemar test", mcnemar(3, 7))
    assert found.first_better == ("t0", "t1", "t2")
    assert found.second_better == tuple(f"t{i}" for i in range(4, 11))
    assert found.difference.mean == pytest.approx(4 / 12)
    assert found.difference.num_tasks == 12


def test_only_tasks_that_both_judged_count() -> None:
    first = _judged({"a": (1, 2), "b": (2, 2)})
    found = compare(first, _judged({"b": (1, 2), "c": (2, 2)}))
    assert (found.difference.mean, found.difference.num_tasks) == (-0.5, 1)
    assert (found.test, found.first_better) == ("sign-flip test", ("b",))
    with pytest.raises(ValueError, match="no judged task in common"):
        compare(first, _judged({"c": (1, 2)}))


def test_the_sign_flip_test_of_few_tasks_tries_every_pattern() -> None:
    rises = [0.5, -0.25, 0.75, 0.25, 0.5, 0.0, 1.0]
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, rises, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(rises))
    ]
    expected = sum(value >= abs(sum(rises)) for value in sums) / len(sums)
    assert sign_flip(rises) == pytest.approx(expected)
    assert sign_flip([0.0] * len(rises)) == 1.0


def test_the_sign_flip_test_finds_a_difference_that_is_there_and_seldom_one_that_is_not() -> None:
    rng = random.Random(0)
    assert sign_flip([rng.uniform(-0.2, 0.35) for _ in range(200)]) < 0.01
    p_values = [sign_flip([rng.uniform(-0.3, 0.3) for _ in range(200)]) for _ in range(40)]
    assert sum(value < 0.05 for value in p_values) <= 8
    assert sum(value > 0.5 for value in p_values) >= 8


def test_an_estimate_of_a_summary_is_told_in_two_cells() -> None:
    told = {"mean": 0.068, "low": 0.039, "high": 0.098, "num_tasks": 9}
    assert table_cells(told) == ("6.8 %", "3.9 to 9.8 %")
    assert table_cells(told, "+") == ("+6.8 %", "+3.9 to +9.8 %")
