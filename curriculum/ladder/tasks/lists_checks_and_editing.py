"""Lists changed and checked: all-or-any checks, edited copies, rotations."""

family, level = "all any checks", 1

def are_all_true(flags):
    """Write a function `are_all_true(flags)` that returns True if every boolean in the list is True. An empty
    list gives True."""
    return all(flags)
assert are_all_true([True, True]) == True and are_all_true([True, False]) == False
assert are_all_true([]) == True and are_all_true([False]) == False and are_all_true([True]) == True
assert are_all_true([False, False, True]) == False

def is_any_true(flags):
    """Write a function `is_any_true(flags)` that returns True if at least one boolean in the list is True. An
    empty list gives False."""
    return any(flags)
assert is_any_true([True, True]) == True and is_any_true([True, False]) == True and is_any_true([]) == False
assert is_any_true([False]) == False and is_any_true([True]) == True
assert is_any_true([False, False, False]) == False

family, level = "all any checks", 2

def are_all_positive(numbers):
    """Write a function `are_all_positive(numbers)` that returns True if every number in the list is greater
    than 0, else False. An empty list gives True."""
    return all(n > 0 for n in numbers)
assert are_all_positive([1, 2, 3]) == True and are_all_positive([]) == True and are_all_positive([0]) == False
assert are_all_positive([1, -1]) == False and are_all_positive([1_000_000]) == True
assert are_all_positive([5, 5, 0]) == False

def is_any_negative(numbers):
    """Write a function `is_any_negative(numbers)` that returns True if the list contains a number below 0,
    else False."""
    return any(n < 0 for n in numbers)
assert is_any_negative([1, 2, 3]) == False and is_any_negative([]) == False and is_any_negative([0]) == False
assert is_any_negative([1, -1]) == True and is_any_negative([-1_000_000]) == True
assert is_any_negative([5, 5, 0]) == False

def are_all_equal(items):
    """Write a function `are_all_equal(items)` that returns True if all elements of the list are equal to each
    other. Lists with no or one element give True."""
    return all(item == items[0] for item in items)
assert are_all_equal([1, 1, 1]) == True and are_all_equal([1, 2]) == False and are_all_equal([]) == True
assert are_all_equal([7]) == True and are_all_equal(["a", "a"]) == True
assert are_all_equal([0, 0, 0, 1]) == False

def do_all_divide_by(numbers, divisor):
    """Write a function `do_all_divide_by(numbers, divisor)` that tells whether every integer of the list can
    be divided by the non-zero `divisor` without remainder. An empty list gives True."""
    return all(n % divisor == 0 for n in numbers)
assert do_all_divide_by([2, 4], 2) == True and do_all_divide_by([2, 5], 2) == False
assert do_all_divide_by([], 3) == True and do_all_divide_by([0], 7) == True
assert do_all_divide_by([-9, 9], 3) == True and do_all_divide_by([1_000_000, 1], 10) == False

family, level = "list editing", 2

def insert_at(items, index, value):
    """Write a function `insert_at(items, index, value)` that returns a new list with `value` inserted so that
    it stands at `index`. The index is between 0 and the length of the list."""
    return items[:index] + [value] + items[index:]
assert insert_at([1, 2, 3], 1, 9) == [1, 9, 2, 3] and insert_at([], 0, 5) == [5]
assert insert_at([1], 1, 2) == [1, 2] and insert_at([1], 0, 2) == [2, 1]
assert insert_at(["a", "c"], 1, "b") == ["a", "b", "c"] and insert_at([0, 0], 2, -1) == [0, 0, -1]

def remove_at(items, index):
    """Write a function `remove_at(items, index)` that returns a new list without the element at `index`. The
    index is valid and not negative."""
    return items[:index] + items[index + 1 :]
assert remove_at([1, 2, 3], 1) == [1, 3] and remove_at([5], 0) == [] and remove_at([1, 2], 1) == [1]
assert remove_at(["a", "b", "c"], 0) == ["b", "c"] and remove_at([0, 0, 0], 2) == [0, 0]
assert remove_at([-1, -2, -3, -4], 2) == [-1, -2, -4]

def change_at(items, index, value):
    """Write a function `change_at(items, index, value)` that returns a copy of the list in which the element
    at the valid, non-negative `index` is replaced by `value`."""
    return items[:index] + [value] + items[index + 1 :]
assert change_at([1, 2, 3], 1, 9) == [1, 9, 3] and change_at([5], 0, 6) == [6]
assert change_at([1, 2], 1, 2) == [1, 2] and change_at(["a", "b", "c"], 0, "z") == ["z", "b", "c"]
assert change_at([0, 0, 0], 2, 1) == [0, 0, 1] and change_at([-1, -2], 0, 1_000_000) == [1_000_000, -2]

def swap_first_and_last(items):
    """Write a function `swap_first_and_last(items)` that returns a copy of the list with its first and last
    element exchanged. Lists with fewer than two elements come back unchanged."""
    return items[-1:] + items[1:-1] + items[:1] if len(items) > 1 else list(items)
assert swap_first_and_last([1, 2, 3]) == [3, 2, 1] and swap_first_and_last([1, 2]) == [2, 1]
assert swap_first_and_last([7]) == [7] and swap_first_and_last([]) == []
assert swap_first_and_last(["a", "b", "c", "d"]) == ["d", "b", "c", "a"]
assert swap_first_and_last([-1, 0, 0, -5]) == [-5, 0, 0, -1]

def swap_values(items, old, new):
    """Write a function `swap_values(items, old, new)` that returns a new list in which each element equal to
    `old` has been replaced by `new`."""
    return [new if item == old else item for item in items]
assert swap_values([1, 2, 1], 1, 9) == [9, 2, 9] and swap_values([], 1, 2) == []
assert swap_values([5], 4, 0) == [5] and swap_values(["a", "b"], "b", "a") == ["a", "a"]
assert swap_values([0, 0], 0, -1) == [-1, -1] and swap_values([1, 2, 3], 3, 3) == [1, 2, 3]

family, level = "rotations", 2

def first_to_end(items):
    """Write a function `first_to_end(items)` that moves the first element of the list to the end and returns
    the new list. An empty list gives an empty list."""
    return items[1:] + items[:1]
assert first_to_end([1, 2, 3]) == [2, 3, 1] and first_to_end([]) == [] and first_to_end([7]) == [7]
assert first_to_end(["a", "b"]) == ["b", "a"] and first_to_end([5, 5, 6]) == [5, 6, 5]
assert first_to_end([-1, 0, 1, 2]) == [0, 1, 2, -1]

def end_to_front(items):
    """Write a function `end_to_front(items)` that returns a new list in which the last element has been moved
    to the front. An empty list gives an empty list."""
    return items[-1:] + items[:-1]
assert end_to_front([1, 2, 3]) == [3, 1, 2] and end_to_front([]) == [] and end_to_front([7]) == [7]
assert end_to_front(["a", "b"]) == ["b", "a"] and end_to_front([5, 5, 6]) == [6, 5, 5]
assert end_to_front([-1, 0, 1, 2]) == [2, -1, 0, 1]

family, level = "rotations", 3

def turn_left(items, steps):
    """Write a function `turn_left(items, steps)` that rotates the list to the left by `steps` places and
    returns the new list: elements that leave at the front come back at the end. `steps` is 0 or more and may
    be larger than the length of the list."""
    if not items:
        return []
    k = steps % len(items)
    return items[k:] + items[:k]
assert turn_left([1, 2, 3], 1) == [2, 3, 1] and turn_left([1, 2, 3], 0) == [1, 2, 3]
assert turn_left([], 4) == [] and turn_left([7], 9) == [7] and turn_left([1, 2, 3, 4], 6) == [3, 4, 1, 2]
assert turn_left(["a", "b", "c"], 3) == ["a", "b", "c"]

def every_turn(items):
    """Write a function `every_turn(items)` that returns the list of all rotations of `items`: the list
    itself, then the list rotated left by one place, by two places, and so on. An empty list gives an empty
    list."""
    return [items[i:] + items[:i] for i in range(len(items))]
assert every_turn([1, 2, 3]) == [[1, 2, 3], [2, 3, 1], [3, 1, 2]] and every_turn([]) == []
assert every_turn([7]) == [[7]] and every_turn(["a", "b"]) == [["a", "b"], ["b", "a"]]
assert every_turn([5, 5]) == [[5, 5], [5, 5]]
assert every_turn([-1, 0, 1, 0]) == [[-1, 0, 1, 0], [0, 1, 0, -1], [1, 0, -1, 0], [0, -1, 0, 1]]

def is_turned_version(left, right):
    """Write a function `is_turned_version(left, right)` that returns True if the list `right` can be made
    from the list `left` by rotating it any number of places (also zero), else False."""
    return left == right or any(left[i:] + left[:i] == right for i in range(len(left)))
assert is_turned_version([1, 2, 3], [2, 3, 1]) == True and is_turned_version([1, 2, 3], [3, 2, 1]) == False
assert is_turned_version([], []) == True and is_turned_version([1], []) == False
assert is_turned_version([1, 1, 2], [1, 2, 1]) == True and is_turned_version([1, 2], [1, 2]) == True
