"""Small algorithms: greedy choices, stacks and queues."""

family, level = "greedy choices", 4

def coins_used(amount, coins):
    """Write a function `coins_used(amount, coins)` that pays `amount` by always taking the largest coin from
    the list `coins` that still fits, and returns how many coins are used. The coin 1 is always in the list,
    which is not necessarily sorted."""
    count = 0
    for coin in sorted(coins, reverse=True):
        count += amount // coin
        amount %= coin
    return count
assert coins_used(7, [1, 2, 5]) == 2 and coins_used(0, [1]) == 0 and coins_used(4, [1]) == 4
assert coins_used(6, [1, 3, 4]) == 3 and coins_used(99, [50, 1, 10]) == 14
assert coins_used(1_000_000, [100, 1, 5]) == 10000

def how_many_fit(weights, limit):
    """Write a function `how_many_fit(weights, limit)` that returns the largest number of items that can be
    packed if the sum of their weights must not exceed `limit`. The weights are positive integers."""
    count = 0
    for weight in sorted(weights):
        if weight > limit:
            break
        limit -= weight
        count += 1
    return count
assert how_many_fit([3, 1, 2], 3) == 2 and how_many_fit([3, 1, 2], 6) == 3 and how_many_fit([], 5) == 0
assert how_many_fit([4], 3) == 0 and how_many_fit([2, 2, 2], 5) == 2
assert how_many_fit([1_000_000, 1], 1_000_000) == 1

family, level = "greedy choices", 5

def meetings_possible(meetings):
    """Each meeting is a tuple (start, end) with start < end. Write `meetings_possible(meetings)` to return
    the largest number of meetings one person can attend if no two of them may overlap. A meeting may start at
    the time another one ends."""
    count = 0
    free_from = None
    for start, end in sorted(meetings, key=lambda meeting: meeting[1]):
        if free_from is None or start >= free_from:
            count += 1
            free_from = end
    return count
assert meetings_possible([(1, 2), (2, 3)]) == 2 and meetings_possible([]) == 0
assert meetings_possible([(5, 9)]) == 1 and meetings_possible([(1, 10), (2, 3), (4, 5)]) == 2
assert meetings_possible([(1, 3), (2, 4), (3, 5)]) == 2
assert meetings_possible([(0, 1_000_000), (-5, 0), (-5, 1)]) == 2

def join_intervals(intervals):
    """Write a function `join_intervals(intervals)` that takes a list of tuples (start, end) with start <= end
    and merges all that overlap or touch at an end point. It returns the merged tuples as a list sorted by
    start."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
assert join_intervals([(1, 3), (2, 4)]) == [(1, 4)] and join_intervals([]) == []
assert join_intervals([(5, 9)]) == [(5, 9)] and join_intervals([(6, 7), (1, 2)]) == [(1, 2), (6, 7)]
assert join_intervals([(1, 10), (2, 3), (10, 12)]) == [(1, 12)]
assert join_intervals([(0, 0), (-5, -1), (0, 0)]) == [(-5, -1), (0, 0)]

family, level = "greedy choices", 4

def best_trade(prices):
    """Write a function `best_trade(prices)` that returns the largest profit from buying once and selling once
    at a later index of the list `prices`. If no profit is possible, return 0."""
    best = 0
    lowest = None
    for price in prices:
        if lowest is None or price < lowest:
            lowest = price
        best = max(best, price - lowest)
    return best
assert best_trade([3, 1, 5]) == 4 and best_trade([]) == 0 and best_trade([7]) == 0
assert best_trade([5, 4, 3]) == 0 and best_trade([2, 2, 2]) == 0 and best_trade([7, 1, 5, 3, 6, 4]) == 5

family, level = "stacks and queues", 4

def undo_last(actions):
    """The list `actions` holds strings. Write `undo_last(actions)` to go through it from the left: every
    string except "undo" is put on a stack, and "undo" removes the top of the stack if there is one. Return
    the stack as a list, bottom first."""
    stack = []
    for action in actions:
        if action != "undo":
            stack.append(action)
        elif stack:
            stack.pop()
    return stack
assert undo_last(["a", "b", "undo"]) == ["a"] and undo_last([]) == [] and undo_last(["undo"]) == []
assert undo_last(["a", "undo", "undo", "b"]) == ["b"] and undo_last(["x", "y", "z"]) == ["x", "y", "z"]
assert undo_last(["a", "a", "undo", "undo"]) == []

family, level = "stacks and queues", 5

def evaluate_postfix(tokens):
    """Write a function `evaluate_postfix(tokens)` that evaluates a postfix expression given as a list of
    integers and of the operator strings "+", "-" and "*". Each operator replaces the last two values on the
    stack by its result; the final single value is returned."""
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
assert evaluate_postfix([1, 2, "+"]) == 3 and evaluate_postfix([7]) == 7
assert evaluate_postfix([5, 3, "-"]) == 2 and evaluate_postfix([2, 3, 4, "*", "+"]) == 14
assert evaluate_postfix([1, 2, "-", 3, "*"]) == -3 and evaluate_postfix([0, 1_000_000, "*", -4, "+"]) == -4

def next_larger(numbers):
    """Write a function `next_larger(numbers)` that returns a list which holds, for every number, the first
    larger number to the right of it, or None if there is none."""
    result = [None] * len(numbers)
    waiting = []
    for i, n in enumerate(numbers):
        while waiting and numbers[waiting[-1]] < n:
            result[waiting.pop()] = n
        waiting.append(i)
    return result
assert next_larger([1, 3, 2]) == [3, None, None] and next_larger([]) == [] and next_larger([7]) == [None]
assert next_larger([3, 2, 1]) == [None, None, None] and next_larger([2, 1, 2, 3]) == [3, 2, 3, None]
assert next_larger([5, 5, 1_000_000]) == [1_000_000, 1_000_000, None]

family, level = "stacks and queues", 4

def last_in_circle(n, step):
    """The numbers 1 to `n` stand in a circle. Counting begins at 1, every `step`-th number that is still
    there leaves, and counting goes on with the one after it. Write `last_in_circle(n, step)` to return the
    number that is left at the end. Both arguments are at least 1."""
    circle = list(range(1, n + 1))
    position = 0
    while len(circle) > 1:
        position = (position + step - 1) % len(circle)
        circle.pop(position)
    return circle[0]
assert last_in_circle(5, 2) == 3 and last_in_circle(1, 3) == 1 and last_in_circle(4, 1) == 4
assert last_in_circle(2, 2) == 1 and last_in_circle(7, 3) == 4 and last_in_circle(10, 4) == 5

def serve_in_turns(times, slice_time):
    """Jobs 0, 1, 2, ... need the amounts of time in the list `times` (positive integers). They are served in
    turns: the first job in the queue runs for at most `slice_time`, and if it needs more it goes to the back.
    Write `serve_in_turns(times, slice_time)` to return the list of job numbers in the order in which they
    finish."""
    queue = list(enumerate(times))
    finished = []
    while queue:
        job, left = queue.pop(0)
        if left <= slice_time:
            finished.append(job)
        else:
            queue.append((job, left - slice_time))
    return finished
assert serve_in_turns([3, 1, 2], 1) == [1, 2, 0] and serve_in_turns([3, 1, 2], 5) == [0, 1, 2]
assert serve_in_turns([], 1) == [] and serve_in_turns([4], 1) == [0]
assert serve_in_turns([2, 2, 2], 2) == [0, 1, 2] and serve_in_turns([5, 1, 4, 2], 2) == [1, 3, 2, 0]
