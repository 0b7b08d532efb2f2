"""Neighbouring elements: pairs, chunks, sliding windows, streaks."""

family, level = "neighbours", 2

def gaps(numbers):
    """Write a function `gaps(numbers)` that returns a list with the differences of neighbours: each number
    minus the one before it. A list with fewer than two numbers gives an empty list."""
    return [b - a for a, b in zip(numbers, numbers[1:])]
assert gaps([1, 4, 6]) == [3, 2] and gaps([]) == [] and gaps([7]) == [] and gaps([5, 5]) == [0]
assert gaps([3, 1, -1]) == [-2, -2] and gaps([0, 1_000_000]) == [1_000_000]

def neighbour_pairs(items):
    """Write a function `neighbour_pairs(items)` that returns a list of tuples, one for every two neighbouring
    elements of the list, from left to right."""
    return list(zip(items, items[1:]))
assert neighbour_pairs([1, 2, 3]) == [(1, 2), (2, 3)] and neighbour_pairs([]) == []
assert neighbour_pairs([7]) == [] and neighbour_pairs(["a", "b"]) == [("a", "b")]
assert neighbour_pairs([5, 5, 5]) == [(5, 5), (5, 5)]
assert neighbour_pairs([-1, 0, 1, 2]) == [(-1, 0), (0, 1), (1, 2)]

def neighbour_sums(numbers):
    """Write a function `neighbour_sums(numbers)` that returns the sums of all pairs of adjacent numbers, from
    left to right. With fewer than two numbers the result is an empty list."""
    return [a + b for a, b in zip(numbers, numbers[1:])]
assert neighbour_sums([1, 4, 6]) == [5, 10] and neighbour_sums([]) == [] and neighbour_sums([7]) == []
assert neighbour_sums([5, 5]) == [10] and neighbour_sums([3, -3, 3]) == [0, 0]
assert neighbour_sums([0, 1_000_000, 1]) == [1_000_000, 1_000_001]

def climbs(numbers):
    """Write a function `climbs(numbers)` that returns True if every number in the list is larger than the one
    before it, else False. Lists with fewer than two numbers give True."""
    return all(a < b for a, b in zip(numbers, numbers[1:]))
assert climbs([1, 2, 3]) == True and climbs([1, 1]) == False and climbs([]) == True and climbs([7]) == True
assert climbs([3, 2, 1]) == False and climbs([-5, 0, 1_000_000]) == True and climbs([1, 3, 2]) == False

family, level = "neighbours", 3

def count_rises(numbers):
    """Write a function `count_rises(numbers)` that counts how often a number in the list is greater than the
    number just before it."""
    return sum(b > a for a, b in zip(numbers, numbers[1:]))
assert count_rises([1, 2, 3]) == 2 and count_rises([]) == 0 and count_rises([7]) == 0
assert count_rises([3, 2, 1]) == 0 and count_rises([5, 5, 6]) == 1 and count_rises([-1, 1, -1, 1]) == 2

def largest_jump(numbers):
    """Given a list of at least two numbers, `largest_jump(numbers)` returns the largest absolute difference
    between two neighbouring numbers."""
    return max(abs(b - a) for a, b in zip(numbers, numbers[1:]))
assert largest_jump([1, 4, 6]) == 3 and largest_jump([7, 7]) == 0 and largest_jump([5, 0]) == 5
assert largest_jump([3, -3, 3]) == 6 and largest_jump([1, 2, 3, 4]) == 1
assert largest_jump([0, 1_000_000, 1]) == 1_000_000

family, level = "chunks and windows", 3

def in_chunks(items, size):
    """Write a function `in_chunks(items, size)` that cuts the list into consecutive lists of `size` elements
    and returns the list of these. The last one may be shorter. `size` is at least 1."""
    return [items[i : i + size] for i in range(0, len(items), size)]
assert in_chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]] and in_chunks([], 3) == []
assert in_chunks([1], 5) == [[1]] and in_chunks([1, 2, 3, 4], 2) == [[1, 2], [3, 4]]
assert in_chunks(["a", "b", "c"], 1) == [["a"], ["b"], ["c"]]
assert in_chunks([0, 0, -1, -1], 3) == [[0, 0, -1], [-1]]

def sliding_windows(items, size):
    """Write a function `sliding_windows(items, size)` that returns all runs of `size` consecutive elements as
    a list of lists, from left to right. If the list is shorter than `size`, return an empty list. `size` is
    at least 1."""
    return [items[i : i + size] for i in range(len(items) - size + 1)]
assert sliding_windows([1, 2, 3, 4], 2) == [[1, 2], [2, 3], [3, 4]] and sliding_windows([], 1) == []
assert sliding_windows([1, 2], 3) == [] and sliding_windows([1, 2, 3], 3) == [[1, 2, 3]]
assert sliding_windows(["a", "b"], 1) == [["a"], ["b"]] and sliding_windows([5, 5, 5], 2) == [[5, 5], [5, 5]]

def window_sums(numbers, size):
    """Write a function `window_sums(numbers, size)` that returns the sums of every `size` consecutive
    numbers, from left to right. If there are fewer than `size` numbers, return an empty list. `size` is at
    least 1."""
    return [sum(numbers[i : i + size]) for i in range(len(numbers) - size + 1)]
assert window_sums([1, 2, 3, 4], 2) == [3, 5, 7] and window_sums([], 1) == [] and window_sums([1, 2], 3) == []
assert window_sums([1, 2, 3], 3) == [6] and window_sums([-1, 1, -1], 1) == [-1, 1, -1]
assert window_sums([1_000_000, 0, 1], 2) == [1_000_000, 1]

family, level = "chunks and windows", 2

def split_at(items, index):
    """Write a function `split_at(items, index)` that returns a tuple of two lists: the elements before
    `index` and the elements from `index` on. The index is between 0 and the length of the list."""
    return (items[:index], items[index:])
assert split_at([1, 2, 3], 1) == ([1], [2, 3]) and split_at([], 0) == ([], [])
assert split_at([1, 2], 2) == ([1, 2], []) and split_at([1, 2], 0) == ([], [1, 2])
assert split_at(["a", "b", "c", "d"], 3) == (["a", "b", "c"], ["d"])
assert split_at([5, 5, 5], 2) == ([5, 5], [5])

def halves(items):
    """Write a function `halves(items)` that splits a list into two halves and returns them as a tuple of two
    lists. If the length is odd, the second half gets the extra element."""
    return (items[: len(items) // 2], items[len(items) // 2 :])
assert halves([1, 2, 3, 4]) == ([1, 2], [3, 4]) and halves([1, 2, 3]) == ([1], [2, 3])
assert halves([7]) == ([], [7]) and halves([]) == ([], []) and halves(["a", "b"]) == (["a"], ["b"])
assert halves([0, -1, 0, -1, 0]) == ([0, -1], [0, -1, 0])

family, level = "streaks", 4

def longest_streak(items):
    """Write a function `longest_streak(items)` that returns the length of the longest run of equal elements
    standing next to each other. An empty list gives 0."""
    best = 0
    current = 0
    for i, item in enumerate(items):
        current = current + 1 if i > 0 and item == items[i - 1] else 1
        best = max(best, current)
    return best
assert longest_streak([1, 1, 2]) == 2 and longest_streak([]) == 0 and longest_streak([7]) == 1
assert longest_streak([1, 2, 2, 2, 1, 1]) == 3 and longest_streak(["a", "b", "a"]) == 1
assert longest_streak([0, 0, 0, 0]) == 4

family, level = "streaks", 3

def squeeze_repeats(items):
    """Write a function `squeeze_repeats(items)` that returns the list with each run of equal neighbouring
    elements shortened to a single element."""
    result = []
    for item in items:
        if not result or result[-1] != item:
            result.append(item)
    return result
assert squeeze_repeats([1, 1, 2]) == [1, 2] and squeeze_repeats([]) == [] and squeeze_repeats([7]) == [7]
assert squeeze_repeats([1, 2, 2, 1, 1]) == [1, 2, 1] and squeeze_repeats(["a", "b", "a"]) == ["a", "b", "a"]
assert squeeze_repeats([0, 0, 0]) == [0]

family, level = "streaks", 4

def group_runs(items):
    """Write a function `group_runs(items)` that groups equal elements that stand next to each other and
    returns the list of these groups, each a list."""
    groups = []
    for item in items:
        if groups and groups[-1][0] == item:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups
assert group_runs([1, 1, 2]) == [[1, 1], [2]] and group_runs([]) == [] and group_runs([7]) == [[7]]
assert group_runs([1, 2, 2, 1, 1]) == [[1], [2, 2], [1, 1]]
assert group_runs(["a", "b", "a"]) == [["a"], ["b"], ["a"]] and group_runs([0, 0, 0]) == [[0, 0, 0]]

def run_lengths(items):
    """Write a function `run_lengths(items)` that returns a list of tuples (element, count), one for each run
    of equal neighbouring elements, from left to right."""
    runs = []
    for item in items:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    return runs
assert run_lengths([1, 1, 2]) == [(1, 2), (2, 1)] and run_lengths([]) == [] and run_lengths([7]) == [(7, 1)]
assert run_lengths([1, 2, 2, 1, 1]) == [(1, 1), (2, 2), (1, 2)]
assert run_lengths(["a", "b", "a"]) == [("a", 1), ("b", 1), ("a", 1)] and run_lengths([0, 0, 0]) == [(0, 3)]

def longest_climb(numbers):
    """Write a function `longest_climb(numbers)` that returns the length of the longest stretch of
    neighbouring numbers in which each is greater than the one before. A single number is a stretch of length
    1; an empty list gives 0."""
    best = 0
    current = 0
    for i, n in enumerate(numbers):
        current = current + 1 if i > 0 and n > numbers[i - 1] else 1
        best = max(best, current)
    return best
assert longest_climb([1, 2, 3]) == 3 and longest_climb([]) == 0 and longest_climb([7]) == 1
assert longest_climb([3, 2, 1]) == 1 and longest_climb([1, 2, 1, 2, 3, 4, 0]) == 4
assert longest_climb([5, 5, 5]) == 1
