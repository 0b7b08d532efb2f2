"""Search: in sorted lists, for pairs."""

family, level = "sorted search", 4

def find_sorted(numbers, target):
    """The list `numbers` is sorted in ascending order and has no repeated numbers. Write
    `find_sorted(numbers, target)` to find `target` by binary search and return its index, or -1 if it is not
    there."""
    low, high = 0, len(numbers) - 1
    while low <= high:
        middle = (low + high) // 2
        if numbers[middle] == target:
            return middle
        if numbers[middle] < target:
            low = middle + 1
        else:
            high = middle - 1
    return -1
assert find_sorted([1, 3, 5, 7], 5) == 2 and find_sorted([1, 3, 5, 7], 4) == -1 and find_sorted([], 1) == -1
assert find_sorted([7], 7) == 0 and find_sorted([-5, 0, 5], -5) == 0
assert find_sorted([2, 4, 6, 8, 1_000_000], 1_000_000) == 4

def place_to_insert(numbers, value):
    """Write a function `place_to_insert(numbers, value)` that returns the smallest index at which `value` can
    be inserted into the ascending list `numbers` so that the list stays sorted."""
    for i, n in enumerate(numbers):
        if n >= value:
            return i
    return len(numbers)
assert place_to_insert([1, 3, 5], 4) == 2 and place_to_insert([1, 3, 5], 3) == 1
assert place_to_insert([], 1) == 0 and place_to_insert([2, 2, 2], 2) == 0
assert place_to_insert([-5, 0], -9) == 0 and place_to_insert([1, 10, 100], 1_000_000) == 3

def insert_in_order(numbers, value):
    """Write a function `insert_in_order(numbers, value)` that returns a new list: the ascending list
    `numbers` with `value` put in at such a place that the result is ascending again."""
    for i, n in enumerate(numbers):
        if n >= value:
            return numbers[:i] + [value] + numbers[i:]
    return numbers + [value]
assert insert_in_order([1, 3, 5], 4) == [1, 3, 4, 5] and insert_in_order([1, 3, 5], 3) == [1, 3, 3, 5]
assert insert_in_order([], 1) == [1] and insert_in_order([2, 2], 1) == [1, 2, 2]
assert insert_in_order([-5, 0], -9) == [-9, -5, 0]
assert insert_in_order([1, 10, 100], 1_000_000) == [1, 10, 100, 1_000_000]

def merge_ordered(left, right):
    """Write a function `merge_ordered(left, right)` that merges two ascending lists of numbers into one
    ascending list by going through both from left to right."""
    merged = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return merged + left[i:] + right[j:]
assert merge_ordered([1, 3], [2, 4]) == [1, 2, 3, 4] and merge_ordered([], []) == []
assert merge_ordered([5], []) == [5] and merge_ordered([], [1, 2]) == [1, 2]
assert merge_ordered([1, 1, 2], [1, 3]) == [1, 1, 1, 2, 3]
assert merge_ordered([-5, 1_000_000], [-7, 0]) == [-7, -5, 0, 1_000_000]

def nearest_value(numbers, target):
    """Write a function `nearest_value(numbers, target)` that returns the number in a non-empty list that is
    closest to `target`. If two are equally close, return the smaller one."""
    return min(numbers, key=lambda n: (abs(n - target), n))
assert nearest_value([1, 5, 9], 6) == 5 and nearest_value([1, 5, 9], 3) == 1 and nearest_value([7], 100) == 7
assert nearest_value([3, 3], 3) == 3 and nearest_value([-5, 5], 0) == -5
assert nearest_value([10, 1_000_000], 600_000) == 1_000_000

family, level = "pair search", 4

def two_with_sum(numbers, target):
    """Write a function `two_with_sum(numbers, target)` that returns True if two elements at different indexes
    of the list add up to `target`, else False."""
    seen = set()
    for n in numbers:
        if target - n in seen:
            return True
        seen.add(n)
    return False
assert two_with_sum([1, 2, 3], 5) == True and two_with_sum([1, 2, 3], 7) == False
assert two_with_sum([], 0) == False and two_with_sum([4], 8) == False and two_with_sum([4, 4], 8) == True
assert two_with_sum([-1, 1_000_000, 1], 0) == True

def indexes_with_sum(numbers, target):
    """Write a function `indexes_with_sum(numbers, target)` that finds two indexes i < j such that numbers[i]
    + numbers[j] equals `target` and returns them as a tuple (i, j). At most one such pair exists; without
    one, return None."""
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == target:
                return (i, j)
    return None
assert indexes_with_sum([1, 2, 4], 6) == (1, 2) and indexes_with_sum([1, 2, 4], 7) == None
assert indexes_with_sum([], 0) == None and indexes_with_sum([4], 8) == None
assert indexes_with_sum([4, 4], 8) == (0, 1) and indexes_with_sum([-1, 1_000_000, 1], 0) == (0, 2)

def count_sum_pairs(numbers, target):
    """Write a function `count_sum_pairs(numbers, target)` that counts the pairs of indexes i < j for which
    numbers[i] + numbers[j] is equal to `target`."""
    count = 0
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == target:
                count += 1
    return count
assert count_sum_pairs([1, 2, 3, 4], 5) == 2 and count_sum_pairs([1, 2, 4], 10) == 0
assert count_sum_pairs([], 0) == 0 and count_sum_pairs([4], 8) == 0 and count_sum_pairs([4, 4, 4], 8) == 3
assert count_sum_pairs([-1, 1, 0, 0], 0) == 2

family, level = "pair search", 3

def all_pairs(items):
    """Write a function `all_pairs(items)` that returns a list of tuples with all pairs of elements of the
    list, where the first stands before the second. The order is by the index of the first, then of the
    second."""
    pairs = []
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            pairs.append((items[i], items[j]))
    return pairs
assert all_pairs([1, 2, 3]) == [(1, 2), (1, 3), (2, 3)] and all_pairs([]) == [] and all_pairs([7]) == []
assert all_pairs(["a", "b"]) == [("a", "b")] and all_pairs([5, 5, 5]) == [(5, 5), (5, 5), (5, 5)]
assert all_pairs([-1, 0, 1, 2]) == [(-1, 0), (-1, 1), (-1, 2), (0, 1), (0, 2), (1, 2)]

family, level = "pair search", 4

def smallest_distance(numbers):
    """Write a function `smallest_distance(numbers)` that returns the smallest absolute difference between any
    two elements at different indexes of a list with at least two numbers."""
    ordered = sorted(numbers)
    return min(b - a for a, b in zip(ordered, ordered[1:]))
assert smallest_distance([1, 5, 3]) == 2 and smallest_distance([7, 7]) == 0
assert smallest_distance([10, 0]) == 10 and smallest_distance([-1, -9, 4]) == 5
assert smallest_distance([3, 100, 50, 99]) == 1 and smallest_distance([1_000_000, 0, 500_000]) == 500_000
