"""Dictionaries that gather: inverting, counting, merging."""

family, level = "dict inverting", 2

def swap_keys_and_values(mapping):
    """Write a function `swap_keys_and_values(mapping)` that returns a dictionary in which the keys and values
    of `mapping` have changed places. All values are different."""
    return {value: key for key, value in mapping.items()}
assert swap_keys_and_values({"a": 1, "b": 2}) == {1: "a", 2: "b"} and swap_keys_and_values({}) == {}
assert swap_keys_and_values({3: "x"}) == {"x": 3} and swap_keys_and_values({1: 1}) == {1: 1}
assert swap_keys_and_values({"p": "q", "q": "p"}) == {"q": "p", "p": "q"}
assert swap_keys_and_values({-1: 1_000_000, 0: -1}) == {1_000_000: -1, -1: 0}

def keys_with_value(mapping, value):
    """Write a function `keys_with_value(mapping, value)` that returns the sorted list of all keys whose value
    equals `value`."""
    return sorted(k for k, v in mapping.items() if v == value)
assert keys_with_value({"b": 1, "a": 1, "c": 2}, 1) == ["a", "b"] and keys_with_value({}, 0) == []
assert keys_with_value({"x": 5}, 4) == [] and keys_with_value({3: 0, 1: 0, 2: 0}, 0) == [1, 2, 3]
assert keys_with_value({"p": "q"}, "q") == ["p"] and keys_with_value({-1: -1, 1: -1}, -1) == [-1, 1]

def key_of_largest(scores):
    """Given a non-empty dictionary of numbers whose largest value occurs only once, `key_of_largest(scores)`
    returns the key that has that largest value."""
    return max(scores, key=scores.get)
assert key_of_largest({"a": 1, "b": 2}) == "b" and key_of_largest({"x": 5}) == "x"
assert key_of_largest({"p": -1, "q": -2}) == "p" and key_of_largest({1: 10, 2: 30, 3: 20}) == 2
assert key_of_largest({"u": 0, "v": -1_000_000}) == "u" and key_of_largest({"k": 1, "l": 1, "m": 2}) == "m"

family, level = "dict inverting", 3

def group_keys_by_value(mapping):
    """Write a function `group_keys_by_value(mapping)` that returns a dictionary that maps each value of
    `mapping` to the sorted list of the keys that have it."""
    groups = {}
    for key in sorted(mapping):
        groups.setdefault(mapping[key], []).append(key)
    return groups
assert group_keys_by_value({"b": 1, "a": 1, "c": 2}) == {1: ["a", "b"], 2: ["c"]}
assert group_keys_by_value({}) == {} and group_keys_by_value({"x": 5}) == {5: ["x"]}
assert group_keys_by_value({3: 0, 1: 0, 2: 0}) == {0: [1, 2, 3]}
assert group_keys_by_value({"p": "q", "q": "p"}) == {"q": ["p"], "p": ["q"]}
assert group_keys_by_value({-1: True, 1: False, 0: True}) == {True: [-1, 0], False: [1]}

def first_key_with_value(mapping, value):
    """Write a function `first_key_with_value(mapping, value)` that returns the smallest key whose value is
    `value`, or None if no key has that value."""
    for key in sorted(mapping):
        if mapping[key] == value:
            return key
    return None
assert first_key_with_value({"b": 1, "a": 1, "c": 2}, 1) == "a" and first_key_with_value({}, 0) == None
assert first_key_with_value({"x": 5}, 4) == None and first_key_with_value({3: 0, 1: 0, 2: 0}, 0) == 1
assert first_key_with_value({"p": "q"}, "q") == "p" and first_key_with_value({-1: -1, 1: -1}, -1) == -1

family, level = "counting into dict", 2

def tally(items):
    """Write a function `tally(items)` that returns a dictionary that maps each different element of the list
    to the number of times it occurs."""
    counts = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts
assert tally([1, 2, 1]) == {1: 2, 2: 1} and tally([]) == {} and tally([7]) == {7: 1}
assert tally(["a", "b", "a", "a"]) == {"a": 3, "b": 1} and tally([-1, -1, 0]) == {-1: 2, 0: 1}
assert tally([5, 5, 5, 5, 5]) == {5: 5}

family, level = "counting into dict", 3

def most_common_item(items):
    """Write a function `most_common_item(items)` that returns the element that occurs most often in a
    non-empty list. If several occur equally often, return the one that appears first in the list."""
    return max(items, key=items.count)
assert most_common_item([1, 2, 1]) == 1 and most_common_item([7]) == 7 and most_common_item(["a", "b"]) == "a"
assert most_common_item([3, 2, 2, 3]) == 3 and most_common_item([-1, 0, 0]) == 0
assert most_common_item([5, 4, 4, 5, 5]) == 5

def items_seen_once(items):
    """Write a function `items_seen_once(items)` that returns the elements that occur exactly once in the
    list, in their original order."""
    return [item for item in items if items.count(item) == 1]
assert items_seen_once([1, 2, 1]) == [2] and items_seen_once([]) == [] and items_seen_once([7]) == [7]
assert items_seen_once(["a", "b", "a", "c"]) == ["b", "c"] and items_seen_once([5, 5]) == []
assert items_seen_once([-1, 0, 1]) == [-1, 0, 1]

def tally_by_size(lists):
    """Write a function `tally_by_size(lists)` that takes a list of lists and returns a dictionary that maps
    each length that occurs to how many of the lists have that length."""
    counts = {}
    for inner in lists:
        counts[len(inner)] = counts.get(len(inner), 0) + 1
    return counts
assert tally_by_size([[1], [2], []]) == {1: 2, 0: 1} and tally_by_size([]) == {}
assert tally_by_size([[]]) == {0: 1} and tally_by_size([[1, 2], [3, 4], [5, 6]]) == {2: 3}
assert tally_by_size([["a"], ["b", "c"], ["d"]]) == {1: 2, 2: 1}
assert tally_by_size([[0, 0, 0], [], []]) == {3: 1, 0: 2}

def items_at_least(items, n):
    """Write a function `items_at_least(items, n)` that returns the sorted list of the different elements that
    occur at least `n` times in the list."""
    return sorted({item for item in items if items.count(item) >= n})
assert items_at_least([1, 2, 1], 2) == [1] and items_at_least([], 1) == [] and items_at_least([7], 1) == [7]
assert items_at_least(["b", "a", "b", "a", "c"], 2) == ["a", "b"] and items_at_least([5, 5, 5], 4) == []
assert items_at_least([-1, 3, 3, -1, -1], 2) == [-1, 3]

family, level = "dict merging", 2

def update_with(base, extra):
    """Write a function `update_with(base, extra)` that returns a new dictionary with the entries of both.
    Where both have the same key, the value from `extra` wins."""
    return {**base, **extra}
assert update_with({"a": 1}, {"b": 2}) == {"a": 1, "b": 2} and update_with({"a": 1}, {"a": 2}) == {"a": 2}
assert update_with({}, {}) == {} and update_with({}, {1: 1}) == {1: 1}
assert update_with({1: 1, 2: 2}, {2: 0, 3: 3}) == {1: 1, 2: 0, 3: 3}
assert update_with({"x": None}, {}) == {"x": None}

def shared_keys(first, second):
    """Write a function `shared_keys(first, second)` that returns a sorted list of the keys that occur in both
    dictionaries."""
    return sorted(first.keys() & second.keys())
assert shared_keys({"a": 1, "b": 2}, {"b": 3}) == ["b"] and shared_keys({}, {}) == []
assert shared_keys({"x": 1}, {"y": 1}) == [] and shared_keys({3: 0, 1: 0}, {1: 9, 3: 9}) == [1, 3]
assert shared_keys({-1: 1, -2: 2}, {-2: 0, 5: 0}) == [-2] and shared_keys({"k": 1}, {"k": 1}) == ["k"]

family, level = "dict merging", 3

def add_up_dicts(first, second):
    """Write a function `add_up_dicts(first, second)` that combines two dictionaries of numbers: the result
    has all keys of both, and the value of a key that occurs in both is the sum of its two values."""
    result = dict(first)
    for key, value in second.items():
        result[key] = result.get(key, 0) + value
    return result
assert add_up_dicts({"a": 1, "b": 2}, {"b": 3}) == {"a": 1, "b": 5} and add_up_dicts({}, {}) == {}
assert add_up_dicts({"x": 1}, {"y": 1}) == {"x": 1, "y": 1} and add_up_dicts({1: 5}, {1: -5}) == {1: 0}
assert add_up_dicts({"p": 0}, {}) == {"p": 0}
assert add_up_dicts({"k": 1_000_000}, {"k": 1, "l": 2}) == {"k": 1_000_001, "l": 2}

def common_entries(first, second):
    """Write a function `common_entries(first, second)` that returns a dictionary with the entries (key and
    value) that are the same in both dictionaries."""
    return {k: v for k, v in first.items() if k in second and second[k] == v}
assert common_entries({"a": 1, "b": 2}, {"b": 2}) == {"b": 2} and common_entries({}, {}) == {}
assert common_entries({"x": 1}, {"x": 2}) == {} and common_entries({3: 0, 1: 0}, {1: 0, 3: 9}) == {1: 0}
assert common_entries({"k": None}, {}) == {}
assert common_entries({"p": 1, "q": -2}, {"q": -2, "p": 1}) == {"p": 1, "q": -2}

def changed_keys(before, after):
    """Write a function `changed_keys(before, after)` that returns a sorted list of the keys that are in both
    dictionaries but have a different value in each."""
    return sorted(key for key in before if key in after and before[key] != after[key])
assert changed_keys({"a": 1, "b": 2}, {"b": 3}) == ["b"] and changed_keys({}, {}) == []
assert changed_keys({"x": 1}, {"y": 2}) == [] and changed_keys({3: 0, 1: 0}, {1: 9, 3: 9}) == [1, 3]
assert changed_keys({-1: 1, -2: 2}, {-2: 2, -1: 0}) == [-1] and changed_keys({"k": 1}, {"k": 1}) == []
