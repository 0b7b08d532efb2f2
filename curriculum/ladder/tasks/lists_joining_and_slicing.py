"""Parts of lists: joining, membership, slices."""

family, level = "list joining", 1

def join_two_lists(first, second):
    """Write a function `join_two_lists(first, second)` that returns one list with the elements of `first`
    followed by those of `second`."""
    return first + second
assert join_two_lists([1, 2], [3]) == [1, 2, 3] and join_two_lists([], []) == []
assert join_two_lists([], [5]) == [5] and join_two_lists([5], []) == [5]
assert join_two_lists(["a"], ["a", "b"]) == ["a", "a", "b"]
assert join_two_lists([-1, 0], [0, -1]) == [-1, 0, 0, -1]

def with_item_at_end(items, item):
    """Write a function `with_item_at_end(items, item)` that returns a new list: all elements of `items`, and
    then `item` at the end."""
    return items + [item]
assert with_item_at_end([1, 2], 3) == [1, 2, 3] and with_item_at_end([], 1) == [1]
assert with_item_at_end(["a"], "a") == ["a", "a"] and with_item_at_end([0, 0], 0) == [0, 0, 0]
assert with_item_at_end([-1], -2) == [-1, -2]
assert with_item_at_end([1, 2, 3, 4, 5], 1_000_000) == [1, 2, 3, 4, 5, 1_000_000]

def with_item_at_start(items, item):
    """Write a function `with_item_at_start(items, item)` that returns a new list that begins with `item` and
    continues with all elements of `items`."""
    return [item] + items
assert with_item_at_start([1, 2], 3) == [3, 1, 2] and with_item_at_start([], 1) == [1]
assert with_item_at_start(["a"], "b") == ["b", "a"] and with_item_at_start([0, 0], 0) == [0, 0, 0]
assert with_item_at_start([-1], -2) == [-2, -1]
assert with_item_at_start([1, 2, 3, 4, 5], 1_000_000) == [1_000_000, 1, 2, 3, 4, 5]

def repeat_list(items, times):
    """Write a function `repeat_list(items, times)` that returns the list repeated `times` times, one copy
    after another. When `times` is 0 the result is an empty list."""
    return items * times
assert repeat_list([1, 2], 2) == [1, 2, 1, 2] and repeat_list([1], 0) == [] and repeat_list([], 3) == []
assert repeat_list(["a", "b"], 1) == ["a", "b"] and repeat_list([0], 5) == [0, 0, 0, 0, 0]
assert repeat_list([-1, 1], 3) == [-1, 1, -1, 1, -1, 1]

def three_lists_in_one(a, b, c):
    """Write a function `three_lists_in_one(a, b, c)` that puts three lists together, in the order given, and
    returns the resulting list."""
    return a + b + c
assert three_lists_in_one([1], [2], [3]) == [1, 2, 3] and three_lists_in_one([], [], []) == []
assert three_lists_in_one([1, 2], [], [3]) == [1, 2, 3] and three_lists_in_one([], ["x"], []) == ["x"]
assert three_lists_in_one([0], [0], [0, 0]) == [0, 0, 0, 0]
assert three_lists_in_one([-1], [-2, -3], [-4]) == [-1, -2, -3, -4]

def doubled_up(items):
    """Define `doubled_up(items)`, which returns a list that contains all elements of `items` twice: the whole
    list and then the whole list again."""
    return items + items
assert doubled_up([1, 2]) == [1, 2, 1, 2] and doubled_up([]) == [] and doubled_up([7]) == [7, 7]
assert doubled_up(["a", "b", "c"]) == ["a", "b", "c", "a", "b", "c"] and doubled_up([0, 0]) == [0, 0, 0, 0]
assert doubled_up([-1, 1_000_000]) == [-1, 1_000_000, -1, 1_000_000]

family, level = "list membership", 1

def contains_item(items, item):
    """Write a function `contains_item(items, item)` that returns True if `item` is in the list and False if
    it is not."""
    return item in items
assert contains_item([1, 2, 3], 2) == True and contains_item([1, 2, 3], 4) == False
assert contains_item([], 1) == False and contains_item(["a", "b"], "b") == True
assert contains_item([-1], 1) == False and contains_item([5, 5, 5], 5) == True

def lacks_item(items, item):
    """Write a function `lacks_item(items, item)` that returns True when `item` does not occur in the list,
    otherwise False."""
    return item not in items
assert lacks_item([1, 2, 3], 2) == False and lacks_item([1, 2, 3], 4) == True and lacks_item([], 1) == True
assert lacks_item(["a", "b"], "b") == False and lacks_item([-1], 1) == True
assert lacks_item([5, 5, 5], 5) == False

def has_zero(numbers):
    """Write a function `has_zero(numbers)` that returns True if the list of numbers contains 0, else
    False."""
    return 0 in numbers
assert has_zero([0]) == True and has_zero([]) == False and has_zero([1, 2, 3]) == False
assert has_zero([1, 0, 2]) == True and has_zero([-1, 10, 100]) == False and has_zero([0, 0, 0]) == True

def contains_both(items, a, b):
    """Write `contains_both(items, a, b)` so that it returns True only if `a` and `b` are both elements of the
    list `items`."""
    return a in items and b in items
assert contains_both([1, 2, 3], 1, 3) == True and contains_both([1, 2, 3], 1, 4) == False
assert contains_both([1, 2, 3], 4, 1) == False and contains_both([], 0, 0) == False
assert contains_both([5], 5, 5) == True and contains_both(["a", "b"], "c", "d") == False

def contains_either(items, a, b):
    """Write `contains_either(items, a, b)` so that it returns True if at least one of `a` and `b` is an
    element of the list `items`, and False otherwise."""
    return a in items or b in items
assert contains_either([1, 2, 3], 1, 3) == True and contains_either([1, 2, 3], 1, 4) == True
assert contains_either([1, 2, 3], 4, 1) == True and contains_either([], 0, 0) == False
assert contains_either([5], 6, 7) == False and contains_either(["a", "b"], "c", "b") == True

family, level = "list membership", 2

def yes_or_no(items, item):
    """Write a function `yes_or_no(items, item)` that returns the string "yes" if the list contains `item` and
    the string "no" if it does not."""
    return "yes" if item in items else "no"
assert yes_or_no([1, 2, 3], 2) == "yes" and yes_or_no([1, 2, 3], 4) == "no" and yes_or_no([], 1) == "no"
assert yes_or_no(["a", "b"], "b") == "yes" and yes_or_no([-1], 1) == "no" and yes_or_no([5, 5, 5], 5) == "yes"

family, level = "list slicing", 1

def first_three(items):
    """Write a function `first_three(items)` that returns a list of the first three elements. A shorter list
    is returned whole."""
    return items[:3]
assert first_three([1, 2, 3, 4]) == [1, 2, 3] and first_three([1, 2, 3]) == [1, 2, 3]
assert first_three([1]) == [1] and first_three([]) == []
assert first_three(["a", "b", "c", "d", "e"]) == ["a", "b", "c"] and first_three([0, 0, -1, -1]) == [0, 0, -1]

def all_but_first(items):
    """Write a function `all_but_first(items)` that returns a list without its first element. For an empty
    list return an empty list."""
    return items[1:]
assert all_but_first([1, 2, 3]) == [2, 3] and all_but_first([7]) == [] and all_but_first([]) == []
assert all_but_first(["a", "b"]) == ["b"] and all_but_first([5, 5, 5]) == [5, 5]
assert all_but_first([-1, 0, 1, 1_000_000]) == [0, 1, 1_000_000]

def all_but_last(items):
    """Write a function `all_but_last(items)` that returns a list without its last element. For an empty list
    return an empty list."""
    return items[:-1]
assert all_but_last([1, 2, 3]) == [1, 2] and all_but_last([7]) == [] and all_but_last([]) == []
assert all_but_last(["a", "b"]) == ["a"] and all_but_last([5, 5, 5]) == [5, 5]
assert all_but_last([1_000_000, 0, 1]) == [1_000_000, 0]

def take_from_front(items, n):
    """Write a function `take_from_front(items, n)` that returns the first `n` elements of the list as a new
    list. If the list is shorter than `n`, return all of it."""
    return items[:n]
assert take_from_front([1, 2, 3], 2) == [1, 2] and take_from_front([1, 2, 3], 0) == []
assert take_from_front([1, 2], 5) == [1, 2] and take_from_front([], 3) == []
assert take_from_front(["a", "b", "c"], 1) == ["a"] and take_from_front([-1, -1, 4], 3) == [-1, -1, 4]

def skip_front(items, n):
    """Write a function `skip_front(items, n)` that leaves out the first `n` elements of the list and returns
    the rest as a list."""
    return items[n:]
assert skip_front([1, 2, 3], 2) == [3] and skip_front([1, 2, 3], 0) == [1, 2, 3]
assert skip_front([1, 2], 5) == [] and skip_front([], 3) == []
assert skip_front(["a", "b", "c"], 1) == ["b", "c"] and skip_front([-1, -1, 4], 3) == []

def inner_items(items):
    """Given a list, `inner_items(items)` returns a list of everything between its first and its last element.
    A list with fewer than three elements gives an empty list."""
    return items[1:-1]
assert inner_items([1, 2, 3]) == [2] and inner_items([1, 2, 3, 4, 5]) == [2, 3, 4]
assert inner_items([1, 2]) == [] and inner_items([1]) == [] and inner_items([]) == []
assert inner_items(["a", "b", "b", "a"]) == ["b", "b"]

family, level = "every other", 1

def even_index_items(items):
    """Write a function `even_index_items(items)` that returns a list of the elements at the indexes 0, 2, 4
    and so on."""
    return items[::2]
assert even_index_items([1, 2, 3, 4]) == [1, 3] and even_index_items([1, 2, 3]) == [1, 3]
assert even_index_items([7]) == [7] and even_index_items([]) == []
assert even_index_items(["a", "b", "c", "d", "e"]) == ["a", "c", "e"]
assert even_index_items([0, -1, 0, -1]) == [0, 0]

def odd_index_items(items):
    """Write a function `odd_index_items(items)` that returns a list of the elements at the indexes 1, 3, 5
    and so on."""
    return items[1::2]
assert odd_index_items([1, 2, 3, 4]) == [2, 4] and odd_index_items([1, 2, 3]) == [2]
assert odd_index_items([7]) == [] and odd_index_items([]) == []
assert odd_index_items(["a", "b", "c", "d", "e"]) == ["b", "d"]
assert odd_index_items([0, -1, 0, -1]) == [-1, -1]

def every_nth(items, n):
    """Write a function `every_nth(items, n)` that returns every `n`-th element of the list, starting with the
    first. `n` is at least 1."""
    return items[::n]
assert every_nth([1, 2, 3, 4, 5, 6, 7], 3) == [1, 4, 7] and every_nth([1, 2, 3], 1) == [1, 2, 3]
assert every_nth([1, 2, 3], 10) == [1] and every_nth([], 2) == []
assert every_nth(["a", "b", "c", "d"], 2) == ["a", "c"] and every_nth([-5, 0, -5, 0, 5], 4) == [-5, 5]

def sum_of_even_indexes(numbers):
    """Write a function `sum_of_even_indexes(numbers)` that adds up the numbers standing at even indexes (0,
    2, 4, ...) and returns the sum. An empty list gives 0."""
    return sum(numbers[::2])
assert sum_of_even_indexes([1, 2, 3, 4]) == 4 and sum_of_even_indexes([5]) == 5
assert sum_of_even_indexes([]) == 0 and sum_of_even_indexes([-1, 10, -1]) == -2
assert sum_of_even_indexes([0, 100, 0, 100]) == 0
assert sum_of_even_indexes([1_000_000, 1, 1_000_000]) == 2_000_000

family, level = "every other", 2

def split_by_index_parity(items):
    """Return from `split_by_index_parity(items)` a list of two lists: the elements with even indexes, then
    the elements with odd indexes."""
    return [items[::2], items[1::2]]
assert split_by_index_parity([1, 2, 3, 4]) == [[1, 3], [2, 4]]
assert split_by_index_parity([1, 2, 3]) == [[1, 3], [2]] and split_by_index_parity([7]) == [[7], []]
assert split_by_index_parity([]) == [[], []]
assert split_by_index_parity(["a", "b", "c", "d", "e"]) == [["a", "c", "e"], ["b", "d"]]
assert split_by_index_parity([0, 0, -1, 1]) == [[0, -1], [0, 1]]
