"""Sequences of numbers: ranges, progressions, running values."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "up_to",
        family="range lists",
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
        family="range lists",
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
        family="range lists",
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
        family="range lists",
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
        family="range lists",
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
        family="range lists",
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
        family="running values",
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
        family="running values",
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
        family="running values",
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
        family="running values",
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
        family="running values",
        level=3,
        prompt=(
            "Write a function `steps_to_reach(numbers, goal)` that adds up a list of positive numbers from "
            "left to right and returns how many of them are needed until the sum is at least `goal`. Return "
            "-1 if the whole list is not enough. `goal` is at least 1."
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
)
