"""Sequences of numbers: ranges, progressions, running values."""

family, level = "range lists", 1

def up_to(n):
    """Write a function `up_to(n)` that returns the list of integers from 0 up to and including `n`, where `n`
    is 0 or more."""
    return list(range(n + 1))
assert up_to(3) == [0, 1, 2, 3] and up_to(0) == [0] and up_to(1) == [0, 1] and up_to(5) == [0, 1, 2, 3, 4, 5]
assert up_to(2) == [0, 1, 2] and up_to(10) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

def one_to_n(n):
    """Write a function `one_to_n(n)` that returns the list of integers from 1 to `n`. If `n` is 0 the list is
    empty."""
    return list(range(1, n + 1))
assert one_to_n(3) == [1, 2, 3] and one_to_n(0) == [] and one_to_n(1) == [1]
assert one_to_n(5) == [1, 2, 3, 4, 5] and one_to_n(2) == [1, 2]
assert one_to_n(10) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

def first_n_from_zero(n):
    """Write a function `first_n_from_zero(n)` that returns a list of `n` integers that starts at 0: 0, 1, 2
    and so on. For `n` equal to 0 it returns an empty list."""
    return list(range(n))
assert first_n_from_zero(3) == [0, 1, 2] and first_n_from_zero(0) == [] and first_n_from_zero(1) == [0]
assert first_n_from_zero(5) == [0, 1, 2, 3, 4] and first_n_from_zero(2) == [0, 1]
assert first_n_from_zero(10) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

def between_inclusive(low, high):
    """Write a function `between_inclusive(low, high)` that returns a list of all integers from `low` to
    `high`, with both ends included. If `low` is greater than `high`, the list is empty."""
    return list(range(low, high + 1))
assert between_inclusive(1, 3) == [1, 2, 3] and between_inclusive(5, 5) == [5]
assert between_inclusive(3, 1) == [] and between_inclusive(-2, 2) == [-2, -1, 0, 1, 2]
assert between_inclusive(0, 6) == [0, 1, 2, 3, 4, 5, 6]
assert between_inclusive(999_999, 1_000_001) == [999_999, 1_000_000, 1_000_001]

def down_to_one(n):
    """Write a function `down_to_one(n)` that returns the countdown from `n` to 1 as a list. For `n` equal to
    0 the list is empty."""
    return list(range(n, 0, -1))
assert down_to_one(3) == [3, 2, 1] and down_to_one(0) == [] and down_to_one(1) == [1]
assert down_to_one(5) == [5, 4, 3, 2, 1] and down_to_one(2) == [2, 1]
assert down_to_one(10) == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]

def n_zeros(n):
    """Write `n_zeros(n)`, which returns a list made of `n` zeros."""
    return [0] * n
assert n_zeros(3) == [0, 0, 0] and n_zeros(0) == [] and n_zeros(1) == [0] and n_zeros(5) == [0, 0, 0, 0, 0]
assert n_zeros(2) == [0, 0] and n_zeros(10) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]

family, level = "progressions", 1

def first_even_numbers(n):
    """Write a function `first_even_numbers(n)` that returns a list of the first `n` even numbers, starting
    with 0."""
    return [2 * i for i in range(n)]
assert first_even_numbers(3) == [0, 2, 4] and first_even_numbers(0) == [] and first_even_numbers(1) == [0]
assert first_even_numbers(5) == [0, 2, 4, 6, 8] and first_even_numbers(2) == [0, 2]
assert first_even_numbers(8) == [0, 2, 4, 6, 8, 10, 12, 14]

def squares_up_to(n):
    """Write a function `squares_up_to(n)` that returns the list of squares 1, 4, 9 and so on, up to the
    square of `n`. For `n` equal to 0 return an empty list."""
    return [i * i for i in range(1, n + 1)]
assert squares_up_to(3) == [1, 4, 9] and squares_up_to(0) == [] and squares_up_to(1) == [1]
assert squares_up_to(5) == [1, 4, 9, 16, 25] and squares_up_to(2) == [1, 4]
assert squares_up_to(10) == [1, 4, 9, 16, 25, 36, 49, 64, 81, 100]

family, level = "progressions", 2

def multiples_list(number, n):
    """Write a function `multiples_list(number, n)` that returns the first `n` multiples of `number` as a
    list: number, 2 * number, 3 * number and so on."""
    return [number * i for i in range(1, n + 1)]
assert multiples_list(3, 4) == [3, 6, 9, 12] and multiples_list(5, 0) == []
assert multiples_list(0, 3) == [0, 0, 0] and multiples_list(-2, 3) == [-2, -4, -6]
assert multiples_list(7, 1) == [7] and multiples_list(1_000_000, 2) == [1_000_000, 2_000_000]

def powers_of_two_list(n):
    """Write a function `powers_of_two_list(n)` that returns a list of the first `n` powers of two: 1, 2, 4, 8
    and so on."""
    return [2**i for i in range(n)]
assert powers_of_two_list(3) == [1, 2, 4] and powers_of_two_list(0) == [] and powers_of_two_list(1) == [1]
assert powers_of_two_list(5) == [1, 2, 4, 8, 16] and powers_of_two_list(2) == [1, 2]
assert powers_of_two_list(11) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]

def arithmetic_list(start, step, n):
    """Write a function `arithmetic_list(start, step, n)` that returns a list of `n` numbers: the first is
    `start` and each next one is `step` larger than the one before it."""
    return [start + step * i for i in range(n)]
assert arithmetic_list(1, 2, 4) == [1, 3, 5, 7] and arithmetic_list(5, 3, 0) == []
assert arithmetic_list(0, 0, 3) == [0, 0, 0] and arithmetic_list(10, -3, 5) == [10, 7, 4, 1, -2]
assert arithmetic_list(-1, 1, 3) == [-1, 0, 1]
assert arithmetic_list(1_000_000, 1_000_000, 2) == [1_000_000, 2_000_000]

family, level = "running values", 3

def running_totals(numbers):
    """Write a function `running_totals(numbers)` that returns a list in which the element at each index is
    the sum of all numbers up to and including that index."""
    totals = []
    total = 0
    for n in numbers:
        total += n
        totals.append(total)
    return totals
assert running_totals([1, 2, 3]) == [1, 3, 6] and running_totals([]) == [] and running_totals([7]) == [7]
assert running_totals([-1, 1, -1]) == [-1, 0, -1] and running_totals([5, 5, 5]) == [5, 10, 15]
assert running_totals([1_000_000, 1_000_000]) == [1_000_000, 2_000_000]

def running_products(numbers):
    """Write a function `running_products(numbers)` that returns the list of running products: the element at
    index i is the product of the numbers from index 0 to i."""
    products = []
    product = 1
    for n in numbers:
        product *= n
        products.append(product)
    return products
assert running_products([1, 2, 3]) == [1, 2, 6] and running_products([]) == []
assert running_products([7]) == [7] and running_products([-1, 1, -1]) == [-1, -1, 1]
assert running_products([5, 0, 5]) == [5, 0, 0]
assert running_products([1000, 1000, 2]) == [1000, 1_000_000, 2_000_000]

def running_lows(numbers):
    """For a list of numbers, `running_lows(numbers)` returns a list of the same length whose element at index
    i is the smallest number seen from the start up to index i."""
    lows = []
    for n in numbers:
        lows.append(n if not lows else min(n, lows[-1]))
    return lows
assert running_lows([3, 1, 2]) == [3, 1, 1] and running_lows([]) == [] and running_lows([7]) == [7]
assert running_lows([5, 5, 4, 6]) == [5, 5, 4, 4] and running_lows([-1, -2, 0, -3]) == [-1, -2, -2, -3]
assert running_lows([1_000_000, 10, 100]) == [1_000_000, 10, 10]

def balance_after(start, changes):
    """An account begins with the amount `start`. Write `balance_after(start, changes)` to return the list of
    balances after each of the changes, in order."""
    balances = []
    balance = start
    for change in changes:
        balance += change
        balances.append(balance)
    return balances
assert balance_after(10, [5, -3]) == [15, 12] and balance_after(0, []) == [] and balance_after(7, [0]) == [7]
assert balance_after(-5, [5, 5]) == [0, 5] and balance_after(100, [-50, -50, -50]) == [50, 0, -50]
assert balance_after(1_000_000, [1]) == [1_000_001]

def steps_to_reach(numbers, goal):
    """Write a function `steps_to_reach(numbers, goal)` that adds up a list of positive numbers from left to
    right and returns how many of them are needed until the sum is at least `goal`. Return -1 if the whole
    list is not enough. `goal` is at least 1."""
    total = 0
    for i, n in enumerate(numbers):
        total += n
        if total >= goal:
            return i + 1
    return -1
assert steps_to_reach([1, 2, 3], 3) == 2 and steps_to_reach([1, 2, 3], 7) == -1
assert steps_to_reach([], 1) == -1 and steps_to_reach([10], 1) == 1 and steps_to_reach([2, 2, 2, 2], 5) == 3
assert steps_to_reach([1_000_000, 1], 1_000_001) == 2
