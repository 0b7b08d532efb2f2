"""What lists hold: counting, conditional sums, positions, pairs of lists."""

family, level = "count matches", 1

def times_present(items, value):
    """Write a function `times_present(items, value)` that returns how many times `value` occurs in the
    list."""
    return items.count(value)
assert times_present([1, 2, 1], 1) == 2 and times_present([], 1) == 0 and times_present([5], 4) == 0
assert times_present(["a", "b", "a", "a"], "a") == 3 and times_present([-1, 1, -1], -1) == 2
assert times_present([0, 0, 0, 0], 0) == 4

family, level = "count matches", 2

def how_many_even(numbers):
    """Write a function `how_many_even(numbers)` that returns how many integers in the list are even."""
    return sum(1 for n in numbers if n % 2 == 0)
assert how_many_even([1, 2, 4]) == 2 and how_many_even([]) == 0 and how_many_even([1]) == 0
assert how_many_even([0, -2, -3]) == 2 and how_many_even([6, 6, 6]) == 3
assert how_many_even([1_000_000, 1_000_001]) == 1

def how_many_above(numbers, limit):
    """Write a function `how_many_above(numbers, limit)` that returns how many of the numbers are strictly
    greater than `limit`."""
    return sum(1 for n in numbers if n > limit)
assert how_many_above([1, 5, 9], 4) == 2 and how_many_above([], 0) == 0 and how_many_above([3], 3) == 0
assert how_many_above([-1, -5], -2) == 1 and how_many_above([7, 7, 8], 6) == 3
assert how_many_above([1_000_000, 10], 100) == 1

family, level = "count matches", 1

def how_many_true(flags):
    """Write a function `how_many_true(flags)` that takes a list of booleans and returns the number of True
    values in it."""
    return flags.count(True)
assert how_many_true([True, False, True]) == 2 and how_many_true([]) == 0 and how_many_true([False]) == 0
assert how_many_true([True]) == 1 and how_many_true([False, False, False]) == 0
assert how_many_true([True, True, True, True]) == 4

family, level = "count matches", 2

def sign_counts(numbers):
    """Write a function `sign_counts(numbers)` that returns a list of three counts: how many numbers are
    positive, how many are zero, how many are negative."""
    return [
        sum(n > 0 for n in numbers),
        sum(n == 0 for n in numbers),
        sum(n < 0 for n in numbers),
    ]
assert sign_counts([1, -2, 3]) == [2, 0, 1] and sign_counts([]) == [0, 0, 0] and sign_counts([0]) == [0, 1, 0]
assert sign_counts([-1, -5]) == [0, 0, 2] and sign_counts([7, 0, 0, -7]) == [1, 2, 1]
assert sign_counts([1_000_000, -1_000_000, 0]) == [1, 1, 1]

family, level = "conditional sums", 2

def sum_of_positives(numbers):
    """Write a function `sum_of_positives(numbers)` that adds up only the positive numbers of the list. If
    there are none, it returns 0."""
    return sum(n for n in numbers if n > 0)
assert sum_of_positives([1, -2, 3]) == 4 and sum_of_positives([]) == 0 and sum_of_positives([-5]) == 0
assert sum_of_positives([0, 0]) == 0 and sum_of_positives([7, 7]) == 14
assert sum_of_positives([1_000_000, -1_000_000]) == 1_000_000

def sum_of_evens(numbers):
    """Write a function `sum_of_evens(numbers)` that adds up the even integers of the list and ignores the odd
    ones. With no even integer the result is 0."""
    return sum(n for n in numbers if n % 2 == 0)
assert sum_of_evens([1, 2, 4]) == 6 and sum_of_evens([]) == 0 and sum_of_evens([3]) == 0
assert sum_of_evens([-2, -4, 5]) == -6 and sum_of_evens([6, 6]) == 12
assert sum_of_evens([1_000_000, 1_000_001]) == 1_000_000

def sum_above(numbers, limit):
    """Write a function `sum_above(numbers, limit)` that returns the total of those numbers in the list that
    exceed `limit`; the total is 0 if none does."""
    return sum(n for n in numbers if n > limit)
assert sum_above([1, 5, 9], 4) == 14 and sum_above([], 0) == 0 and sum_above([3], 3) == 0
assert sum_above([-1, -5], -2) == -1 and sum_above([7, 7, 8], 6) == 22
assert sum_above([1_000_000, 10], 100) == 1_000_000

def sum_without(numbers, skipped):
    """Write a function `sum_without(numbers, skipped)` that sums the list but leaves out every number equal
    to `skipped`."""
    return sum(n for n in numbers if n != skipped)
assert sum_without([1, 2, 3], 2) == 4 and sum_without([], 1) == 0 and sum_without([5, 5], 5) == 0
assert sum_without([-1, 1, -1], -1) == 1 and sum_without([4, 6], 0) == 10
assert sum_without([1_000_000, 1, 1], 1) == 1_000_000

family, level = "conditional sums", 1

def total_of_squares(numbers):
    """Write a function `total_of_squares(numbers)` that squares each number of the list and returns the sum
    of these squares. An empty list gives 0."""
    return sum(n * n for n in numbers)
assert total_of_squares([1, 2, 3]) == 14 and total_of_squares([]) == 0 and total_of_squares([4]) == 16
assert total_of_squares([-1, -2]) == 5 and total_of_squares([0, 0]) == 0
assert total_of_squares([1000, 10]) == 1_000_100

family, level = "conditional sums", 2

def evens_minus_odds(numbers):
    """Define `evens_minus_odds(numbers)`: it returns the sum of the even integers in the list minus the sum
    of the odd ones."""
    return sum(n if n % 2 == 0 else -n for n in numbers)
assert evens_minus_odds([1, 2, 3]) == -2 and evens_minus_odds([]) == 0 and evens_minus_odds([4]) == 4
assert evens_minus_odds([7]) == -7 and evens_minus_odds([-1, -2]) == -1
assert evens_minus_odds([1_000_000, 1, 1]) == 999_998

family, level = "list positions", 1

def index_of_item(items, value):
    """Write a function `index_of_item(items, value)` that returns the index of the first element equal to
    `value`. The value is always in the list."""
    return items.index(value)
assert index_of_item([1, 2, 3], 2) == 1 and index_of_item([7], 7) == 0
assert index_of_item(["a", "b", "a"], "a") == 0 and index_of_item([5, 6, 6], 6) == 1
assert index_of_item([-1, 0, 1], 1) == 2 and index_of_item([0, 0, 1_000_000], 1_000_000) == 2

family, level = "list positions", 2

def index_or_minus_one(items, value):
    """Write a function `index_or_minus_one(items, value)` that returns the first index at which `value` is
    found in the list, or -1 if it is not in the list."""
    return items.index(value) if value in items else -1
assert index_or_minus_one([1, 2, 3], 3) == 2 and index_or_minus_one([1, 2, 3], 4) == -1
assert index_or_minus_one([], 0) == -1 and index_or_minus_one([6, 6], 6) == 0
assert index_or_minus_one(["a", "b"], "c") == -1 and index_or_minus_one([-1, 0, -1], 0) == 1

def where_is_biggest(numbers):
    """Write a function `where_is_biggest(numbers)` that returns the index of the largest number in a
    non-empty list. If the largest number occurs several times, return its first index."""
    return numbers.index(max(numbers))
assert where_is_biggest([1, 9, 3]) == 1 and where_is_biggest([7]) == 0 and where_is_biggest([4, 4, 4]) == 0
assert where_is_biggest([-3, -1, -2]) == 1 and where_is_biggest([0, 1, 2, 3]) == 3
assert where_is_biggest([5, 1_000_000, 1_000_000]) == 1

def all_indexes_of(items, value):
    """Write a function `all_indexes_of(items, value)` that returns a list of all indexes where the element
    equals `value`, in increasing order."""
    return [i for i, item in enumerate(items) if item == value]
assert all_indexes_of([1, 2, 1], 1) == [0, 2] and all_indexes_of([], 1) == [] and all_indexes_of([5], 4) == []
assert all_indexes_of(["a", "b", "a", "a"], "a") == [0, 2, 3] and all_indexes_of([-1, 1, -1], 1) == [1]
assert all_indexes_of([0, 0, 0], 0) == [0, 1, 2]

def with_indexes(items):
    """Write a function `with_indexes(items)` that returns a list of [index, element] lists, one for each
    element, counting from 0."""
    return [[i, item] for i, item in enumerate(items)]
assert with_indexes(["a", "b"]) == [[0, "a"], [1, "b"]] and with_indexes([]) == []
assert with_indexes([7]) == [[0, 7]] and with_indexes([5, 5, 5]) == [[0, 5], [1, 5], [2, 5]]
assert with_indexes([-1, 0]) == [[0, -1], [1, 0]] and with_indexes([None, True]) == [[0, None], [1, True]]

family, level = "two lists pairwise", 2

def add_pairwise_lists(left, right):
    """Write a function `add_pairwise_lists(left, right)` that adds two lists of equal length element by
    element and returns the list of sums."""
    return [a + b for a, b in zip(left, right)]
assert add_pairwise_lists([1, 2], [3, 4]) == [4, 6] and add_pairwise_lists([], []) == []
assert add_pairwise_lists([5], [-5]) == [0] and add_pairwise_lists([0, 0, 1], [1, 0, 0]) == [1, 0, 1]
assert add_pairwise_lists([-1, -2], [-3, -4]) == [-4, -6]
assert add_pairwise_lists([1_000_000], [1]) == [1_000_001]

def multiply_pairwise(left, right):
    """Given two lists of numbers of equal length, `multiply_pairwise(left, right)` returns the list of the
    products of numbers at the same index."""
    return [a * b for a, b in zip(left, right)]
assert multiply_pairwise([1, 2], [3, 4]) == [3, 8] and multiply_pairwise([], []) == []
assert multiply_pairwise([5], [-5]) == [-25] and multiply_pairwise([0, 7, 1], [1, 0, 9]) == [0, 0, 9]
assert multiply_pairwise([-1, -2], [-3, -4]) == [3, 8] and multiply_pairwise([1000], [1000]) == [1_000_000]

def dot(left, right):
    """Write a function `dot(left, right)` that returns the dot product of two equally long lists: the sum of
    the products of matching elements. Empty lists give 0."""
    return sum(a * b for a, b in zip(left, right))
assert dot([1, 2], [3, 4]) == 11 and dot([], []) == 0 and dot([5], [-5]) == -25 and dot([0, 7], [7, 0]) == 0
assert dot([-1, -2], [-3, -4]) == 11 and dot([1000, 1], [1000, 1]) == 1_000_001

def pair_up(left, right):
    """Write a function `pair_up(left, right)` that returns a list of tuples (a, b) that pairs the elements of
    two lists by index. Extra elements of the longer list are ignored."""
    return list(zip(left, right))
assert pair_up([1, 2], ["a", "b"]) == [(1, "a"), (2, "b")] and pair_up([], []) == []
assert pair_up([1, 2, 3], [4]) == [(1, 4)] and pair_up([1], [2, 3]) == [(1, 2)] and pair_up([], [1]) == []
assert pair_up([0, 0], [0, 0]) == [(0, 0), (0, 0)]

def agreements(left, right):
    """Write a function `agreements(left, right)` that counts at how many indexes two lists of the same length
    have equal elements."""
    return sum(a == b for a, b in zip(left, right))
assert agreements([1, 2, 3], [1, 5, 3]) == 2 and agreements([], []) == 0 and agreements([1], [2]) == 0
assert agreements(["a", "b"], ["b", "a"]) == 0 and agreements([0, 0, 0], [0, 0, 0]) == 3
assert agreements([-1, 1], [1, 1]) == 1

family, level = "two lists pairwise", 3

def alternate_two(left, right):
    """Write a function `alternate_two(left, right)` that takes two lists of equal length and returns one list
    that takes elements from them in turn, beginning with `left`."""
    result = []
    for a, b in zip(left, right):
        result.append(a)
        result.append(b)
    return result
assert alternate_two([1, 2], [3, 4]) == [1, 3, 2, 4] and alternate_two([], []) == []
assert alternate_two(["a"], ["b"]) == ["a", "b"] and alternate_two([0, 0], [1, 1]) == [0, 1, 0, 1]
assert alternate_two([-1, -2, -3], [1, 2, 3]) == [-1, 1, -2, 2, -3, 3]
assert alternate_two([5, 5], [5, 5]) == [5, 5, 5, 5]
