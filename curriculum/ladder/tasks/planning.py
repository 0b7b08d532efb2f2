"""Harder algorithms: dynamic programming, subsets, walks over graphs."""

family, level = "dynamic programming", 5

def ways_to_climb(n):
    """A staircase has `n` steps, and each move goes up 1, 2 or 3 steps. Write `ways_to_climb(n)` to return
    the number of different sequences of moves that reach the top exactly. For `n` equal to 0 the answer is
    1."""
    ways = [1]
    for i in range(1, n + 1):
        ways.append(sum(ways[max(0, i - 3) : i]))
    return ways[n]
assert ways_to_climb(0) == 1 and ways_to_climb(1) == 1 and ways_to_climb(2) == 2 and ways_to_climb(3) == 4
assert ways_to_climb(5) == 13 and ways_to_climb(10) == 274

def best_without_neighbours(numbers):
    """Write a function `best_without_neighbours(numbers)` that chooses numbers from a list of non-negative
    integers so that no two chosen ones are next to each other, and returns the largest sum possible. An empty
    list gives 0."""
    taken, skipped = 0, 0
    for n in numbers:
        taken, skipped = skipped + n, max(taken, skipped)
    return max(taken, skipped)
assert best_without_neighbours([1, 2, 3]) == 4 and best_without_neighbours([]) == 0
assert best_without_neighbours([7]) == 7 and best_without_neighbours([5, 1, 1, 5]) == 10
assert best_without_neighbours([0, 0, 0]) == 0 and best_without_neighbours([2, 1_000_000, 3, 4]) == 1_000_004

def best_run_sum(numbers):
    """Write a function `best_run_sum(numbers)` that returns the largest sum of any run of consecutive numbers
    in the list. A run has at least one number, and the list is never empty."""
    best = current = numbers[0]
    for n in numbers[1:]:
        current = max(n, current + n)
        best = max(best, current)
    return best
assert best_run_sum([1, -2, 3]) == 3 and best_run_sum([-7]) == -7 and best_run_sum([-3, -1, -2]) == -1
assert best_run_sum([2, -1, 2]) == 3 and best_run_sum([5, -9, 6, -2, 3]) == 7
assert best_run_sum([1_000_000, -1, 1]) == 1_000_000

def fewest_coins(amount, coins):
    """Write a function `fewest_coins(amount, coins)` that returns the smallest number of coins that add up to
    `amount`, when each coin value of the list may be used any number of times, or -1 if it cannot be done. An
    amount of 0 needs 0 coins."""
    fewest = [0]
    for value in range(1, amount + 1):
        options = [fewest[value - coin] for coin in coins if coin <= value and fewest[value - coin] >= 0]
        fewest.append(min(options) + 1 if options else -1)
    return fewest[amount]
assert fewest_coins(6, [1, 3, 4]) == 2 and fewest_coins(0, [5]) == 0 and fewest_coins(3, [2]) == -1
assert fewest_coins(11, [1, 2, 5]) == 3 and fewest_coins(7, []) == -1 and fewest_coins(100, [7, 30]) == 11

def longest_rising_choice(numbers):
    """Write a function `longest_rising_choice(numbers)` that removes as few numbers as possible from a list
    so that the rest is strictly increasing, and returns how many numbers remain. An empty list gives 0."""
    lengths = []
    for i, n in enumerate(numbers):
        before = [lengths[j] for j in range(i) if numbers[j] < n]
        lengths.append(max(before, default=0) + 1)
    return max(lengths, default=0)
assert longest_rising_choice([1, 3, 2]) == 2 and longest_rising_choice([]) == 0
assert longest_rising_choice([7]) == 1 and longest_rising_choice([5, 5, 5]) == 1
assert longest_rising_choice([4, 3, 2, 1]) == 1 and longest_rising_choice([1, 9, 2, 8, 3, 1_000_000]) == 4

family, level = "subsets and choices", 5

def reachable_sums(numbers):
    """Write a function `reachable_sums(numbers)` that returns the sorted list of all different sums that can
    be made by adding up some of the numbers, each at most once. The empty choice with sum 0 counts."""
    sums = {0}
    for n in numbers:
        sums |= {total + n for total in sums}
    return sorted(sums)
assert reachable_sums([1, 2]) == [0, 1, 2, 3] and reachable_sums([]) == [0] and reachable_sums([7]) == [0, 7]
assert reachable_sums([2, 2]) == [0, 2, 4] and reachable_sums([-1, 1]) == [-1, 0, 1]
assert reachable_sums([1, 10, 100]) == [0, 1, 10, 11, 100, 101, 110, 111]

def can_split_evenly(numbers):
    """Write a function `can_split_evenly(numbers)` that returns True if the positive integers in the list can
    be divided into two groups with the same sum, else False. An empty list gives True."""
    sums = {0}
    for n in numbers:
        sums |= {total + n for total in sums}
    return sum(numbers) % 2 == 0 and sum(numbers) // 2 in sums
assert can_split_evenly([1, 2, 3]) == True and can_split_evenly([1, 2]) == False
assert can_split_evenly([]) == True and can_split_evenly([4]) == False and can_split_evenly([5, 5]) == True
assert can_split_evenly([3, 1, 1, 2, 2, 1]) == True

def all_sublists(items):
    """Write a function `all_sublists(items)` that returns all choices of elements as a list of lists. It
    starts with only the empty list; then, for each element in turn, every list made so far is copied with
    this element added, and the copies are appended behind."""
    result = [[]]
    for item in items:
        result += [chosen + [item] for chosen in result]
    return result
assert all_sublists([1, 2]) == [[], [1], [2], [1, 2]] and all_sublists([]) == [[]]
assert all_sublists([7]) == [[], [7]]
assert all_sublists(["a", "b", "c"]) == [
    [],
    ["a"],
    ["b"],
    ["a", "b"],
    ["c"],
    ["a", "c"],
    ["b", "c"],
    ["a", "b", "c"],
]
assert all_sublists([5, 5]) == [[], [5], [5], [5, 5]] and all_sublists([-1, 0]) == [[], [-1], [0], [-1, 0]]

family, level = "subsets and choices", 4

def all_combinations_of_two(left, right):
    """Write a function `all_combinations_of_two(left, right)` that returns a list of all tuples (a, b) with a
    from `left` and b from `right`: first all those with the first element of `left`, then with the second,
    and so on."""
    return [(a, b) for a in left for b in right]
assert all_combinations_of_two([1, 2], ["a", "b"]) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
assert all_combinations_of_two([], [1]) == [] and all_combinations_of_two([1], []) == []
assert all_combinations_of_two([5], [5]) == [(5, 5)]
assert all_combinations_of_two([1, 2, 3], [0]) == [(1, 0), (2, 0), (3, 0)]
assert all_combinations_of_two([-1, -1], [1, 2]) == [(-1, 1), (-1, 2), (-1, 1), (-1, 2)]

family, level = "subsets and choices", 5

def all_orders(items):
    """Write a function `all_orders(items)` that returns all orders of the different numbers in `items` as a
    list of lists, sorted in ascending order. An empty list has one order: the empty list."""
    if not items:
        return [[]]
    result = []
    for item in sorted(items):
        rest = [other for other in items if other != item]
        result += [[item] + order for order in all_orders(rest)]
    return result
assert all_orders([1, 2]) == [[1, 2], [2, 1]] and all_orders([]) == [[]] and all_orders([7]) == [[7]]
assert all_orders([3, 1, 2]) == [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]]
assert all_orders([0, -1]) == [[-1, 0], [0, -1]]
assert all_orders([1_000_000, 5]) == [[5, 1_000_000], [1_000_000, 5]]

family, level = "graph walks", 5

def can_reach(graph, start, goal):
    """The dictionary `graph` maps each node to the list of nodes it has an arrow to. Write `can_reach(graph,
    start, goal)` to return True if one can get from `start` to `goal` by following arrows, else False. Every
    node reaches itself."""
    seen = {start}
    waiting = [start]
    while waiting:
        for node in graph[waiting.pop()]:
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return goal in seen
assert can_reach({"a": ["b"], "b": ["c"], "c": []}, "a", "c") == True
assert can_reach({"a": ["b"], "b": ["c"], "c": []}, "c", "a") == False and can_reach({1: []}, 1, 1) == True
assert can_reach({1: [2], 2: [1], 3: []}, 1, 3) == False
assert can_reach({1: [2, 3], 2: [1], 3: [3]}, 2, 3) == True
assert can_reach({"x": [], "y": ["x"]}, "y", "x") == True

def fewest_steps(graph, start, goal):
    """The dictionary `graph` maps each node to the list of its neighbours. Write `fewest_steps(graph, start,
    goal)` to return the smallest number of edges on a way from `start` to `goal`, 0 if they are the same
    node, and -1 if there is no way."""
    steps = {start: 0}
    queue = [start]
    for node in queue:
        for other in graph[node]:
            if other not in steps:
                steps[other] = steps[node] + 1
                queue.append(other)
    return steps.get(goal, -1)
assert fewest_steps({"a": ["b"], "b": ["c"], "c": []}, "a", "c") == 2
assert fewest_steps({"a": ["b"], "b": ["c"], "c": []}, "c", "a") == -1 and fewest_steps({1: []}, 1, 1) == 0
assert fewest_steps({1: [2, 3], 2: [4], 3: [4], 4: []}, 1, 4) == 2
assert fewest_steps({1: [2], 2: [3], 3: [1]}, 1, 3) == 2
assert fewest_steps({0: [1, 2], 1: [2], 2: []}, 0, 2) == 1

def count_groups(n, links):
    """There are nodes 0 to n - 1, and `links` is a list of tuples (a, b), each connecting two nodes in both
    directions. Write `count_groups(n, links)` to return how many separate connected groups the nodes form."""
    group = list(range(n))
    for a, b in links:
        old, new = group[a], group[b]
        group = [new if g == old else g for g in group]
    return len(set(group))
assert count_groups(3, []) == 3 and count_groups(3, [(0, 1)]) == 2 and count_groups(0, []) == 0
assert count_groups(4, [(0, 1), (2, 3), (1, 2)]) == 1 and count_groups(2, [(0, 1), (1, 0)]) == 1
assert count_groups(5, [(4, 3), (0, 0)]) == 4

family, level = "graph walks", 4

def follow_links(links, start):
    """Each key of the dictionary `links` leads to its value. Write `follow_links(links, start)` to begin at
    `start`, follow the links as long as the current value is a key, and return the list of everything
    visited, `start` first. There are no cycles."""
    path = [start]
    while path[-1] in links:
        path.append(links[path[-1]])
    return path
assert follow_links({"a": "b", "b": "c"}, "a") == ["a", "b", "c"] and follow_links({}, 5) == [5]
assert follow_links({1: 2}, 2) == [2] and follow_links({1: 2, 2: 3, 3: 4}, 2) == [2, 3, 4]
assert follow_links({"x": "y", "z": "y"}, "z") == ["z", "y"]
assert follow_links({0: -1, -1: 1_000_000}, 0) == [0, -1, 1_000_000]

family, level = "graph walks", 5

def task_order(needs):
    """The dictionary `needs` maps every task name to the list of tasks that must be done before it. Write
    `task_order(needs)` to return an order for all tasks: among the tasks that can be done next, always take
    the alphabetically first. The needs have no cycles."""
    order = []
    while len(order) < len(needs):
        ready = [t for t in needs if t not in order and all(need in order for need in needs[t])]
        order.append(min(ready))
    return order
assert task_order({"a": [], "b": ["a"]}) == ["a", "b"] and task_order({}) == []
assert task_order({"x": []}) == ["x"] and task_order({"a": ["c"], "b": [], "c": []}) == ["b", "c", "a"]
assert task_order({"a": ["b"], "b": ["c"], "c": []}) == ["c", "b", "a"]
assert task_order({"d": [], "c": [], "a": ["c", "d"], "b": ["d"]}) == ["c", "d", "a", "b"]
