"""Sequences: ranges, progressions, running values, neighbours, windows, runs."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "up_to",
        family="range_lists",
        level=1,
        prompt=(
            "Write a function `up_to(n)` that returns the list of integers from 0 up to and including `n`, "
            "where `n` is 0 or more."
        ),
        reference="def up_to(n):\n    return list(range(n + 1))",
        tests=(
            ((3,), [0, 1, 2, 3]),
            ((0,), [0]),
            ((1,), [0, 1]),
            ((5,), [0, 1, 2, 3, 4, 5]),
            ((2,), [0, 1, 2]),
            ((10,), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ),
    ),
    ladder_task(
        "one_to_n",
        family="range_lists",
        level=1,
        prompt=(
            "Write a function `one_to_n(n)` that returns the list of integers from 1 to `n`. If `n` is 0 "
            "the list is empty."
        ),
        reference="def one_to_n(n):\n    return list(range(1, n + 1))",
        tests=(
            ((3,), [1, 2, 3]),
            ((0,), []),
            ((1,), [1]),
            ((5,), [1, 2, 3, 4, 5]),
            ((2,), [1, 2]),
            ((10,), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ),
    ),
    ladder_task(
        "first_n_from_zero",
        family="range_lists",
        level=1,
        prompt=(
            "Write a function `first_n_from_zero(n)` that returns a list of `n` integers that starts at 0: "
            "0, 1, 2 and so on. For `n` equal to 0 it returns an empty list."
        ),
        reference="def first_n_from_zero(n):\n    return list(range(n))",
        tests=(
            ((3,), [0, 1, 2]),
            ((0,), []),
            ((1,), [0]),
            ((5,), [0, 1, 2, 3, 4]),
            ((2,), [0, 1]),
            ((10,), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ),
    ),
    ladder_task(
        "between_inclusive",
        family="range_lists",
        level=1,
        prompt=(
            "Write a function `between_inclusive(low, high)` that returns a list of all integers from `low` "
            "to `high`, with both ends included. If `low` is greater than `high`, the list is empty."
        ),
        reference="def between_inclusive(low, high):\n    return list(range(low, high + 1))",
        tests=(
            ((1, 3), [1, 2, 3]),
            ((5, 5), [5]),
            ((3, 1), []),
            ((-2, 2), [-2, -1, 0, 1, 2]),
            ((0, 6), [0, 1, 2, 3, 4, 5, 6]),
            ((999_999, 1_000_001), [999_999, 1_000_000, 1_000_001]),
        ),
    ),
    ladder_task(
        "down_to_one",
        family="range_lists",
        level=1,
        prompt=(
            "Write a function `down_to_one(n)` that returns the countdown from `n` to 1 as a list. For `n` "
            "equal to 0 the list is empty."
        ),
        reference="def down_to_one(n):\n    return list(range(n, 0, -1))",
        tests=(
            ((3,), [3, 2, 1]),
            ((0,), []),
            ((1,), [1]),
            ((5,), [5, 4, 3, 2, 1]),
            ((2,), [2, 1]),
            ((10,), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
        ),
    ),
    ladder_task(
        "n_zeros",
        family="range_lists",
        level=1,
        prompt="Write `n_zeros(n)`, which returns a list made of `n` zeros.",
        reference="def n_zeros(n):\n    return [0] * n",
        tests=(
            ((3,), [0, 0, 0]),
            ((0,), []),
            ((1,), [0]),
            ((5,), [0, 0, 0, 0, 0]),
            ((2,), [0, 0]),
            ((10,), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ),
    ),
    ladder_task(
        "first_even_numbers",
        family="progressions",
        level=1,
        prompt=(
            "Write a function `first_even_numbers(n)` that returns a list of the first `n` even numbers, "
            "starting with 0."
        ),
        reference="def first_even_numbers(n):\n    return [2 * i for i in range(n)]",
        tests=(
            ((3,), [0, 2, 4]),
            ((0,), []),
            ((1,), [0]),
            ((5,), [0, 2, 4, 6, 8]),
            ((2,), [0, 2]),
            ((8,), [0, 2, 4, 6, 8, 10, 12, 14]),
        ),
    ),
    ladder_task(
        "squares_up_to",
        family="progressions",
        level=1,
        prompt=(
            "Write a function `squares_up_to(n)` that returns the list of squares 1, 4, 9 and so on, up to "
            "the square of `n`. For `n` equal to 0 return an empty list."
        ),
        reference="def squares_up_to(n):\n    return [i * i for i in range(1, n + 1)]",
        tests=(
            ((3,), [1, 4, 9]),
            ((0,), []),
            ((1,), [1]),
            ((5,), [1, 4, 9, 16, 25]),
            ((2,), [1, 4]),
            ((10,), [1, 4, 9, 16, 25, 36, 49, 64, 81, 100]),
        ),
    ),
    ladder_task(
        "multiples_list",
        family="progressions",
        level=2,
        prompt=(
            "Write a function `multiples_list(number, n)` that returns the first `n` multiples of `number` "
            "as a list: number, 2 * number, 3 * number and so on."
        ),
        reference="def multiples_list(number, n):\n    return [number * i for i in range(1, n + 1)]",
        tests=(
            ((3, 4), [3, 6, 9, 12]),
            ((5, 0), []),
            ((0, 3), [0, 0, 0]),
            ((-2, 3), [-2, -4, -6]),
            ((7, 1), [7]),
            ((1_000_000, 2), [1_000_000, 2_000_000]),
        ),
    ),
    ladder_task(
        "powers_of_two_list",
        family="progressions",
        level=2,
        prompt=(
            "Write a function `powers_of_two_list(n)` that returns a list of the first `n` powers of two: "
            "1, 2, 4, 8 and so on."
        ),
        reference="def powers_of_two_list(n):\n    return [2**i for i in range(n)]",
        tests=(
            ((3,), [1, 2, 4]),
            ((0,), []),
            ((1,), [1]),
            ((5,), [1, 2, 4, 8, 16]),
            ((2,), [1, 2]),
            ((11,), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
        ),
    ),
    ladder_task(
        "arithmetic_list",
        family="progressions",
        level=2,
        prompt=(
            "Write a function `arithmetic_list(start, step, n)` that returns a list of `n` numbers: the "
            "first is `start` and each next one is `step` larger than the one before it."
        ),
        reference="def arithmetic_list(start, step, n):\n    return [start + step * i for i in range(n)]",
        tests=(
            ((1, 2, 4), [1, 3, 5, 7]),
            ((5, 3, 0), []),
            ((0, 0, 3), [0, 0, 0]),
            ((10, -3, 5), [10, 7, 4, 1, -2]),
            ((-1, 1, 3), [-1, 0, 1]),
            ((1_000_000, 1_000_000, 2), [1_000_000, 2_000_000]),
        ),
    ),
    ladder_task(
        "running_totals",
        family="running_values",
        level=3,
        prompt=(
            "Write a function `running_totals(numbers)` that returns a list in which the element at each "
            "index is the sum of all numbers up to and including that index."
        ),
        reference="""def running_totals(numbers):
    totals = []
    total = 0
    for n in numbers:
        total += n
        totals.append(total)
    return totals
""",
        tests=(
            (([1, 2, 3],), [1, 3, 6]),
            (([],), []),
            (([7],), [7]),
            (([-1, 1, -1],), [-1, 0, -1]),
            (([5, 5, 5],), [5, 10, 15]),
            (([1_000_000, 1_000_000],), [1_000_000, 2_000_000]),
        ),
    ),
    ladder_task(
        "running_products",
        family="running_values",
        level=3,
        prompt=(
            "Write a function `running_products(numbers)` that returns the list of running products: the "
            "element at index i is the product of the numbers from index 0 to i."
        ),
        reference="""def running_products(numbers):
    products = []
    product = 1
    for n in numbers:
        product *= n
        products.append(product)
    return products
""",
        tests=(
            (([1, 2, 3],), [1, 2, 6]),
            (([],), []),
            (([7],), [7]),
            (([-1, 1, -1],), [-1, -1, 1]),
            (([5, 0, 5],), [5, 0, 0]),
            (([1000, 1000, 2],), [1000, 1_000_000, 2_000_000]),
        ),
    ),
    ladder_task(
        "running_lows",
        family="running_values",
        level=3,
        prompt=(
            "For a list of numbers, `running_lows(numbers)` returns a list of the same length whose element "
            "at index i is the smallest number seen from the start up to index i."
        ),
        reference="""def running_lows(numbers):
    lows = []
    for n in numbers:
        lows.append(n if not lows else min(n, lows[-1]))
    return lows
""",
        tests=(
            (([3, 1, 2],), [3, 1, 1]),
            (([],), []),
            (([7],), [7]),
            (([5, 5, 4, 6],), [5, 5, 4, 4]),
            (([-1, -2, 0, -3],), [-1, -2, -2, -3]),
            (([1_000_000, 10, 100],), [1_000_000, 10, 10]),
        ),
    ),
    ladder_task(
        "balance_after",
        family="running_values",
        level=3,
        prompt=(
            "An account begins with the amount `start`. Write `balance_after(start, changes)` to return the "
            "list of balances after each of the changes, in order."
        ),
        reference="""def balance_after(start, changes):
    balances = []
    balance = start
    for change in changes:
        balance += change
        balances.append(balance)
    return balances
""",
        tests=(
            ((10, [5, -3]), [15, 12]),
            ((0, []), []),
            ((7, [0]), [7]),
            ((-5, [5, 5]), [0, 5]),
            ((100, [-50, -50, -50]), [50, 0, -50]),
            ((1_000_000, [1]), [1_000_001]),
        ),
    ),
    ladder_task(
        "steps_to_reach",
        family="running_values",
        level=3,
        prompt=(
            "Write a function `steps_to_reach(numbers, goal)` that adds the positive numbers of the list "
            "from left to right and returns how many of them are needed until the sum is at least `goal`. "
            "Return -1 if the whole list is not enough. `goal` is at least 1."
        ),
        reference="""def steps_to_reach(numbers, goal):
    total = 0
    for i, n in enumerate(numbers):
        total += n
        if total >= goal:
            return i + 1
    return -1
""",
        tests=(
            (([1, 2, 3], 3), 2),
            (([1, 2, 3], 7), -1),
            (([], 1), -1),
            (([10], 1), 1),
            (([2, 2, 2, 2], 5), 3),
            (([1_000_000, 1], 1_000_001), 2),
        ),
    ),
    ladder_task(
        "gaps",
        family="neighbours",
        level=2,
        prompt=(
            "Write a function `gaps(numbers)` that returns the list of differences between each number and "
            "the one before it. A list with fewer than two numbers gives an empty list."
        ),
        reference="def gaps(numbers):\n    return [b - a for a, b in zip(numbers, numbers[1:])]",
        tests=(
            (([1, 4, 6],), [3, 2]),
            (([],), []),
            (([7],), []),
            (([5, 5],), [0]),
            (([3, 1, -1],), [-2, -2]),
            (([0, 1_000_000],), [1_000_000]),
        ),
    ),
    ladder_task(
        "neighbour_pairs",
        family="neighbours",
        level=2,
        prompt=(
            "Write a function `neighbour_pairs(items)` that returns a list of tuples, one for every two "
            "neighbouring elements of the list, from left to right."
        ),
        reference="def neighbour_pairs(items):\n    return list(zip(items, items[1:]))",
        tests=(
            (([1, 2, 3],), [(1, 2), (2, 3)]),
            (([],), []),
            (([7],), []),
            ((["a", "b"],), [("a", "b")]),
            (([5, 5, 5],), [(5, 5), (5, 5)]),
            (([-1, 0, 1, 2],), [(-1, 0), (0, 1), (1, 2)]),
        ),
    ),
    ladder_task(
        "neighbour_sums",
        family="neighbours",
        level=2,
        prompt=(
            "Write a function `neighbour_sums(numbers)` that returns the sums of all pairs of adjacent "
            "numbers, from left to right. With fewer than two numbers the result is an empty list."
        ),
        reference="def neighbour_sums(numbers):\n    return [a + b for a, b in zip(numbers, numbers[1:])]",
        tests=(
            (([1, 4, 6],), [5, 10]),
            (([],), []),
            (([7],), []),
            (([5, 5],), [10]),
            (([3, -3, 3],), [0, 0]),
            (([0, 1_000_000, 1],), [1_000_000, 1_000_001]),
        ),
    ),
    ladder_task(
        "climbs",
        family="neighbours",
        level=2,
        prompt=(
            "Write a function `climbs(numbers)` that returns True if every number in the list is larger "
            "than the one before it, else False. Lists with fewer than two numbers give True."
        ),
        reference="def climbs(numbers):\n    return all(a < b for a, b in zip(numbers, numbers[1:]))",
        tests=(
            (([1, 2, 3],), True),
            (([1, 1],), False),
            (([],), True),
            (([7],), True),
            (([3, 2, 1],), False),
            (([-5, 0, 1_000_000],), True),
            (([1, 3, 2],), False),
        ),
    ),
    ladder_task(
        "count_rises",
        family="neighbours",
        level=3,
        prompt=(
            "Write a function `count_rises(numbers)` that counts how often a number in the list is greater "
            "than the number just before it."
        ),
        reference="def count_rises(numbers):\n    return sum(b > a for a, b in zip(numbers, numbers[1:]))",
        tests=(
            (([1, 2, 3],), 2),
            (([],), 0),
            (([7],), 0),
            (([3, 2, 1],), 0),
            (([5, 5, 6],), 1),
            (([-1, 1, -1, 1],), 2),
        ),
    ),
    ladder_task(
        "largest_jump",
        family="neighbours",
        level=3,
        prompt=(
            "Given a list of at least two numbers, `largest_jump(numbers)` returns the largest absolute "
            "difference between two neighbouring numbers."
        ),
        reference="""def largest_jump(numbers):
    return max(abs(b - a) for a, b in zip(numbers, numbers[1:]))
""",
        tests=(
            (([1, 4, 6],), 3),
            (([7, 7],), 0),
            (([5, 0],), 5),
            (([3, -3, 3],), 6),
            (([1, 2, 3, 4],), 1),
            (([0, 1_000_000, 1],), 1_000_000),
        ),
    ),
    ladder_task(
        "in_chunks",
        family="chunks_and_windows",
        level=3,
        prompt=(
            "Write a function `in_chunks(items, size)` that cuts the list into consecutive lists of `size` "
            "elements and returns the list of these. The last one may be shorter. `size` is at least 1."
        ),
        reference="""def in_chunks(items, size):
    return [items[i : i + size] for i in range(0, len(items), size)]
""",
        tests=(
            (([1, 2, 3, 4, 5], 2), [[1, 2], [3, 4], [5]]),
            (([], 3), []),
            (([1], 5), [[1]]),
            (([1, 2, 3, 4], 2), [[1, 2], [3, 4]]),
            ((["a", "b", "c"], 1), [["a"], ["b"], ["c"]]),
            (([0, 0, -1, -1], 3), [[0, 0, -1], [-1]]),
        ),
    ),
    ladder_task(
        "sliding_windows",
        family="chunks_and_windows",
        level=3,
        prompt=(
            "Write a function `sliding_windows(items, size)` that returns all runs of `size` consecutive "
            "elements as a list of lists, from left to right. If the list is shorter than `size`, return an "
            "empty list. `size` is at least 1."
        ),
        reference="""def sliding_windows(items, size):
    return [items[i : i + size] for i in range(len(items) - size + 1)]
""",
        tests=(
            (([1, 2, 3, 4], 2), [[1, 2], [2, 3], [3, 4]]),
            (([], 1), []),
            (([1, 2], 3), []),
            (([1, 2, 3], 3), [[1, 2, 3]]),
            ((["a", "b"], 1), [["a"], ["b"]]),
            (([5, 5, 5], 2), [[5, 5], [5, 5]]),
        ),
    ),
    ladder_task(
        "window_sums",
        family="chunks_and_windows",
        level=3,
        prompt=(
            "Write a function `window_sums(numbers, size)` that returns the sums of every `size` "
            "consecutive numbers, from left to right. If there are fewer than `size` numbers, return an "
            "empty list. `size` is at least 1."
        ),
        reference="""def window_sums(numbers, size):
    return [sum(numbers[i : i + size]) for i in range(len(numbers) - size + 1)]
""",
        tests=(
            (([1, 2, 3, 4], 2), [3, 5, 7]),
            (([], 1), []),
            (([1, 2], 3), []),
            (([1, 2, 3], 3), [6]),
            (([-1, 1, -1], 1), [-1, 1, -1]),
            (([1_000_000, 0, 1], 2), [1_000_000, 1]),
        ),
    ),
    ladder_task(
        "split_at",
        family="chunks_and_windows",
        level=2,
        prompt=(
            "Write a function `split_at(items, index)` that returns a tuple of two lists: the elements "
            "before `index` and the elements from `index` on. The index is between 0 and the length of the "
            "list."
        ),
        reference="def split_at(items, index):\n    return (items[:index], items[index:])",
        tests=(
            (([1, 2, 3], 1), ([1], [2, 3])),
            (([], 0), ([], [])),
            (([1, 2], 2), ([1, 2], [])),
            (([1, 2], 0), ([], [1, 2])),
            ((["a", "b", "c", "d"], 3), (["a", "b", "c"], ["d"])),
            (([5, 5, 5], 2), ([5, 5], [5])),
        ),
    ),
    ladder_task(
        "halves",
        family="chunks_and_windows",
        level=2,
        prompt=(
            "Write a function `halves(items)` that splits a list into two halves and returns them as a "
            "tuple of two lists. If the length is odd, the second half gets the extra element."
        ),
        reference="def halves(items):\n    return (items[: len(items) // 2], items[len(items) // 2 :])",
        tests=(
            (([1, 2, 3, 4],), ([1, 2], [3, 4])),
            (([1, 2, 3],), ([1], [2, 3])),
            (([7],), ([], [7])),
            (([],), ([], [])),
            ((["a", "b"],), (["a"], ["b"])),
            (([0, -1, 0, -1, 0],), ([0, -1], [0, -1, 0])),
        ),
    ),
    ladder_task(
        "first_to_end",
        family="rotations",
        level=2,
        prompt=(
            "Write a function `first_to_end(items)` that moves the first element of the list to the end and "
            "returns the new list. An empty list gives an empty list."
        ),
        reference="def first_to_end(items):\n    return items[1:] + items[:1]",
        tests=(
            (([1, 2, 3],), [2, 3, 1]),
            (([],), []),
            (([7],), [7]),
            ((["a", "b"],), ["b", "a"]),
            (([5, 5, 6],), [5, 6, 5]),
            (([-1, 0, 1, 2],), [0, 1, 2, -1]),
        ),
    ),
    ladder_task(
        "end_to_front",
        family="rotations",
        level=2,
        prompt=(
            "Write a function `end_to_front(items)` that returns a new list in which the last element has "
            "been moved to the front. An empty list gives an empty list."
        ),
        reference="def end_to_front(items):\n    return items[-1:] + items[:-1]",
        tests=(
            (([1, 2, 3],), [3, 1, 2]),
            (([],), []),
            (([7],), [7]),
            ((["a", "b"],), ["b", "a"]),
            (([5, 5, 6],), [6, 5, 5]),
            (([-1, 0, 1, 2],), [2, -1, 0, 1]),
        ),
    ),
    ladder_task(
        "turn_left",
        family="rotations",
        level=3,
        prompt=(
            "Write a function `turn_left(items, steps)` that rotates the list to the left by `steps` places "
            "and returns the new list: elements that leave at the front come back at the end. `steps` is 0 "
            "or more and may be larger than the length of the list."
        ),
        reference="""def turn_left(items, steps):
    if not items:
        return []
    k = steps % len(items)
    return items[k:] + items[:k]
""",
        tests=(
            (([1, 2, 3], 1), [2, 3, 1]),
            (([1, 2, 3], 0), [1, 2, 3]),
            (([], 4), []),
            (([7], 9), [7]),
            (([1, 2, 3, 4], 6), [3, 4, 1, 2]),
            ((["a", "b", "c"], 3), ["a", "b", "c"]),
        ),
    ),
    ladder_task(
        "every_turn",
        family="rotations",
        level=3,
        prompt=(
            "Write a function `every_turn(items)` that returns the list of all rotations of `items`: the "
            "list itself, then the list rotated left by one place, by two places, and so on. An empty list "
            "gives an empty list."
        ),
        reference="def every_turn(items):\n    return [items[i:] + items[:i] for i in range(len(items))]",
        tests=(
            (([1, 2, 3],), [[1, 2, 3], [2, 3, 1], [3, 1, 2]]),
            (([],), []),
            (([7],), [[7]]),
            ((["a", "b"],), [["a", "b"], ["b", "a"]]),
            (([5, 5],), [[5, 5], [5, 5]]),
            (([-1, 0, 1, 0],), [[-1, 0, 1, 0], [0, 1, 0, -1], [1, 0, -1, 0], [0, -1, 0, 1]]),
        ),
    ),
    ladder_task(
        "is_turned_version",
        family="rotations",
        level=3,
        prompt=(
            "Write a function `is_turned_version(left, right)` that returns True if the list `right` can be "
            "made from the list `left` by rotating it any number of places (also zero), else False."
        ),
        reference="""def is_turned_version(left, right):
    return left == right or any(left[i:] + left[:i] == right for i in range(len(left)))
""",
        tests=(
            (([1, 2, 3], [2, 3, 1]), True),
            (([1, 2, 3], [3, 2, 1]), False),
            (([], []), True),
            (([1], []), False),
            (([1, 1, 2], [1, 2, 1]), True),
            (([1, 2], [1, 2]), True),
        ),
    ),
    ladder_task(
        "longest_streak",
        family="streaks",
        level=4,
        prompt=(
            "Write a function `longest_streak(items)` that returns the length of the longest run of equal "
            "elements standing next to each other. An empty list gives 0."
        ),
        reference="""def longest_streak(items):
    best = 0
    current = 0
    for i, item in enumerate(items):
        current = current + 1 if i > 0 and item == items[i - 1] else 1
        best = max(best, current)
    return best
""",
        tests=(
            (([1, 1, 2],), 2),
            (([],), 0),
            (([7],), 1),
            (([1, 2, 2, 2, 1, 1],), 3),
            ((["a", "b", "a"],), 1),
            (([0, 0, 0, 0],), 4),
        ),
    ),
    ladder_task(
        "squeeze_repeats",
        family="streaks",
        level=3,
        prompt=(
            "Write a function `squeeze_repeats(items)` that returns the list with each run of equal "
            "neighbouring elements shortened to a single element."
        ),
        reference="""def squeeze_repeats(items):
    result = []
    for item in items:
        if not result or result[-1] != item:
            result.append(item)
    return result
""",
        tests=(
            (([1, 1, 2],), [1, 2]),
            (([],), []),
            (([7],), [7]),
            (([1, 2, 2, 1, 1],), [1, 2, 1]),
            ((["a", "b", "a"],), ["a", "b", "a"]),
            (([0, 0, 0],), [0]),
        ),
    ),
    ladder_task(
        "group_runs",
        family="streaks",
        level=4,
        prompt=(
            "Write a function `group_runs(items)` that groups equal elements that stand next to each other "
            "and returns the list of these groups, each a list."
        ),
        reference="""def group_runs(items):
    groups = []
    for item in items:
        if groups and groups[-1][0] == item:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups
""",
        tests=(
            (([1, 1, 2],), [[1, 1], [2]]),
            (([],), []),
            (([7],), [[7]]),
            (([1, 2, 2, 1, 1],), [[1], [2, 2], [1, 1]]),
            ((["a", "b", "a"],), [["a"], ["b"], ["a"]]),
            (([0, 0, 0],), [[0, 0, 0]]),
        ),
    ),
    ladder_task(
        "run_lengths",
        family="streaks",
        level=4,
        prompt=(
            "Write a function `run_lengths(items)` that returns a list of tuples (element, count), one for "
            "each run of equal neighbouring elements, from left to right."
        ),
        reference="""def run_lengths(items):
    runs = []
    for item in items:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    return runs
""",
        tests=(
            (([1, 1, 2],), [(1, 2), (2, 1)]),
            (([],), []),
            (([7],), [(7, 1)]),
            (([1, 2, 2, 1, 1],), [(1, 1), (2, 2), (1, 2)]),
            ((["a", "b", "a"],), [("a", 1), ("b", 1), ("a", 1)]),
            (([0, 0, 0],), [(0, 3)]),
        ),
    ),
    ladder_task(
        "longest_climb",
        family="streaks",
        level=4,
        prompt=(
            "Write a function `longest_climb(numbers)` that returns the length of the longest stretch of "
            "neighbouring numbers in which each is greater than the one before. A single number is a "
            "stretch of length 1; an empty list gives 0."
        ),
        reference="""def longest_climb(numbers):
    best = 0
    current = 0
    for i, n in enumerate(numbers):
        current = current + 1 if i > 0 and n > numbers[i - 1] else 1
        best = max(best, current)
    return best
""",
        tests=(
            (([1, 2, 3],), 3),
            (([],), 0),
            (([7],), 1),
            (([3, 2, 1],), 1),
            (([1, 2, 1, 2, 3, 4, 0],), 4),
            (([5, 5, 5],), 1),
        ),
    ),
)
