"""Tuples and sets: parts of tuples, lists of tuples, set operations and relations."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "first_of_pair",
        family="tuple parts",
        level=1,
        prompt=(
            "Write a function `first_of_pair(pair)` that returns the first element of a tuple with two "
            "elements."
        ),
        reference="def first_of_pair(pair):\n    return pair[0]",
        tests=(
            ((("a", 1),), "a"),
            (((3, 4),), 3),
            (((0, 0),), 0),
            (((-1, 1),), -1),
            (((None, "x"),), None),
            (((1_000_000, 2),), 1_000_000),
        ),
    ),
    ladder_task(
        "flip_pair",
        family="tuple parts",
        level=1,
        prompt=(
            "Write a function `flip_pair(pair)` that takes a tuple of two elements and returns a tuple with "
            "the two in the opposite order."
        ),
        reference="def flip_pair(pair):\n    return (pair[1], pair[0])",
        tests=(
            ((("a", 1),), (1, "a")),
            (((3, 4),), (4, 3)),
            (((0, 0),), (0, 0)),
            (((-1, 1),), (1, -1)),
            (((None, "x"),), ("x", None)),
            (((1_000_000, 2),), (2, 1_000_000)),
        ),
    ),
    ladder_task(
        "pair_total",
        family="tuple parts",
        level=1,
        prompt=(
            "Write a function `pair_total(pair)` that returns the sum of the two numbers in the tuple `pair`."
        ),
        reference="def pair_total(pair):\n    return pair[0] + pair[1]",
        tests=(
            (((1, 2),), 3),
            (((0, 0),), 0),
            (((-1, 1),), 0),
            (((-5, -6),), -11),
            (((7, 7),), 14),
            (((1_000_000, 1_000_000),), 2_000_000),
        ),
    ),
    ladder_task(
        "as_tuple",
        family="tuple parts",
        level=1,
        prompt=(
            "Write a function `as_tuple(items)` that returns a tuple with the same elements as the given "
            "list."
        ),
        reference="def as_tuple(items):\n    return tuple(items)",
        tests=(
            (([1, 2, 3],), (1, 2, 3)),
            (([],), ()),
            (([7],), (7,)),
            ((["a", "b"],), ("a", "b")),
            (([0, 0],), (0, 0)),
            (([-1, 1_000_000],), (-1, 1_000_000)),
        ),
    ),
    ladder_task(
        "make_pair",
        family="tuple parts",
        level=1,
        prompt=(
            "Write a function `make_pair(first, second)` that returns a tuple made of `first` and `second`, "
            "in that order."
        ),
        reference="def make_pair(first, second):\n    return (first, second)",
        tests=(
            ((1, 2), (1, 2)),
            (("a", "b"), ("a", "b")),
            ((0, 0), (0, 0)),
            ((None, 5), (None, 5)),
            ((-1, "x"), (-1, "x")),
            (([1], [2]), ([1], [2])),
        ),
    ),
    ladder_task(
        "tuple_length",
        family="tuple parts",
        level=1,
        prompt=(
            "Write a function `tuple_length(values)` that returns how many elements the tuple `values` has."
        ),
        reference="def tuple_length(values):\n    return len(values)",
        tests=(
            (((),), 0),
            (((1,),), 1),
            (((1, 2),), 2),
            ((("a", "a", "a"),), 3),
            (((None, None),), 2),
            ((((1, 2), (3, 4), (5, 6), (7, 8)),), 4),
        ),
    ),
    ladder_task(
        "as_set",
        family="set operations",
        level=1,
        prompt="Write a function `as_set(items)` that returns a set of all the elements of a list.",
        reference="def as_set(items):\n    return set(items)",
        tests=(
            (([1, 2, 3],), {1, 2, 3}),
            (([],), set()),
            (([7],), {7}),
            ((["a", "b", "a"],), {"a", "b"}),
            (([0, 0, 0],), {0}),
            (([-1, 1_000_000, -1],), {-1, 1_000_000}),
        ),
    ),
    ladder_task(
        "either_set",
        family="set operations",
        level=1,
        prompt="Write a function `either_set(left, right)` that returns the union of two sets.",
        reference="def either_set(left, right):\n    return left | right",
        tests=(
            (({1, 2}, {2, 3}), {1, 2, 3}),
            ((set(), set()), set()),
            (({1}, set()), {1}),
            ((set(), {"a"}), {"a"}),
            (({5}, {5}), {5}),
            (({-1, 0}, {1, 1_000_000}), {-1, 0, 1, 1_000_000}),
        ),
    ),
    ladder_task(
        "both_sets",
        family="set operations",
        level=1,
        prompt=(
            "Write a function `both_sets(left, right)` that returns the set of elements that two sets have "
            "in common."
        ),
        reference="def both_sets(left, right):\n    return left & right",
        tests=(
            (({1, 2}, {2, 3}), {2}),
            ((set(), set()), set()),
            (({1}, set()), set()),
            (({"a", "b"}, {"c"}), set()),
            (({5}, {5}), {5}),
            (({-1, 0, 7}, {-1, 7, 1_000_000}), {-1, 7}),
        ),
    ),
    ladder_task(
        "only_in_left",
        family="set operations",
        level=1,
        prompt=(
            "Write a function `only_in_left(left, right)` that returns the set of the elements that are in "
            "`left` but not in `right`."
        ),
        reference="def only_in_left(left, right):\n    return left - right",
        tests=(
            (({1, 2}, {2, 3}), {1}),
            ((set(), set()), set()),
            (({1}, set()), {1}),
            ((set(), {"a"}), set()),
            (({5}, {5}), set()),
            (({-1, 0, 7}, {7, 1_000_000}), {-1, 0}),
        ),
    ),
    ladder_task(
        "in_exactly_one",
        family="set operations",
        level=1,
        prompt=(
            "Write a function `in_exactly_one(left, right)` that returns the set of elements that belong to "
            "exactly one of the two sets."
        ),
        reference="def in_exactly_one(left, right):\n    return left ^ right",
        tests=(
            (({1, 2}, {2, 3}), {1, 3}),
            ((set(), set()), set()),
            (({1}, set()), {1}),
            ((set(), {"a"}), {"a"}),
            (({5}, {5}), set()),
            (({-1, 0, 7}, {7, 1_000_000}), {-1, 0, 1_000_000}),
        ),
    ),
    ladder_task(
        "set_plus",
        family="set operations",
        level=1,
        prompt=(
            "Write a function `set_plus(values, item)` that returns a new set with all elements of `values` "
            "and also `item`."
        ),
        reference="def set_plus(values, item):\n    return values | {item}",
        tests=(
            (({1, 2}, 3), {1, 2, 3}),
            ((set(), 0), {0}),
            (({1}, 1), {1}),
            (({"a"}, "b"), {"a", "b"}),
            (({-2, -1}, -3), {-3, -2, -1}),
            (({5, 6, 7}, 1_000_000), {5, 6, 7, 1_000_000}),
        ),
    ),
    ladder_task(
        "is_part_of",
        family="set relations",
        level=1,
        prompt=(
            "Write a function `is_part_of(small, large)` that returns True if every element of the set "
            "`small` is also in the set `large`, and False otherwise."
        ),
        reference="def is_part_of(small, large):\n    return small <= large",
        tests=(
            (({1}, {1, 2}), True),
            (({1, 2}, {1}), False),
            ((set(), set()), True),
            ((set(), {1}), True),
            (({3}, {4}), False),
            (({"a", "b"}, {"a", "b"}), True),
        ),
    ),
    ladder_task(
        "share_nothing",
        family="set relations",
        level=1,
        prompt=(
            "Write a function `share_nothing(left, right)` that returns True if the two sets have no "
            "element in common, otherwise False."
        ),
        reference="def share_nothing(left, right):\n    return left.isdisjoint(right)",
        tests=(
            (({1}, {2}), True),
            (({1, 2}, {2}), False),
            ((set(), set()), True),
            ((set(), {1}), True),
            (({"a"}, {"a"}), False),
            (({-1, 0}, {1, 1_000_000}), True),
        ),
    ),
    ladder_task(
        "same_elements",
        family="set relations",
        level=2,
        prompt=(
            "Write a function `same_elements(left, right)` that returns True if each of two lists contains "
            "all values of the other, and False otherwise. Order does not matter, nor how often a value "
            "occurs."
        ),
        reference="def same_elements(left, right):\n    return set(left) == set(right)",
        tests=(
            (([1, 2], [2, 1]), True),
            (([1, 1], [1]), True),
            (([], []), True),
            (([], [1]), False),
            (([1, 2, 3], [1, 2]), False),
            ((["a", "b"], ["b", "a", "b"]), True),
        ),
    ),
    ladder_task(
        "has_no_repeats",
        family="set relations",
        level=1,
        prompt=(
            "Write a function `has_no_repeats(items)` that returns True if no value occurs more than once "
            "in the list, else False."
        ),
        reference="def has_no_repeats(items):\n    return len(set(items)) == len(items)",
        tests=(
            (([1, 2, 3],), True),
            (([1, 2, 1],), False),
            (([],), True),
            (([7],), True),
            ((["a", "a"],), False),
            (([-1, 1, 1_000_000, 0],), True),
        ),
    ),
    ladder_task(
        "how_many_different",
        family="set relations",
        level=1,
        prompt=(
            "Write a function `how_many_different(items)` that returns how many different values there are "
            "in a list."
        ),
        reference="def how_many_different(items):\n    return len(set(items))",
        tests=(
            (([1, 2, 1],), 2),
            (([],), 0),
            (([7],), 1),
            ((["a", "b", "c"],), 3),
            (([0, 0, 0],), 1),
            (([-1, 1, -1, 1_000_000],), 3),
        ),
    ),
    ladder_task(
        "how_many_shared",
        family="set relations",
        level=2,
        prompt=(
            "Write a function `how_many_shared(left, right)` that returns how many different values occur "
            "in both of the two lists."
        ),
        reference="def how_many_shared(left, right):\n    return len(set(left) & set(right))",
        tests=(
            (([1, 2, 2], [2, 2, 3]), 1),
            (([], []), 0),
            (([1], [1]), 1),
            ((["a"], ["b"]), 0),
            (([1, 2, 3], [3, 2, 1]), 3),
            (([-1, 0], [0, 0, 1]), 1),
        ),
    ),
    ladder_task(
        "first_parts",
        family="tuple lists",
        level=2,
        prompt=(
            "Write a function `first_parts(pairs)` that takes a list of tuples and returns the list of "
            "their first elements."
        ),
        reference="def first_parts(pairs):\n    return [pair[0] for pair in pairs]",
        tests=(
            (([(1, 2), (3, 4)],), [1, 3]),
            (([],), []),
            (([("a", 1)],), ["a"]),
            (([(0, 0), (0, 1)],), [0, 0]),
            (([(-1, -2), (-3, -4), (-5, -6)],), [-1, -3, -5]),
            (([(None, 1), ("x", 2)],), [None, "x"]),
        ),
    ),
    ladder_task(
        "sums_of_pairs",
        family="tuple lists",
        level=2,
        prompt=(
            "Write a function `sums_of_pairs(pairs)` that takes a list of tuples with two numbers each and "
            "returns the list of the sums of these tuples."
        ),
        reference="def sums_of_pairs(pairs):\n    return [a + b for a, b in pairs]",
        tests=(
            (([(1, 2), (3, 4)],), [3, 7]),
            (([],), []),
            (([(5, -5)],), [0]),
            (([(0, 0), (0, 1)],), [0, 1]),
            (([(-1, -2), (-3, -4)],), [-3, -7]),
            (([(1_000_000, 1)],), [1_000_001]),
        ),
    ),
    ladder_task(
        "flip_all_pairs",
        family="tuple lists",
        level=2,
        prompt=(
            "Write a function `flip_all_pairs(pairs)` that swaps the two elements in each tuple of a list "
            "and returns the list of swapped tuples."
        ),
        reference="def flip_all_pairs(pairs):\n    return [(b, a) for a, b in pairs]",
        tests=(
            (([(1, 2), (3, 4)],), [(2, 1), (4, 3)]),
            (([],), []),
            (([("a", 1)],), [(1, "a")]),
            (([(0, 0)],), [(0, 0)]),
            (([(-1, -2), (-3, -4), (5, 6)],), [(-2, -1), (-4, -3), (6, 5)]),
            (([(None, "x"), ("x", None)],), [("x", None), (None, "x")]),
        ),
    ),
    ladder_task(
        "total_price",
        family="tuple lists",
        level=2,
        prompt=(
            "Each element of the list `lines` is a tuple (price, quantity). Write `total_price(lines)` to "
            "return the sum of price times quantity over all lines, 0 for an empty list."
        ),
        reference="def total_price(lines):\n    return sum(price * quantity for price, quantity in lines)",
        tests=(
            (([(2, 3), (1, 4)],), 10),
            (([],), 0),
            (([(5, 0)],), 0),
            (([(7, 1), (7, 1)],), 14),
            (([(100, 10), (1, 1), (0, 9)],), 1001),
            (([(1_000_000, 2)],), 2_000_000),
        ),
    ),
    ladder_task(
        "rising_pairs",
        family="tuple lists",
        level=2,
        prompt=(
            "Write a function `rising_pairs(pairs)` that keeps only the tuples (a, b) of a list for which a "
            "is less than b, and returns them as a list in the same order."
        ),
        reference="def rising_pairs(pairs):\n    return [(a, b) for a, b in pairs if a < b]",
        tests=(
            (([(1, 2), (4, 3)],), [(1, 2)]),
            (([],), []),
            (([(5, 5)],), []),
            (([(0, 1), (0, 1)],), [(0, 1), (0, 1)]),
            (([(-1, -2), (-2, -1)],), [(-2, -1)]),
            (([(1_000_000, 1), (1, 1_000_000)],), [(1, 1_000_000)]),
        ),
    ),
)
