"""Lists as wholes: ends, sizes, totals, extremes."""

family, level = "list ends", 1

def first_item(items):
    """Write a function `first_item(items)` that returns the first element of a non-empty list."""
    return items[0]
assert first_item([3, 1, 2]) == 3 and first_item([7]) == 7 and first_item(["a", "b"]) == "a"
assert first_item([-5, 4, -5]) == -5 and first_item([1_000_000_000, 0]) == 1_000_000_000
assert first_item([[1, 2], [3]]) == [1, 2]

def last_item(items):
    """Write a function `last_item(items)` that returns the last element of a non-empty list."""
    return items[-1]
assert last_item([3, 1, 2]) == 2 and last_item([7]) == 7 and last_item(["a", "b"]) == "b"
assert last_item([-5, 4, -5]) == -5 and last_item([0, 1_000_000_000]) == 1_000_000_000
assert last_item([[1, 2], [3]]) == [3]

def second_item(items):
    """Define `second_item(items)`, which returns the second element of a list. The list has at least two
    elements."""
    return items[1]
assert second_item([3, 1, 2]) == 1 and second_item([7, 7]) == 7 and second_item(["x", "y", "z"]) == "y"
assert second_item([-1, -2]) == -2 and second_item([0, 1_000_000_000, 5]) == 1_000_000_000
assert second_item([True, False]) == False

def next_to_last(items):
    """Given a list with two or more elements, `next_to_last(items)` should return the element just before the
    last one."""
    return items[-2]
assert next_to_last([3, 1, 2]) == 1 and next_to_last([7, 8]) == 7 and next_to_last(["x", "y", "z"]) == "y"
assert next_to_last([-1, -2, -3, -4]) == -3 and next_to_last([5, 5, 5]) == 5
assert next_to_last([1_000_000, 0]) == 1_000_000

def item_at(items, index):
    """Write a function `item_at(items, index)` that returns the element of the list at the given zero-based
    index. The index is always valid."""
    return items[index]
assert item_at([4, 5, 6], 0) == 4 and item_at([4, 5, 6], 2) == 6 and item_at(["a"], 0) == "a"
assert item_at([-1, -2, -3], 1) == -2 and item_at([9, 9, 8, 9], 2) == 8
assert item_at([1_000_000, 2_000_000], 1) == 2_000_000

def both_ends(items):
    """Write `both_ends(items)` so that it returns a new list of two values: the first and the last element of
    the non-empty list `items`."""
    return [items[0], items[-1]]
assert both_ends([1, 2, 3]) == [1, 3] and both_ends([7]) == [7, 7]
assert both_ends(["a", "b", "c", "d"]) == ["a", "d"] and both_ends([-1, -9]) == [-1, -9]
assert both_ends([5, 5]) == [5, 5] and both_ends([1_000_000, 3, 2, 0]) == [1_000_000, 0]

family, level = "list size", 1

def item_count(items):
    """Write a function `item_count(items)` that returns how many elements the list has."""
    return len(items)
assert item_count([1, 2, 3]) == 3 and item_count([]) == 0 and item_count([7]) == 1
assert item_count(["a", "a"]) == 2 and item_count([[], []]) == 2
assert item_count([0, -1, -2, -3, -4, -5, -6, -7]) == 8

def has_one_item_at_most(items):
    """Write a function `has_one_item_at_most(items)` that returns True when the list is empty or has a single
    element and False otherwise."""
    return len(items) <= 1
assert has_one_item_at_most([]) == True and has_one_item_at_most([0]) == True
assert has_one_item_at_most([1, 2]) == False and has_one_item_at_most(["", ""]) == False
assert has_one_item_at_most([None, None, None]) == False and has_one_item_at_most([[1, 2]]) == True

def same_size(left, right):
    """Write a function `same_size(left, right)` that tells whether two lists have the same length. Return
    True or False."""
    return len(left) == len(right)
assert same_size([], []) == True and same_size([1], []) == False and same_size([1, 2], [3, 4]) == True
assert same_size([1, 1], [1]) == False and same_size(["a", "b", "c"], [7, 8, 9]) == True
assert same_size([], [0, 0]) == False

def has_more_than(items, n):
    """Return True from `has_more_than(items, n)` if the list `items` has more than `n` elements, and False if
    it does not."""
    return len(items) > n
assert has_more_than([1, 2, 3], 2) == True and has_more_than([1, 2, 3], 3) == False
assert has_more_than([], 0) == False and has_more_than([5], 0) == True
assert has_more_than([5, 5, 5, 5], 10) == False and has_more_than(["a", "b"], 1) == True

def combined_size(left, right):
    """Write a function `combined_size(left, right)` that returns the total number of elements in two lists
    together."""
    return len(left) + len(right)
assert combined_size([], []) == 0 and combined_size([1], []) == 1 and combined_size([1, 2], [3, 4]) == 4
assert combined_size([], ["a", "b", "c"]) == 3 and combined_size([0, 0, 0], [0]) == 4
assert combined_size([-1, -2, -3, -4], [5, 6, 7]) == 7

def last_index(items):
    """Write `last_index(items)`, which returns the index of the last element of a non-empty list, that is,
    its length minus one."""
    return len(items) - 1
assert last_index([5]) == 0 and last_index([5, 6]) == 1 and last_index(["a", "b", "c"]) == 2
assert last_index([0, 0, 0, 0]) == 3 and last_index([-1, -2, -3, -4, -5]) == 4
assert last_index([[1, 2, 3]]) == 0

family, level = "list totals", 1

def list_total(numbers):
    """Write a function `list_total(numbers)` that returns the sum of all the numbers in a list. The sum of an
    empty list is 0."""
    return sum(numbers)
assert list_total([1, 2, 3]) == 6 and list_total([]) == 0 and list_total([7]) == 7
assert list_total([-1, 1]) == 0 and list_total([5, 5, 5]) == 15
assert list_total([1_000_000_000, 1_000_000_000, -3]) == 1_999_999_997

def total_with_bonus(numbers, bonus):
    """Write a function `total_with_bonus(numbers, bonus)` that adds up the numbers in the list, then adds
    `bonus`, and returns the result."""
    return sum(numbers) + bonus
assert total_with_bonus([1, 2, 3], 10) == 16 and total_with_bonus([], 4) == 4
assert total_with_bonus([7], 0) == 7 and total_with_bonus([-1, -2], 3) == 0
assert total_with_bonus([5, 5], -10) == 0 and total_with_bonus([1_000_000, 1], 1_000_000) == 2_000_001

def list_mean(numbers):
    """Write a function `list_mean(numbers)` that returns the average of a non-empty list of numbers as a
    float: the sum divided by the length."""
    return sum(numbers) / len(numbers)
assert list_mean([1, 2, 3]) == 2.0 and list_mean([4]) == 4.0 and list_mean([1, 2]) == 1.5
assert list_mean([-2, 2]) == 0.0 and list_mean([0, 0, 0, 1]) == 0.25
assert list_mean([1_000_000, 2_000_000]) == 1500000.0

def grand_total(left, right):
    """Define `grand_total(left, right)` to return the sum of every number in both lists taken together."""
    return sum(left) + sum(right)
assert grand_total([1, 2], [3]) == 6 and grand_total([], []) == 0 and grand_total([], [4]) == 4
assert grand_total([-1], [1]) == 0 and grand_total([2, 2, 2], [2, 2]) == 10
assert grand_total([1_000_000], [-1, -2]) == 999_997

def is_total_over(numbers, limit):
    """Write a function `is_total_over(numbers, limit)` that returns True if the numbers in the list add up to
    more than `limit`, else False."""
    return sum(numbers) > limit
assert is_total_over([1, 2, 3], 5) == True and is_total_over([1, 2, 3], 6) == False
assert is_total_over([], 0) == False and is_total_over([], -1) == True and is_total_over([-5, 4], -2) == True
assert is_total_over([1_000_000, 1_000_000], 1_999_999) == True

family, level = "list extremes", 1

def biggest(numbers):
    """Write a function `biggest(numbers)` that returns the largest number in a non-empty list."""
    return max(numbers)
assert biggest([1, 5, 3]) == 5 and biggest([7]) == 7 and biggest([-4, -2, -9]) == -2
assert biggest([2, 2, 2]) == 2 and biggest([0, 1_000_000_000, 5]) == 1_000_000_000
assert biggest([10, 9, 8]) == 10

def tiniest(numbers):
    """Write a function `tiniest(numbers)` that returns the smallest number in a non-empty list."""
    return min(numbers)
assert tiniest([4, 1, 3]) == 1 and tiniest([7]) == 7 and tiniest([-4, -2, -9]) == -9
assert tiniest([2, 2, 2]) == 2 and tiniest([0, 1_000_000_000, 5]) == 0 and tiniest([1, 2, 3]) == 1

def value_spread(numbers):
    """Write a function `value_spread(numbers)` that returns the difference between the largest and the
    smallest number of a non-empty list."""
    return max(numbers) - min(numbers)
assert value_spread([1, 5, 3]) == 4 and value_spread([7]) == 0 and value_spread([-4, -2, -9]) == 7
assert value_spread([2, 2]) == 0 and value_spread([-1_000_000, 1_000_000]) == 2_000_000
assert value_spread([10, 0]) == 10

def extremes_sum(numbers):
    """Given a non-empty list of numbers, `extremes_sum(numbers)` returns the largest number plus the smallest
    number."""
    return max(numbers) + min(numbers)
assert extremes_sum([1, 5, 3]) == 6 and extremes_sum([7]) == 14 and extremes_sum([-4, -2, -9]) == -11
assert extremes_sum([2, 2]) == 4 and extremes_sum([-1_000_000, 1_000_000]) == 0
assert extremes_sum([10, 0, 4]) == 10

def low_and_high(numbers):
    """Write a function `low_and_high(numbers)` that returns a list holding the minimum and then the maximum
    of a non-empty list."""
    return [min(numbers), max(numbers)]
assert low_and_high([3, 1, 2]) == [1, 3] and low_and_high([7]) == [7, 7]
assert low_and_high([-4, -2, -9]) == [-9, -2] and low_and_high([2, 2, 2]) == [2, 2]
assert low_and_high([1_000_000, 0]) == [0, 1_000_000] and low_and_high([0, -1, 1]) == [-1, 1]

family, level = "list extremes", 2

def biggest_or_none(numbers):
    """Write a function `biggest_or_none(numbers)` that returns the largest number in the list, or None when
    the list is empty."""
    return max(numbers) if numbers else None
assert biggest_or_none([1, 5, 3]) == 5 and biggest_or_none([]) == None and biggest_or_none([-7]) == -7
assert biggest_or_none([-4, -2, -9]) == -2 and biggest_or_none([0]) == 0
assert biggest_or_none([2, 1_000_000, 2]) == 1_000_000
