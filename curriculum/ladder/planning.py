"""Small algorithms, third part: dynamic programming, subsets, walks over graphs."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "ways_to_climb",
        family="dynamic programming",
        level=5,
        prompt=(
            "A staircase has `n` steps, and each move goes up 1, 2 or 3 steps. Write `ways_to_climb(n)` to "
            "return the number of different sequences of moves that reach the top exactly. For `n` equal to "
            "0 the answer is 1."
        ),
        reference="""def ways_to_climb(n):
    ways = [1]
    for i in range(1, n + 1):
        ways.append(sum(ways[max(0, i - 3) : i]))
    return ways[n]
""",
        tests=(
            ((0,), 1),
            ((1,), 1),
            ((2,), 2),
            ((3,), 4),
            ((5,), 13),
            ((10,), 274),
        ),
    ),
    ladder_task(
        "best_without_neighbours",
        family="dynamic programming",
        level=5,
        prompt=(
            "Write a function `best_without_neighbours(numbers)` that chooses numbers from a list of "
            "non-negative integers so that no two chosen ones are next to each other, and returns the "
            "largest sum possible. An empty list gives 0."
        ),
        reference="""def best_without_neighbours(numbers):
    taken, skipped = 0, 0
    for n in numbers:
        taken, skipped = skipped + n, max(taken, skipped)
    return max(taken, skipped)
""",
        tests=(
            (([1, 2, 3],), 4),
            (([],), 0),
            (([7],), 7),
            (([5, 1, 1, 5],), 10),
            (([0, 0, 0],), 0),
            (([2, 1_000_000, 3, 4],), 1_000_004),
        ),
    ),
    ladder_task(
        "best_run_sum",
        family="dynamic programming",
        level=5,
        prompt=(
            "Write a function `best_run_sum(numbers)` that returns the largest sum of any run of "
            "consecutive numbers in the list. A run has at least one number, and the list is never empty."
        ),
        reference="""def best_run_sum(numbers):
    best = current = numbers[0]
    for n in numbers[1:]:
        current = max(n, current + n)
        best = max(best, current)
    return best
""",
        tests=(
            (([1, -2, 3],), 3),
            (([-7],), -7),
            (([-3, -1, -2],), -1),
            (([2, -1, 2],), 3),
            (([5, -9, 6, -2, 3],), 7),
            (([1_000_000, -1, 1],), 1_000_000),
        ),
    ),
    ladder_task(
        "fewest_coins",
        family="dynamic programming",
        level=5,
        prompt=(
            "Write a function `fewest_coins(amount, coins)` that returns the smallest number of coins that "
            "add up to `amount`, when each coin value of the list may be used any number of times, or -1 if "
            "it cannot be done. An amount of 0 needs 0 coins."
        ),
        reference="""def fewest_coins(amount, coins):
    fewest = [0]
    for value in range(1, amount + 1):
        options = [
            fewest[value - coin]
            for coin in coins
            if coin <= value and fewest[value - coin] >= 0
        ]
        fewest.append(min(options) + 1 if options else -1)
    return fewest[amount]
""",
        tests=(
            ((6, [1, 3, 4]), 2),
            ((0, [5]), 0),
            ((3, [2]), -1),
            ((11, [1, 2, 5]), 3),
            ((7, []), -1),
            ((100, [7, 30]), 11),
        ),
    ),
    ladder_task(
        "longest_rising_choice",
        family="dynamic programming",
        level=5,
        prompt=(
            "Write a function `longest_rising_choice(numbers)` that removes as few numbers as possible from "
            "a list so that the rest is strictly increasing, and returns how many numbers remain. An empty "
            "list gives 0."
        ),
        reference="""def longest_rising_choice(numbers):
    lengths = []
    for i, n in enumerate(numbers):
        before = [lengths[j] for j in range(i) if numbers[j] < n]
        lengths.append(max(before, default=0) + 1)
    return max(lengths, default=0)
""",
        tests=(
            (([1, 3, 2],), 2),
            (([],), 0),
            (([7],), 1),
            (([5, 5, 5],), 1),
            (([4, 3, 2, 1],), 1),
            (([1, 9, 2, 8, 3, 1_000_000],), 4),
        ),
    ),
    ladder_task(
        "reachable_sums",
        family="subsets and choices",
        level=5,
        prompt=(
            "Write a function `reachable_sums(numbers)` that returns the sorted list of all different sums "
            "that can be made by adding up some of the numbers, each at most once. The empty choice with "
            "sum 0 counts."
        ),
        reference="""def reachable_sums(numbers):
    sums = {0}
    for n in numbers:
        sums |= {total + n for total in sums}
    return sorted(sums)
""",
        tests=(
            (([1, 2],), [0, 1, 2, 3]),
            (([],), [0]),
            (([7],), [0, 7]),
            (([2, 2],), [0, 2, 4]),
            (([-1, 1],), [-1, 0, 1]),
            (([1, 10, 100],), [0, 1, 10, 11, 100, 101, 110, 111]),
        ),
    ),
    ladder_task(
        "can_split_evenly",
        family="subsets and choices",
        level=5,
        prompt=(
            "Write a function `can_split_evenly(numbers)` that returns True if the positive integers in the "
            "list can be divided into two groups with the same sum, else False. An empty list gives True."
        ),
        reference="""def can_split_evenly(numbers):
    sums = {0}
    for n in numbers:
        sums |= {total + n for total in sums}
    return sum(numbers) % 2 == 0 and sum(numbers) // 2 in sums
""",
        tests=(
            (([1, 2, 3],), True),
            (([1, 2],), False),
            (([],), True),
            (([4],), False),
            (([5, 5],), True),
            (([3, 1, 1, 2, 2, 1],), True),
        ),
    ),
    ladder_task(
        "all_sublists",
        family="subsets and choices",
        level=5,
        prompt=(
            "Write a function `all_sublists(items)` that returns all choices of elements as a list of "
            "lists. It starts with only the empty list; then, for each element in turn, every list made so "
            "far is copied with this element added, and the copies are appended behind."
        ),
        reference="""def all_sublists(items):
    result = [[]]
    for item in items:
        result += [chosen + [item] for chosen in result]
    return result
""",
        tests=(
            (([1, 2],), [[], [1], [2], [1, 2]]),
            (([],), [[]]),
            (([7],), [[], [7]]),
            (
                (["a", "b", "c"],),
                [[], ["a"], ["b"], ["a", "b"], ["c"], ["a", "c"], ["b", "c"], ["a", "b", "c"]],
            ),
            (([5, 5],), [[], [5], [5], [5, 5]]),
            (([-1, 0],), [[], [-1], [0], [-1, 0]]),
        ),
    ),
    ladder_task(
        "all_combinations_of_two",
        family="subsets and choices",
        level=4,
        prompt=(
            "Write a function `all_combinations_of_two(left, right)` that returns a list of all tuples (a, "
            "b) with a from `left` and b from `right`: first all those with the first element of `left`, "
            "then with the second, and so on."
        ),
        reference="""def all_combinations_of_two(left, right):
    return [(a, b) for a in left for b in right]
""",
        tests=(
            (([1, 2], ["a", "b"]), [(1, "a"), (1, "b"), (2, "a"), (2, "b")]),
            (([], [1]), []),
            (([1], []), []),
            (([5], [5]), [(5, 5)]),
            (([1, 2, 3], [0]), [(1, 0), (2, 0), (3, 0)]),
            (([-1, -1], [1, 2]), [(-1, 1), (-1, 2), (-1, 1), (-1, 2)]),
        ),
    ),
    ladder_task(
        "all_orders",
        family="subsets and choices",
        level=5,
        prompt=(
            "Write a function `all_orders(items)` that returns all orders of the different numbers in "
            "`items` as a list of lists, sorted in ascending order. An empty list has one order: the empty "
            "list."
        ),
        reference="""def all_orders(items):
    if not items:
        return [[]]
    result = []
    for item in sorted(items):
        rest = [other for other in items if other != item]
        result += [[item] + order for order in all_orders(rest)]
    return result
""",
        tests=(
            (([1, 2],), [[1, 2], [2, 1]]),
            (([],), [[]]),
            (([7],), [[7]]),
            (([3, 1, 2],), [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]]),
            (([0, -1],), [[-1, 0], [0, -1]]),
            (([1_000_000, 5],), [[5, 1_000_000], [1_000_000, 5]]),
        ),
    ),
    ladder_task(
        "can_reach",
        family="graph walks",
        level=5,
        prompt=(
            "The dictionary `graph` maps each node to the list of nodes it has an arrow to. Write "
            "`can_reach(graph, start, goal)` to return True if one can get from `start` to `goal` by "
            "following arrows, else False. Every node reaches itself."
        ),
        reference="""def can_reach(graph, start, goal):
    seen = {start}
    waiting = [start]
    while waiting:
        for node in graph[waiting.pop()]:
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return goal in seen
""",
        tests=(
            (({"a": ["b"], "b": ["c"], "c": []}, "a", "c"), True),
            (({"a": ["b"], "b": ["c"], "c": []}, "c", "a"), False),
            (({1: []}, 1, 1), True),
            (({1: [2], 2: [1], 3: []}, 1, 3), False),
            (({1: [2, 3], 2: [1], 3: [3]}, 2, 3), True),
            (({"x": [], "y": ["x"]}, "y", "x"), True),
        ),
    ),
    ladder_task(
        "fewest_steps",
        family="graph walks",
        level=5,
        prompt=(
            "The dictionary `graph` maps each node to the list of its neighbours. Write "
            "`fewest_steps(graph, start, goal)` to return the smallest number of edges on a way from "
            "`start` to `goal`, 0 if they are the same node, and -1 if there is no way."
        ),
        reference="""def fewest_steps(graph, start, goal):
    steps = {start: 0}
    queue = [start]
    for node in queue:
        for other in graph[node]:
            if other not in steps:
                steps[other] = steps[node] + 1
                queue.append(other)
    return steps.get(goal, -1)
""",
        tests=(
            (({"a": ["b"], "b": ["c"], "c": []}, "a", "c"), 2),
            (({"a": ["b"], "b": ["c"], "c": []}, "c", "a"), -1),
            (({1: []}, 1, 1), 0),
            (({1: [2, 3], 2: [4], 3: [4], 4: []}, 1, 4), 2),
            (({1: [2], 2: [3], 3: [1]}, 1, 3), 2),
            (({0: [1, 2], 1: [2], 2: []}, 0, 2), 1),
        ),
    ),
    ladder_task(
        "count_groups",
        family="graph walks",
        level=5,
        prompt=(
            "There are nodes 0 to n - 1, and `links` is a list of tuples (a, b), each connecting two nodes "
            "in both directions. Write `count_groups(n, links)` to return how many separate connected "
            "groups the nodes form."
        ),
        reference="""def count_groups(n, links):
    group = list(range(n))
    for a, b in links:
        old, new = group[a], group[b]
        group = [new if g == old else g for g in group]
    return len(set(group))
""",
        tests=(
            ((3, []), 3),
            ((3, [(0, 1)]), 2),
            ((0, []), 0),
            ((4, [(0, 1), (2, 3), (1, 2)]), 1),
            ((2, [(0, 1), (1, 0)]), 1),
            ((5, [(4, 3), (0, 0)]), 4),
        ),
    ),
    ladder_task(
        "follow_links",
        family="graph walks",
        level=4,
        prompt=(
            "Each key of the dictionary `links` leads to its value. Write `follow_links(links, start)` to "
            "begin at `start`, follow the links as long as the current value is a key, and return the list "
            "of everything visited, `start` first. There are no cycles."
        ),
        reference="""def follow_links(links, start):
    path = [start]
    while path[-1] in links:
        path.append(links[path[-1]])
    return path
""",
        tests=(
            (({"a": "b", "b": "c"}, "a"), ["a", "b", "c"]),
            (({}, 5), [5]),
            (({1: 2}, 2), [2]),
            (({1: 2, 2: 3, 3: 4}, 2), [2, 3, 4]),
            (({"x": "y", "z": "y"}, "z"), ["z", "y"]),
            (({0: -1, -1: 1_000_000}, 0), [0, -1, 1_000_000]),
        ),
    ),
    ladder_task(
        "task_order",
        family="graph walks",
        level=5,
        prompt=(
            "The dictionary `needs` maps every task name to the list of tasks that must be done before it. "
            "Write `task_order(needs)` to return an order for all tasks: among the tasks that can be done "
            "next, always take the alphabetically first. The needs have no cycles."
        ),
        reference="""def task_order(needs):
    order = []
    while len(order) < len(needs):
        ready = [
            t for t in needs if t not in order and all(need in order for need in needs[t])
        ]
        order.append(min(ready))
    return order
""",
        tests=(
            (({"a": [], "b": ["a"]},), ["a", "b"]),
            (({},), []),
            (({"x": []},), ["x"]),
            (({"a": ["c"], "b": [], "c": []},), ["b", "c", "a"]),
            (({"a": ["b"], "b": ["c"], "c": []},), ["c", "b", "a"]),
            (({"d": [], "c": [], "a": ["c", "d"], "b": ["d"]},), ["c", "d", "a", "b"]),
        ),
    ),
)
