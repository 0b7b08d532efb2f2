"""Distinct elements and order: duplicates, plain sorting, sorting by a key."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "distinct_sorted",
        family="duplicates",
        level=2,
        prompt=(
            "Write a function `distinct_sorted(items)` that returns a sorted list in which each value of "
            "`items` appears only once."
        ),
        reference="def distinct_sorted(items):\n    return sorted(set(items))",
        tests=(
            (([3, 1, 3],), [1, 3]),
            (([],), []),
            (([7],), [7]),
            ((["b", "a", "b"],), ["a", "b"]),
            (([0, 0],), [0]),
            (([-1, 1_000_000, -5],), [-5, -1, 1_000_000]),
        ),
    ),
    ladder_task(
        "distinct_in_order",
        family="duplicates",
        level=3,
        prompt=(
            "Write a function `distinct_in_order(items)` that returns a list with repeated values removed: "
            "each value stays only where it appears first."
        ),
        reference="""def distinct_in_order(items):
    result = []
    for item in items:
        if item not in result:
            result.append(item)
    return result
""",
        tests=(
            (([3, 1, 3],), [3, 1]),
            (([],), []),
            (([7],), [7]),
            ((["b", "a", "b", "a"],), ["b", "a"]),
            (([0, 0],), [0]),
            (([-1, 5, -1, 4, 5],), [-1, 5, 4]),
        ),
    ),
    ladder_task(
        "repeated_values",
        family="duplicates",
        level=3,
        prompt=(
            "Write a function `repeated_values(items)` that returns a sorted list of the values that occur "
            "two or more times in `items`. Each such value is listed once."
        ),
        reference="""def repeated_values(items):
    return sorted({item for item in items if items.count(item) > 1})
""",
        tests=(
            (([3, 1, 3],), [3]),
            (([],), []),
            (([7],), []),
            ((["b", "a", "b", "a"],), ["a", "b"]),
            (([0, 0, 0],), [0]),
            (([5, -1, 5, -1, 4],), [-1, 5]),
        ),
    ),
    ladder_task(
        "first_repeat",
        family="duplicates",
        level=3,
        prompt=(
            "Write a function `first_repeat(items)` that goes through the list from the left and returns "
            "the first element that already occurred before it. If there is none, it returns None."
        ),
        reference="""def first_repeat(items):
    seen = []
    for item in items:
        if item in seen:
            return item
        seen.append(item)
    return None
""",
        tests=(
            (([3, 1, 3],), 3),
            (([],), None),
            (([7],), None),
            ((["b", "a", "a", "b"],), "a"),
            (([0, 0],), 0),
            (([-1, 5, 4],), None),
        ),
    ),
    ladder_task(
        "new_values",
        family="duplicates",
        level=3,
        prompt=(
            "Write a function `new_values(old, current)` that returns the list of the elements of `current` "
            "that are not in `old`, in their order and each only once."
        ),
        reference="""def new_values(old, current):
    result = []
    for item in current:
        if item not in old and item not in result:
            result.append(item)
    return result
""",
        tests=(
            (([1, 2], [2, 3]), [3]),
            (([], []), []),
            (([1], []), []),
            (([], [4, 4]), [4]),
            ((["a"], ["c", "b", "a", "c"]), ["c", "b"]),
            (([-1, 0], [0, -1, 0]), []),
        ),
    ),
    ladder_task(
        "smallest_first",
        family="sorting basics",
        level=1,
        prompt=(
            "Write a function `smallest_first(numbers)` that returns a new list with the numbers sorted "
            "from smallest to largest."
        ),
        reference="def smallest_first(numbers):\n    return sorted(numbers)",
        tests=(
            (([3, 1, 2],), [1, 2, 3]),
            (([],), []),
            (([7],), [7]),
            (([5, 5, 1],), [1, 5, 5]),
            (([-1, -3, 0],), [-3, -1, 0]),
            (([1_000_000, 10, 100],), [10, 100, 1_000_000]),
        ),
    ),
    ladder_task(
        "largest_first",
        family="sorting basics",
        level=1,
        prompt=(
            "Write a function `largest_first(numbers)` that returns a new list with the numbers sorted from "
            "largest to smallest."
        ),
        reference="def largest_first(numbers):\n    return sorted(numbers, reverse=True)",
        tests=(
            (([3, 1, 2],), [3, 2, 1]),
            (([],), []),
            (([7],), [7]),
            (([5, 5, 1],), [5, 5, 1]),
            (([-1, -3, 0],), [0, -1, -3]),
            (([1_000_000, 10, 100],), [1_000_000, 100, 10]),
        ),
    ),
    ladder_task(
        "is_in_order",
        family="sorting basics",
        level=1,
        prompt=(
            "Write a function `is_in_order(numbers)` that returns True if the list is already sorted from "
            "smallest to largest, else False. Equal neighbours are allowed."
        ),
        reference="def is_in_order(numbers):\n    return numbers == sorted(numbers)",
        tests=(
            (([1, 2, 3],), True),
            (([3, 1],), False),
            (([],), True),
            (([7],), True),
            (([5, 5, 6],), True),
            (([-1, -3],), False),
        ),
    ),
    ladder_task(
        "sorted_union_list",
        family="sorting basics",
        level=1,
        prompt=(
            "Write a function `sorted_union_list(left, right)` that joins two lists of numbers and returns "
            "all their numbers in ascending order."
        ),
        reference="def sorted_union_list(left, right):\n    return sorted(left + right)",
        tests=(
            (([3, 1], [2]), [1, 2, 3]),
            (([], []), []),
            (([7], []), [7]),
            (([5, 5], [5, 1]), [1, 5, 5, 5]),
            (([-1], [-3, 0]), [-3, -1, 0]),
            (([1_000_000], [10, 100]), [10, 100, 1_000_000]),
        ),
    ),
    ladder_task(
        "two_smallest",
        family="sorting basics",
        level=1,
        prompt=(
            "Write a function `two_smallest(numbers)` that returns a list of the two smallest numbers in "
            "ascending order. The given list has at least two numbers, and equal numbers count separately."
        ),
        reference="def two_smallest(numbers):\n    return sorted(numbers)[:2]",
        tests=(
            (([3, 1, 2],), [1, 2]),
            (([2, 1],), [1, 2]),
            (([5, 5, 9],), [5, 5]),
            (([-1, -3, 0],), [-3, -1]),
            (([7, 7],), [7, 7]),
            (([1_000_000, 10, 100, 1],), [1, 10]),
        ),
    ),
    ladder_task(
        "middle_value",
        family="sorting basics",
        level=2,
        prompt=(
            "The list `numbers` has an odd number of elements. Write `middle_value(numbers)` so that it "
            "returns the number in the middle after sorting."
        ),
        reference="def middle_value(numbers):\n    return sorted(numbers)[len(numbers) // 2]",
        tests=(
            (([3, 1, 2],), 2),
            (([7],), 7),
            (([5, 5, 1],), 5),
            (([-1, -3, 0, 4, 9],), 0),
            (([2, 2, 2],), 2),
            (([1_000_000, 10, 100],), 100),
        ),
    ),
    ladder_task(
        "sort_by_second",
        family="sorting by key",
        level=3,
        prompt=(
            "Write a function `sort_by_second(pairs)` that sorts a list of tuples by their second element, "
            "smallest first. Tuples with an equal second element stay in their original order."
        ),
        reference="def sort_by_second(pairs):\n    return sorted(pairs, key=lambda pair: pair[1])",
        tests=(
            (([("a", 2), ("b", 1)],), [("b", 1), ("a", 2)]),
            (([],), []),
            (([("x", 5)],), [("x", 5)]),
            (([(1, 0), (2, 0), (3, -1)],), [(3, -1), (1, 0), (2, 0)]),
            (([(9, 9), (8, 8), (7, 7)],), [(7, 7), (8, 8), (9, 9)]),
            (([("p", 1_000_000), ("q", 10), ("r", 10)],), [("q", 10), ("r", 10), ("p", 1_000_000)]),
        ),
    ),
    ladder_task(
        "sort_by_size",
        family="sorting by key",
        level=2,
        prompt=(
            "Write a function `sort_by_size(lists)` that sorts a list of lists by length, shortest first. "
            "Lists of the same length stay in their original order."
        ),
        reference="def sort_by_size(lists):\n    return sorted(lists, key=len)",
        tests=(
            (([[1, 2], [3]],), [[3], [1, 2]]),
            (([],), []),
            (([[]],), [[]]),
            (([[1], [0], []],), [[], [1], [0]]),
            (([["a", "b"], ["c", "d"], ["e"]],), [["e"], ["a", "b"], ["c", "d"]]),
            (([[1, 2, 3], [], [4, 5]],), [[], [4, 5], [1, 2, 3]]),
        ),
    ),
    ladder_task(
        "closest_to_zero_first",
        family="sorting by key",
        level=3,
        prompt=(
            "Write a function `closest_to_zero_first(numbers)` that sorts numbers by their absolute value, "
            "smallest first. Numbers with the same absolute value keep their original order."
        ),
        reference="def closest_to_zero_first(numbers):\n    return sorted(numbers, key=abs)",
        tests=(
            (([3, -1, 2],), [-1, 2, 3]),
            (([],), []),
            (([-7],), [-7]),
            (([5, -5, 1],), [1, 5, -5]),
            (([-5, 5, 0],), [0, -5, 5]),
            (([1_000_000, -10, 100],), [-10, 100, 1_000_000]),
        ),
    ),
    ladder_task(
        "evens_then_odds",
        family="sorting by key",
        level=3,
        prompt=(
            "Write a function `evens_then_odds(numbers)` that returns a list with all even integers first "
            "and then all odd ones. Inside both parts the original order is kept."
        ),
        reference="""def evens_then_odds(numbers):
    return [n for n in numbers if n % 2 == 0] + [n for n in numbers if n % 2 != 0]
""",
        tests=(
            (([1, 2, 3, 4],), [2, 4, 1, 3]),
            (([],), []),
            (([7],), [7]),
            (([6, 4, 2],), [6, 4, 2]),
            (([-1, -2, 0],), [-2, 0, -1]),
            (([1_000_001, 1_000_000],), [1_000_000, 1_000_001]),
        ),
    ),
    ladder_task(
        "names_by_score",
        family="sorting by key",
        level=3,
        prompt=(
            "Write a function `names_by_score(scores)` that takes a dictionary from names to numeric scores "
            "and returns the list of names, highest score first. Names with equal scores are in "
            "alphabetical order."
        ),
        reference="""def names_by_score(scores):
    return sorted(scores, key=lambda name: (-scores[name], name))
""",
        tests=(
            (({"ann": 3, "bob": 5},), ["bob", "ann"]),
            (({},), []),
            (({"x": 0},), ["x"]),
            (({"c": 1, "b": 1, "a": 1},), ["a", "b", "c"]),
            (({"p": -1, "q": -2, "r": 0},), ["r", "p", "q"]),
            (({"u": 10, "t": 1_000_000, "s": 10},), ["t", "s", "u"]),
        ),
    ),
    ladder_task(
        "ranking_order",
        family="sorting by key",
        level=3,
        prompt=(
            "Write a function `ranking_order(numbers)` that returns the list of indexes of the numbers in "
            "the order from the smallest number to the largest. Equal numbers are listed by lower index "
            "first."
        ),
        reference="""def ranking_order(numbers):
    return sorted(range(len(numbers)), key=lambda i: numbers[i])
""",
        tests=(
            (([30, 10, 20],), [1, 2, 0]),
            (([],), []),
            (([7],), [0]),
            (([5, 5, 1],), [2, 0, 1]),
            (([-1, -3, 0],), [1, 0, 2]),
            (([3, 2, 1, 0],), [3, 2, 1, 0]),
        ),
    ),
)
