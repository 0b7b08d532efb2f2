"""The README is short, its tree is that of the code, and its figures are those that were measured.

python -c "from tests.test_readme import tree; print(tree())"      # the tree as it should be
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from benchmarks import modes
from benchmarks.quickstart import RESULT, answers_table, table
from benchmarks.report import RESULTS
from configs.load import MODES
from tests.test_imports import ARROWS, LADDER

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS_PAGE = ROOT / "docs" / "results.md"
GUIDE = ROOT / "SPEEDUP_GUIDE.md"
MAX_README_LINES = 130


def tree() -> str:
    """The packages in the order of their imports, each with the first line of its docstring."""
    rooms = [ROOT / "pipeline" / name for floor in LADDER for name in floor]
    places = [ROOT / name for name in ARROWS]
    for room in rooms:
        inner = sorted(path.parent for path in room.rglob("__init__.py"))
        places += inner
    lines = []
    for place in places:
        text = (place / "__init__.py").read_text(encoding="utf-8")
        said = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].rstrip(".")
        path = place.relative_to(ROOT).as_posix()
        depth = path.count("/")
        lines.append(f"    {'  ' * depth}{place.name + '/':<{16 - 2 * depth}}{said}")
    return "\n".join(lines)


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


def test_the_tree_in_the_readme_is_that_of_the_code() -> None:
    assert f"\n\n{tree()}\n\n" in README.read_text(encoding="utf-8"), f"it should be\n\n{tree()}"


def test_the_quickstart_tables_are_the_measured_ones() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert len(result["runs"]) >= 3
    page = RESULTS_PAGE.read_text(encoding="utf-8")
    assert table(result) in README.read_text(encoding="utf-8")
    assert table(result) in page and answers_table(result) in page


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_has_its_measured_speed(mode: str) -> None:
    (row,) = [
        line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{mode}`")
    ]
    measured = json.loads((RESULTS / "modes_cpu.json").read_text(encoding="utf-8"))
    assert row.endswith(f"| {modes.times_baseline(measured['runs'], mode)} |")
