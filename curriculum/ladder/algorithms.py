"""Small algorithms, first part: searching, pairs, greedy choices, stacks and queues."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "find_sorted",
        family="sorted_search",
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
        family="sorted_search",
        level=4,
        prompt=(
            "Write a function `place_to_insert(numbers, value)` that returns the smallest index at which "
            "`value` can be inserted into the ascending list `numbers` so that the list stays sorted. "
            "Before equal numbers is allowed."
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
        family="sorted_search",
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
        family="sorted_search",
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
        family="sorted_search",
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
        family="pair_search",
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
        family="pair_search",
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
        family="pair_search",
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
        family="pair_search",
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
        family="pair_search",
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
    ladder_task(
        "coins_used",
        family="greedy_choices",
        level=4,
        prompt=(
            "Write a function `coins_used(amount, coins)` that pays `amount` by always taking the largest "
            "coin from the list `coins` that still fits, and returns how many coins are used. The coin 1 is "
            "always in the list, which is not necessarily sorted."
        ),
        reference="""def coins_used(amount, coins):
    count = 0
    for coin in sorted(coins, reverse=True):
        count += amount // coin
        amount %= coin
    return count
""",
        tests=(
            ((7, [1, 2, 5]), 2),
            ((0, [1]), 0),
            ((4, [1]), 4),
            ((6, [1, 3, 4]), 3),
            ((99, [50, 1, 10]), 14),
            ((1_000_000, [100, 1, 5]), 10000),
        ),
    ),
    ladder_task(
        "how_many_fit",
        family="greedy_choices",
        level=4,
        prompt=(
            "Write a function `how_many_fit(weights, limit)` that returns the largest number of items that "
            "can be packed if the sum of their weights must not exceed `limit`. The weights are positive "
            "integers."
        ),
        reference="""def how_many_fit(weights, limit):
    count = 0
    for weight in sorted(weights):
        if weight > limit:
            break
        limit -= weight
        count += 1
    return count
""",
        tests=(
            (([3, 1, 2], 3), 2),
            (([3, 1, 2], 6), 3),
            (([], 5), 0),
            (([4], 3), 0),
            (([2, 2, 2], 5), 2),
            (([1_000_000, 1], 1_000_000), 1),
        ),
    ),
    ladder_task(
        "meetings_possible",
        family="greedy_choices",
        level=5,
        prompt=(
            "Each meeting is a tuple (start, end) with start < end. Write `meetings_possible(meetings)` to "
            "return the largest number of meetings one person can attend if no two of them may overlap. A "
            "meeting may start at the time another one ends."
        ),
        reference="""def meetings_possible(meetings):
    count = 0
    free_from = None
    for start, end in sorted(meetings, key=lambda meeting: meeting[1]):
        if free_from is None or start >= free_from:
            count += 1
            free_from = end
    return count
""",
        tests=(
            (([(1, 2), (2, 3)],), 2),
            (([],), 0),
            (([(5, 9)],), 1),
            (([(1, 10), (2, 3), (4, 5)],), 2),
            (([(1, 3), (2, 4), (3, 5)],), 2),
            (([(0, 1_000_000), (-5, 0), (-5, 1)],), 2),
        ),
    ),
    ladder_task(
        "join_intervals",
        family="greedy_choices",
        level=5,
        prompt=(
            "Write a function `join_intervals(intervals)` that takes a list of tuples (start, end) with "
            "start <= end and merges all that overlap or touch at an end point. It returns the merged "
            "tuples as a list sorted by start."
        ),
        reference="""def join_intervals(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
""",
        tests=(
            (([(1, 3), (2, 4)],), [(1, 4)]),
            (([],), []),
            (([(5, 9)],), [(5, 9)]),
            (([(6, 7), (1, 2)],), [(1, 2), (6, 7)]),
            (([(1, 10), (2, 3), (10, 12)],), [(1, 12)]),
            (([(0, 0), (-5, -1), (0, 0)],), [(-5, -1), (0, 0)]),
        ),
    ),
    ladder_task(
        "best_trade",
        family="greedy_choices",
        level=4,
        prompt=(
            "Write a function `best_trade(prices)` that returns the largest profit from buying once and "
            "selling once at a later index of the list `prices`. If no profit is possible, return 0."
        ),
        reference="""def best_trade(prices):
    best = 0
    lowest = None
    for price in prices:
        if lowest is None or price < lowest:
            lowest = price
        best = max(best, price - lowest)
    return best
""",
        tests=(
            (([3, 1, 5],), 4),
            (([],), 0),
            (([7],), 0),
            (([5, 4, 3],), 0),
            (([2, 2, 2],), 0),
            (([7, 1, 5, 3, 6, 4],), 5),
        ),
    ),
    ladder_task(
        "undo_last",
        family="stacks_and_queues",
        level=4,
        prompt=(
            "The list `actions` holds strings. Write `undo_last(actions)` to go through it from the left: "
            'every string except "undo" is put on a stack, and "undo" removes the top of the stack if there '
            "is one. Return the stack as a list, bottom first."
        ),
        reference="""def undo_last(actions):
    stack = []
    for action in actions:
        if action != "undo":
            stack.append(action)
        elif stack:
            stack.pop()
    return stack
""",
        tests=(
            ((["a", "b", "undo"],), ["a"]),
            (([],), []),
            ((["undo"],), []),
            ((["a", "undo", "undo", "b"],), ["b"]),
            ((["x", "y", "z"],), ["x", "y", "z"]),
            ((["a", "a", "undo", "undo"],), []),
        ),
    ),
    ladder_task(
        "evaluate_postfix",
        family="stacks_and_queues",
        level=5,
        prompt=(
            "Write a function `evaluate_postfix(tokens)` that evaluates a postfix expression given as a "
            'list of integers and of the operator strings "+", "-" and "*". Each operator replaces the last '
            "two values on the stack by its result; the final single value is returned."
        ),
        reference="""def evaluate_postfix(tokens):
    stack = []
    for token in tokens:
        if token in ("+", "-", "*"):
            right = stack.pop()
            left = stack.pop()
            if token == "+":
                stack.append(left + right)
            elif token == "-":
                stack.append(left - right)
            else:
                stack.append(left * right)
        else:
            stack.append(token)
    return stack[0]
""",
        tests=(
            (([1, 2, "+"],), 3),
            (([7],), 7),
            (([5, 3, "-"],), 2),
            (([2, 3, 4, "*", "+"],), 14),
            (([1, 2, "-", 3, "*"],), -3),
            (([0, 1_000_000, "*", -4, "+"],), -4),
        ),
    ),
    ladder_task(
        "next_larger",
        family="stacks_and_queues",
        level=5,
        prompt=(
            "Write a function `next_larger(numbers)` that returns a list which holds, for every number, the "
            "first larger number to the right of it, or None if there is none."
        ),
        reference="""def next_larger(numbers):
    result = [None] * len(numbers)
    waiting = []
    for i, n in enumerate(numbers):
        while waiting and numbers[waiting[-1]] < n:
            result[waiting.pop()] = n
        waiting.append(i)
    return result
""",
        tests=(
            (([1, 3, 2],), [3, None, None]),
            (([],), []),
            (([7],), [None]),
            (([3, 2, 1],), [None, None, None]),
            (([2, 1, 2, 3],), [3, 2, 3, None]),
            (([5, 5, 1_000_000],), [1_000_000, 1_000_000, None]),
        ),
    ),
    ladder_task(
        "last_in_circle",
        family="stacks_and_queues",
        level=4,
        prompt=(
            "The numbers 1 to `n` stand in a circle. Counting begins at 1, every `step`-th number that is "
            "still there leaves, and counting goes on with the one after it. Write `last_in_circle(n, "
            "step)` to return the number that is left at the end. Both arguments are at least 1."
        ),
        reference="""def last_in_circle(n, step):
    circle = list(range(1, n + 1))
    position = 0
    while len(circle) > 1:
        position = (position + step - 1) % len(circle)
        circle.pop(position)
    return circle[0]
""",
        tests=(
            ((5, 2), 3),
            ((1, 3), 1),
            ((4, 1), 4),
            ((2, 2), 1),
            ((7, 3), 4),
            ((10, 4), 5),
        ),
    ),
    ladder_task(
        "serve_in_turns",
        family="stacks_and_queues",
        level=4,
        prompt=(
            "Jobs 0, 1, 2, ... need the amounts of time in the list `times` (positive integers). They are "
            "served in turns: the first job in the queue runs for at most `slice_time`, and if it needs "
            "more it goes to the back. Write `serve_in_turns(times, slice_time)` to return the list of job "
            "numbers in the order in which they finish."
        ),
        reference="""def serve_in_turns(times, slice_time):
    queue = list(enumerate(times))
    finished = []
    while queue:
        job, left = queue.pop(0)
        if left <= slice_time:
            finished.append(job)
        else:
            queue.append((job, left - slice_time))
    return finished
""",
        tests=(
            (([3, 1, 2], 1), [1, 2, 0]),
            (([3, 1, 2], 5), [0, 1, 2]),
            (([], 1), []),
            (([4], 1), [0]),
            (([2, 2, 2], 2), [0, 1, 2]),
            (([5, 1, 4, 2], 2), [1, 3, 2, 0]),
        ),
    ),
)
