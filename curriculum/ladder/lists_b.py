"""Lists, second part: joining, membership, slices."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "join_two_lists",
        family="list joining",
        level=1,
        prompt=(
            "Write a function `join_two_lists(first, second)` that returns one list with the elements of "
            "`first` followed by those of `second`."
        ),
        reference="def join_two_lists(first, second):\n    return first + second",
        tests=(
            (([1, 2], [3]), [1, 2, 3]),
            (([], []), []),
            (([], [5]), [5]),
            (([5], []), [5]),
            ((["a"], ["a", "b"]), ["a", "a", "b"]),
            (([-1, 0], [0, -1]), [-1, 0, 0, -1]),
        ),
    ),
    ladder_task(
        "with_item_at_end",
        family="list joining",
        level=1,
        prompt=(
            "Write a function `with_item_at_end(items, item)` that returns a new list: all elements of "
            "`items`, and then `item` at the end."
        ),
        reference="def with_item_at_end(items, item):\n    return items + [item]",
        tests=(
            (([1, 2], 3), [1, 2, 3]),
            (([], 1), [1]),
            ((["a"], "a"), ["a", "a"]),
            (([0, 0], 0), [0, 0, 0]),
            (([-1], -2), [-1, -2]),
            (([1, 2, 3, 4, 5], 1_000_000), [1, 2, 3, 4, 5, 1_000_000]),
        ),
    ),
    ladder_task(
        "with_item_at_start",
        family="list joining",
        level=1,
        prompt=(
            "Write a function `with_item_at_start(items, item)` that returns a new list that begins with "
            "`item` and continues with all elements of `items`."
        ),
        reference="def with_item_at_start(items, item):\n    return [item] + items",
        tests=(
            (([1, 2], 3), [3, 1, 2]),
            (([], 1), [1]),
            ((["a"], "b"), ["b", "a"]),
            (([0, 0], 0), [0, 0, 0]),
            (([-1], -2), [-2, -1]),
            (([1, 2, 3, 4, 5], 1_000_000), [1_000_000, 1, 2, 3, 4, 5]),
        ),
    ),
    ladder_task(
        "repeat_list",
        family="list joining",
        level=1,
        prompt=(
            "Write a function `repeat_list(items, times)` that returns the list repeated `times` times, one "
            "copy after another. When `times` is 0 the result is an empty list."
        ),
        reference="def repeat_list(items, times):\n    return items * times",
        tests=(
            (([1, 2], 2), [1, 2, 1, 2]),
            (([1], 0), []),
            (([], 3), []),
            ((["a", "b"], 1), ["a", "b"]),
            (([0], 5), [0, 0, 0, 0, 0]),
            (([-1, 1], 3), [-1, 1, -1, 1, -1, 1]),
        ),
    ),
    ladder_task(
        "three_lists_in_one",
        family="list joining",
        level=1,
        prompt=(
            "Write a function `three_lists_in_one(a, b, c)` that puts three lists together, in the order "
            "given, and returns the resulting list."
        ),
        reference="def three_lists_in_one(a, b, c):\n    return a + b + c",
        tests=(
            (([1], [2], [3]), [1, 2, 3]),
            (([], [], []), []),
            (([1, 2], [], [3]), [1, 2, 3]),
            (([], ["x"], []), ["x"]),
            (([0], [0], [0, 0]), [0, 0, 0, 0]),
            (([-1], [-2, -3], [-4]), [-1, -2, -3, -4]),
        ),
    ),
    ladder_task(
        "doubled_up",
        family="list joining",
        level=1,
        prompt=(
            "Define `doubled_up(items)`, which returns a list that contains all elements of `items` twice: "
            "the whole list and then the whole list again."
        ),
        reference="def doubled_up(items):\n    return items + items",
        tests=(
            (([1, 2],), [1, 2, 1, 2]),
            (([],), []),
            (([7],), [7, 7]),
            ((["a", "b", "c"],), ["a", "b", "c", "a", "b", "c"]),
            (([0, 0],), [0, 0, 0, 0]),
            (([-1, 1_000_000],), [-1, 1_000_000, -1, 1_000_000]),
        ),
    ),
    ladder_task(
        "contains_item",
        family="list membership",
        level=1,
        prompt=(
            "Write a function `contains_item(items, item)` that returns True if `item` is in the list and "
            "False if it is not."
        ),
        reference="def contains_item(items, item):\n    return item in items",
        tests=(
            (([1, 2, 3], 2), True),
            (([1, 2, 3], 4), False),
            (([], 1), False),
            ((["a", "b"], "b"), True),
            (([-1], 1), False),
            (([5, 5, 5], 5), True),
        ),
    ),
    ladder_task(
        "lacks_item",
        family="list membership",
        level=1,
        prompt=(
            "Write a function `lacks_item(items, item)` that returns True when `item` does not occur in the "
            "list, otherwise False."
        ),
        reference="def lacks_item(items, item):\n    return item not in items",
        tests=(
            (([1, 2, 3], 2), False),
            (([1, 2, 3], 4), True),
            (([], 1), True),
            ((["a", "b"], "b"), False),
            (([-1], 1), True),
            (([5, 5, 5], 5), False),
        ),
    ),
    ladder_task(
        "has_zero",
        family="list membership",
        level=1,
        prompt=(
            "Write a function `has_zero(numbers)` that returns True if the list of numbers contains 0, else "
            "False."
        ),
        reference="def has_zero(numbers):\n    return 0 in numbers",
        tests=(
            (([0],), True),
            (([],), False),
            (([1, 2, 3],), False),
            (([1, 0, 2],), True),
            (([-1, 10, 100],), False),
            (([0, 0, 0],), True),
        ),
    ),
    ladder_task(
        "contains_both",
        family="list membership",
        level=1,
        prompt=(
            "Write `contains_both(items, a, b)` so that it returns True only if `a` and `b` are both "
            "elements of the list `items`."
        ),
        reference="def contains_both(items, a, b):\n    return a in items and b in items",
        tests=(
            (([1, 2, 3], 1, 3), True),
            (([1, 2, 3], 1, 4), False),
            (([1, 2, 3], 4, 1), False),
            (([], 0, 0), False),
            (([5], 5, 5), True),
            ((["a", "b"], "c", "d"), False),
        ),
    ),
    ladder_task(
        "contains_either",
        family="list membership",
        level=1,
        prompt=(
            "Write `contains_either(items, a, b)` so that it returns True if at least one of `a` and `b` is "
            "an element of the list `items`, and False otherwise."
        ),
        reference="def contains_either(items, a, b):\n    return a in items or b in items",
        tests=(
            (([1, 2, 3], 1, 3), True),
            (([1, 2, 3], 1, 4), True),
            (([1, 2, 3], 4, 1), True),
            (([], 0, 0), False),
            (([5], 6, 7), False),
            ((["a", "b"], "c", "b"), True),
        ),
    ),
    ladder_task(
        "yes_or_no",
        family="list membership",
        level=2,
        prompt=(
            'Write a function `yes_or_no(items, item)` that returns the string "yes" if the list contains '
            '`item` and the string "no" if it does not.'
        ),
        reference='def yes_or_no(items, item):\n    return "yes" if item in items else "no"',
        tests=(
            (([1, 2, 3], 2), "yes"),
            (([1, 2, 3], 4), "no"),
            (([], 1), "no"),
            ((["a", "b"], "b"), "yes"),
            (([-1], 1), "no"),
            (([5, 5, 5], 5), "yes"),
        ),
    ),
    ladder_task(
        "first_three",
        family="list slicing",
        level=1,
        prompt=(
            "Write a function `first_three(items)` that returns a list of the first three elements. A "
            "shorter list is returned whole."
        ),
        reference="def first_three(items):\n    return items[:3]",
        tests=(
            (([1, 2, 3, 4],), [1, 2, 3]),
            (([1, 2, 3],), [1, 2, 3]),
            (([1],), [1]),
            (([],), []),
            ((["a", "b", "c", "d", "e"],), ["a", "b", "c"]),
            (([0, 0, -1, -1],), [0, 0, -1]),
        ),
    ),
    ladder_task(
        "all_but_first",
        family="list slicing",
        level=1,
        prompt=(
            "Write a function `all_but_first(items)` that returns a list without its first element. For an "
            "empty list return an empty list."
        ),
        reference="def all_but_first(items):\n    return items[1:]",
        tests=(
            (([1, 2, 3],), [2, 3]),
            (([7],), []),
            (([],), []),
            ((["a", "b"],), ["b"]),
            (([5, 5, 5],), [5, 5]),
            (([-1, 0, 1, 1_000_000],), [0, 1, 1_000_000]),
        ),
    ),
    ladder_task(
        "all_but_last",
        family="list slicing",
        level=1,
        prompt=(
            "Write a function `all_but_last(items)` that returns a list without its last element. For an "
            "empty list return an empty list."
        ),
        reference="def all_but_last(items):\n    return items[:-1]",
        tests=(
            (([1, 2, 3],), [1, 2]),
            (([7],), []),
            (([],), []),
            ((["a", "b"],), ["a"]),
            (([5, 5, 5],), [5, 5]),
            (([1_000_000, 0, 1],), [1_000_000, 0]),
        ),
    ),
    ladder_task(
        "take_from_front",
        family="list slicing",
        level=1,
        prompt=(
            "Write a function `take_from_front(items, n)` that returns the first `n` elements of the list "
            "as a new list. If the list is shorter than `n`, return all of it."
        ),
        reference="def take_from_front(items, n):\n    return items[:n]",
        tests=(
            (([1, 2, 3], 2), [1, 2]),
            (([1, 2, 3], 0), []),
            (([1, 2], 5), [1, 2]),
            (([], 3), []),
            ((["a", "b", "c"], 1), ["a"]),
            (([-1, -1, 4], 3), [-1, -1, 4]),
        ),
    ),
    ladder_task(
        "skip_front",
        family="list slicing",
        level=1,
        prompt=(
            "Write a function `skip_front(items, n)` that leaves out the first `n` elements of the list and "
            "returns the rest as a list."
        ),
        reference="def skip_front(items, n):\n    return items[n:]",
        tests=(
            (([1, 2, 3], 2), [3]),
            (([1, 2, 3], 0), [1, 2, 3]),
            (([1, 2], 5), []),
            (([], 3), []),
            ((["a", "b", "c"], 1), ["b", "c"]),
            (([-1, -1, 4], 3), []),
        ),
    ),
    ladder_task(
        "inner_items",
        family="list slicing",
        level=1,
        prompt=(
            "Given a list, `inner_items(items)` returns a list of everything between its first and its last "
            "element. A list with fewer than three elements gives an empty list."
        ),
        reference="def inner_items(items):\n    return items[1:-1]",
        tests=(
            (([1, 2, 3],), [2]),
            (([1, 2, 3, 4, 5],), [2, 3, 4]),
            (([1, 2],), []),
            (([1],), []),
            (([],), []),
            ((["a", "b", "b", "a"],), ["b", "b"]),
        ),
    ),
    ladder_task(
        "even_index_items",
        family="every other",
        level=1,
        prompt=(
            "Write a function `even_index_items(items)` that returns a list of the elements at the indexes "
            "0, 2, 4 and so on."
        ),
        reference="def even_index_items(items):\n    return items[::2]",
        tests=(
            (([1, 2, 3, 4],), [1, 3]),
            (([1, 2, 3],), [1, 3]),
            (([7],), [7]),
            (([],), []),
            ((["a", "b", "c", "d", "e"],), ["a", "c", "e"]),
            (([0, -1, 0, -1],), [0, 0]),
        ),
    ),
    ladder_task(
        "odd_index_items",
        family="every other",
        level=1,
        prompt=(
            "Write a function `odd_index_items(items)` that returns a list of the elements at the indexes "
            "1, 3, 5 and so on."
        ),
        reference="def odd_index_items(items):\n    return items[1::2]",
        tests=(
            (([1, 2, 3, 4],), [2, 4]),
            (([1, 2, 3],), [2]),
            (([7],), []),
            (([],), []),
            ((["a", "b", "c", "d", "e"],), ["b", "d"]),
            (([0, -1, 0, -1],), [-1, -1]),
        ),
    ),
    ladder_task(
        "every_nth",
        family="every other",
        level=1,
        prompt=(
            "Write a function `every_nth(items, n)` that returns every `n`-th element of the list, starting "
            "with the first. `n` is at least 1."
        ),
        reference="def every_nth(items, n):\n    return items[::n]",
        tests=(
            (([1, 2, 3, 4, 5, 6, 7], 3), [1, 4, 7]),
            (([1, 2, 3], 1), [1, 2, 3]),
            (([1, 2, 3], 10), [1]),
            (([], 2), []),
            ((["a", "b", "c", "d"], 2), ["a", "c"]),
            (([-5, 0, -5, 0, 5], 4), [-5, 5]),
        ),
    ),
    ladder_task(
        "sum_of_even_indexes",
        family="every other",
        level=1,
        prompt=(
            "Write a function `sum_of_even_indexes(numbers)` that adds up the numbers standing at even "
            "indexes (0, 2, 4, ...) and returns the sum. An empty list gives 0."
        ),
        reference="def sum_of_even_indexes(numbers):\n    return sum(numbers[::2])",
        tests=(
            (([1, 2, 3, 4],), 4),
            (([5],), 5),
            (([],), 0),
            (([-1, 10, -1],), -2),
            (([0, 100, 0, 100],), 0),
            (([1_000_000, 1, 1_000_000],), 2_000_000),
        ),
    ),
    ladder_task(
        "split_by_index_parity",
        family="every other",
        level=2,
        prompt=(
            "Return from `split_by_index_parity(items)` a list of two lists: the elements with even "
            "indexes, then the elements with odd indexes."
        ),
        reference="def split_by_index_parity(items):\n    return [items[::2], items[1::2]]",
        tests=(
            (([1, 2, 3, 4],), [[1, 3], [2, 4]]),
            (([1, 2, 3],), [[1, 3], [2]]),
            (([7],), [[7], []]),
            (([],), [[], []]),
            ((["a", "b", "c", "d", "e"],), [["a", "c", "e"], ["b", "d"]]),
            (([0, 0, -1, 1],), [[0, -1], [0, 1]]),
        ),
    ),
)
