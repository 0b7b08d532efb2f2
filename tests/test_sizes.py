"""How large a function, a file and a list of parameters may be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRODUCT = ("configs", "sandbox", "curriculum", "rewards", "pipeline")
MAX_PARAMETERS = 10
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 350


def num_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """All that a caller may give; ``self`` and ``cls`` are not given."""
    given = function.args
    names = [parameter.arg for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    num_stars = (given.vararg is not None) + (given.kwarg is not None)
    return len(names) - (names[:1] in (["self"], ["cls"])) + num_stars


def too_large(path: str, source: str) -> list[str]:
    """What is larger than it may be, one line each."""
    found = []
    num_lines = source.count("\n")
    if num_lines > MAX_FILE_LINES:
        found.append(f"{path}: {num_lines} lines, at most {MAX_FILE_LINES}")
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        where = f"{path}:{node.lineno} {node.name}"
        if (number := num_parameters(node)) > MAX_PARAMETERS:
            found.append(f"{where}: {number} parameters, at most {MAX_PARAMETERS}")
        if (number := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES:
            found.append(f"{where}: {number} lines, at most {MAX_FUNCTION_LINES}")
    return found


def test_functions_and_files_of_the_product_fit_a_screen_and_a_reader() -> None:
    files = sorted(path for package in PRODUCT for path in (ROOT / package).rglob("*.py"))
    assert len(files) > 150
    assert [line for path in files for line in too_large(str(path.relative_to(ROOT)), path.read_text())] == []


def names(number: int) -> str:
    return ", ".join(f"x{index}" for index in range(number))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (f"def f({names(11)}): pass\n", "11 parameters"),
        (f"class A:\n    def __init__(self, *, {names(11)}): pass\n", "11 parameters"),
        (f"async def f({names(9)}, *more, **others): pass\n", "11 parameters"),
        ("def f():\n" + "    pass\n" * 60, "61 lines, at most 60"),
        ("def f():\n    async def g():\n" + "        pass\n" * 60, "g: 61 lines"),
        ("x = 1\n" * 351, "351 lines, at most 350"),
    ],
)
def test_what_is_too_large_is_found(source: str, complaint: str) -> None:
    assert any(complaint in line for line in too_large("x.py", source))


@pytest.mark.parametrize(
    "source",
    [
        f"class A:\n    def f(self, {names(10)}): pass\n",
        "def f():\n" + "    pass\n" * 59,
        "x = 1\n" * 350,
    ],
)
def test_what_just_fits_is_not_complained_of(source: str) -> None:
    assert too_large("x.py", source) == []
