"""New lists from old ones: reversal, element-wise arithmetic, filters."""

family, level = "list reversing", 1

def backwards(items):
    """Write a function `backwards(items)` that returns a new list with the elements in reverse order."""
    return items[::-1]
assert backwards([1, 2, 3]) == [3, 2, 1] and backwards([]) == [] and backwards([7]) == [7]
assert backwards(["a", "b"]) == ["b", "a"] and backwards([1, 1, 2]) == [2, 1, 1]
assert backwards([-1, 0, 1_000_000]) == [1_000_000, 0, -1]

def reads_same_both_ways(items):
    """Write a function `reads_same_both_ways(items)` that returns True if the list is equal to its own
    reverse, and False if it is not. An empty list counts as equal."""
    return items == items[::-1]
assert reads_same_both_ways([1, 2, 1]) == True and reads_same_both_ways([]) == True
assert reads_same_both_ways([7]) == True and reads_same_both_ways([1, 2]) == False
assert reads_same_both_ways(["a", "b", "b", "a"]) == True and reads_same_both_ways([1, 2, 3, 1]) == False

def list_then_reverse(items):
    """Write a function `list_then_reverse(items)` that returns the list followed by the same list in reverse
    order, joined into one list."""
    return items + items[::-1]
assert list_then_reverse([1, 2, 3]) == [1, 2, 3, 3, 2, 1] and list_then_reverse([]) == []
assert list_then_reverse([7]) == [7, 7] and list_then_reverse(["a", "b"]) == ["a", "b", "b", "a"]
assert list_then_reverse([0, 0]) == [0, 0, 0, 0]
assert list_then_reverse([-1, 1_000_000]) == [-1, 1_000_000, 1_000_000, -1]

def is_reverse_of(left, right):
    """Write a function `is_reverse_of(left, right)` that returns True when the list `right` holds the same
    elements as `left` in reverse order, else False."""
    return left == right[::-1]
assert is_reverse_of([1, 2, 3], [3, 2, 1]) == True and is_reverse_of([], []) == True
assert is_reverse_of([1], [1]) == True and is_reverse_of([1, 2], [1, 2]) == False
assert is_reverse_of([1, 2, 3], [3, 2]) == False and is_reverse_of(["a", "b"], ["b", "a"]) == True

family, level = "list reversing", 2

def last_n_reversed(items, n):
    """Write a function `last_n_reversed(items, n)` that returns the last `n` elements of the list in reverse
    order. `n` is between 1 and the length of the list."""
    return items[-n:][::-1]
assert last_n_reversed([1, 2, 3, 4], 2) == [4, 3] and last_n_reversed([1, 2, 3], 3) == [3, 2, 1]
assert last_n_reversed([7], 1) == [7] and last_n_reversed(["a", "b", "c"], 1) == ["c"]
assert last_n_reversed([0, 0, 1, 1], 3) == [1, 1, 0] and last_n_reversed([-1, -2, -3], 2) == [-3, -2]

family, level = "map arithmetic", 1

def add_one_to_each(numbers):
    """Write a function `add_one_to_each(numbers)` that returns a new list in which every number is increased
    by 1."""
    return [n + 1 for n in numbers]
assert add_one_to_each([1, 2, 3]) == [2, 3, 4] and add_one_to_each([]) == [] and add_one_to_each([0]) == [1]
assert add_one_to_each([-1, -5]) == [0, -4] and add_one_to_each([7, 7]) == [8, 8]
assert add_one_to_each([999_999]) == [1_000_000]

def double_each(numbers):
    """Write a function `double_each(numbers)` that returns a list with each number multiplied by 2."""
    return [n * 2 for n in numbers]
assert double_each([1, 2, 3]) == [2, 4, 6] and double_each([]) == [] and double_each([0]) == [0]
assert double_each([-1, -5]) == [-2, -10] and double_each([7, 7]) == [14, 14]
assert double_each([1_000_000, 0]) == [2_000_000, 0]

def square_each(numbers):
    """Write a function `square_each(numbers)` that returns the list of the squares of the given numbers, in
    the same order."""
    return [n * n for n in numbers]
assert square_each([1, 2, 3]) == [1, 4, 9] and square_each([]) == [] and square_each([0]) == [0]
assert square_each([-1, -5]) == [1, 25] and square_each([7, 7]) == [49, 49]
assert square_each([1000, 10]) == [1_000_000, 100]

def negate_each(numbers):
    """Write a function `negate_each(numbers)` that returns a list in which the sign of every number is
    flipped, so 3 becomes -3."""
    return [-n for n in numbers]
assert negate_each([1, 2, 3]) == [-1, -2, -3] and negate_each([]) == [] and negate_each([0]) == [0]
assert negate_each([-1, 5, -6]) == [1, -5, 6] and negate_each([7, 7]) == [-7, -7]
assert negate_each([-1_000_000]) == [1_000_000]

def scale_each(numbers, factor):
    """Write a function `scale_each(numbers, factor)` that multiplies every number in the list by `factor` and
    returns the new list."""
    return [n * factor for n in numbers]
assert scale_each([1, 2, 3], 3) == [3, 6, 9] and scale_each([], 5) == [] and scale_each([4], 0) == [0]
assert scale_each([-1, 2], -2) == [2, -4] and scale_each([7, 7], 1) == [7, 7]
assert scale_each([1_000_000, 1], 10) == [10_000_000, 10]

def distance_from_zero_each(numbers):
    """Write `distance_from_zero_each(numbers)`, which returns a list with the absolute value of each
    number."""
    return [abs(n) for n in numbers]
assert distance_from_zero_each([1, -2, 3]) == [1, 2, 3] and distance_from_zero_each([]) == []
assert distance_from_zero_each([0]) == [0] and distance_from_zero_each([-7, -7]) == [7, 7]
assert distance_from_zero_each([5]) == [5]
assert distance_from_zero_each([-1_000_000, 1_000_000]) == [1_000_000, 1_000_000]

family, level = "map with choice", 2

def cap_each(numbers, limit):
    """Write a function `cap_each(numbers, limit)` that returns a list in which every number greater than
    `limit` is replaced by `limit`."""
    return [min(n, limit) for n in numbers]
assert cap_each([1, 5, 9], 5) == [1, 5, 5] and cap_each([], 3) == [] and cap_each([10], 3) == [3]
assert cap_each([-1, -2], 0) == [-1, -2] and cap_each([4, 4], 4) == [4, 4]
assert cap_each([1_000_000, 2], 100) == [100, 2]

def negatives_to_zero(numbers):
    """Write a function `negatives_to_zero(numbers)` that returns a list in which every negative number is
    replaced by 0 and the others are kept."""
    return [max(n, 0) for n in numbers]
assert negatives_to_zero([1, -2, 3]) == [1, 0, 3] and negatives_to_zero([]) == []
assert negatives_to_zero([-5]) == [0] and negatives_to_zero([0, 0]) == [0, 0]
assert negatives_to_zero([-1, -1, 2]) == [0, 0, 2]
assert negatives_to_zero([1_000_000, -1_000_000]) == [1_000_000, 0]

def label_parity(numbers):
    """Given a list of integers, `label_parity(numbers)` returns a list of strings: "even" for each even
    number and "odd" for each odd number."""
    return ["even" if n % 2 == 0 else "odd" for n in numbers]
assert label_parity([1, 2, 3]) == ["odd", "even", "odd"] and label_parity([]) == []
assert label_parity([0]) == ["even"] and label_parity([-1, -2]) == ["odd", "even"]
assert label_parity([7, 7]) == ["odd", "odd"] and label_parity([1_000_000]) == ["even"]

def signs_of(numbers):
    """Write a function `signs_of(numbers)` that returns a list with 1 for each positive number, -1 for each
    negative number and 0 for each zero."""
    return [(n > 0) - (n < 0) for n in numbers]
assert signs_of([5, -3, 0]) == [1, -1, 0] and signs_of([]) == [] and signs_of([0]) == [0]
assert signs_of([-1, -1]) == [-1, -1] and signs_of([1_000_000, 2]) == [1, 1]
assert signs_of([0, 0, 9]) == [0, 0, 1]

def double_only_odd(numbers):
    """Write a function `double_only_odd(numbers)` that returns a new list where odd numbers are doubled and
    even numbers stay as they are."""
    return [n * 2 if n % 2 else n for n in numbers]
assert double_only_odd([1, 2, 3]) == [2, 2, 6] and double_only_odd([]) == [] and double_only_odd([0]) == [0]
assert double_only_odd([-1, -2]) == [-2, -2] and double_only_odd([7, 7]) == [14, 14]
assert double_only_odd([1_000_001, 4]) == [2_000_002, 4]

family, level = "filter numbers", 1

def keep_positive(numbers):
    """Write a function `keep_positive(numbers)` that returns a list of only the numbers greater than 0, in
    their original order."""
    return [n for n in numbers if n > 0]
assert keep_positive([1, -2, 3]) == [1, 3] and keep_positive([]) == [] and keep_positive([0]) == []
assert keep_positive([-1, -5]) == [] and keep_positive([7, 7, 0]) == [7, 7]
assert keep_positive([1_000_000, -1_000_000]) == [1_000_000]

def keep_even(numbers):
    """Write a function `keep_even(numbers)` that returns the even numbers of a list of integers, keeping
    their order."""
    return [n for n in numbers if n % 2 == 0]
assert keep_even([1, 2, 3, 4]) == [2, 4] and keep_even([]) == [] and keep_even([1]) == []
assert keep_even([0, -2, -3]) == [0, -2] and keep_even([6, 6]) == [6, 6]
assert keep_even([1_000_000, 1_000_001]) == [1_000_000]

def keep_above(numbers, limit):
    """Write a function `keep_above(numbers, limit)` that returns a list of the numbers that are greater than
    `limit`, in order."""
    return [n for n in numbers if n > limit]
assert keep_above([1, 5, 9], 4) == [5, 9] and keep_above([], 0) == [] and keep_above([3], 3) == []
assert keep_above([-1, -5], -2) == [-1] and keep_above([7, 7, 8], 7) == [8]
assert keep_above([1_000_000, 10], 100) == [1_000_000]

def drop_value(items, value):
    """Write a function `drop_value(items, value)` that returns a copy of the list without any element equal
    to `value`. The order of the others is kept."""
    return [item for item in items if item != value]
assert drop_value([1, 2, 3], 2) == [1, 3] and drop_value([], 1) == [] and drop_value([5, 5], 5) == []
assert drop_value(["a", "b", "a"], "a") == ["b"] and drop_value([-1, 1], 0) == [-1, 1]
assert drop_value([0, 7, 0, 7], 0) == [7, 7]

def keep_between(numbers, low, high):
    """Write a function `keep_between(numbers, low, high)` that returns the numbers n of the list for which
    low <= n <= high, in their original order."""
    return [n for n in numbers if low <= n <= high]
assert keep_between([1, 5, 9], 2, 8) == [5] and keep_between([], 0, 1) == []
assert keep_between([3, 3], 3, 3) == [3, 3] and keep_between([-5, 0, 5], -5, 0) == [-5, 0]
assert keep_between([1, 2], 5, 9) == [] and keep_between([1_000_000, 1], 0, 999_999) == [1]

family, level = "filter numbers", 2

def without_none(items):
    """Write a function `without_none(items)` that returns the list without its None values. Other values such
    as 0 and empty strings stay."""
    return [item for item in items if item is not None]
assert without_none([1, None, 2]) == [1, 2] and without_none([]) == [] and without_none([None]) == []
assert without_none([0, None, ""]) == [0, ""] and without_none(["a"]) == ["a"]
assert without_none([None, None, False]) == [False]
