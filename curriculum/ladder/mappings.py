"""Dictionaries, first part: look-up, views, building, changed copies."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "value_for",
        family="dict lookup",
        level=1,
        prompt=(
            "Write a function `value_for(mapping, key)` that returns the value stored in the dictionary "
            "under `key`. The key is always present."
        ),
        reference="def value_for(mapping, key):\n    return mapping[key]",
        tests=(
            (({"a": 1, "b": 2}, "a"), 1),
            (({"a": 1, "b": 2}, "b"), 2),
            (({1: "x"}, 1), "x"),
            (({"k": None}, "k"), None),
            (({"n": -5, "m": 0}, "n"), -5),
            (({2: [1, 2], 3: []}, 2), [1, 2]),
        ),
    ),
    ladder_task(
        "value_or_default",
        family="dict lookup",
        level=1,
        prompt=(
            "Write a function `value_or_default(mapping, key, default)` that returns the value stored under "
            "`key` in the dictionary, or `default` if the key is missing."
        ),
        reference="def value_or_default(mapping, key, default):\n    return mapping.get(key, default)",
        tests=(
            (({"a": 1}, "a", 0), 1),
            (({"a": 1}, "b", 0), 0),
            (({}, "x", -1), -1),
            (({1: "x"}, 1, "y"), "x"),
            (({1: "x"}, 2, "y"), "y"),
            (({"k": 0}, "k", 5), 0),
        ),
    ),
    ladder_task(
        "key_exists",
        family="dict lookup",
        level=1,
        prompt=(
            "Write a function `key_exists(mapping, key)` that returns True if the dictionary has the given "
            "key, otherwise False."
        ),
        reference="def key_exists(mapping, key):\n    return key in mapping",
        tests=(
            (({"a": 1}, "a"), True),
            (({"a": 1}, "b"), False),
            (({}, "x"), False),
            (({1: 2}, 2), False),
            (({0: None}, 0), True),
            (({"x": "y"}, "y"), False),
        ),
    ),
    ladder_task(
        "entry_count",
        family="dict lookup",
        level=1,
        prompt="Write a function `entry_count(mapping)` that returns the number of keys in a dictionary.",
        reference="def entry_count(mapping):\n    return len(mapping)",
        tests=(
            (({},), 0),
            (({"a": 1},), 1),
            (({"a": 1, "b": 1},), 2),
            (({1: 2, 3: 4, 5: 6},), 3),
            (({"": ""},), 1),
            (({-1: [], 0: [1], 1: [1, 2], 2: []},), 4),
        ),
    ),
    ladder_task(
        "sum_two_values",
        family="dict lookup",
        level=1,
        prompt=(
            "Given a dictionary of numbers and two of its keys, `sum_two_values(mapping, a, b)` returns the "
            "sum of the two values stored under these keys."
        ),
        reference="def sum_two_values(mapping, a, b):\n    return mapping[a] + mapping[b]",
        tests=(
            (({"x": 1, "y": 2}, "x", "y"), 3),
            (({"x": 5}, "x", "x"), 10),
            (({1: -1, 2: 1}, 1, 2), 0),
            (({"p": 0, "q": 0, "r": 9}, "p", "q"), 0),
            (({"big": 1_000_000, "one": 1}, "one", "big"), 1_000_001),
            (({"a": -4, "b": -6}, "b", "a"), -10),
        ),
    ),
    ladder_task(
        "is_dict_empty",
        family="dict lookup",
        level=1,
        prompt=(
            "Write a function `is_dict_empty(mapping)` that returns True for a dictionary without any "
            "entries and False for every other dictionary."
        ),
        reference="def is_dict_empty(mapping):\n    return len(mapping) == 0",
        tests=(
            (({},), True),
            (({"a": 1},), False),
            (({"a": None},), False),
            (({0: 0},), False),
            (({"": ""},), False),
            (({1: 2, 3: 4},), False),
        ),
    ),
    ladder_task(
        "keys_in_order",
        family="dict views",
        level=1,
        prompt=(
            "Write a function `keys_in_order(mapping)` that returns a sorted list of the keys of a "
            "dictionary."
        ),
        reference="def keys_in_order(mapping):\n    return sorted(mapping)",
        tests=(
            (({"b": 1, "a": 2},), ["a", "b"]),
            (({},), []),
            (({3: "x"},), [3]),
            (({2: 0, -1: 0, 1: 0},), [-1, 1, 2]),
            (({"z": 1, "y": 1, "x": 1},), ["x", "y", "z"]),
            (({1_000_000: 1, 10: 2},), [10, 1_000_000]),
        ),
    ),
    ladder_task(
        "values_in_order",
        family="dict views",
        level=1,
        prompt=(
            "Write a function `values_in_order(mapping)` that returns a sorted list of the values of a "
            "dictionary. A value that occurs twice appears twice."
        ),
        reference="def values_in_order(mapping):\n    return sorted(mapping.values())",
        tests=(
            (({"b": 1, "a": 2},), [1, 2]),
            (({},), []),
            (({3: "x"},), ["x"]),
            (({"p": 5, "q": 5, "r": -5},), [-5, 5, 5]),
            (({"z": 9, "y": 8, "x": 7},), [7, 8, 9]),
            (({1: 1_000_000, 2: 0},), [0, 1_000_000]),
        ),
    ),
    ladder_task(
        "sum_of_values",
        family="dict views",
        level=1,
        prompt=(
            "Write a function `sum_of_values(mapping)` that adds up all values of a dictionary of numbers "
            "and returns the sum, which is 0 for an empty dictionary."
        ),
        reference="def sum_of_values(mapping):\n    return sum(mapping.values())",
        tests=(
            (({"b": 1, "a": 2},), 3),
            (({},), 0),
            (({3: 7},), 7),
            (({"p": 5, "q": 5, "r": -5},), 5),
            (({"z": -9},), -9),
            (({1: 1_000_000, 2: 1_000_000},), 2_000_000),
        ),
    ),
    ladder_task(
        "largest_value",
        family="dict views",
        level=1,
        prompt=(
            "Write a function `largest_value(mapping)` that returns the largest value in a non-empty "
            "dictionary whose values are numbers."
        ),
        reference="def largest_value(mapping):\n    return max(mapping.values())",
        tests=(
            (({"b": 1, "a": 2},), 2),
            (({3: 7},), 7),
            (({"p": 5, "q": 5, "r": -5},), 5),
            (({"z": -9, "y": -8},), -8),
            (({1: 1_000_000, 2: 0},), 1_000_000),
            (({"x": 0},), 0),
        ),
    ),
    ladder_task(
        "has_value",
        family="dict views",
        level=1,
        prompt=(
            "Write a function `has_value(mapping, value)` that tells whether some key of the dictionary has "
            "`value` as its value. It returns True or False."
        ),
        reference="def has_value(mapping, value):\n    return value in mapping.values()",
        tests=(
            (({"a": 1}, 1), True),
            (({"a": 1}, 2), False),
            (({}, 0), False),
            (({1: 2}, 1), False),
            (({"a": "b"}, "b"), True),
            (({"x": 5, "y": 5}, 5), True),
        ),
    ),
    ladder_task(
        "entries_in_order",
        family="dict views",
        level=2,
        prompt=(
            "Write a function `entries_in_order(mapping)` that returns the (key, value) pairs of a "
            "dictionary as a list of tuples, sorted by key."
        ),
        reference="def entries_in_order(mapping):\n    return sorted(mapping.items())",
        tests=(
            (({"b": 1, "a": 2},), [("a", 2), ("b", 1)]),
            (({},), []),
            (({3: "x"},), [(3, "x")]),
            (({2: 0, -1: 0, 1: 0},), [(-1, 0), (1, 0), (2, 0)]),
            (({"z": 1, "y": 2, "x": 3},), [("x", 3), ("y", 2), ("z", 1)]),
            (({1_000_000: 1, 10: 2},), [(10, 2), (1_000_000, 1)]),
        ),
    ),
    ladder_task(
        "dict_from_lists",
        family="dict building",
        level=2,
        prompt=(
            "Write a function `dict_from_lists(keys, values)` that returns a dictionary that maps each "
            "element of `keys` to the element of `values` at the same index. The lists have equal length "
            "and no key occurs twice."
        ),
        reference="def dict_from_lists(keys, values):\n    return dict(zip(keys, values))",
        tests=(
            ((["a", "b"], [1, 2]), {"a": 1, "b": 2}),
            (([], []), {}),
            (([1], ["x"]), {1: "x"}),
            ((["p", "q", "r"], [0, 0, 0]), {"p": 0, "q": 0, "r": 0}),
            (([-1, -2], [1, 2]), {-1: 1, -2: 2}),
            ((["k"], [[1, 2]]), {"k": [1, 2]}),
        ),
    ),
    ladder_task(
        "squares_table",
        family="dict building",
        level=2,
        prompt=(
            "Write a function `squares_table(n)` that returns a dictionary in which every integer from 1 to "
            "`n` is mapped to its square. For `n` equal to 0 the dictionary is empty."
        ),
        reference="def squares_table(n):\n    return {i: i * i for i in range(1, n + 1)}",
        tests=(
            ((3,), {1: 1, 2: 4, 3: 9}),
            ((0,), {}),
            ((1,), {1: 1}),
            ((5,), {1: 1, 2: 4, 3: 9, 4: 16, 5: 25}),
            ((2,), {1: 1, 2: 4}),
            ((8,), {1: 1, 2: 4, 3: 9, 4: 16, 5: 25, 6: 36, 7: 49, 8: 64}),
        ),
    ),
    ladder_task(
        "all_set_to",
        family="dict building",
        level=2,
        prompt=(
            "Write a function `all_set_to(keys, value)` that returns a dictionary in which every element of "
            "the list `keys` is a key and `value` is the value of each."
        ),
        reference="def all_set_to(keys, value):\n    return {key: value for key in keys}",
        tests=(
            ((["a", "b"], 0), {"a": 0, "b": 0}),
            (([], 1), {}),
            (([1], "x"), {1: "x"}),
            ((["a", "a"], 5), {"a": 5}),
            (([-1, -2], None), {-1: None, -2: None}),
            (([1, 2, 3], True), {1: True, 2: True, 3: True}),
        ),
    ),
    ladder_task(
        "index_by_item",
        family="dict building",
        level=2,
        prompt=(
            "Write a function `index_by_item(items)` that returns a dictionary that maps each element of a "
            "list to its index. No element occurs twice in the list."
        ),
        reference="def index_by_item(items):\n    return {item: i for i, item in enumerate(items)}",
        tests=(
            ((["a", "b"],), {"a": 0, "b": 1}),
            (([],), {}),
            (([7],), {7: 0}),
            (([3, 1, 2],), {3: 0, 1: 1, 2: 2}),
            ((["x", "", "y"],), {"x": 0, "": 1, "y": 2}),
            (([-1, 1_000_000],), {-1: 0, 1_000_000: 1}),
        ),
    ),
    ladder_task(
        "list_sizes_by_name",
        family="dict building",
        level=2,
        prompt=(
            "The dictionary `lists` has lists as its values. Write `list_sizes_by_name(lists)` to return a "
            "dictionary with the same keys and the length of each list as value."
        ),
        reference="""def list_sizes_by_name(lists):
    return {name: len(values) for name, values in lists.items()}
""",
        tests=(
            (({"a": [1, 2], "b": []},), {"a": 2, "b": 0}),
            (({},), {}),
            (({"x": [0]},), {"x": 1}),
            (({1: [1], 2: [1, 2], 3: [1, 2, 3]},), {1: 1, 2: 2, 3: 3}),
            (({"p": [[], []]},), {"p": 2}),
            (({"q": ["a", "a", "a", "a"]},), {"q": 4}),
        ),
    ),
    ladder_task(
        "with_entry",
        family="dict changes",
        level=2,
        prompt=(
            "Write a function `with_entry(mapping, key, value)` that returns a new dictionary with all "
            "entries of `mapping` in which `key` has the value `value`, whether or not the key was there "
            "before."
        ),
        reference="def with_entry(mapping, key, value):\n    return {**mapping, key: value}",
        tests=(
            (({"a": 1}, "b", 2), {"a": 1, "b": 2}),
            (({"a": 1}, "a", 2), {"a": 2}),
            (({}, "x", 0), {"x": 0}),
            (({1: "x"}, 2, "y"), {1: "x", 2: "y"}),
            (({"k": None}, "k", None), {"k": None}),
            (({"p": 1, "q": 2}, "q", -2), {"p": 1, "q": -2}),
        ),
    ),
    ladder_task(
        "without_key",
        family="dict changes",
        level=2,
        prompt=(
            "Write a function `without_key(mapping, key)` that returns a copy of the dictionary without "
            "`key`. If the key is not there, the copy has all entries."
        ),
        reference="""def without_key(mapping, key):
    return {k: v for k, v in mapping.items() if k != key}
""",
        tests=(
            (({"a": 1, "b": 2}, "a"), {"b": 2}),
            (({"a": 1}, "b"), {"a": 1}),
            (({}, "x"), {}),
            (({1: "x"}, 1), {}),
            (({"p": 1, "q": 1}, "q"), {"p": 1}),
            (({0: 0, -1: -1}, -1), {0: 0}),
        ),
    ),
    ladder_task(
        "scale_values",
        family="dict changes",
        level=2,
        prompt=(
            "Write a function `scale_values(mapping, factor)` that returns a dictionary with the same keys "
            "in which every value is multiplied by `factor`."
        ),
        reference="""def scale_values(mapping, factor):
    return {key: value * factor for key, value in mapping.items()}
""",
        tests=(
            (({"a": 1, "b": 2}, 3), {"a": 3, "b": 6}),
            (({}, 2), {}),
            (({"x": 5}, 0), {"x": 0}),
            (({1: -1}, -1), {1: 1}),
            (({"p": 7, "q": 7}, 1), {"p": 7, "q": 7}),
            (({"z": 1_000_000}, 10), {"z": 10_000_000}),
        ),
    ),
    ladder_task(
        "keep_large_values",
        family="dict changes",
        level=2,
        prompt=(
            "Write a function `keep_large_values(mapping, minimum)` that returns a dictionary with only "
            "those entries whose value is at least `minimum`."
        ),
        reference="""def keep_large_values(mapping, minimum):
    return {key: value for key, value in mapping.items() if value >= minimum}
""",
        tests=(
            (({"a": 1, "b": 2}, 2), {"b": 2}),
            (({}, 2), {}),
            (({"x": 5}, 9), {}),
            (({1: -1, 2: -3}, -2), {1: -1}),
            (({"p": 7, "q": 7}, 7), {"p": 7, "q": 7}),
            (({"z": 1_000_000, "y": 1}, 10), {"z": 1_000_000}),
        ),
    ),
    ladder_task(
        "pick_keys",
        family="dict changes",
        level=2,
        prompt=(
            "Write a function `pick_keys(mapping, keys)` that returns a dictionary with those entries of "
            "`mapping` whose key is in the list `keys`. Keys that `mapping` does not have are ignored."
        ),
        reference="""def pick_keys(mapping, keys):
    return {key: mapping[key] for key in keys if key in mapping}
""",
        tests=(
            (({"a": 1, "b": 2}, ["a"]), {"a": 1}),
            (({"a": 1}, []), {}),
            (({}, ["x"]), {}),
            (({1: 1, 2: 4, 3: 9}, [3, 1]), {3: 9, 1: 1}),
            (({"p": 0}, ["p", "q"]), {"p": 0}),
            (({"x": -1, "y": -2}, ["y", "x"]), {"y": -2, "x": -1}),
        ),
    ),
)
