"""Nested lists: rows and columns, whole grids, nested structures by recursion."""

family, level = "grid rows", 2

def row_sums(grid):
    """A grid is a list of rows, and a row is a list of numbers. Write `row_sums(grid)` to return the list of
    the sums of the rows."""
    return [sum(row) for row in grid]
assert row_sums([[1, 2], [3, 4]]) == [3, 7] and row_sums([]) == [] and row_sums([[]]) == [0]
assert row_sums([[5]]) == [5] and row_sums([[-1, 1], [0, 0], [7, 7]]) == [0, 0, 14]
assert row_sums([[1_000_000, 1_000_000]]) == [2_000_000]

def cell_at(grid, row, column):
    """Write a function `cell_at(grid, row, column)` that returns the value in the given row and column of a
    list of lists. Both are counted from 0 and are valid."""
    return grid[row][column]
assert cell_at([[1, 2], [3, 4]], 0, 1) == 2 and cell_at([[1, 2], [3, 4]], 1, 0) == 3
assert cell_at([[5]], 0, 0) == 5 and cell_at([["a", "b", "c"]], 0, 2) == "c"
assert cell_at([[0], [-1], [-2]], 2, 0) == -2 and cell_at([[1, 1], [1, 1_000_000]], 1, 1) == 1_000_000

def blank_grid(rows, columns):
    """Write a function `blank_grid(rows, columns)` that returns a list of `rows` lists, each of which
    consists of `columns` zeros."""
    return [[0] * columns for _ in range(rows)]
assert blank_grid(2, 3) == [[0, 0, 0], [0, 0, 0]] and blank_grid(1, 1) == [[0]] and blank_grid(0, 5) == []
assert blank_grid(2, 0) == [[], []] and blank_grid(3, 1) == [[0], [0], [0]]
assert blank_grid(1, 4) == [[0, 0, 0, 0]]

def cell_total(grid):
    """Write a function `cell_total(grid)` that returns the sum of all numbers in a list of lists, 0 if there
    are none."""
    return sum(sum(row) for row in grid)
assert cell_total([[1, 2], [3, 4]]) == 10 and cell_total([]) == 0 and cell_total([[]]) == 0
assert cell_total([[5]]) == 5 and cell_total([[-1, 1], [0], [7, 7, 7]]) == 21
assert cell_total([[1_000_000], [], [1_000_000]]) == 2_000_000

family, level = "grid rows", 3

def column_values(grid, column):
    """Write a function `column_values(grid, column)` that returns the list of the values in the given column
    of a grid (a list of equally long rows), from top to bottom."""
    return [row[column] for row in grid]
assert column_values([[1, 2], [3, 4]], 0) == [1, 3] and column_values([[1, 2], [3, 4]], 1) == [2, 4]
assert column_values([], 0) == [] and column_values([[5]], 0) == [5]
assert column_values([["a", "b", "c"]], 2) == ["c"]
assert column_values([[0, 1], [-1, 1], [-2, 1]], 0) == [0, -1, -2]

def one_flat_list(lists):
    """Write a function `one_flat_list(lists)` that joins all lists inside a list of lists, in order, into a
    single list."""
    return [item for inner in lists for item in inner]
assert one_flat_list([[1, 2], [3]]) == [1, 2, 3] and one_flat_list([]) == [] and one_flat_list([[]]) == []
assert one_flat_list([[5], [], [5]]) == [5, 5] and one_flat_list([["a"], ["b", "c"]]) == ["a", "b", "c"]
assert one_flat_list([[-1, 0], [[1]], [2]]) == [-1, 0, [1], 2]

family, level = "grid work", 3

def rows_to_columns(grid):
    """Write a function `rows_to_columns(grid)` that transposes a grid: it returns a list of lists in which
    row i consists of the values of column i of `grid`. All rows have the same length, at least 1; an empty
    grid gives an empty list."""
    return [list(column) for column in zip(*grid)]
assert rows_to_columns([[1, 2], [3, 4]]) == [[1, 3], [2, 4]] and rows_to_columns([]) == []
assert rows_to_columns([[5]]) == [[5]] and rows_to_columns([[1, 2, 3]]) == [[1], [2], [3]]
assert rows_to_columns([["a"], ["b"]]) == [["a", "b"]]
assert rows_to_columns([[0, -1], [1, 0], [1_000_000, 2]]) == [[0, 1, 1_000_000], [-1, 0, 2]]

family, level = "grid work", 4

def turn_clockwise(grid):
    """Write a function `turn_clockwise(grid)` that rotates a grid (a list of rows of equal length) by 90
    degrees clockwise, so that the first row becomes the last column. It returns the new grid as a list of
    lists."""
    return [list(column) for column in zip(*grid[::-1])]
assert turn_clockwise([[1, 2], [3, 4]]) == [[3, 1], [4, 2]] and turn_clockwise([]) == []
assert turn_clockwise([[5]]) == [[5]] and turn_clockwise([[1, 2, 3]]) == [[1], [2], [3]]
assert turn_clockwise([["a"], ["b"]]) == [["b", "a"]]
assert turn_clockwise([[1, 2], [3, 4], [5, 6]]) == [[5, 3, 1], [6, 4, 2]]

family, level = "grid work", 3

def main_diagonal(grid):
    """Write a function `main_diagonal(grid)` that returns the values on the main diagonal of a square grid as
    a list, beginning with the top left one."""
    return [grid[i][i] for i in range(len(grid))]
assert main_diagonal([[1, 2], [3, 4]]) == [1, 4] and main_diagonal([]) == [] and main_diagonal([[5]]) == [5]
assert main_diagonal([["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]]) == ["a", "e", "i"]
assert main_diagonal([[0, 0], [0, 0]]) == [0, 0]
assert main_diagonal([[-1, 9], [9, 1_000_000]]) == [-1, 1_000_000]

family, level = "grid work", 4

def find_in_grid(grid, value):
    """Write a function `find_in_grid(grid, value)` that looks for `value` in a grid row by row, each from
    left to right, and returns a tuple (row, column) for the first place where it stands, or None if it is
    nowhere."""
    for i, row in enumerate(grid):
        for j, cell in enumerate(row):
            if cell == value:
                return (i, j)
    return None
assert find_in_grid([[1, 2], [3, 4]], 3) == (1, 0) and find_in_grid([[1, 2], [3, 4]], 5) == None
assert find_in_grid([], 0) == None and find_in_grid([[]], 0) == None
assert find_in_grid([[0, 7], [7, 7]], 7) == (0, 1) and find_in_grid([["a"], ["b"], ["c"]], "c") == (2, 0)

def neighbour_count(grid, row, column):
    """In a grid of zeros and ones, `neighbour_count(grid, row, column)` returns how many of the up to eight
    cells around the cell at (row, column) hold a 1. The cell itself does not count, nor do places outside the
    grid."""
    total = 0
    for i in range(max(row - 1, 0), min(row + 2, len(grid))):
        for j in range(max(column - 1, 0), min(column + 2, len(grid[0]))):
            if (i, j) != (row, column):
                total += grid[i][j]
    return total
assert neighbour_count([[1, 1], [1, 1]], 0, 0) == 3 and neighbour_count([[1]], 0, 0) == 0
assert neighbour_count([[0, 0, 0], [0, 1, 0], [0, 0, 0]], 1, 1) == 0
assert neighbour_count([[1, 1, 1], [1, 0, 1], [1, 1, 1]], 1, 1) == 8
assert neighbour_count([[1, 0, 1]], 0, 1) == 2 and neighbour_count([[0, 1], [1, 0], [1, 1]], 2, 0) == 2

def best_column(grid):
    """Given a grid with at least one row and one column of numbers, `best_column(grid)` returns the index of
    the column with the largest sum. If several columns tie, the leftmost of them is returned."""
    sums = [sum(column) for column in zip(*grid)]
    return sums.index(max(sums))
assert best_column([[1, 2], [3, 4]]) == 1 and best_column([[5]]) == 0 and best_column([[1, 1, 1]]) == 0
assert best_column([[-5], [2]]) == 0 and best_column([[0, 9, 0], [9, 0, 10]]) == 2
assert best_column([[3, 1], [0, 2]]) == 0

family, level = "nested recursion", 4

def deep_total(values):
    """The list `values` holds integers and lists, and these lists hold integers and lists again, to any
    depth. Write `deep_total(values)` to return the sum of all integers in it."""
    total = 0
    for value in values:
        if isinstance(value, list):
            total += deep_total(value)
        else:
            total += value
    return total
assert deep_total([1, 2, 3]) == 6 and deep_total([]) == 0 and deep_total([1, [2, [3]]]) == 6
assert deep_total([[[[5]]]]) == 5 and deep_total([[], [[]], -1]) == -1
assert deep_total([[1_000_000, [1, 1]], 7]) == 1_000_009

def deep_flatten(values):
    """Write a function `deep_flatten(values)` that takes a list whose elements may be lists again, to any
    depth, and returns one flat list with all the elements that are not lists, from left to right."""
    flat = []
    for value in values:
        if isinstance(value, list):
            flat.extend(deep_flatten(value))
        else:
            flat.append(value)
    return flat
assert deep_flatten([1, 2, 3]) == [1, 2, 3] and deep_flatten([]) == []
assert deep_flatten([1, [2, [3]]]) == [1, 2, 3] and deep_flatten([[[["a"]]]]) == ["a"]
assert deep_flatten([[], [[]], -1]) == [-1] and deep_flatten([[1, [2, 2]], [], 7]) == [1, 2, 2, 7]

def deep_count(values):
    """Write a function `deep_count(values)` that counts the elements that are not lists in a list of lists of
    any depth, those in inner lists included."""
    count = 0
    for value in values:
        if isinstance(value, list):
            count += deep_count(value)
        else:
            count += 1
    return count
assert deep_count([1, 2, 3]) == 3 and deep_count([]) == 0 and deep_count([1, [2, [3]]]) == 3
assert deep_count([[[["a"]]]]) == 1 and deep_count([[], [[]]]) == 0
assert deep_count([[0, [0, 0]], [], None]) == 4

def deepest_level(values):
    """Write a function `deepest_level(values)` that returns how deeply lists are nested: a list without lists
    inside has depth 1, and every other list has a depth of one more than the deepest list inside it."""
    depth = 0
    for value in values:
        if isinstance(value, list):
            depth = max(depth, deepest_level(value))
    return depth + 1
assert deepest_level([1, 2, 3]) == 1 and deepest_level([]) == 1 and deepest_level([1, [2, [3]]]) == 3
assert deepest_level([[[["a"]]]]) == 4 and deepest_level([[], [[]]]) == 3
assert deepest_level([[1], [2], [3, 4]]) == 2

def deep_reverse(values):
    """Write a function `deep_reverse(values)` that reverses a nested list at every depth: the order of the
    elements of the outer list and of every list inside it is turned around."""
    return [deep_reverse(value) if isinstance(value, list) else value for value in reversed(values)]
assert deep_reverse([1, 2, 3]) == [3, 2, 1] and deep_reverse([]) == []
assert deep_reverse([1, [2, [3, 4]]]) == [[[4, 3], 2], 1] and deep_reverse([[["a", "b"]]]) == [[["b", "a"]]]
assert deep_reverse([[], [[]], -1]) == [-1, [[]], []] and deep_reverse([[1, 2], [3, 4]]) == [[4, 3], [2, 1]]
