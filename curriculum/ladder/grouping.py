"""Dictionaries, second part: inverting, counting, merging."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "swap_keys_and_values",
        family="dict inverting",
        level=2,
        prompt=(
            "Write a function `swap_keys_and_values(mapping)` that returns a dictionary in which the keys "
            "and values of `mapping` have changed places. All values are different."
        ),
        reference="""def swap_keys_and_values(mapping):
    return {value: key for key, value in mapping.items()}
""",
        tests=(
            (({"a": 1, "b": 2},), {1: "a", 2: "b"}),
            (({},), {}),
            (({3: "x"},), {"x": 3}),
            (({1: 1},), {1: 1}),
            (({"p": "q", "q": "p"},), {"q": "p", "p": "q"}),
            (({-1: 1_000_000, 0: -1},), {1_000_000: -1, -1: 0}),
        ),
    ),
    ladder_task(
        "keys_with_value",
        family="dict inverting",
        level=2,
        prompt=(
            "Write a function `keys_with_value(mapping, value)` that returns the sorted list of all keys "
            "whose value equals `value`."
        ),
        reference="""def keys_with_value(mapping, value):
    return sorted(k for k, v in mapping.items() if v == value)
""",
        tests=(
            (({"b": 1, "a": 1, "c": 2}, 1), ["a", "b"]),
            (({}, 0), []),
            (({"x": 5}, 4), []),
            (({3: 0, 1: 0, 2: 0}, 0), [1, 2, 3]),
            (({"p": "q"}, "q"), ["p"]),
            (({-1: -1, 1: -1}, -1), [-1, 1]),
        ),
    ),
    ladder_task(
        "key_of_largest",
        family="dict inverting",
        level=2,
        prompt=(
            "Given a non-empty dictionary of numbers whose largest value occurs only once, "
            "`key_of_largest(scores)` returns the key that has that largest value."
        ),
        reference="def key_of_largest(scores):\n    return max(scores, key=scores.get)",
        tests=(
            (({"a": 1, "b": 2},), "b"),
            (({"x": 5},), "x"),
            (({"p": -1, "q": -2},), "p"),
            (({1: 10, 2: 30, 3: 20},), 2),
            (({"u": 0, "v": -1_000_000},), "u"),
            (({"k": 1, "l": 1, "m": 2},), "m"),
        ),
    ),
    ladder_task(
        "group_keys_by_value",
        family="dict inverting",
        level=3,
        prompt=(
            "Write a function `group_keys_by_value(mapping)` that returns a dictionary that maps each value "
            "of `mapping` to the sorted list of the keys that have it."
        ),
        reference="""def group_keys_by_value(mapping):
    groups = {}
    for key in sorted(mapping):
        groups.setdefault(mapping[key], []).append(key)
    return groups
""",
        tests=(
            (({"b": 1, "a": 1, "c": 2},), {1: ["a", "b"], 2: ["c"]}),
            (({},), {}),
            (({"x": 5},), {5: ["x"]}),
            (({3: 0, 1: 0, 2: 0},), {0: [1, 2, 3]}),
            (({"p": "q", "q": "p"},), {"q": ["p"], "p": ["q"]}),
            (({-1: True, 1: False, 0: True},), {True: [-1, 0], False: [1]}),
        ),
    ),
    ladder_task(
        "first_key_with_value",
        family="dict inverting",
        level=3,
        prompt=(
            "Write a function `first_key_with_value(mapping, value)` that returns the smallest key whose "
            "value is `value`, or None if no key has that value."
        ),
        reference="""def first_key_with_value(mapping, value):
    for key in sorted(mapping):
        if mapping[key] == value:
            return key
    return None
""",
        tests=(
            (({"b": 1, "a": 1, "c": 2}, 1), "a"),
            (({}, 0), None),
            (({"x": 5}, 4), None),
            (({3: 0, 1: 0, 2: 0}, 0), 1),
            (({"p": "q"}, "q"), "p"),
            (({-1: -1, 1: -1}, -1), -1),
        ),
    ),
    ladder_task(
        "tally",
        family="counting into dict",
        level=2,
        prompt=(
            "Write a function `tally(items)` that returns a dictionary that maps each different element of "
            "the list to the number of times it occurs."
        ),
        reference="""def tally(items):
    counts = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts
""",
        tests=(
            (([1, 2, 1],), {1: 2, 2: 1}),
            (([],), {}),
            (([7],), {7: 1}),
            ((["a", "b", "a", "a"],), {"a": 3, "b": 1}),
            (([-1, -1, 0],), {-1: 2, 0: 1}),
            (([5, 5, 5, 5, 5],), {5: 5}),
        ),
    ),
    ladder_task(
        "most_common_item",
        family="counting into dict",
        level=3,
        prompt=(
            "Write a function `most_common_item(items)` that returns the element that occurs most often in "
            "a non-empty list. If several occur equally often, return the one that appears first in the "
            "list."
        ),
        reference="def most_common_item(items):\n    return max(items, key=items.count)",
        tests=(
            (([1, 2, 1],), 1),
            (([7],), 7),
            ((["a", "b"],), "a"),
            (([3, 2, 2, 3],), 3),
            (([-1, 0, 0],), 0),
            (([5, 4, 4, 5, 5],), 5),
        ),
    ),
    ladder_task(
        "items_seen_once",
        family="counting into dict",
        level=3,
        prompt=(
            "Write a function `items_seen_once(items)` that returns the elements that occur exactly once in "
            "the list, in their original order."
        ),
        reference="""def items_seen_once(items):
    return [item for item in items if items.count(item) == 1]
""",
        tests=(
            (([1, 2, 1],), [2]),
            (([],), []),
            (([7],), [7]),
            ((["a", "b", "a", "c"],), ["b", "c"]),
            (([5, 5],), []),
            (([-1, 0, 1],), [-1, 0, 1]),
        ),
    ),
    ladder_task(
        "tally_by_size",
        family="counting into dict",
        level=3,
        prompt=(
            "Write a function `tally_by_size(lists)` that takes a list of lists and returns a dictionary "
            "that maps each length that occurs to how many of the lists have that length."
        ),
        reference="""def tally_by_size(lists):
    counts = {}
    for inner in lists:
        counts[len(inner)] = counts.get(len(inner), 0) + 1
    return counts
""",
        tests=(
            (([[1], [2], []],), {1: 2, 0: 1}),
            (([],), {}),
            (([[]],), {0: 1}),
            (([[1, 2], [3, 4], [5, 6]],), {2: 3}),
            (([["a"], ["b", "c"], ["d"]],), {1: 2, 2: 1}),
            (([[0, 0, 0], [], []],), {3: 1, 0: 2}),
        ),
    ),
    ladder_task(
        "items_at_least",
        family="counting into dict",
        level=3,
        prompt=(
            "Write a function `items_at_least(items, n)` that returns the sorted list of the different "
            "elements that occur at least `n` times in the list."
        ),
        reference="""def items_at_least(items, n):
    return sorted({item for item in items if items.count(item) >= n})
""",
        tests=(
            (([1, 2, 1], 2), [1]),
            (([], 1), []),
            (([7], 1), [7]),
            ((["b", "a", "b", "a", "c"], 2), ["a", "b"]),
            (([5, 5, 5], 4), []),
            (([-1, 3, 3, -1, -1], 2), [-1, 3]),
        ),
    ),
    ladder_task(
        "update_with",
        family="dict merging",
        level=2,
        prompt=(
            "Write a function `update_with(base, extra)` that returns a new dictionary with the entries of "
            "both. Where both have the same key, the value from `extra` wins."
        ),
        reference="def update_with(base, extra):\n    return {**base, **extra}",
        tests=(
            (({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
            (({"a": 1}, {"a": 2}), {"a": 2}),
            (({}, {}), {}),
            (({}, {1: 1}), {1: 1}),
            (({1: 1, 2: 2}, {2: 0, 3: 3}), {1: 1, 2: 0, 3: 3}),
            (({"x": None}, {}), {"x": None}),
        ),
    ),
    ladder_task(
        "shared_keys",
        family="dict merging",
        level=2,
        prompt=(
            "Write a function `shared_keys(first, second)` that returns a sorted list of the keys that "
            "occur in both dictionaries."
        ),
        reference="def shared_keys(first, second):\n    return sorted(first.keys() & second.keys())",
        tests=(
            (({"a": 1, "b": 2}, {"b": 3}), ["b"]),
            (({}, {}), []),
            (({"x": 1}, {"y": 1}), []),
            (({3: 0, 1: 0}, {1: 9, 3: 9}), [1, 3]),
            (({-1: 1, -2: 2}, {-2: 0, 5: 0}), [-2]),
            (({"k": 1}, {"k": 1}), ["k"]),
        ),
    ),
    ladder_task(
        "add_up_dicts",
        family="dict merging",
        level=3,
        prompt=(
            "Write a function `add_up_dicts(first, second)` that combines two dictionaries of numbers: the "
            "result has all keys of both, and the value of a key that occurs in both is the sum of its two "
            "values."
        ),
        reference="""def add_up_dicts(first, second):
    result = dict(first)
    for key, value in second.items():
        result[key] = result.get(key, 0) + value
    return result
""",
        tests=(
            (({"a": 1, "b": 2}, {"b": 3}), {"a": 1, "b": 5}),
            (({}, {}), {}),
            (({"x": 1}, {"y": 1}), {"x": 1, "y": 1}),
            (({1: 5}, {1: -5}), {1: 0}),
            (({"p": 0}, {}), {"p": 0}),
            (({"k": 1_000_000}, {"k": 1, "l": 2}), {"k": 1_000_001, "l": 2}),
        ),
    ),
    ladder_task(
        "common_entries",
        family="dict merging",
        level=3,
        prompt=(
            "Write a function `common_entries(first, second)` that returns a dictionary with the entries "
            "(key and value) that are the same in both dictionaries."
        ),
        reference="""def common_entries(first, second):
    return {k: v for k, v in first.items() if k in second and second[k] == v}
""",
        tests=(
            (({"a": 1, "b": 2}, {"b": 2}), {"b": 2}),
            (({}, {}), {}),
            (({"x": 1}, {"x": 2}), {}),
            (({3: 0, 1: 0}, {1: 0, 3: 9}), {1: 0}),
            (({"k": None}, {}), {}),
            (({"p": 1, "q": -2}, {"q": -2, "p": 1}), {"p": 1, "q": -2}),
        ),
    ),
    ladder_task(
        "changed_keys",
        family="dict merging",
        level=3,
        prompt=(
            "Write a function `changed_keys(before, after)` that returns a sorted list of the keys that are "
            "in both dictionaries but have a different value in each."
        ),
        reference="""def changed_keys(before, after):
    return sorted(key for key in before if key in after and before[key] != after[key])
""",
        tests=(
            (({"a": 1, "b": 2}, {"b": 3}), ["b"]),
            (({}, {}), []),
            (({"x": 1}, {"y": 2}), []),
            (({3: 0, 1: 0}, {1: 9, 3: 9}), [1, 3]),
            (({-1: 1, -2: 2}, {-2: 2, -1: 0}), [-1]),
            (({"k": 1}, {"k": 1}), []),
        ),
    ),
)
