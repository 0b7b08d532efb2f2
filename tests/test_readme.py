"""Figures in the README are those that were measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.quickstart import RESULT, table

README = Path(__file__).parent.parent / "README.md"


def test_the_quickstart_table_is_the_measured_one() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert len(result["runs"]) >= 3
    assert table(result) in README.read_text(encoding="utf-8")


def test_modes_without_a_measurement_say_so() -> None:
    rows = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) == 3 and all("not measured yet" in row for row in rows)
