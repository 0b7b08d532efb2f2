"""Neighbouring elements: pairs, chunks, sliding windows, streaks."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "gaps",
        family="neighbours",
        level=2,
        prompt=(
            "Write a function `gaps(numbers)` that returns a list with the differences of neighbours: each "
            "number minus the one before it. A list with fewer than two numbers gives an empty list."
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
        family="chunks and windows",
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
        family="chunks and windows",
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
        family="chunks and windows",
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
        family="chunks and windows",
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
        family="chunks and windows",
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
