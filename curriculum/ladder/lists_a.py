"""Lists, first part: ends, sizes, totals, extremes, joining, membership."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "first_item",
        family="list_ends",
        level=1,
        prompt=("Write a function `first_item(items)` that returns the first element of a non-empty list."),
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
        family="list_ends",
        level=1,
        prompt=("Write a function `last_item(items)` that returns the last element of a non-empty list."),
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
        family="list_ends",
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
        family="list_ends",
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
        family="list_ends",
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
        family="list_ends",
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
        family="list_size",
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
        family="list_size",
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
        family="list_size",
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
        family="list_size",
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
        family="list_size",
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
        family="list_size",
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
        family="list_totals",
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
        family="list_totals",
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
        family="list_totals",
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
        family="list_totals",
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
        family="list_totals",
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
        family="list_extremes",
        level=1,
        prompt=("Write a function `biggest(numbers)` that returns the largest number in a non-empty list."),
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
        family="list_extremes",
        level=1,
        prompt=("Write a function `tiniest(numbers)` that returns the smallest number in a non-empty list."),
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
        family="list_extremes",
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
        family="list_extremes",
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
        family="list_extremes",
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
        family="list_extremes",
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
    ladder_task(
        "join_two_lists",
        family="list_joining",
        level=1,
        prompt=(
            "Write a function `join_two_lists(first, second)` that returns one list with the elements of "
            "`first` followed by those of `second`."
        ),
        reference="def join_two_lists(first, second):\n    return first + second",
        tests=(
            (([1, 2], [3]), [1, 2, 3]),
            (([], []), []),
            (([], [5]), [5]),
            (([5], []), [5]),
            ((["a"], ["a", "b"]), ["a", "a", "b"]),
            (([-1, 0], [0, -1]), [-1, 0, 0, -1]),
        ),
    ),
    ladder_task(
        "with_item_at_end",
        family="list_joining",
        level=1,
        prompt=(
            "Write a function `with_item_at_end(items, item)` that returns a new list: all elements of "
            "`items`, and then `item` at the end."
        ),
        reference="def with_item_at_end(items, item):\n    return items + [item]",
        tests=(
            (([1, 2], 3), [1, 2, 3]),
            (([], 1), [1]),
            ((["a"], "a"), ["a", "a"]),
            (([0, 0], 0), [0, 0, 0]),
            (([-1], -2), [-1, -2]),
            (([1, 2, 3, 4, 5], 1_000_000), [1, 2, 3, 4, 5, 1_000_000]),
        ),
    ),
    ladder_task(
        "with_item_at_start",
        family="list_joining",
        level=1,
        prompt=(
            "Write a function `with_item_at_start(items, item)` that returns a new list that begins with "
            "`item` and continues with all elements of `items`."
        ),
        reference="def with_item_at_start(items, item):\n    return [item] + items",
        tests=(
            (([1, 2], 3), [3, 1, 2]),
            (([], 1), [1]),
            ((["a"], "b"), ["b", "a"]),
            (([0, 0], 0), [0, 0, 0]),
            (([-1], -2), [-2, -1]),
            (([1, 2, 3, 4, 5], 1_000_000), [1_000_000, 1, 2, 3, 4, 5]),
        ),
    ),
    ladder_task(
        "repeat_list",
        family="list_joining",
        level=1,
        prompt=(
            "Write a function `repeat_list(items, times)` that returns the list repeated `times` times, one "
            "copy after another. When `times` is 0 the result is an empty list."
        ),
        reference="def repeat_list(items, times):\n    return items * times",
        tests=(
            (([1, 2], 2), [1, 2, 1, 2]),
            (([1], 0), []),
            (([], 3), []),
            ((["a", "b"], 1), ["a", "b"]),
            (([0], 5), [0, 0, 0, 0, 0]),
            (([-1, 1], 3), [-1, 1, -1, 1, -1, 1]),
        ),
    ),
    ladder_task(
        "three_lists_in_one",
        family="list_joining",
        level=1,
        prompt=(
            "Write a function `three_lists_in_one(a, b, c)` that puts three lists together, in the order "
            "given, and returns the resulting list."
        ),
        reference="def three_lists_in_one(a, b, c):\n    return a + b + c",
        tests=(
            (([1], [2], [3]), [1, 2, 3]),
            (([], [], []), []),
            (([1, 2], [], [3]), [1, 2, 3]),
            (([], ["x"], []), ["x"]),
            (([0], [0], [0, 0]), [0, 0, 0, 0]),
            (([-1], [-2, -3], [-4]), [-1, -2, -3, -4]),
        ),
    ),
    ladder_task(
        "doubled_up",
        family="list_joining",
        level=1,
        prompt=(
            "Define `doubled_up(items)`, which returns a list that contains all elements of `items` twice: "
            "the whole list and then the whole list again."
        ),
        reference="def doubled_up(items):\n    return items + items",
        tests=(
            (([1, 2],), [1, 2, 1, 2]),
            (([],), []),
            (([7],), [7, 7]),
            ((["a", "b", "c"],), ["a", "b", "c", "a", "b", "c"]),
            (([0, 0],), [0, 0, 0, 0]),
            (([-1, 1_000_000],), [-1, 1_000_000, -1, 1_000_000]),
        ),
    ),
    ladder_task(
        "contains_item",
        family="list_membership",
        level=1,
        prompt=(
            "Write a function `contains_item(items, item)` that returns True if `item` is in the list and "
            "False if it is not."
        ),
        reference="def contains_item(items, item):\n    return item in items",
        tests=(
            (([1, 2, 3], 2), True),
            (([1, 2, 3], 4), False),
            (([], 1), False),
            ((["a", "b"], "b"), True),
            (([-1], 1), False),
            (([5, 5, 5], 5), True),
        ),
    ),
    ladder_task(
        "lacks_item",
        family="list_membership",
        level=1,
        prompt=(
            "Write a function `lacks_item(items, item)` that returns True when `item` does not occur in the "
            "list, otherwise False."
        ),
        reference="def lacks_item(items, item):\n    return item not in items",
        tests=(
            (([1, 2, 3], 2), False),
            (([1, 2, 3], 4), True),
            (([], 1), True),
            ((["a", "b"], "b"), False),
            (([-1], 1), True),
            (([5, 5, 5], 5), False),
        ),
    ),
    ladder_task(
        "has_zero",
        family="list_membership",
        level=1,
        prompt=(
            "Write a function `has_zero(numbers)` that returns True if the list of numbers contains 0, else "
            "False."
        ),
        reference="def has_zero(numbers):\n    return 0 in numbers",
        tests=(
            (([0],), True),
            (([],), False),
            (([1, 2, 3],), False),
            (([1, 0, 2],), True),
            (([-1, 10, 100],), False),
            (([0, 0, 0],), True),
        ),
    ),
    ladder_task(
        "contains_both",
        family="list_membership",
        level=1,
        prompt=(
            "Write `contains_both(items, a, b)` so that it returns True only if `a` and `b` are both "
            "elements of the list `items`."
        ),
        reference="def contains_both(items, a, b):\n    return a in items and b in items",
        tests=(
            (([1, 2, 3], 1, 3), True),
            (([1, 2, 3], 1, 4), False),
            (([1, 2, 3], 4, 1), False),
            (([], 0, 0), False),
            (([5], 5, 5), True),
            ((["a", "b"], "c", "d"), False),
        ),
    ),
    ladder_task(
        "contains_either",
        family="list_membership",
        level=1,
        prompt=(
            "Write `contains_either(items, a, b)` so that it returns True if at least one of `a` and `b` is "
            "an element of the list `items`, and False otherwise."
        ),
        reference="def contains_either(items, a, b):\n    return a in items or b in items",
        tests=(
            (([1, 2, 3], 1, 3), True),
            (([1, 2, 3], 1, 4), True),
            (([1, 2, 3], 4, 1), True),
            (([], 0, 0), False),
            (([5], 6, 7), False),
            ((["a", "b"], "c", "b"), True),
        ),
    ),
    ladder_task(
        "yes_or_no",
        family="list_membership",
        level=2,
        prompt=(
            'Write a function `yes_or_no(items, item)` that returns the string "yes" if the list contains '
            '`item` and the string "no" if it does not.'
        ),
        reference='def yes_or_no(items, item):\n    return "yes" if item in items else "no"',
        tests=(
            (([1, 2, 3], 2), "yes"),
            (([1, 2, 3], 4), "no"),
            (([], 1), "no"),
            ((["a", "b"], "b"), "yes"),
            (([-1], 1), "no"),
            (([5, 5, 5], 5), "yes"),
        ),
    ),
)
