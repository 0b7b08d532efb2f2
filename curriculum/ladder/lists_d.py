"""Lists, fourth part: counting, conditional sums, positions, pairs of lists."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "times_present",
        family="count matches",
        level=1,
        prompt=(
            "Write a function `times_present(items, value)` that returns how many times `value` occurs in "
            "the list."
        ),
        reference="def times_present(items, value):\n    return items.count(value)",
        tests=(
            (([1, 2, 1], 1), 2),
            (([], 1), 0),
            (([5], 4), 0),
            ((["a", "b", "a", "a"], "a"), 3),
            (([-1, 1, -1], -1), 2),
            (([0, 0, 0, 0], 0), 4),
        ),
    ),
    ladder_task(
        "how_many_even",
        family="count matches",
        level=2,
        prompt=(
            "Write a function `how_many_even(numbers)` that returns how many integers in the list are even."
        ),
        reference="def how_many_even(numbers):\n    return sum(1 for n in numbers if n % 2 == 0)",
        tests=(
            (([1, 2, 4],), 2),
            (([],), 0),
            (([1],), 0),
            (([0, -2, -3],), 2),
            (([6, 6, 6],), 3),
            (([1_000_000, 1_000_001],), 1),
        ),
    ),
    ladder_task(
        "how_many_above",
        family="count matches",
        level=2,
        prompt=(
            "Write a function `how_many_above(numbers, limit)` that returns how many of the numbers are "
            "strictly greater than `limit`."
        ),
        reference="def how_many_above(numbers, limit):\n    return sum(1 for n in numbers if n > limit)",
        tests=(
            (([1, 5, 9], 4), 2),
            (([], 0), 0),
            (([3], 3), 0),
            (([-1, -5], -2), 1),
            (([7, 7, 8], 6), 3),
            (([1_000_000, 10], 100), 1),
        ),
    ),
    ladder_task(
        "how_many_true",
        family="count matches",
        level=1,
        prompt=(
            "Write a function `how_many_true(flags)` that takes a list of booleans and returns the number "
            "of True values in it."
        ),
        reference="def how_many_true(flags):\n    return flags.count(True)",
        tests=(
            (([True, False, True],), 2),
            (([],), 0),
            (([False],), 0),
            (([True],), 1),
            (([False, False, False],), 0),
            (([True, True, True, True],), 4),
        ),
    ),
    ladder_task(
        "sign_counts",
        family="count matches",
        level=2,
        prompt=(
            "Write a function `sign_counts(numbers)` that returns a list of three counts: how many numbers "
            "are positive, how many are zero, how many are negative."
        ),
        reference="""def sign_counts(numbers):
    return [
        sum(n > 0 for n in numbers),
        sum(n == 0 for n in numbers),
        sum(n < 0 for n in numbers),
    ]
""",
        tests=(
            (([1, -2, 3],), [2, 0, 1]),
            (([],), [0, 0, 0]),
            (([0],), [0, 1, 0]),
            (([-1, -5],), [0, 0, 2]),
            (([7, 0, 0, -7],), [1, 2, 1]),
            (([1_000_000, -1_000_000, 0],), [1, 1, 1]),
        ),
    ),
    ladder_task(
        "sum_of_positives",
        family="conditional sums",
        level=2,
        prompt=(
            "Write a function `sum_of_positives(numbers)` that adds up only the positive numbers of the "
            "list. If there are none, it returns 0."
        ),
        reference="def sum_of_positives(numbers):\n    return sum(n for n in numbers if n > 0)",
        tests=(
            (([1, -2, 3],), 4),
            (([],), 0),
            (([-5],), 0),
            (([0, 0],), 0),
            (([7, 7],), 14),
            (([1_000_000, -1_000_000],), 1_000_000),
        ),
    ),
    ladder_task(
        "sum_of_evens",
        family="conditional sums",
        level=2,
        prompt=(
            "Write a function `sum_of_evens(numbers)` that adds up the even integers of the list and "
            "ignores the odd ones. With no even integer the result is 0."
        ),
        reference="def sum_of_evens(numbers):\n    return sum(n for n in numbers if n % 2 == 0)",
        tests=(
            (([1, 2, 4],), 6),
            (([],), 0),
            (([3],), 0),
            (([-2, -4, 5],), -6),
            (([6, 6],), 12),
            (([1_000_000, 1_000_001],), 1_000_000),
        ),
    ),
    ladder_task(
        "sum_above",
        family="conditional sums",
        level=2,
        prompt=(
            "Write a function `sum_above(numbers, limit)` that returns the total of those numbers in the "
            "list that exceed `limit`; the total is 0 if none does."
        ),
        reference="def sum_above(numbers, limit):\n    return sum(n for n in numbers if n > limit)",
        tests=(
            (([1, 5, 9], 4), 14),
            (([], 0), 0),
            (([3], 3), 0),
            (([-1, -5], -2), -1),
            (([7, 7, 8], 6), 22),
            (([1_000_000, 10], 100), 1_000_000),
        ),
    ),
    ladder_task(
        "sum_without",
        family="conditional sums",
        level=2,
        prompt=(
            "Write a function `sum_without(numbers, skipped)` that sums the list but leaves out every "
            "number equal to `skipped`."
        ),
        reference="def sum_without(numbers, skipped):\n    return sum(n for n in numbers if n != skipped)",
        tests=(
            (([1, 2, 3], 2), 4),
            (([], 1), 0),
            (([5, 5], 5), 0),
            (([-1, 1, -1], -1), 1),
            (([4, 6], 0), 10),
            (([1_000_000, 1, 1], 1), 1_000_000),
        ),
    ),
    ladder_task(
        "total_of_squares",
        family="conditional sums",
        level=1,
        prompt=(
            "Write a function `total_of_squares(numbers)` that squares each number of the list and returns "
            "the sum of these squares. An empty list gives 0."
        ),
        reference="def total_of_squares(numbers):\n    return sum(n * n for n in numbers)",
        tests=(
            (([1, 2, 3],), 14),
            (([],), 0),
            (([4],), 16),
            (([-1, -2],), 5),
            (([0, 0],), 0),
            (([1000, 10],), 1_000_100),
        ),
    ),
    ladder_task(
        "evens_minus_odds",
        family="conditional sums",
        level=2,
        prompt=(
            "Define `evens_minus_odds(numbers)`: it returns the sum of the even integers in the list minus "
            "the sum of the odd ones."
        ),
        reference="def evens_minus_odds(numbers):\n    return sum(n if n % 2 == 0 else -n for n in numbers)",
        tests=(
            (([1, 2, 3],), -2),
            (([],), 0),
            (([4],), 4),
            (([7],), -7),
            (([-1, -2],), -1),
            (([1_000_000, 1, 1],), 999_998),
        ),
    ),
    ladder_task(
        "index_of_item",
        family="list positions",
        level=1,
        prompt=(
            "Write a function `index_of_item(items, value)` that returns the index of the first element "
            "equal to `value`. The value is always in the list."
        ),
        reference="def index_of_item(items, value):\n    return items.index(value)",
        tests=(
            (([1, 2, 3], 2), 1),
            (([7], 7), 0),
            ((["a", "b", "a"], "a"), 0),
            (([5, 6, 6], 6), 1),
            (([-1, 0, 1], 1), 2),
            (([0, 0, 1_000_000], 1_000_000), 2),
        ),
    ),
    ladder_task(
        "index_or_minus_one",
        family="list positions",
        level=2,
        prompt=(
            "Write a function `index_or_minus_one(items, value)` that returns the first index at which "
            "`value` is found in the list, or -1 if it is not in the list."
        ),
        reference="""def index_or_minus_one(items, value):
    return items.index(value) if value in items else -1
""",
        tests=(
            (([1, 2, 3], 3), 2),
            (([1, 2, 3], 4), -1),
            (([], 0), -1),
            (([6, 6], 6), 0),
            ((["a", "b"], "c"), -1),
            (([-1, 0, -1], 0), 1),
        ),
    ),
    ladder_task(
        "where_is_biggest",
        family="list positions",
        level=2,
        prompt=(
            "Write a function `where_is_biggest(numbers)` that returns the index of the largest number in a "
            "non-empty list. If the largest number occurs several times, return its first index."
        ),
        reference="def where_is_biggest(numbers):\n    return numbers.index(max(numbers))",
        tests=(
            (([1, 9, 3],), 1),
            (([7],), 0),
            (([4, 4, 4],), 0),
            (([-3, -1, -2],), 1),
            (([0, 1, 2, 3],), 3),
            (([5, 1_000_000, 1_000_000],), 1),
        ),
    ),
    ladder_task(
        "all_indexes_of",
        family="list positions",
        level=2,
        prompt=(
            "Write a function `all_indexes_of(items, value)` that returns a list of all indexes where the "
            "element equals `value`, in increasing order."
        ),
        reference="""def all_indexes_of(items, value):
    return [i for i, item in enumerate(items) if item == value]
""",
        tests=(
            (([1, 2, 1], 1), [0, 2]),
            (([], 1), []),
            (([5], 4), []),
            ((["a", "b", "a", "a"], "a"), [0, 2, 3]),
            (([-1, 1, -1], 1), [1]),
            (([0, 0, 0], 0), [0, 1, 2]),
        ),
    ),
    ladder_task(
        "with_indexes",
        family="list positions",
        level=2,
        prompt=(
            "Write a function `with_indexes(items)` that returns a list of [index, element] lists, one for "
            "each element, counting from 0."
        ),
        reference="def with_indexes(items):\n    return [[i, item] for i, item in enumerate(items)]",
        tests=(
            ((["a", "b"],), [[0, "a"], [1, "b"]]),
            (([],), []),
            (([7],), [[0, 7]]),
            (([5, 5, 5],), [[0, 5], [1, 5], [2, 5]]),
            (([-1, 0],), [[0, -1], [1, 0]]),
            (([None, True],), [[0, None], [1, True]]),
        ),
    ),
    ladder_task(
        "add_pairwise_lists",
        family="two lists pairwise",
        level=2,
        prompt=(
            "Write a function `add_pairwise_lists(left, right)` that adds two lists of equal length element "
            "by element and returns the list of sums."
        ),
        reference="def add_pairwise_lists(left, right):\n    return [a + b for a, b in zip(left, right)]",
        tests=(
            (([1, 2], [3, 4]), [4, 6]),
            (([], []), []),
            (([5], [-5]), [0]),
            (([0, 0, 1], [1, 0, 0]), [1, 0, 1]),
            (([-1, -2], [-3, -4]), [-4, -6]),
            (([1_000_000], [1]), [1_000_001]),
        ),
    ),
    ladder_task(
        "multiply_pairwise",
        family="two lists pairwise",
        level=2,
        prompt=(
            "Given two lists of numbers of equal length, `multiply_pairwise(left, right)` returns the list "
            "of the products of numbers at the same index."
        ),
        reference="def multiply_pairwise(left, right):\n    return [a * b for a, b in zip(left, right)]",
        tests=(
            (([1, 2], [3, 4]), [3, 8]),
            (([], []), []),
            (([5], [-5]), [-25]),
            (([0, 7, 1], [1, 0, 9]), [0, 0, 9]),
            (([-1, -2], [-3, -4]), [3, 8]),
            (([1000], [1000]), [1_000_000]),
        ),
    ),
    ladder_task(
        "dot",
        family="two lists pairwise",
        level=2,
        prompt=(
            "Write a function `dot(left, right)` that returns the dot product of two equally long lists: "
            "the sum of the products of matching elements. Empty lists give 0."
        ),
        reference="def dot(left, right):\n    return sum(a * b for a, b in zip(left, right))",
        tests=(
            (([1, 2], [3, 4]), 11),
            (([], []), 0),
            (([5], [-5]), -25),
            (([0, 7], [7, 0]), 0),
            (([-1, -2], [-3, -4]), 11),
            (([1000, 1], [1000, 1]), 1_000_001),
        ),
    ),
    ladder_task(
        "pair_up",
        family="two lists pairwise",
        level=2,
        prompt=(
            "Write a function `pair_up(left, right)` that returns a list of tuples (a, b) that pairs the "
            "elements of two lists by index. Extra elements of the longer list are ignored."
        ),
        reference="def pair_up(left, right):\n    return list(zip(left, right))",
        tests=(
            (([1, 2], ["a", "b"]), [(1, "a"), (2, "b")]),
            (([], []), []),
            (([1, 2, 3], [4]), [(1, 4)]),
            (([1], [2, 3]), [(1, 2)]),
            (([], [1]), []),
            (([0, 0], [0, 0]), [(0, 0), (0, 0)]),
        ),
    ),
    ladder_task(
        "agreements",
        family="two lists pairwise",
        level=2,
        prompt=(
            "Write a function `agreements(left, right)` that counts at how many indexes two lists of the "
            "same length have equal elements."
        ),
        reference="def agreements(left, right):\n    return sum(a == b for a, b in zip(left, right))",
        tests=(
            (([1, 2, 3], [1, 5, 3]), 2),
            (([], []), 0),
            (([1], [2]), 0),
            ((["a", "b"], ["b", "a"]), 0),
            (([0, 0, 0], [0, 0, 0]), 3),
            (([-1, 1], [1, 1]), 1),
        ),
    ),
    ladder_task(
        "alternate_two",
        family="two lists pairwise",
        level=3,
        prompt=(
            "Write a function `alternate_two(left, right)` that takes two lists of equal length and returns "
            "one list that takes elements from them in turn, beginning with `left`."
        ),
        reference="""def alternate_two(left, right):
    result = []
    for a, b in zip(left, right):
        result.append(a)
        result.append(b)
    return result
""",
        tests=(
            (([1, 2], [3, 4]), [1, 3, 2, 4]),
            (([], []), []),
            ((["a"], ["b"]), ["a", "b"]),
            (([0, 0], [1, 1]), [0, 1, 0, 1]),
            (([-1, -2, -3], [1, 2, 3]), [-1, 1, -2, 2, -3, 3]),
            (([5, 5], [5, 5]), [5, 5, 5, 5]),
        ),
    ),
)
