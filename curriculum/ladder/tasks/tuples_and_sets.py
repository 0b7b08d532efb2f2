"""Tuples and sets: parts of tuples, lists of tuples, set operations and relations."""

family, level = "tuple parts", 1

def first_of_pair(pair):
    """Write a function `first_of_pair(pair)` that returns the first element of a tuple with two elements."""
    return pair[0]
assert first_of_pair(("a", 1)) == "a" and first_of_pair((3, 4)) == 3 and first_of_pair((0, 0)) == 0
assert first_of_pair((-1, 1)) == -1 and first_of_pair((None, "x")) == None
assert first_of_pair((1_000_000, 2)) == 1_000_000

def flip_pair(pair):
    """Write a function `flip_pair(pair)` that takes a tuple of two elements and returns a tuple with the two
    in the opposite order."""
    return (pair[1], pair[0])
assert flip_pair(("a", 1)) == (1, "a") and flip_pair((3, 4)) == (4, 3) and flip_pair((0, 0)) == (0, 0)
assert flip_pair((-1, 1)) == (1, -1) and flip_pair((None, "x")) == ("x", None)
assert flip_pair((1_000_000, 2)) == (2, 1_000_000)

def pair_total(pair):
    """Write a function `pair_total(pair)` that returns the sum of the two numbers in the tuple `pair`."""
    return pair[0] + pair[1]
assert pair_total((1, 2)) == 3 and pair_total((0, 0)) == 0 and pair_total((-1, 1)) == 0
assert pair_total((-5, -6)) == -11 and pair_total((7, 7)) == 14
assert pair_total((1_000_000, 1_000_000)) == 2_000_000

def as_tuple(items):
    """Write a function `as_tuple(items)` that returns a tuple with the same elements as the given list."""
    return tuple(items)
assert as_tuple([1, 2, 3]) == (1, 2, 3) and as_tuple([]) == () and as_tuple([7]) == (7,)
assert as_tuple(["a", "b"]) == ("a", "b") and as_tuple([0, 0]) == (0, 0)
assert as_tuple([-1, 1_000_000]) == (-1, 1_000_000)

def make_pair(first, second):
    """Write a function `make_pair(first, second)` that returns a tuple made of `first` and `second`, in that
    order."""
    return (first, second)
assert make_pair(1, 2) == (1, 2) and make_pair("a", "b") == ("a", "b") and make_pair(0, 0) == (0, 0)
assert make_pair(None, 5) == (None, 5) and make_pair(-1, "x") == (-1, "x")
assert make_pair([1], [2]) == ([1], [2])

def tuple_length(values):
    """Write a function `tuple_length(values)` that returns how many elements the tuple `values` has."""
    return len(values)
assert tuple_length(()) == 0 and tuple_length((1,)) == 1 and tuple_length((1, 2)) == 2
assert tuple_length(("a", "a", "a")) == 3 and tuple_length((None, None)) == 2
assert tuple_length(((1, 2), (3, 4), (5, 6), (7, 8))) == 4

family, level = "set operations", 1

def as_set(items):
    """Write a function `as_set(items)` that returns a set of all the elements of a list."""
    return set(items)
assert as_set([1, 2, 3]) == {1, 2, 3} and as_set([]) == set() and as_set([7]) == {7}
assert as_set(["a", "b", "a"]) == {"a", "b"} and as_set([0, 0, 0]) == {0}
assert as_set([-1, 1_000_000, -1]) == {-1, 1_000_000}

def either_set(left, right):
    """Write a function `either_set(left, right)` that returns the union of two sets."""
    return left | right
assert either_set({1, 2}, {2, 3}) == {1, 2, 3} and either_set(set(), set()) == set()
assert either_set({1}, set()) == {1} and either_set(set(), {"a"}) == {"a"} and either_set({5}, {5}) == {5}
assert either_set({-1, 0}, {1, 1_000_000}) == {-1, 0, 1, 1_000_000}

def both_sets(left, right):
    """Write a function `both_sets(left, right)` that returns the set of elements that two sets have in
    common."""
    return left & right
assert both_sets({1, 2}, {2, 3}) == {2} and both_sets(set(), set()) == set()
assert both_sets({1}, set()) == set() and both_sets({"a", "b"}, {"c"}) == set() and both_sets({5}, {5}) == {5}
assert both_sets({-1, 0, 7}, {-1, 7, 1_000_000}) == {-1, 7}

def only_in_left(left, right):
    """Write a function `only_in_left(left, right)` that returns the set of the elements that are in `left`
    but not in `right`."""
    return left - right
assert only_in_left({1, 2}, {2, 3}) == {1} and only_in_left(set(), set()) == set()
assert only_in_left({1}, set()) == {1} and only_in_left(set(), {"a"}) == set()
assert only_in_left({5}, {5}) == set() and only_in_left({-1, 0, 7}, {7, 1_000_000}) == {-1, 0}

def in_exactly_one(left, right):
    """Write a function `in_exactly_one(left, right)` that returns the set of elements that belong to exactly
    one of the two sets."""
    return left ^ right
assert in_exactly_one({1, 2}, {2, 3}) == {1, 3} and in_exactly_one(set(), set()) == set()
assert in_exactly_one({1}, set()) == {1} and in_exactly_one(set(), {"a"}) == {"a"}
assert in_exactly_one({5}, {5}) == set() and in_exactly_one({-1, 0, 7}, {7, 1_000_000}) == {-1, 0, 1_000_000}

def set_plus(values, item):
    """Write a function `set_plus(values, item)` that returns a new set with all elements of `values` and also
    `item`."""
    return values | {item}
assert set_plus({1, 2}, 3) == {1, 2, 3} and set_plus(set(), 0) == {0} and set_plus({1}, 1) == {1}
assert set_plus({"a"}, "b") == {"a", "b"} and set_plus({-2, -1}, -3) == {-3, -2, -1}
assert set_plus({5, 6, 7}, 1_000_000) == {5, 6, 7, 1_000_000}

family, level = "set relations", 1

def is_part_of(small, large):
    """Write a function `is_part_of(small, large)` that returns True if every element of the set `small` is
    also in the set `large`, and False otherwise."""
    return small <= large
assert is_part_of({1}, {1, 2}) == True and is_part_of({1, 2}, {1}) == False
assert is_part_of(set(), set()) == True and is_part_of(set(), {1}) == True and is_part_of({3}, {4}) == False
assert is_part_of({"a", "b"}, {"a", "b"}) == True

def share_nothing(left, right):
    """Write a function `share_nothing(left, right)` that returns True if the two sets have no element in
    common, otherwise False."""
    return left.isdisjoint(right)
assert share_nothing({1}, {2}) == True and share_nothing({1, 2}, {2}) == False
assert share_nothing(set(), set()) == True and share_nothing(set(), {1}) == True
assert share_nothing({"a"}, {"a"}) == False and share_nothing({-1, 0}, {1, 1_000_000}) == True

family, level = "set relations", 2

def same_elements(left, right):
    """Write a function `same_elements(left, right)` that returns True if each of two lists contains all
    values of the other, and False otherwise. Order does not matter, nor how often a value occurs."""
    return set(left) == set(right)
assert same_elements([1, 2], [2, 1]) == True and same_elements([1, 1], [1]) == True
assert same_elements([], []) == True and same_elements([], [1]) == False
assert same_elements([1, 2, 3], [1, 2]) == False and same_elements(["a", "b"], ["b", "a", "b"]) == True

family, level = "set relations", 1

def has_no_repeats(items):
    """Write a function `has_no_repeats(items)` that returns True if no value occurs more than once in the
    list, else False."""
    return len(set(items)) == len(items)
assert has_no_repeats([1, 2, 3]) == True and has_no_repeats([1, 2, 1]) == False and has_no_repeats([]) == True
assert has_no_repeats([7]) == True and has_no_repeats(["a", "a"]) == False
assert has_no_repeats([-1, 1, 1_000_000, 0]) == True

def how_many_different(items):
    """Write a function `how_many_different(items)` that returns how many different values there are in a
    list."""
    return len(set(items))
assert how_many_different([1, 2, 1]) == 2 and how_many_different([]) == 0 and how_many_different([7]) == 1
assert how_many_different(["a", "b", "c"]) == 3 and how_many_different([0, 0, 0]) == 1
assert how_many_different([-1, 1, -1, 1_000_000]) == 3

family, level = "set relations", 2

def how_many_shared(left, right):
    """Write a function `how_many_shared(left, right)` that returns how many different values occur in both of
    the two lists."""
    return len(set(left) & set(right))
assert how_many_shared([1, 2, 2], [2, 2, 3]) == 1 and how_many_shared([], []) == 0
assert how_many_shared([1], [1]) == 1 and how_many_shared(["a"], ["b"]) == 0
assert how_many_shared([1, 2, 3], [3, 2, 1]) == 3 and how_many_shared([-1, 0], [0, 0, 1]) == 1

family, level = "tuple lists", 2

def first_parts(pairs):
    """Write a function `first_parts(pairs)` that takes a list of tuples and returns the list of their first
    elements."""
    return [pair[0] for pair in pairs]
assert first_parts([(1, 2), (3, 4)]) == [1, 3] and first_parts([]) == [] and first_parts([("a", 1)]) == ["a"]
assert first_parts([(0, 0), (0, 1)]) == [0, 0] and first_parts([(-1, -2), (-3, -4), (-5, -6)]) == [-1, -3, -5]
assert first_parts([(None, 1), ("x", 2)]) == [None, "x"]

def sums_of_pairs(pairs):
    """Write a function `sums_of_pairs(pairs)` that takes a list of tuples with two numbers each and returns
    the list of the sums of these tuples."""
    return [a + b for a, b in pairs]
assert sums_of_pairs([(1, 2), (3, 4)]) == [3, 7] and sums_of_pairs([]) == []
assert sums_of_pairs([(5, -5)]) == [0] and sums_of_pairs([(0, 0), (0, 1)]) == [0, 1]
assert sums_of_pairs([(-1, -2), (-3, -4)]) == [-3, -7] and sums_of_pairs([(1_000_000, 1)]) == [1_000_001]

def flip_all_pairs(pairs):
    """Write a function `flip_all_pairs(pairs)` that swaps the two elements in each tuple of a list and
    returns the list of swapped tuples."""
    return [(b, a) for a, b in pairs]
assert flip_all_pairs([(1, 2), (3, 4)]) == [(2, 1), (4, 3)] and flip_all_pairs([]) == []
assert flip_all_pairs([("a", 1)]) == [(1, "a")] and flip_all_pairs([(0, 0)]) == [(0, 0)]
assert flip_all_pairs([(-1, -2), (-3, -4), (5, 6)]) == [(-2, -1), (-4, -3), (6, 5)]
assert flip_all_pairs([(None, "x"), ("x", None)]) == [("x", None), (None, "x")]

def total_price(lines):
    """Each element of the list `lines` is a tuple (price, quantity). Write `total_price(lines)` to return the
    sum of price times quantity over all lines, 0 for an empty list."""
    return sum(price * quantity for price, quantity in lines)
assert total_price([(2, 3), (1, 4)]) == 10 and total_price([]) == 0 and total_price([(5, 0)]) == 0
assert total_price([(7, 1), (7, 1)]) == 14 and total_price([(100, 10), (1, 1), (0, 9)]) == 1001
assert total_price([(1_000_000, 2)]) == 2_000_000

def rising_pairs(pairs):
    """Write a function `rising_pairs(pairs)` that keeps only the tuples (a, b) of a list for which a is less
    than b, and returns them as a list in the same order."""
    return [(a, b) for a, b in pairs if a < b]
assert rising_pairs([(1, 2), (4, 3)]) == [(1, 2)] and rising_pairs([]) == [] and rising_pairs([(5, 5)]) == []
assert rising_pairs([(0, 1), (0, 1)]) == [(0, 1), (0, 1)] and rising_pairs([(-1, -2), (-2, -1)]) == [(-2, -1)]
assert rising_pairs([(1_000_000, 1), (1, 1_000_000)]) == [(1, 1_000_000)]
