"""Lists, first part: ends, sizes, totals, extremes."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "first_item",
        family="list ends",
        level=1,
        prompt="Write a function `first_item(items)` that returns the first element of a non-empty list.",
        reference="def first_item(items):\n    return items[0]",
        tests=(
            (([3, 1, 2],), 3),
            (([7],), 7),
            ((["a", "b"],), "a"),
            (([-5, 4, -5],), -5),
            (([1_000_000_000, 0],), 1_000_000_000),
            (([[1, 2], [3]],), [1, 2]),
        ),
    ),
    ladder_task(
        "last_item",
        family="list ends",
        level=1,
        prompt="Write a function `last_item(items)` that returns the last element of a non-empty list.",
        reference="def last_item(items):\n    return items[-1]",
        tests=(
            (([3, 1, 2],), 2),
            (([7],), 7),
            ((["a", "b"],), "b"),
            (([-5, 4, -5],), -5),
            (([0, 1_000_000_000],), 1_000_000_000),
            (([[1, 2], [3]],), [3]),
        ),
    ),
    ladder_task(
        "second_item",
        family="list ends",
        level=1,
        prompt=(
            "Define `second_item(items)`, which returns the second element of a list. The list has at least "
            "two elements."
        ),
        reference="def second_item(items):\n    return items[1]",
        tests=(
            (([3, 1, 2],), 1),
            (([7, 7],), 7),
            ((["x", "y", "z"],), "y"),
            (([-1, -2],), -2),
            (([0, 1_000_000_000, 5],), 1_000_000_000),
            (([True, False],), False),
        ),
    ),
    ladder_task(
        "next_to_last",
        family="list ends",
        level=1,
        prompt=(
            "Given a list with two or more elements, `next_to_last(items)` should return the element just "
            "before the last one."
        ),
        reference="def next_to_last(items):\n    return items[-2]",
        tests=(
            (([3, 1, 2],), 1),
            (([7, 8],), 7),
            ((["x", "y", "z"],), "y"),
            (([-1, -2, -3, -4],), -3),
            (([5, 5, 5],), 5),
            (([1_000_000, 0],), 1_000_000),
        ),
    ),
    ladder_task(
        "item_at",
        family="list ends",
        level=1,
        prompt=(
            "Write a function `item_at(items, index)` that returns the element of the list at the given "
            "zero-based index. The index is always valid."
        ),
        reference="def item_at(items, index):\n    return items[index]",
        tests=(
            (([4, 5, 6], 0), 4),
            (([4, 5, 6], 2), 6),
            ((["a"], 0), "a"),
            (([-1, -2, -3], 1), -2),
            (([9, 9, 8, 9], 2), 8),
            (([1_000_000, 2_000_000], 1), 2_000_000),
        ),
    ),
    ladder_task(
        "both_ends",
        family="list ends",
        level=1,
        prompt=(
            "Write `both_ends(items)` so that it returns a new list of two values: the first and the last "
            "element of the non-empty list `items`."
        ),
        reference="def both_ends(items):\n    return [items[0], items[-1]]",
        tests=(
            (([1, 2, 3],), [1, 3]),
            (([7],), [7, 7]),
            ((["a", "b", "c", "d"],), ["a", "d"]),
            (([-1, -9],), [-1, -9]),
            (([5, 5],), [5, 5]),
            (([1_000_000, 3, 2, 0],), [1_000_000, 0]),
        ),
    ),
    ladder_task(
        "item_count",
        family="list size",
        level=1,
        prompt="Write a function `item_count(items)` that returns how many elements the list has.",
        reference="def item_count(items):\n    return len(items)",
        tests=(
            (([1, 2, 3],), 3),
            (([],), 0),
            (([7],), 1),
            ((["a", "a"],), 2),
            (([[], []],), 2),
            (([0, -1, -2, -3, -4, -5, -6, -7],), 8),
        ),
    ),
    ladder_task(
        "is_list_empty",
        family="list size",
        level=1,
        prompt=(
            "Write a function `is_list_empty(items)` that returns True when the list has no elements and "
            "False otherwise."
        ),
        reference="def is_list_empty(items):\n    return len(items) == 0",
        tests=(
            (([],), True),
            (([0],), False),
            (([1, 2],), False),
            (([""],), False),
            (([None],), False),
            (([[]],), False),
        ),
    ),
    ladder_task(
        "same_size",
        family="list size",
        level=1,
        prompt=(
            "Write a function `same_size(left, right)` that tells whether two lists have the same length. "
            "Return True or False."
        ),
        reference="def same_size(left, right):\n    return len(left) == len(right)",
        tests=(
            (([], []), True),
            (([1], []), False),
            (([1, 2], [3, 4]), True),
            (([1, 1], [1]), False),
            ((["a", "b", "c"], [7, 8, 9]), True),
            (([], [0, 0]), False),
        ),
    ),
    ladder_task(
        "has_more_than",
        family="list size",
        level=1,
        prompt=(
            "Return True from `has_more_than(items, n)` if the list `items` has more than `n` elements, and "
            "False if it does not."
        ),
        reference="def has_more_than(items, n):\n    return len(items) > n",
        tests=(
            (([1, 2, 3], 2), True),
            (([1, 2, 3], 3), False),
            (([], 0), False),
            (([5], 0), True),
            (([5, 5, 5, 5], 10), False),
            ((["a", "b"], 1), True),
        ),
    ),
    ladder_task(
        "combined_size",
        family="list size",
        level=1,
        prompt=(
            "Write a function `combined_size(left, right)` that returns the total number of elements in two "
            "lists together."
        ),
        reference="def combined_size(left, right):\n    return len(left) + len(right)",
        tests=(
            (([], []), 0),
            (([1], []), 1),
            (([1, 2], [3, 4]), 4),
            (([], ["a", "b", "c"]), 3),
            (([0, 0, 0], [0]), 4),
            (([-1, -2, -3, -4], [5, 6, 7]), 7),
        ),
    ),
    ladder_task(
        "last_index",
        family="list size",
        level=1,
        prompt=(
            "Write `last_index(items)`, which returns the index of the last element of a non-empty list, "
            "that is, its length minus one."
        ),
        reference="def last_index(items):\n    return len(items) - 1",
        tests=(
            (([5],), 0),
            (([5, 6],), 1),
            ((["a", "b", "c"],), 2),
            (([0, 0, 0, 0],), 3),
            (([-1, -2, -3, -4, -5],), 4),
            (([[1, 2, 3]],), 0),
        ),
    ),
    ladder_task(
        "list_total",
        family="list totals",
        level=1,
        prompt=(
            "Write a function `list_total(numbers)` that returns the sum of all the numbers in a list. The "
            "sum of an empty list is 0."
        ),
        reference="def list_total(numbers):\n    return sum(numbers)",
        tests=(
            (([1, 2, 3],), 6),
            (([],), 0),
            (([7],), 7),
            (([-1, 1],), 0),
            (([5, 5, 5],), 15),
            (([1_000_000_000, 1_000_000_000, -3],), 1_999_999_997),
        ),
    ),
    ladder_task(
        "total_with_bonus",
        family="list totals",
        level=1,
        prompt=(
            "Write a function `total_with_bonus(numbers, bonus)` that adds up the numbers in the list, then "
            "adds `bonus`, and returns the result."
        ),
        reference="def total_with_bonus(numbers, bonus):\n    return sum(numbers) + bonus",
        tests=(
            (([1, 2, 3], 10), 16),
            (([], 4), 4),
            (([7], 0), 7),
            (([-1, -2], 3), 0),
            (([5, 5], -10), 0),
            (([1_000_000, 1], 1_000_000), 2_000_001),
        ),
    ),
    ladder_task(
        "list_mean",
        family="list totals",
        level=1,
        prompt=(
            "Write a function `list_mean(numbers)` that returns the average of a non-empty list of numbers "
            "as a float: the sum divided by the length."
        ),
        reference="def list_mean(numbers):\n    return sum(numbers) / len(numbers)",
        tests=(
            (([1, 2, 3],), 2.0),
            (([4],), 4.0),
            (([1, 2],), 1.5),
            (([-2, 2],), 0.0),
            (([0, 0, 0, 1],), 0.25),
            (([1_000_000, 2_000_000],), 1500000.0),
        ),
    ),
    ladder_task(
        "grand_total",
        family="list totals",
        level=1,
        prompt=(
            "Define `grand_total(left, right)` to return the sum of every number in both lists taken "
            "together."
        ),
        reference="def grand_total(left, right):\n    return sum(left) + sum(right)",
        tests=(
            (([1, 2], [3]), 6),
            (([], []), 0),
            (([], [4]), 4),
            (([-1], [1]), 0),
            (([2, 2, 2], [2, 2]), 10),
            (([1_000_000], [-1, -2]), 999_997),
        ),
    ),
    ladder_task(
        "is_total_over",
        family="list totals",
        level=1,
        prompt=(
            "Write a function `is_total_over(numbers, limit)` that returns True if the numbers in the list "
            "add up to more than `limit`, else False."
        ),
        reference="def is_total_over(numbers, limit):\n    return sum(numbers) > limit",
        tests=(
            (([1, 2, 3], 5), True),
            (([1, 2, 3], 6), False),
            (([], 0), False),
            (([], -1), True),
            (([-5, 4], -2), True),
            (([1_000_000, 1_000_000], 1_999_999), True),
        ),
    ),
    ladder_task(
        "biggest",
        family="list extremes",
        level=1,
        prompt="Write a function `biggest(numbers)` that returns the largest number in a non-empty list.",
        reference="def biggest(numbers):\n    return max(numbers)",
        tests=(
            (([1, 5, 3],), 5),
            (([7],), 7),
            (([-4, -2, -9],), -2),
            (([2, 2, 2],), 2),
            (([0, 1_000_000_000, 5],), 1_000_000_000),
            (([10, 9, 8],), 10),
        ),
    ),
    ladder_task(
        "tiniest",
        family="list extremes",
        level=1,
        prompt="Write a function `tiniest(numbers)` that returns the smallest number in a non-empty list.",
        reference="def tiniest(numbers):\n    return min(numbers)",
        tests=(
            (([4, 1, 3],), 1),
            (([7],), 7),
            (([-4, -2, -9],), -9),
            (([2, 2, 2],), 2),
            (([0, 1_000_000_000, 5],), 0),
            (([1, 2, 3],), 1),
        ),
    ),
    ladder_task(
        "value_spread",
        family="list extremes",
        level=1,
        prompt=(
            "Write a function `value_spread(numbers)` that returns the difference between the largest and "
            "the smallest number of a non-empty list."
        ),
        reference="def value_spread(numbers):\n    return max(numbers) - min(numbers)",
        tests=(
            (([1, 5, 3],), 4),
            (([7],), 0),
            (([-4, -2, -9],), 7),
            (([2, 2],), 0),
            (([-1_000_000, 1_000_000],), 2_000_000),
            (([10, 0],), 10),
        ),
    ),
    ladder_task(
        "extremes_sum",
        family="list extremes",
        level=1,
        prompt=(
            "Given a non-empty list of numbers, `extremes_sum(numbers)` returns the largest number plus the "
            "smallest number."
        ),
        reference="def extremes_sum(numbers):\n    return max(numbers) + min(numbers)",
        tests=(
            (([1, 5, 3],), 6),
            (([7],), 14),
            (([-4, -2, -9],), -11),
            (([2, 2],), 4),
            (([-1_000_000, 1_000_000],), 0),
            (([10, 0, 4],), 10),
        ),
    ),
    ladder_task(
        "low_and_high",
        family="list extremes",
        level=1,
        prompt=(
            "Write a function `low_and_high(numbers)` that returns a list holding the minimum and then the "
            "maximum of a non-empty list."
        ),
        reference="def low_and_high(numbers):\n    return [min(numbers), max(numbers)]",
        tests=(
            (([3, 1, 2],), [1, 3]),
            (([7],), [7, 7]),
            (([-4, -2, -9],), [-9, -2]),
            (([2, 2, 2],), [2, 2]),
            (([1_000_000, 0],), [0, 1_000_000]),
            (([0, -1, 1],), [-1, 1]),
        ),
    ),
    ladder_task(
        "biggest_or_none",
        family="list extremes",
        level=2,
        prompt=(
            "Write a function `biggest_or_none(numbers)` that returns the largest number in the list, or "
            "None when the list is empty."
        ),
        reference="def biggest_or_none(numbers):\n    return max(numbers) if numbers else None",
        tests=(
            (([1, 5, 3],), 5),
            (([],), None),
            (([-7],), -7),
            (([-4, -2, -9],), -2),
            (([0],), 0),
            (([2, 1_000_000, 2],), 1_000_000),
        ),
    ),
)
