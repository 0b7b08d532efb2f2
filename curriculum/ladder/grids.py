"""Nested lists: rows and columns, whole grids, nested structures by recursion."""

from __future__ import annotations

from curriculum.ladder.builder import ladder_task
from curriculum.task import Task

TASKS: tuple[Task, ...] = (
    ladder_task(
        "row_sums",
        family="grid rows",
        level=2,
        prompt=(
            "A grid is a list of rows, and a row is a list of numbers. Write `row_sums(grid)` to return the "
            "list of the sums of the rows."
        ),
        reference="def row_sums(grid):\n    return [sum(row) for row in grid]",
        tests=(
            (([[1, 2], [3, 4]],), [3, 7]),
            (([],), []),
            (([[]],), [0]),
            (([[5]],), [5]),
            (([[-1, 1], [0, 0], [7, 7]],), [0, 0, 14]),
            (([[1_000_000, 1_000_000]],), [2_000_000]),
        ),
    ),
    ladder_task(
        "cell_at",
        family="grid rows",
        level=2,
        prompt=(
            "Write a function `cell_at(grid, row, column)` that returns the value in the given row and "
            "column of a list of lists. Both are counted from 0 and are valid."
        ),
        reference="def cell_at(grid, row, column):\n    return grid[row][column]",
        tests=(
            (([[1, 2], [3, 4]], 0, 1), 2),
            (([[1, 2], [3, 4]], 1, 0), 3),
            (([[5]], 0, 0), 5),
            (([["a", "b", "c"]], 0, 2), "c"),
            (([[0], [-1], [-2]], 2, 0), -2),
            (([[1, 1], [1, 1_000_000]], 1, 1), 1_000_000),
        ),
    ),
    ladder_task(
        "blank_grid",
        family="grid rows",
        level=2,
        prompt=(
            "Write a function `blank_grid(rows, columns)` that returns a list of `rows` lists, each of "
            "which consists of `columns` zeros."
        ),
        reference="def blank_grid(rows, columns):\n    return [[0] * columns for _ in range(rows)]",
        tests=(
            ((2, 3), [[0, 0, 0], [0, 0, 0]]),
            ((1, 1), [[0]]),
            ((0, 5), []),
            ((2, 0), [[], []]),
            ((3, 1), [[0], [0], [0]]),
            ((1, 4), [[0, 0, 0, 0]]),
        ),
    ),
    ladder_task(
        "cell_total",
        family="grid rows",
        level=2,
        prompt=(
            "Write a function `cell_total(grid)` that returns the sum of all numbers in a list of lists, 0 "
            "if there are none."
        ),
        reference="def cell_total(grid):\n    return sum(sum(row) for row in grid)",
        tests=(
            (([[1, 2], [3, 4]],), 10),
            (([],), 0),
            (([[]],), 0),
            (([[5]],), 5),
            (([[-1, 1], [0], [7, 7, 7]],), 21),
            (([[1_000_000], [], [1_000_000]],), 2_000_000),
        ),
    ),
    ladder_task(
        "column_values",
        family="grid rows",
        level=3,
        prompt=(
            "Write a function `column_values(grid, column)` that returns the list of the values in the "
            "given column of a grid (a list of equally long rows), from top to bottom."
        ),
        reference="def column_values(grid, column):\n    return [row[column] for row in grid]",
        tests=(
            (([[1, 2], [3, 4]], 0), [1, 3]),
            (([[1, 2], [3, 4]], 1), [2, 4]),
            (([], 0), []),
            (([[5]], 0), [5]),
            (([["a", "b", "c"]], 2), ["c"]),
            (([[0, 1], [-1, 1], [-2, 1]], 0), [0, -1, -2]),
        ),
    ),
    ladder_task(
        "one_flat_list",
        family="grid rows",
        level=3,
        prompt=(
            "Write a function `one_flat_list(lists)` that joins all lists inside a list of lists, in order, "
            "into a single list."
        ),
        reference="def one_flat_list(lists):\n    return [item for inner in lists for item in inner]",
        tests=(
            (([[1, 2], [3]],), [1, 2, 3]),
            (([],), []),
            (([[]],), []),
            (([[5], [], [5]],), [5, 5]),
            (([["a"], ["b", "c"]],), ["a", "b", "c"]),
            (([[-1, 0], [[1]], [2]],), [-1, 0, [1], 2]),
        ),
    ),
    ladder_task(
        "rows_to_columns",
        family="grid work",
        level=3,
        prompt=(
            "Write a function `rows_to_columns(grid)` that transposes a grid: it returns a list of lists in "
            "which row i consists of the values of column i of `grid`. All rows have the same length, at "
            "least 1; an empty grid gives an empty list."
        ),
        reference="def rows_to_columns(grid):\n    return [list(column) for column in zip(*grid)]",
        tests=(
            (([[1, 2], [3, 4]],), [[1, 3], [2, 4]]),
            (([],), []),
            (([[5]],), [[5]]),
            (([[1, 2, 3]],), [[1], [2], [3]]),
            (([["a"], ["b"]],), [["a", "b"]]),
            (([[0, -1], [1, 0], [1_000_000, 2]],), [[0, 1, 1_000_000], [-1, 0, 2]]),
        ),
    ),
    ladder_task(
        "turn_clockwise",
        family="grid work",
        level=4,
        prompt=(
            "Write a function `turn_clockwise(grid)` that rotates a grid (a list of rows of equal length) "
            "by 90 degrees clockwise, so that the first row becomes the last column. It returns the new "
            "grid as a list of lists."
        ),
        reference="def turn_clockwise(grid):\n    return [list(column) for column in zip(*grid[::-1])]",
        tests=(
            (([[1, 2], [3, 4]],), [[3, 1], [4, 2]]),
            (([],), []),
            (([[5]],), [[5]]),
            (([[1, 2, 3]],), [[1], [2], [3]]),
            (([["a"], ["b"]],), [["b", "a"]]),
            (([[1, 2], [3, 4], [5, 6]],), [[5, 3, 1], [6, 4, 2]]),
        ),
    ),
    ladder_task(
        "main_diagonal",
        family="grid work",
        level=3,
        prompt=(
            "Write a function `main_diagonal(grid)` that returns the values on the main diagonal of a "
            "square grid as a list, beginning with the top left one."
        ),
        reference="def main_diagonal(grid):\n    return [grid[i][i] for i in range(len(grid))]",
        tests=(
            (([[1, 2], [3, 4]],), [1, 4]),
            (([],), []),
            (([[5]],), [5]),
            (([["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]],), ["a", "e", "i"]),
            (([[0, 0], [0, 0]],), [0, 0]),
            (([[-1, 9], [9, 1_000_000]],), [-1, 1_000_000]),
        ),
    ),
    ladder_task(
        "find_in_grid",
        family="grid work",
        level=4,
        prompt=(
            "Write a function `find_in_grid(grid, value)` that looks for `value` in a grid row by row, each "
            "from left to right, and returns a tuple (row, column) for the first place where it stands, or "
            "None if it is nowhere."
        ),
        reference="""def find_in_grid(grid, value):
    for i, row in enumerate(grid):
        for j, cell in enumerate(row):
            if cell == value:
                return (i, j)
    return None
""",
        tests=(
            (([[1, 2], [3, 4]], 3), (1, 0)),
            (([[1, 2], [3, 4]], 5), None),
            (([], 0), None),
            (([[]], 0), None),
            (([[0, 7], [7, 7]], 7), (0, 1)),
            (([["a"], ["b"], ["c"]], "c"), (2, 0)),
        ),
    ),
    ladder_task(
        "neighbour_count",
        family="grid work",
        level=4,
        prompt=(
            "In a grid of zeros and ones, `neighbour_count(grid, row, column)` returns how many of the up "
            "to eight cells around the cell at (row, column) hold a 1. The cell itself does not count, nor "
            "do places outside the grid."
        ),
        reference="""def neighbour_count(grid, row, column):
    total = 0
    for i in range(max(row - 1, 0), min(row + 2, len(grid))):
        for j in range(max(column - 1, 0), min(column + 2, len(grid[0]))):
            if (i, j) != (row, column):
                total += grid[i][j]
    return total
""",
        tests=(
            (([[1, 1], [1, 1]], 0, 0), 3),
            (([[1]], 0, 0), 0),
            (([[0, 0, 0], [0, 1, 0], [0, 0, 0]], 1, 1), 0),
            (([[1, 1, 1], [1, 0, 1], [1, 1, 1]], 1, 1), 8),
            (([[1, 0, 1]], 0, 1), 2),
            (([[0, 1], [1, 0], [1, 1]], 2, 0), 2),
        ),
    ),
    ladder_task(
        "best_column",
        family="grid work",
        level=4,
        prompt=(
            "Given a grid with at least one row and one column of numbers, `best_column(grid)` returns the "
            "index of the column with the largest sum. If several columns tie, the leftmost of them is "
            "returned."
        ),
        reference="""def best_column(grid):
    sums = [sum(column) for column in zip(*grid)]
    return sums.index(max(sums))
""",
        tests=(
            (([[1, 2], [3, 4]],), 1),
            (([[5]],), 0),
            (([[1, 1, 1]],), 0),
            (([[-5], [2]],), 0),
            (([[0, 9, 0], [9, 0, 10]],), 2),
            (([[3, 1], [0, 2]],), 0),
        ),
    ),
    ladder_task(
        "deep_total",
        family="nested recursion",
        level=4,
        prompt=(
            "The list `values` holds integers and lists, and these lists hold integers and lists again, to "
            "any depth. Write `deep_total(values)` to return the sum of all integers in it."
        ),
        reference="""def deep_total(values):
    total = 0
    for value in values:
        if isinstance(value, list):
            total += deep_total(value)
        else:
            total += value
    return total
""",
        tests=(
            (([1, 2, 3],), 6),
            (([],), 0),
            (([1, [2, [3]]],), 6),
            (([[[[5]]]],), 5),
            (([[], [[]], -1],), -1),
            (([[1_000_000, [1, 1]], 7],), 1_000_009),
        ),
    ),
    ladder_task(
        "deep_flatten",
        family="nested recursion",
        level=4,
        prompt=(
            "Write a function `deep_flatten(values)` that takes a list whose elements may be lists again, "
            "to any depth, and returns one flat list with all the elements that are not lists, from left to "
            "right."
        ),
        reference="""def deep_flatten(values):
    flat = []
    for value in values:
        if isinstance(value, list):
            flat.extend(deep_flatten(value))
        else:
            flat.append(value)
    return flat
""",
        tests=(
            (([1, 2, 3],), [1, 2, 3]),
            (([],), []),
            (([1, [2, [3]]],), [1, 2, 3]),
            (([[[["a"]]]],), ["a"]),
            (([[], [[]], -1],), [-1]),
            (([[1, [2, 2]], [], 7],), [1, 2, 2, 7]),
        ),
    ),
    ladder_task(
        "deep_count",
        family="nested recursion",
        level=4,
        prompt=(
            "Write a function `deep_count(values)` that counts the elements that are not lists in a list of "
            "lists of any depth, those in inner lists included."
        ),
        reference="""def deep_count(values):
    count = 0
    for value in values:
        if isinstance(value, list):
            count += deep_count(value)
        else:
            count += 1
    return count
""",
        tests=(
            (([1, 2, 3],), 3),
            (([],), 0),
            (([1, [2, [3]]],), 3),
            (([[[["a"]]]],), 1),
            (([[], [[]]],), 0),
            (([[0, [0, 0]], [], None],), 4),
        ),
    ),
    ladder_task(
        "deepest_level",
        family="nested recursion",
        level=4,
        prompt=(
            "Write a function `deepest_level(values)` that returns how deeply lists are nested: a list "
            "without lists inside has depth 1, and every other list has a depth of one more than the "
            "deepest list inside it."
        ),
        reference="""def deepest_level(values):
    depth = 0
    for value in values:
        if isinstance(value, list):
            depth = max(depth, deepest_level(value))
    return depth + 1
""",
        tests=(
            (([1, 2, 3],), 1),
            (([],), 1),
            (([1, [2, [3]]],), 3),
            (([[[["a"]]]],), 4),
            (([[], [[]]],), 3),
            (([[1], [2], [3, 4]],), 2),
        ),
    ),
    ladder_task(
        "deep_reverse",
        family="nested recursion",
        level=4,
        prompt=(
            "Write a function `deep_reverse(values)` that reverses a nested list at every depth: the order "
            "of the elements of the outer list and of every list inside it is turned around."
        ),
        reference="""def deep_reverse(values):
    return [
        deep_reverse(value) if isinstance(value, list) else value
        for value in reversed(values)
    ]
""",
        tests=(
            (([1, 2, 3],), [3, 2, 1]),
            (([],), []),
            (([1, [2, [3, 4]]],), [[[4, 3], 2], 1]),
            (([[["a", "b"]]],), [[["b", "a"]]]),
            (([[], [[]], -1],), [-1, [[]], []]),
            (([[1, 2], [3, 4]],), [[4, 3], [2, 1]]),
        ),
    ),
)
