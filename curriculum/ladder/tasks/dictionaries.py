"""Single dictionaries: look-up, views, building, changed copies."""

family, level = "dict lookup", 1

def value_for(mapping, key):
    """Write a function `value_for(mapping, key)` that returns the value stored in the dictionary under `key`.
    The key is always present."""
    return mapping[key]
assert value_for({"a": 1, "b": 2}, "a") == 1 and value_for({"a": 1, "b": 2}, "b") == 2
assert value_for({1: "x"}, 1) == "x" and value_for({"k": None}, "k") == None
assert value_for({"n": -5, "m": 0}, "n") == -5 and value_for({2: [1, 2], 3: []}, 2) == [1, 2]

def value_or_default(mapping, key, default):
    """Write a function `value_or_default(mapping, key, default)` that returns the value stored under `key` in
    the dictionary, or `default` if the key is missing."""
    return mapping.get(key, default)
assert value_or_default({"a": 1}, "a", 0) == 1 and value_or_default({"a": 1}, "b", 0) == 0
assert value_or_default({}, "x", -1) == -1 and value_or_default({1: "x"}, 1, "y") == "x"
assert value_or_default({1: "x"}, 2, "y") == "y" and value_or_default({"k": 0}, "k", 5) == 0

def key_exists(mapping, key):
    """Write a function `key_exists(mapping, key)` that returns True if the dictionary has the given key,
    otherwise False."""
    return key in mapping
assert key_exists({"a": 1}, "a") == True and key_exists({"a": 1}, "b") == False
assert key_exists({}, "x") == False and key_exists({1: 2}, 2) == False and key_exists({0: None}, 0) == True
assert key_exists({"x": "y"}, "y") == False

def entry_count(mapping):
    """Write a function `entry_count(mapping)` that returns the number of keys in a dictionary."""
    return len(mapping)
assert entry_count({}) == 0 and entry_count({"a": 1}) == 1 and entry_count({"a": 1, "b": 1}) == 2
assert entry_count({1: 2, 3: 4, 5: 6}) == 3 and entry_count({"": ""}) == 1
assert entry_count({-1: [], 0: [1], 1: [1, 2], 2: []}) == 4

def sum_two_values(mapping, a, b):
    """Given a dictionary of numbers and two of its keys, `sum_two_values(mapping, a, b)` returns the sum of
    the two values stored under these keys."""
    return mapping[a] + mapping[b]
assert sum_two_values({"x": 1, "y": 2}, "x", "y") == 3 and sum_two_values({"x": 5}, "x", "x") == 10
assert sum_two_values({1: -1, 2: 1}, 1, 2) == 0 and sum_two_values({"p": 0, "q": 0, "r": 9}, "p", "q") == 0
assert sum_two_values({"big": 1_000_000, "one": 1}, "one", "big") == 1_000_001
assert sum_two_values({"a": -4, "b": -6}, "b", "a") == -10

def has_two_entries(mapping):
    """Write a function `has_two_entries(mapping)` that returns True for a dictionary with exactly two entries
    and False for every other dictionary."""
    return len(mapping) == 2
assert has_two_entries({}) == False and has_two_entries({"a": 1}) == False
assert has_two_entries({"a": 1, "b": None}) == True and has_two_entries({0: 0, "": ""}) == True
assert has_two_entries({1: 2, 3: 4}) == True and has_two_entries({1: 1, 2: 2, 3: 3}) == False

family, level = "dict views", 1

def keys_in_order(mapping):
    """Write a function `keys_in_order(mapping)` that returns a sorted list of the keys of a dictionary."""
    return sorted(mapping)
assert keys_in_order({"b": 1, "a": 2}) == ["a", "b"] and keys_in_order({}) == []
assert keys_in_order({3: "x"}) == [3] and keys_in_order({2: 0, -1: 0, 1: 0}) == [-1, 1, 2]
assert keys_in_order({"z": 1, "y": 1, "x": 1}) == ["x", "y", "z"]
assert keys_in_order({1_000_000: 1, 10: 2}) == [10, 1_000_000]

def values_in_order(mapping):
    """Write a function `values_in_order(mapping)` that returns a sorted list of the values of a dictionary. A
    value that occurs twice appears twice."""
    return sorted(mapping.values())
assert values_in_order({"b": 1, "a": 2}) == [1, 2] and values_in_order({}) == []
assert values_in_order({3: "x"}) == ["x"] and values_in_order({"p": 5, "q": 5, "r": -5}) == [-5, 5, 5]
assert values_in_order({"z": 9, "y": 8, "x": 7}) == [7, 8, 9]
assert values_in_order({1: 1_000_000, 2: 0}) == [0, 1_000_000]

def sum_of_values(mapping):
    """Write a function `sum_of_values(mapping)` that adds up all values of a dictionary of numbers and
    returns the sum, which is 0 for an empty dictionary."""
    return sum(mapping.values())
assert sum_of_values({"b": 1, "a": 2}) == 3 and sum_of_values({}) == 0 and sum_of_values({3: 7}) == 7
assert sum_of_values({"p": 5, "q": 5, "r": -5}) == 5 and sum_of_values({"z": -9}) == -9
assert sum_of_values({1: 1_000_000, 2: 1_000_000}) == 2_000_000

def largest_value(mapping):
    """Write a function `largest_value(mapping)` that returns the largest value in a non-empty dictionary
    whose values are numbers."""
    return max(mapping.values())
assert largest_value({"b": 1, "a": 2}) == 2 and largest_value({3: 7}) == 7
assert largest_value({"p": 5, "q": 5, "r": -5}) == 5 and largest_value({"z": -9, "y": -8}) == -8
assert largest_value({1: 1_000_000, 2: 0}) == 1_000_000 and largest_value({"x": 0}) == 0

def has_value(mapping, value):
    """Write a function `has_value(mapping, value)` that tells whether some key of the dictionary has `value`
    as its value. It returns True or False."""
    return value in mapping.values()
assert has_value({"a": 1}, 1) == True and has_value({"a": 1}, 2) == False and has_value({}, 0) == False
assert has_value({1: 2}, 1) == False and has_value({"a": "b"}, "b") == True
assert has_value({"x": 5, "y": 5}, 5) == True

family, level = "dict views", 2

def entries_in_order(mapping):
    """Write a function `entries_in_order(mapping)` that returns the (key, value) pairs of a dictionary as a
    list of tuples, sorted by key."""
    return sorted(mapping.items())
assert entries_in_order({"b": 1, "a": 2}) == [("a", 2), ("b", 1)] and entries_in_order({}) == []
assert entries_in_order({3: "x"}) == [(3, "x")]
assert entries_in_order({2: 0, -1: 0, 1: 0}) == [(-1, 0), (1, 0), (2, 0)]
assert entries_in_order({"z": 1, "y": 2, "x": 3}) == [("x", 3), ("y", 2), ("z", 1)]
assert entries_in_order({1_000_000: 1, 10: 2}) == [(10, 2), (1_000_000, 1)]

family, level = "dict building", 2

def dict_from_lists(keys, values):
    """Write a function `dict_from_lists(keys, values)` that returns a dictionary that maps each element of
    `keys` to the element of `values` at the same index. The lists have equal length and no key occurs
    twice."""
    return dict(zip(keys, values))
assert dict_from_lists(["a", "b"], [1, 2]) == {"a": 1, "b": 2} and dict_from_lists([], []) == {}
assert dict_from_lists([1], ["x"]) == {1: "x"}
assert dict_from_lists(["p", "q", "r"], [0, 0, 0]) == {"p": 0, "q": 0, "r": 0}
assert dict_from_lists([-1, -2], [1, 2]) == {-1: 1, -2: 2}
assert dict_from_lists(["k"], [[1, 2]]) == {"k": [1, 2]}

def squares_table(n):
    """Write a function `squares_table(n)` that returns a dictionary in which every integer from 1 to `n` is
    mapped to its square. For `n` equal to 0 the dictionary is empty."""
    return {i: i * i for i in range(1, n + 1)}
assert squares_table(3) == {1: 1, 2: 4, 3: 9} and squares_table(0) == {} and squares_table(1) == {1: 1}
assert squares_table(5) == {1: 1, 2: 4, 3: 9, 4: 16, 5: 25} and squares_table(2) == {1: 1, 2: 4}
assert squares_table(8) == {1: 1, 2: 4, 3: 9, 4: 16, 5: 25, 6: 36, 7: 49, 8: 64}

def all_set_to(keys, value):
    """Write a function `all_set_to(keys, value)` that returns a dictionary in which every element of the list
    `keys` is a key and `value` is the value of each."""
    return {key: value for key in keys}
assert all_set_to(["a", "b"], 0) == {"a": 0, "b": 0} and all_set_to([], 1) == {}
assert all_set_to([1], "x") == {1: "x"} and all_set_to(["a", "a"], 5) == {"a": 5}
assert all_set_to([-1, -2], None) == {-1: None, -2: None}
assert all_set_to([1, 2, 3], True) == {1: True, 2: True, 3: True}

def index_by_item(items):
    """Write a function `index_by_item(items)` that returns a dictionary that maps each element of a list to
    its index. No element occurs twice in the list."""
    return {item: i for i, item in enumerate(items)}
assert index_by_item(["a", "b"]) == {"a": 0, "b": 1} and index_by_item([]) == {}
assert index_by_item([7]) == {7: 0} and index_by_item([3, 1, 2]) == {3: 0, 1: 1, 2: 2}
assert index_by_item(["x", "", "y"]) == {"x": 0, "": 1, "y": 2}
assert index_by_item([-1, 1_000_000]) == {-1: 0, 1_000_000: 1}

def list_sizes_by_name(lists):
    """The dictionary `lists` has lists as its values. Write `list_sizes_by_name(lists)` to return a
    dictionary with the same keys and the length of each list as value."""
    return {name: len(values) for name, values in lists.items()}
assert list_sizes_by_name({"a": [1, 2], "b": []}) == {"a": 2, "b": 0} and list_sizes_by_name({}) == {}
assert list_sizes_by_name({"x": [0]}) == {"x": 1}
assert list_sizes_by_name({1: [1], 2: [1, 2], 3: [1, 2, 3]}) == {1: 1, 2: 2, 3: 3}
assert list_sizes_by_name({"p": [[], []]}) == {"p": 2}
assert list_sizes_by_name({"q": ["a", "a", "a", "a"]}) == {"q": 4}

family, level = "dict changes", 2

def with_entry(mapping, key, value):
    """Write a function `with_entry(mapping, key, value)` that returns a new dictionary with all entries of
    `mapping` in which `key` has the value `value`, whether or not the key was there before."""
    return {**mapping, key: value}
assert with_entry({"a": 1}, "b", 2) == {"a": 1, "b": 2} and with_entry({"a": 1}, "a", 2) == {"a": 2}
assert with_entry({}, "x", 0) == {"x": 0} and with_entry({1: "x"}, 2, "y") == {1: "x", 2: "y"}
assert with_entry({"k": None}, "k", None) == {"k": None}
assert with_entry({"p": 1, "q": 2}, "q", -2) == {"p": 1, "q": -2}

def without_key(mapping, key):
    """Write a function `without_key(mapping, key)` that returns a copy of the dictionary without `key`. If
    the key is not there, the copy has all entries."""
    return {k: v for k, v in mapping.items() if k != key}
assert without_key({"a": 1, "b": 2}, "a") == {"b": 2} and without_key({"a": 1}, "b") == {"a": 1}
assert without_key({}, "x") == {} and without_key({1: "x"}, 1) == {}
assert without_key({"p": 1, "q": 1}, "q") == {"p": 1} and without_key({0: 0, -1: -1}, -1) == {0: 0}

def scale_values(mapping, factor):
    """Write a function `scale_values(mapping, factor)` that returns a dictionary with the same keys in which
    every value is multiplied by `factor`."""
    return {key: value * factor for key, value in mapping.items()}
assert scale_values({"a": 1, "b": 2}, 3) == {"a": 3, "b": 6} and scale_values({}, 2) == {}
assert scale_values({"x": 5}, 0) == {"x": 0} and scale_values({1: -1}, -1) == {1: 1}
assert scale_values({"p": 7, "q": 7}, 1) == {"p": 7, "q": 7}
assert scale_values({"z": 1_000_000}, 10) == {"z": 10_000_000}

def keep_large_values(mapping, minimum):
    """Write a function `keep_large_values(mapping, minimum)` that returns a dictionary with only those
    entries whose value is at least `minimum`."""
    return {key: value for key, value in mapping.items() if value >= minimum}
assert keep_large_values({"a": 1, "b": 2}, 2) == {"b": 2} and keep_large_values({}, 2) == {}
assert keep_large_values({"x": 5}, 9) == {} and keep_large_values({1: -1, 2: -3}, -2) == {1: -1}
assert keep_large_values({"p": 7, "q": 7}, 7) == {"p": 7, "q": 7}
assert keep_large_values({"z": 1_000_000, "y": 1}, 10) == {"z": 1_000_000}

def pick_keys(mapping, keys):
    """Write a function `pick_keys(mapping, keys)` that returns a dictionary with those entries of `mapping`
    whose key is in the list `keys`. Keys that `mapping` does not have are ignored."""
    return {key: mapping[key] for key in keys if key in mapping}
assert pick_keys({"a": 1, "b": 2}, ["a"]) == {"a": 1} and pick_keys({"a": 1}, []) == {}
assert pick_keys({}, ["x"]) == {} and pick_keys({1: 1, 2: 4, 3: 9}, [3, 1]) == {3: 9, 1: 1}
assert pick_keys({"p": 0}, ["p", "q"]) == {"p": 0}
assert pick_keys({"x": -1, "y": -2}, ["y", "x"]) == {"y": -2, "x": -1}
