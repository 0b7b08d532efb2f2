"""Small algorithms, first part: search in sorted lists, search for pairs."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "find_sorted",
        family="sorted search",
        level=4,
        prompt=(
            "The list `numbers` is sorted in ascending order and has no repeated numbers. Write "
            "`find_sorted(numbers, target)` to find `target` by binary search and return its index, or -1 "
            "if it is not there."
        ),
        reference="""def find_sorted(numbers, target):
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
""",
        tests=(
            (([1, 3, 5, 7], 5), 2),
            (([1, 3, 5, 7], 4), -1),
            (([], 1), -1),
            (([7], 7), 0),
            (([-5, 0, 5], -5), 0),
            (([2, 4, 6, 8, 1_000_000], 1_000_000), 4),
        ),
    ),
    ladder_task(
        "place_to_insert",
        family="sorted search",
        level=4,
        prompt=(
            "Write a function `place_to_insert(numbers, value)` that returns the smallest index at which "
            "`value` can be inserted into the ascending list `numbers` so that the list stays sorted."
        ),
        reference="""def place_to_insert(numbers, value):
    for i, n in enumerate(numbers):
        if n >= value:
            return i
    return len(numbers)
""",
        tests=(
            (([1, 3, 5], 4), 2),
            (([1, 3, 5], 3), 1),
            (([], 1), 0),
            (([2, 2, 2], 2), 0),
            (([-5, 0], -9), 0),
            (([1, 10, 100], 1_000_000), 3),
        ),
    ),
    ladder_task(
        "insert_in_order",
        family="sorted search",
        level=4,
        prompt=(
            "Write a function `insert_in_order(numbers, value)` that returns a new list: the ascending list "
            "`numbers` with `value` put in at such a place that the result is ascending again."
        ),
        reference="""def insert_in_order(numbers, value):
    for i, n in enumerate(numbers):
        if n >= value:
            return numbers[:i] + [value] + numbers[i:]
    return numbers + [value]
""",
        tests=(
            (([1, 3, 5], 4), [1, 3, 4, 5]),
            (([1, 3, 5], 3), [1, 3, 3, 5]),
            (([], 1), [1]),
            (([2, 2], 1), [1, 2, 2]),
            (([-5, 0], -9), [-9, -5, 0]),
            (([1, 10, 100], 1_000_000), [1, 10, 100, 1_000_000]),
        ),
    ),
    ladder_task(
        "merge_ordered",
        family="sorted search",
        level=4,
        prompt=(
            "Write a function `merge_ordered(left, right)` that merges two ascending lists of numbers into "
            "one ascending list by going through both from left to right."
        ),
        reference="""def merge_ordered(left, right):
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
""",
        tests=(
            (([1, 3], [2, 4]), [1, 2, 3, 4]),
            (([], []), []),
            (([5], []), [5]),
            (([], [1, 2]), [1, 2]),
            (([1, 1, 2], [1, 3]), [1, 1, 1, 2, 3]),
            (([-5, 1_000_000], [-7, 0]), [-7, -5, 0, 1_000_000]),
        ),
    ),
    ladder_task(
        "nearest_value",
        family="sorted search",
        level=4,
        prompt=(
            "Write a function `nearest_value(numbers, target)` that returns the number in a non-empty list "
            "that is closest to `target`. If two are equally close, return the smaller one."
        ),
        reference="""def nearest_value(numbers, target):
    return min(numbers, key=lambda n: (abs(n - target), n))
""",
        tests=(
            (([1, 5, 9], 6), 5),
            (([1, 5, 9], 3), 1),
            (([7], 100), 7),
            (([3, 3], 3), 3),
            (([-5, 5], 0), -5),
            (([10, 1_000_000], 600_000), 1_000_000),
        ),
    ),
    ladder_task(
        "two_with_sum",
        family="pair search",
        level=4,
        prompt=(
            "Write a function `two_with_sum(numbers, target)` that returns True if two elements at "
            "different indexes of the list add up to `target`, else False."
        ),
        reference="""def two_with_sum(numbers, target):
    seen = set()
    for n in numbers:
        if target - n in seen:
            return True
        seen.add(n)
    return False
""",
        tests=(
            (([1, 2, 3], 5), True),
            (([1, 2, 3], 7), False),
            (([], 0), False),
            (([4], 8), False),
            (([4, 4], 8), True),
            (([-1, 1_000_000, 1], 0), True),
        ),
    ),
    ladder_task(
        "indexes_with_sum",
        family="pair search",
        level=4,
        prompt=(
            "Write a function `indexes_with_sum(numbers, target)` that finds two indexes i < j such that "
            "numbers[i] + numbers[j] equals `target` and returns them as a tuple (i, j). At most one such "
            "pair exists; without one, return None."
        ),
        reference="""def indexes_with_sum(numbers, target):
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == target:
                return (i, j)
    return None
""",
        tests=(
            (([1, 2, 4], 6), (1, 2)),
            (([1, 2, 4], 7), None),
            (([], 0), None),
            (([4], 8), None),
            (([4, 4], 8), (0, 1)),
            (([-1, 1_000_000, 1], 0), (0, 2)),
        ),
    ),
    ladder_task(
        "count_sum_pairs",
        family="pair search",
        level=4,
        prompt=(
            "Write a function `count_sum_pairs(numbers, target)` that counts the pairs of indexes i < j for "
            "which numbers[i] + numbers[j] is equal to `target`."
        ),
        reference="""def count_sum_pairs(numbers, target):
    count = 0
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == target:
                count += 1
    return count
""",
        tests=(
            (([1, 2, 3, 4], 5), 2),
            (([1, 2, 4], 10), 0),
            (([], 0), 0),
            (([4], 8), 0),
            (([4, 4, 4], 8), 3),
            (([-1, 1, 0, 0], 0), 2),
        ),
    ),
    ladder_task(
        "all_pairs",
        family="pair search",
        level=3,
        prompt=(
            "Write a function `all_pairs(items)` that returns a list of tuples with all pairs of elements "
            "of the list, where the first stands before the second. The order is by the index of the first, "
            "then of the second."
        ),
        reference="""def all_pairs(items):
    pairs = []
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            pairs.append((items[i], items[j]))
    return pairs
""",
        tests=(
            (([1, 2, 3],), [(1, 2), (1, 3), (2, 3)]),
            (([],), []),
            (([7],), []),
            ((["a", "b"],), [("a", "b")]),
            (([5, 5, 5],), [(5, 5), (5, 5), (5, 5)]),
            (([-1, 0, 1, 2],), [(-1, 0), (-1, 1), (-1, 2), (0, 1), (0, 2), (1, 2)]),
        ),
    ),
    ladder_task(
        "smallest_distance",
        family="pair search",
        level=4,
        prompt=(
            "Write a function `smallest_distance(numbers)` that returns the smallest absolute difference "
            "between any two elements at different indexes of a list with at least two numbers."
        ),
        reference="""def smallest_distance(numbers):
    ordered = sorted(numbers)
    return min(b - a for a, b in zip(ordered, ordered[1:]))
""",
        tests=(
            (([1, 5, 3],), 2),
            (([7, 7],), 0),
            (([10, 0],), 10),
            (([-1, -9, 4],), 5),
            (([3, 100, 50, 99],), 1),
            (([1_000_000, 0, 500_000],), 500_000),
        ),
    ),
)
