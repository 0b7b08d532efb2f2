"""Lists, third part: reversal, element-wise arithmetic, filters."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "backwards",
        family="list reversing",
        level=1,
        prompt=(
            "Write a function `backwards(items)` that returns a new list with the elements in reverse order."
        ),
        reference="def backwards(items):\n    return items[::-1]",
        tests=(
            (([1, 2, 3],), [3, 2, 1]),
            (([],), []),
            (([7],), [7]),
            ((["a", "b"],), ["b", "a"]),
            (([1, 1, 2],), [2, 1, 1]),
            (([-1, 0, 1_000_000],), [1_000_000, 0, -1]),
        ),
    ),
    ladder_task(
        "reads_same_both_ways",
        family="list reversing",
        level=1,
        prompt=(
            "Write a function `reads_same_both_ways(items)` that returns True if the list is equal to its "
            "own reverse, and False if it is not. An empty list counts as equal."
        ),
        reference="def reads_same_both_ways(items):\n    return items == items[::-1]",
        tests=(
            (([1, 2, 1],), True),
            (([],), True),
            (([7],), True),
            (([1, 2],), False),
            ((["a", "b", "b", "a"],), True),
            (([1, 2, 3, 1],), False),
        ),
    ),
    ladder_task(
        "list_then_reverse",
        family="list reversing",
        level=1,
        prompt=(
            "Write a function `list_then_reverse(items)` that returns the list followed by the same list in "
            "reverse order, joined into one list."
        ),
        reference="def list_then_reverse(items):\n    return items + items[::-1]",
        tests=(
            (([1, 2, 3],), [1, 2, 3, 3, 2, 1]),
            (([],), []),
            (([7],), [7, 7]),
            ((["a", "b"],), ["a", "b", "b", "a"]),
            (([0, 0],), [0, 0, 0, 0]),
            (([-1, 1_000_000],), [-1, 1_000_000, 1_000_000, -1]),
        ),
    ),
    ladder_task(
        "is_reverse_of",
        family="list reversing",
        level=1,
        prompt=(
            "Write a function `is_reverse_of(left, right)` that returns True when the list `right` holds "
            "the same elements as `left` in reverse order, else False."
        ),
        reference="def is_reverse_of(left, right):\n    return left == right[::-1]",
        tests=(
            (([1, 2, 3], [3, 2, 1]), True),
            (([], []), True),
            (([1], [1]), True),
            (([1, 2], [1, 2]), False),
            (([1, 2, 3], [3, 2]), False),
            ((["a", "b"], ["b", "a"]), True),
        ),
    ),
    ladder_task(
        "last_n_reversed",
        family="list reversing",
        level=2,
        prompt=(
            "Write a function `last_n_reversed(items, n)` that returns the last `n` elements of the list in "
            "reverse order. `n` is between 1 and the length of the list."
        ),
        reference="def last_n_reversed(items, n):\n    return items[-n:][::-1]",
        tests=(
            (([1, 2, 3, 4], 2), [4, 3]),
            (([1, 2, 3], 3), [3, 2, 1]),
            (([7], 1), [7]),
            ((["a", "b", "c"], 1), ["c"]),
            (([0, 0, 1, 1], 3), [1, 1, 0]),
            (([-1, -2, -3], 2), [-3, -2]),
        ),
    ),
    ladder_task(
        "add_one_to_each",
        family="map arithmetic",
        level=1,
        prompt=(
            "Write a function `add_one_to_each(numbers)` that returns a new list in which every number is "
            "increased by 1."
        ),
        reference="def add_one_to_each(numbers):\n    return [n + 1 for n in numbers]",
        tests=(
            (([1, 2, 3],), [2, 3, 4]),
            (([],), []),
            (([0],), [1]),
            (([-1, -5],), [0, -4]),
            (([7, 7],), [8, 8]),
            (([999_999],), [1_000_000]),
        ),
    ),
    ladder_task(
        "double_each",
        family="map arithmetic",
        level=1,
        prompt=(
            "Write a function `double_each(numbers)` that returns a list with each number multiplied by 2."
        ),
        reference="def double_each(numbers):\n    return [n * 2 for n in numbers]",
        tests=(
            (([1, 2, 3],), [2, 4, 6]),
            (([],), []),
            (([0],), [0]),
            (([-1, -5],), [-2, -10]),
            (([7, 7],), [14, 14]),
            (([1_000_000, 0],), [2_000_000, 0]),
        ),
    ),
    ladder_task(
        "square_each",
        family="map arithmetic",
        level=1,
        prompt=(
            "Write a function `square_each(numbers)` that returns the list of the squares of the given "
            "numbers, in the same order."
        ),
        reference="def square_each(numbers):\n    return [n * n for n in numbers]",
        tests=(
            (([1, 2, 3],), [1, 4, 9]),
            (([],), []),
            (([0],), [0]),
            (([-1, -5],), [1, 25]),
            (([7, 7],), [49, 49]),
            (([1000, 10],), [1_000_000, 100]),
        ),
    ),
    ladder_task(
        "negate_each",
        family="map arithmetic",
        level=1,
        prompt=(
            "Write a function `negate_each(numbers)` that returns a list in which the sign of every number "
            "is flipped, so 3 becomes -3."
        ),
        reference="def negate_each(numbers):\n    return [-n for n in numbers]",
        tests=(
            (([1, 2, 3],), [-1, -2, -3]),
            (([],), []),
            (([0],), [0]),
            (([-1, 5, -6],), [1, -5, 6]),
            (([7, 7],), [-7, -7]),
            (([-1_000_000],), [1_000_000]),
        ),
    ),
    ladder_task(
        "scale_each",
        family="map arithmetic",
        level=1,
        prompt=(
            "Write a function `scale_each(numbers, factor)` that multiplies every number in the list by "
            "`factor` and returns the new list."
        ),
        reference="def scale_each(numbers, factor):\n    return [n * factor for n in numbers]",
        tests=(
            (([1, 2, 3], 3), [3, 6, 9]),
            (([], 5), []),
            (([4], 0), [0]),
            (([-1, 2], -2), [2, -4]),
            (([7, 7], 1), [7, 7]),
            (([1_000_000, 1], 10), [10_000_000, 10]),
        ),
    ),
    ladder_task(
        "distance_from_zero_each",
        family="map arithmetic",
        level=1,
        prompt=(
            "Write `distance_from_zero_each(numbers)`, which returns a list with the absolute value of each "
            "number."
        ),
        reference="def distance_from_zero_each(numbers):\n    return [abs(n) for n in numbers]",
        tests=(
            (([1, -2, 3],), [1, 2, 3]),
            (([],), []),
            (([0],), [0]),
            (([-7, -7],), [7, 7]),
            (([5],), [5]),
            (([-1_000_000, 1_000_000],), [1_000_000, 1_000_000]),
        ),
    ),
    ladder_task(
        "cap_each",
        family="map with choice",
        level=2,
        prompt=(
            "Write a function `cap_each(numbers, limit)` that returns a list in which every number greater "
            "than `limit` is replaced by `limit`."
        ),
        reference="def cap_each(numbers, limit):\n    return [min(n, limit) for n in numbers]",
        tests=(
            (([1, 5, 9], 5), [1, 5, 5]),
            (([], 3), []),
            (([10], 3), [3]),
            (([-1, -2], 0), [-1, -2]),
            (([4, 4], 4), [4, 4]),
            (([1_000_000, 2], 100), [100, 2]),
        ),
    ),
    ladder_task(
        "negatives_to_zero",
        family="map with choice",
        level=2,
        prompt=(
            "Write a function `negatives_to_zero(numbers)` that returns a list in which every negative "
            "number is replaced by 0 and the others are kept."
        ),
        reference="def negatives_to_zero(numbers):\n    return [max(n, 0) for n in numbers]",
        tests=(
            (([1, -2, 3],), [1, 0, 3]),
            (([],), []),
            (([-5],), [0]),
            (([0, 0],), [0, 0]),
            (([-1, -1, 2],), [0, 0, 2]),
            (([1_000_000, -1_000_000],), [1_000_000, 0]),
        ),
    ),
    ladder_task(
        "label_parity",
        family="map with choice",
        level=2,
        prompt=(
            'Given a list of integers, `label_parity(numbers)` returns a list of strings: "even" for each '
            'even number and "odd" for each odd number.'
        ),
        reference="""def label_parity(numbers):
    return ["even" if n % 2 == 0 else "odd" for n in numbers]
""",
        tests=(
            (([1, 2, 3],), ["odd", "even", "odd"]),
            (([],), []),
            (([0],), ["even"]),
            (([-1, -2],), ["odd", "even"]),
            (([7, 7],), ["odd", "odd"]),
            (([1_000_000],), ["even"]),
        ),
    ),
    ladder_task(
        "signs_of",
        family="map with choice",
        level=2,
        prompt=(
            "Write a function `signs_of(numbers)` that returns a list with 1 for each positive number, -1 "
            "for each negative number and 0 for each zero."
        ),
        reference="def signs_of(numbers):\n    return [(n > 0) - (n < 0) for n in numbers]",
        tests=(
            (([5, -3, 0],), [1, -1, 0]),
            (([],), []),
            (([0],), [0]),
            (([-1, -1],), [-1, -1]),
            (([1_000_000, 2],), [1, 1]),
            (([0, 0, 9],), [0, 0, 1]),
        ),
    ),
    ladder_task(
        "double_only_odd",
        family="map with choice",
        level=2,
        prompt=(
            "Write a function `double_only_odd(numbers)` that returns a new list where odd numbers are "
            "doubled and even numbers stay as they are."
        ),
        reference="def double_only_odd(numbers):\n    return [n * 2 if n % 2 else n for n in numbers]",
        tests=(
            (([1, 2, 3],), [2, 2, 6]),
            (([],), []),
            (([0],), [0]),
            (([-1, -2],), [-2, -2]),
            (([7, 7],), [14, 14]),
            (([1_000_001, 4],), [2_000_002, 4]),
        ),
    ),
    ladder_task(
        "keep_positive",
        family="filter numbers",
        level=1,
        prompt=(
            "Write a function `keep_positive(numbers)` that returns a list of only the numbers greater than "
            "0, in their original order."
        ),
        reference="def keep_positive(numbers):\n    return [n for n in numbers if n > 0]",
        tests=(
            (([1, -2, 3],), [1, 3]),
            (([],), []),
            (([0],), []),
            (([-1, -5],), []),
            (([7, 7, 0],), [7, 7]),
            (([1_000_000, -1_000_000],), [1_000_000]),
        ),
    ),
    ladder_task(
        "keep_even",
        family="filter numbers",
        level=1,
        prompt=(
            "Write a function `keep_even(numbers)` that returns the even numbers of a list of integers, "
            "keeping their order."
        ),
        reference="def keep_even(numbers):\n    return [n for n in numbers if n % 2 == 0]",
        tests=(
            (([1, 2, 3, 4],), [2, 4]),
            (([],), []),
            (([1],), []),
            (([0, -2, -3],), [0, -2]),
            (([6, 6],), [6, 6]),
            (([1_000_000, 1_000_001],), [1_000_000]),
        ),
    ),
    ladder_task(
        "keep_above",
        family="filter numbers",
        level=1,
        prompt=(
            "Write a function `keep_above(numbers, limit)` that returns a list of the numbers that are "
            "greater than `limit`, in order."
        ),
        reference="def keep_above(numbers, limit):\n    return [n for n in numbers if n > limit]",
        tests=(
            (([1, 5, 9], 4), [5, 9]),
            (([], 0), []),
            (([3], 3), []),
            (([-1, -5], -2), [-1]),
            (([7, 7, 8], 7), [8]),
            (([1_000_000, 10], 100), [1_000_000]),
        ),
    ),
    ladder_task(
        "drop_value",
        family="filter numbers",
        level=1,
        prompt=(
            "Write a function `drop_value(items, value)` that returns a copy of the list without any "
            "element equal to `value`. The order of the others is kept."
        ),
        reference="def drop_value(items, value):\n    return [item for item in items if item != value]",
        tests=(
            (([1, 2, 3], 2), [1, 3]),
            (([], 1), []),
            (([5, 5], 5), []),
            ((["a", "b", "a"], "a"), ["b"]),
            (([-1, 1], 0), [-1, 1]),
            (([0, 7, 0, 7], 0), [7, 7]),
        ),
    ),
    ladder_task(
        "keep_between",
        family="filter numbers",
        level=1,
        prompt=(
            "Write a function `keep_between(numbers, low, high)` that returns the numbers n of the list for "
            "which low <= n <= high, in their original order."
        ),
        reference="""def keep_between(numbers, low, high):
    return [n for n in numbers if low <= n <= high]
""",
        tests=(
            (([1, 5, 9], 2, 8), [5]),
            (([], 0, 1), []),
            (([3, 3], 3, 3), [3, 3]),
            (([-5, 0, 5], -5, 0), [-5, 0]),
            (([1, 2], 5, 9), []),
            (([1_000_000, 1], 0, 999_999), [1]),
        ),
    ),
    ladder_task(
        "without_none",
        family="filter numbers",
        level=2,
        prompt=(
            "Write a function `without_none(items)` that returns the list without its None values. Other "
            "values such as 0 and empty strings stay."
        ),
        reference="def without_none(items):\n    return [item for item in items if item is not None]",
        tests=(
            (([1, None, 2],), [1, 2]),
            (([],), []),
            (([None],), []),
            (([0, None, ""],), [0, ""]),
            ((["a"],), ["a"]),
            (([None, None, False],), [False]),
        ),
    ),
)
