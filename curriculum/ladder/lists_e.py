"""Lists, fifth part: all-or-any checks, edited copies, rotations."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "are_all_true",
        family="all any checks",
        level=1,
        prompt=(
            "Write a function `are_all_true(flags)` that returns True if every boolean in the list is True. "
            "An empty list gives True."
        ),
        reference="def are_all_true(flags):\n    return all(flags)",
        tests=(
            (([True, True],), True),
            (([True, False],), False),
            (([],), True),
            (([False],), False),
            (([True],), True),
            (([False, False, True],), False),
        ),
    ),
    ladder_task(
        "is_any_true",
        family="all any checks",
        level=1,
        prompt=(
            "Write a function `is_any_true(flags)` that returns True if at least one boolean in the list is "
            "True. An empty list gives False."
        ),
        reference="def is_any_true(flags):\n    return any(flags)",
        tests=(
            (([True, True],), True),
            (([True, False],), True),
            (([],), False),
            (([False],), False),
            (([True],), True),
            (([False, False, False],), False),
        ),
    ),
    ladder_task(
        "are_all_positive",
        family="all any checks",
        level=2,
        prompt=(
            "Write a function `are_all_positive(numbers)` that returns True if every number in the list is "
            "greater than 0, else False. An empty list gives True."
        ),
        reference="def are_all_positive(numbers):\n    return all(n > 0 for n in numbers)",
        tests=(
            (([1, 2, 3],), True),
            (([],), True),
            (([0],), False),
            (([1, -1],), False),
            (([1_000_000],), True),
            (([5, 5, 0],), False),
        ),
    ),
    ladder_task(
        "is_any_negative",
        family="all any checks",
        level=2,
        prompt=(
            "Write a function `is_any_negative(numbers)` that returns True if the list contains a number "
            "below 0, else False."
        ),
        reference="def is_any_negative(numbers):\n    return any(n < 0 for n in numbers)",
        tests=(
            (([1, 2, 3],), False),
            (([],), False),
            (([0],), False),
            (([1, -1],), True),
            (([-1_000_000],), True),
            (([5, 5, 0],), False),
        ),
    ),
    ladder_task(
        "are_all_equal",
        family="all any checks",
        level=2,
        prompt=(
            "Write a function `are_all_equal(items)` that returns True if all elements of the list are "
            "equal to each other. Lists with no or one element give True."
        ),
        reference="def are_all_equal(items):\n    return all(item == items[0] for item in items)",
        tests=(
            (([1, 1, 1],), True),
            (([1, 2],), False),
            (([],), True),
            (([7],), True),
            ((["a", "a"],), True),
            (([0, 0, 0, 1],), False),
        ),
    ),
    ladder_task(
        "do_all_divide_by",
        family="all any checks",
        level=2,
        prompt=(
            "Write a function `do_all_divide_by(numbers, divisor)` that tells whether every integer of the "
            "list can be divided by the non-zero `divisor` without remainder. An empty list gives True."
        ),
        reference="""def do_all_divide_by(numbers, divisor):
    return all(n % divisor == 0 for n in numbers)
""",
        tests=(
            (([2, 4], 2), True),
            (([2, 5], 2), False),
            (([], 3), True),
            (([0], 7), True),
            (([-9, 9], 3), True),
            (([1_000_000, 1], 10), False),
        ),
    ),
    ladder_task(
        "insert_at",
        family="list editing",
        level=2,
        prompt=(
            "Write a function `insert_at(items, index, value)` that returns a new list with `value` "
            "inserted so that it stands at `index`. The index is between 0 and the length of the list."
        ),
        reference="def insert_at(items, index, value):\n    return items[:index] + [value] + items[index:]",
        tests=(
            (([1, 2, 3], 1, 9), [1, 9, 2, 3]),
            (([], 0, 5), [5]),
            (([1], 1, 2), [1, 2]),
            (([1], 0, 2), [2, 1]),
            ((["a", "c"], 1, "b"), ["a", "b", "c"]),
            (([0, 0], 2, -1), [0, 0, -1]),
        ),
    ),
    ladder_task(
        "remove_at",
        family="list editing",
        level=2,
        prompt=(
            "Write a function `remove_at(items, index)` that returns a new list without the element at "
            "`index`. The index is valid and not negative."
        ),
        reference="def remove_at(items, index):\n    return items[:index] + items[index + 1 :]",
        tests=(
            (([1, 2, 3], 1), [1, 3]),
            (([5], 0), []),
            (([1, 2], 1), [1]),
            ((["a", "b", "c"], 0), ["b", "c"]),
            (([0, 0, 0], 2), [0, 0]),
            (([-1, -2, -3, -4], 2), [-1, -2, -4]),
        ),
    ),
    ladder_task(
        "change_at",
        family="list editing",
        level=2,
        prompt=(
            "Write a function `change_at(items, index, value)` that returns a copy of the list in which the "
            "element at the valid, non-negative `index` is replaced by `value`."
        ),
        reference="""def change_at(items, index, value):
    return items[:index] + [value] + items[index + 1 :]
""",
        tests=(
            (([1, 2, 3], 1, 9), [1, 9, 3]),
            (([5], 0, 6), [6]),
            (([1, 2], 1, 2), [1, 2]),
            ((["a", "b", "c"], 0, "z"), ["z", "b", "c"]),
            (([0, 0, 0], 2, 1), [0, 0, 1]),
            (([-1, -2], 0, 1_000_000), [1_000_000, -2]),
        ),
    ),
    ladder_task(
        "swap_first_and_last",
        family="list editing",
        level=2,
        prompt=(
            "Write a function `swap_first_and_last(items)` that returns a copy of the list with its first "
            "and last element exchanged. Lists with fewer than two elements come back unchanged."
        ),
        reference="""def swap_first_and_last(items):
    return items[-1:] + items[1:-1] + items[:1] if len(items) > 1 else list(items)
""",
        tests=(
            (([1, 2, 3],), [3, 2, 1]),
            (([1, 2],), [2, 1]),
            (([7],), [7]),
            (([],), []),
            ((["a", "b", "c", "d"],), ["d", "b", "c", "a"]),
            (([-1, 0, 0, -5],), [-5, 0, 0, -1]),
        ),
    ),
    ladder_task(
        "swap_values",
        family="list editing",
        level=2,
        prompt=(
            "Write a function `swap_values(items, old, new)` that returns a new list in which each element "
            "equal to `old` has been replaced by `new`."
        ),
        reference="""def swap_values(items, old, new):
    return [new if item == old else item for item in items]
""",
        tests=(
            (([1, 2, 1], 1, 9), [9, 2, 9]),
            (([], 1, 2), []),
            (([5], 4, 0), [5]),
            ((["a", "b"], "b", "a"), ["a", "a"]),
            (([0, 0], 0, -1), [-1, -1]),
            (([1, 2, 3], 3, 3), [1, 2, 3]),
        ),
    ),
    ladder_task(
        "first_to_end",
        family="rotations",
        level=2,
        prompt=(
            "Write a function `first_to_end(items)` that moves the first element of the list to the end and "
            "returns the new list. An empty list gives an empty list."
        ),
        reference="def first_to_end(items):\n    return items[1:] + items[:1]",
        tests=(
            (([1, 2, 3],), [2, 3, 1]),
            (([],), []),
            (([7],), [7]),
            ((["a", "b"],), ["b", "a"]),
            (([5, 5, 6],), [5, 6, 5]),
            (([-1, 0, 1, 2],), [0, 1, 2, -1]),
        ),
    ),
    ladder_task(
        "end_to_front",
        family="rotations",
        level=2,
        prompt=(
            "Write a function `end_to_front(items)` that returns a new list in which the last element has "
            "been moved to the front. An empty list gives an empty list."
        ),
        reference="def end_to_front(items):\n    return items[-1:] + items[:-1]",
        tests=(
            (([1, 2, 3],), [3, 1, 2]),
            (([],), []),
            (([7],), [7]),
            ((["a", "b"],), ["b", "a"]),
            (([5, 5, 6],), [6, 5, 5]),
            (([-1, 0, 1, 2],), [2, -1, 0, 1]),
        ),
    ),
    ladder_task(
        "turn_left",
        family="rotations",
        level=3,
        prompt=(
            "Write a function `turn_left(items, steps)` that rotates the list to the left by `steps` places "
            "and returns the new list: elements that leave at the front come back at the end. `steps` is 0 "
            "or more and may be larger than the length of the list."
        ),
        reference="""def turn_left(items, steps):
    if not items:
        return []
    k = steps % len(items)
    return items[k:] + items[:k]
""",
        tests=(
            (([1, 2, 3], 1), [2, 3, 1]),
            (([1, 2, 3], 0), [1, 2, 3]),
            (([], 4), []),
            (([7], 9), [7]),
            (([1, 2, 3, 4], 6), [3, 4, 1, 2]),
            ((["a", "b", "c"], 3), ["a", "b", "c"]),
        ),
    ),
    ladder_task(
        "every_turn",
        family="rotations",
        level=3,
        prompt=(
            "Write a function `every_turn(items)` that returns the list of all rotations of `items`: the "
            "list itself, then the list rotated left by one place, by two places, and so on. An empty list "
            "gives an empty list."
        ),
        reference="def every_turn(items):\n    return [items[i:] + items[:i] for i in range(len(items))]",
        tests=(
            (([1, 2, 3],), [[1, 2, 3], [2, 3, 1], [3, 1, 2]]),
            (([],), []),
            (([7],), [[7]]),
            ((["a", "b"],), [["a", "b"], ["b", "a"]]),
            (([5, 5],), [[5, 5], [5, 5]]),
            (([-1, 0, 1, 0],), [[-1, 0, 1, 0], [0, 1, 0, -1], [1, 0, -1, 0], [0, -1, 0, 1]]),
        ),
    ),
    ladder_task(
        "is_turned_version",
        family="rotations",
        level=3,
        prompt=(
            "Write a function `is_turned_version(left, right)` that returns True if the list `right` can be "
            "made from the list `left` by rotating it any number of places (also zero), else False."
        ),
        reference="""def is_turned_version(left, right):
    return left == right or any(left[i:] + left[:i] == right for i in range(len(left)))
""",
        tests=(
            (([1, 2, 3], [2, 3, 1]), True),
            (([1, 2, 3], [3, 2, 1]), False),
            (([], []), True),
            (([1], []), False),
            (([1, 1, 2], [1, 2, 1]), True),
            (([1, 2], [1, 2]), True),
        ),
    ),
)
