"""Distinct elements and order: duplicates, plain sorting, sorting by a key."""

family, level = "duplicates", 2

def distinct_sorted(items):
    """Write a function `distinct_sorted(items)` that returns a sorted list in which each value of `items`
    appears only once."""
    return sorted(set(items))
assert distinct_sorted([3, 1, 3]) == [1, 3] and distinct_sorted([]) == [] and distinct_sorted([7]) == [7]
assert distinct_sorted(["b", "a", "b"]) == ["a", "b"] and distinct_sorted([0, 0]) == [0]
assert distinct_sorted([-1, 1_000_000, -5]) == [-5, -1, 1_000_000]

family, level = "duplicates", 3

def distinct_in_order(items):
    """Write a function `distinct_in_order(items)` that returns a list with repeated values removed: each
    value stays only where it appears first."""
    result = []
    for item in items:
        if item not in result:
            result.append(item)
    return result
assert distinct_in_order([3, 1, 3]) == [3, 1] and distinct_in_order([]) == []
assert distinct_in_order([7]) == [7] and distinct_in_order(["b", "a", "b", "a"]) == ["b", "a"]
assert distinct_in_order([0, 0]) == [0] and distinct_in_order([-1, 5, -1, 4, 5]) == [-1, 5, 4]

def repeated_values(items):
    """Write a function `repeated_values(items)` that returns a sorted list of the values that occur two or
    more times in `items`. Each such value is listed once."""
    return sorted({item for item in items if items.count(item) > 1})
assert repeated_values([3, 1, 3]) == [3] and repeated_values([]) == [] and repeated_values([7]) == []
assert repeated_values(["b", "a", "b", "a"]) == ["a", "b"] and repeated_values([0, 0, 0]) == [0]
assert repeated_values([5, -1, 5, -1, 4]) == [-1, 5]

def first_repeat(items):
    """Write a function `first_repeat(items)` that goes through the list from the left and returns the first
    element that already occurred before it. If there is none, it returns None."""
    seen = []
    for item in items:
        if item in seen:
            return item
        seen.append(item)
    return None
assert first_repeat([3, 1, 3]) == 3 and first_repeat([]) == None and first_repeat([7]) == None
assert first_repeat(["b", "a", "a", "b"]) == "a" and first_repeat([0, 0]) == 0
assert first_repeat([-1, 5, 4]) == None

def new_values(old, current):
    """Write a function `new_values(old, current)` that returns the list of the elements of `current` that are
    not in `old`, in their order and each only once."""
    result = []
    for item in current:
        if item not in old and item not in result:
            result.append(item)
    return result
assert new_values([1, 2], [2, 3]) == [3] and new_values([], []) == [] and new_values([1], []) == []
assert new_values([], [4, 4]) == [4] and new_values(["a"], ["c", "b", "a", "c"]) == ["c", "b"]
assert new_values([-1, 0], [0, -1, 0]) == []

family, level = "sorting basics", 1

def smallest_first(numbers):
    """Write a function `smallest_first(numbers)` that returns a new list with the numbers sorted from
    smallest to largest."""
    return sorted(numbers)
assert smallest_first([3, 1, 2]) == [1, 2, 3] and smallest_first([]) == [] and smallest_first([7]) == [7]
assert smallest_first([5, 5, 1]) == [1, 5, 5] and smallest_first([-1, -3, 0]) == [-3, -1, 0]
assert smallest_first([1_000_000, 10, 100]) == [10, 100, 1_000_000]

def largest_first(numbers):
    """Write a function `largest_first(numbers)` that returns a new list with the numbers sorted from largest
    to smallest."""
    return sorted(numbers, reverse=True)
assert largest_first([3, 1, 2]) == [3, 2, 1] and largest_first([]) == [] and largest_first([7]) == [7]
assert largest_first([5, 5, 1]) == [5, 5, 1] and largest_first([-1, -3, 0]) == [0, -1, -3]
assert largest_first([1_000_000, 10, 100]) == [1_000_000, 100, 10]

def is_in_order(numbers):
    """Write a function `is_in_order(numbers)` that returns True if the list is already sorted from smallest
    to largest, else False. Equal neighbours are allowed."""
    return numbers == sorted(numbers)
assert is_in_order([1, 2, 3]) == True and is_in_order([3, 1]) == False and is_in_order([]) == True
assert is_in_order([7]) == True and is_in_order([5, 5, 6]) == True and is_in_order([-1, -3]) == False

def sorted_union_list(left, right):
    """Write a function `sorted_union_list(left, right)` that joins two lists of numbers and returns all their
    numbers in ascending order."""
    return sorted(left + right)
assert sorted_union_list([3, 1], [2]) == [1, 2, 3] and sorted_union_list([], []) == []
assert sorted_union_list([7], []) == [7] and sorted_union_list([5, 5], [5, 1]) == [1, 5, 5, 5]
assert sorted_union_list([-1], [-3, 0]) == [-3, -1, 0]
assert sorted_union_list([1_000_000], [10, 100]) == [10, 100, 1_000_000]

def two_smallest(numbers):
    """Write a function `two_smallest(numbers)` that returns a list of the two smallest numbers in ascending
    order. The given list has at least two numbers, and equal numbers count separately."""
    return sorted(numbers)[:2]
assert two_smallest([3, 1, 2]) == [1, 2] and two_smallest([2, 1]) == [1, 2]
assert two_smallest([5, 5, 9]) == [5, 5] and two_smallest([-1, -3, 0]) == [-3, -1]
assert two_smallest([7, 7]) == [7, 7] and two_smallest([1_000_000, 10, 100, 1]) == [1, 10]

family, level = "sorting basics", 2

def middle_value(numbers):
    """The list `numbers` has an odd number of elements. Write `middle_value(numbers)` so that it returns the
    number in the middle after sorting."""
    return sorted(numbers)[len(numbers) // 2]
assert middle_value([3, 1, 2]) == 2 and middle_value([7]) == 7 and middle_value([5, 5, 1]) == 5
assert middle_value([-1, -3, 0, 4, 9]) == 0 and middle_value([2, 2, 2]) == 2
assert middle_value([1_000_000, 10, 100]) == 100

family, level = "sorting by key", 3

def sort_by_second(pairs):
    """Write a function `sort_by_second(pairs)` that sorts a list of tuples by their second element, smallest
    first. Tuples with an equal second element stay in their original order."""
    return sorted(pairs, key=lambda pair: pair[1])
assert sort_by_second([("a", 2), ("b", 1)]) == [("b", 1), ("a", 2)] and sort_by_second([]) == []
assert sort_by_second([("x", 5)]) == [("x", 5)]
assert sort_by_second([(1, 0), (2, 0), (3, -1)]) == [(3, -1), (1, 0), (2, 0)]
assert sort_by_second([(9, 9), (8, 8), (7, 7)]) == [(7, 7), (8, 8), (9, 9)]
assert sort_by_second([("p", 1_000_000), ("q", 10), ("r", 10)]) == [("q", 10), ("r", 10), ("p", 1_000_000)]

family, level = "sorting by key", 2

def sort_by_size(lists):
    """Write a function `sort_by_size(lists)` that sorts a list of lists by length, shortest first. Lists of
    the same length stay in their original order."""
    return sorted(lists, key=len)
assert sort_by_size([[1, 2], [3]]) == [[3], [1, 2]] and sort_by_size([]) == [] and sort_by_size([[]]) == [[]]
assert sort_by_size([[1], [0], []]) == [[], [1], [0]]
assert sort_by_size([["a", "b"], ["c", "d"], ["e"]]) == [["e"], ["a", "b"], ["c", "d"]]
assert sort_by_size([[1, 2, 3], [], [4, 5]]) == [[], [4, 5], [1, 2, 3]]

family, level = "sorting by key", 3

def closest_to_zero_first(numbers):
    """Write a function `closest_to_zero_first(numbers)` that sorts numbers by their absolute value, smallest
    first. Numbers with the same absolute value keep their original order."""
    return sorted(numbers, key=abs)
assert closest_to_zero_first([3, -1, 2]) == [-1, 2, 3] and closest_to_zero_first([]) == []
assert closest_to_zero_first([-7]) == [-7] and closest_to_zero_first([5, -5, 1]) == [1, 5, -5]
assert closest_to_zero_first([-5, 5, 0]) == [0, -5, 5]
assert closest_to_zero_first([1_000_000, -10, 100]) == [-10, 100, 1_000_000]

def evens_then_odds(numbers):
    """Write a function `evens_then_odds(numbers)` that returns a list with all even integers first and then
    all odd ones. Inside both parts the original order is kept."""
    return [n for n in numbers if n % 2 == 0] + [n for n in numbers if n % 2 != 0]
assert evens_then_odds([1, 2, 3, 4]) == [2, 4, 1, 3] and evens_then_odds([]) == []
assert evens_then_odds([7]) == [7] and evens_then_odds([6, 4, 2]) == [6, 4, 2]
assert evens_then_odds([-1, -2, 0]) == [-2, 0, -1]
assert evens_then_odds([1_000_001, 1_000_000]) == [1_000_000, 1_000_001]

def names_by_score(scores):
    """Write a function `names_by_score(scores)` that takes a dictionary from names to numeric scores and
    returns the list of names, highest score first. Names with equal scores are in alphabetical order."""
    return sorted(scores, key=lambda name: (-scores[name], name))
assert names_by_score({"ann": 3, "bob": 5}) == ["bob", "ann"] and names_by_score({}) == []
assert names_by_score({"x": 0}) == ["x"] and names_by_score({"c": 1, "b": 1, "a": 1}) == ["a", "b", "c"]
assert names_by_score({"p": -1, "q": -2, "r": 0}) == ["r", "p", "q"]
assert names_by_score({"u": 10, "t": 1_000_000, "s": 10}) == ["t", "s", "u"]

def ranking_order(numbers):
    """Write a function `ranking_order(numbers)` that returns the list of indexes of the numbers in the order
    from the smallest number to the largest. Equal numbers are listed by lower index first."""
    return sorted(range(len(numbers)), key=lambda i: numbers[i])
assert ranking_order([30, 10, 20]) == [1, 2, 0] and ranking_order([]) == [] and ranking_order([7]) == [0]
assert ranking_order([5, 5, 1]) == [2, 0, 1] and ranking_order([-1, -3, 0]) == [1, 0, 2]
assert ranking_order([3, 2, 1, 0]) == [3, 2, 1, 0]
