from __future__ import annotations

import itertools
import math
import random

import pytest

from pipeline.evaluation.passk import TaskCount, compare, mcnemar, sign_flip


def _counts(rates: dict[str, tuple[int, int]]) -> list[TaskCount]:
    return [
        TaskCount(task_id=task_id, num_correct=correct, num_samples=total)
        for task_id, (correct, total) in rates.items()
    ]


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
    first = _counts({f"t{i}": (int(i < 4), 1) for i in range(12)})
    second = _counts({f"t{i}": (int(3 <= i < 11), 1) for i in range(12)})
    found = compare(first, second)
    assert (found.test, found.p_value) == ("exact McNemar test", mcnemar(3, 7))
    assert found.first_better == ("t0", "t1", "t2")
    assert found.second_better == tuple(f"t{i}" for i in range(4, 11))
    assert found.difference.mean == pytest.approx(4 / 12)
    assert found.difference.num_tasks == 12


def test_only_tasks_that_both_judged_count() -> None:
    first = _counts({"a": (1, 2), "b": (2, 2)})
    found = compare(first, _counts({"b": (1, 2), "c": (2, 2)}))
    assert (found.difference.mean, found.difference.num_tasks) == (-0.5, 1)
    assert (found.test, found.first_better) == ("sign-flip test", ("b",))
    with pytest.raises(ValueError, match="no judged task in common"):
        compare(first, _counts({"c": (1, 2)}))


def test_the_sign_flip_test_of_few_tasks_tries_every_pattern() -> None:
    differences = [0.5, -0.25, 0.75, 0.25, 0.5, 0.0, 1.0]
    before = {str(i): 0.0 for i in range(len(differences))}
    after = {str(i): value for i, value in enumerate(differences)}
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    expected = sum(value >= abs(sum(differences)) for value in sums) / len(sums)
    assert sign_flip(before, after) == pytest.approx(expected)
    assert sign_flip(after, after) == 1.0


def test_the_sign_flip_test_finds_a_difference_that_is_there_and_seldom_one_that_is_not() -> None:
    rng = random.Random(0)
    names = [str(i) for i in range(200)]
    before = {name: rng.random() for name in names}
    better = {name: min(1.0, before[name] + rng.uniform(-0.2, 0.35)) for name in names}
    assert sign_flip(before, better) < 0.01
    p_values = []
    for _ in range(40):
        same = {name: before[name] + rng.uniform(-0.3, 0.3) for name in names}
        p_values.append(sign_flip(before, same))
    assert sum(value < 0.05 for value in p_values) <= 8
    assert sum(value > 0.5 for value in p_values) >= 8
