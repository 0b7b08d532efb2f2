"""The form of task files: what is read from one, what a mistake in one says, and that ours have it."""

from __future__ import annotations

import ast
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import curriculum.ladder
from curriculum.asserts import literal_call_tests
from curriculum.ladder.index import TASK_FILES, ladder_tasks
from curriculum.ladder.reader import read_tasks
from curriculum.task import Task
from sandbox.result import CallTest

FOLDER = Path(curriculum.ladder.__file__).parent / "tasks"
HEADER = 'family, level = "sums", 2\n'
FUNCTION = 'def add(a, b):\n    """Write `add(a, b)`."""\n    return a + b\n'
ASSERT = "assert add(1, 2) == 3\n"


def test_a_task_is_read_from_a_function_its_docstring_and_the_asserts_below_it() -> None:
    text = '''"""Small sums."""

family, level = "sums", 2

def add(a, b):
    """Write `add(a, b)`, which returns
    the sum."""
    # The reference keeps its comments.
    return a + b
assert add(1, 2) == 3 and add(-1, 1) == 0
assert add(True, 0.5) == 1.5

family, level = "differences", 3

def minus(a, b):
    """Write `minus(a, b)`."""
    return a - b
assert minus((1,), []) == {2}
'''
    first, second = read_tasks(text, "sums.py")
    assert first == Task(
        task_id="ladder/add",
        prompt="Write `add(a, b)`, which returns the sum.",
        entry_point="add",
        call_tests=(
            CallTest(args=(1, 2), expected=3),
            CallTest(args=(-1, 1), expected=0),
            CallTest(args=(True, 0.5), expected=1.5),
        ),
        reference="def add(a, b):\n    # The reference keeps its comments.\n    return a + b\n",
        difficulty=2,
        family="sums",
        source="ladder",
    )
    assert first.call_tests[2].args[0] is True
    assert (second.family, second.difficulty, second.entry_point) == ("differences", 3, "minus")
    assert second.call_tests == (CallTest(args=((1,), []), expected={2}),)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (FUNCTION + ASSERT, 1, 'a task file holds family, level = "NAME", NUMBER, then functions'),
        ('family = "sums"\n' + FUNCTION + ASSERT, 1, 'family, level = "NAME", NUMBER'),
        ("family, level = 2, 2\n" + FUNCTION + ASSERT, 1, 'family, level = "NAME", NUMBER'),
        (HEADER + ASSERT, 2, "then functions, each followed by its asserts"),
        (HEADER + "import math\n" + FUNCTION + ASSERT, 2, "a task file holds"),
        (HEADER + "def add(a, b):\n    return a + b\n" + ASSERT, 2, "add has no docstring"),
        (HEADER + 'def add(a, b):\n    """Add."""\n' + ASSERT, 2, "add has no body below its docstring"),
        (HEADER + FUNCTION + FUNCTION + ASSERT, 2, "add has no asserts below it"),
        (HEADER + FUNCTION + ASSERT + "assert add(1, n) == 3\n", 6, "use assert add(LITERALS) == LITERAL"),
        (HEADER + FUNCTION + "assert add(1, 2) is 3\n", 5, "use assert add(LITERALS) == LITERAL"),
        (HEADER + FUNCTION + "assert add(1, 2) == 3 or add(1, 2) == 4\n", 5, "joined by and"),
        (HEADER + FUNCTION + "assert minus(1, 2) == 3\n", 5, "use assert add(LITERALS) == LITERAL"),
    ],
)
def test_a_mistake_is_refused_with_its_file_and_line(text: str, line: int, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_tasks(text, "sums.py")
    assert str(caught.value).startswith(f"sums.py:{line}: ")
    assert says in str(caught.value)


def test_comparisons_joined_by_and_are_a_test_each_in_every_source() -> None:
    joined = ast.parse("assert f(1) == 2 and f([]) == ()\nassert f(None) == -1").body
    assert literal_call_tests(joined, "f") == (
        CallTest(args=(1,), expected=2),
        CallTest(args=([],), expected=()),
        CallTest(args=(None,), expected=-1),
    )
    for more in (
        "f(1) == 2 and f(x) == 3",
        "f(1) == 2 and g(1) == 3",
        "f(1) == 2 or f(1) == 3",
        "f(1) == 2 and f(1)",
    ):
        assert literal_call_tests(ast.parse(f"assert {more}").body, "f") is None, more


def test_the_index_lists_every_task_file_once() -> None:
    assert sorted(TASK_FILES) == sorted(path.name for path in FOLDER.iterdir() if path.suffix == ".py")


def test_the_tasks_are_read_once_a_process() -> None:
    assert ladder_tasks("all") is ladder_tasks("all")


@pytest.mark.parametrize("file", TASK_FILES)
def test_a_task_file_runs_as_plain_python(file: str) -> None:
    names = runpy.run_path(str(FOLDER / file))
    assert callable(names[read_tasks((FOLDER / file).read_text(encoding="utf-8"), file)[-1].entry_point])


def test_task_files_are_as_ruff_formats_them_but_for_blank_lines(tmp_path: Path) -> None:
    """The formatter wants two blank lines around every function, which would pull tasks and tests apart."""
    formatted = shutil.copytree(FOLDER, tmp_path / "formatted")
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=110", "."]
    subprocess.run(command, cwd=formatted, capture_output=True, check=True, timeout=60)
    for file in TASK_FILES:
        lines, changed = (
            [line for line in (folder / file).read_text(encoding="utf-8").splitlines() if line]
            for folder in (FOLDER, formatted)
        )
        assert lines == changed, file
        assert max(map(len, lines)) <= 110, file
