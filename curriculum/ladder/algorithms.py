"""Small algorithms, second part: greedy choices, stacks and queues."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "coins_used",
        family="greedy choices",
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
        family="greedy choices",
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
        family="greedy choices",
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
        family="greedy choices",
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
        family="greedy choices",
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
        family="stacks and queues",
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
        family="stacks and queues",
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
        family="stacks and queues",
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
        family="stacks and queues",
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
        family="stacks and queues",
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
