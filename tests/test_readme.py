"""Figures in the README are those that were measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import async_overlap, generation, startup, step_table
from benchmarks.quickstart import RESULT, table

README = Path(__file__).parent.parent / "README.md"
GUIDE = Path(__file__).parent.parent / "SPEEDUP_GUIDE.md"


def test_the_quickstart_table_is_the_measured_one() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert len(result["runs"]) >= 3
    assert table(result) in README.read_text(encoding="utf-8")


def test_modes_without_a_measurement_say_so() -> None:
    rows = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) == 3 and all("not measured yet" in row for row in rows)


def test_the_tables_of_the_training_step_are_the_measured_ones() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    measured = json.loads((RESULT.parent / "train_step_cpu.json").read_text(encoding="utf-8"))
    profiled = json.loads((RESULT.parent / "train_step_profile_cpu.json").read_text(encoding="utf-8"))
    assert step_table.table(measured) in guide
    assert step_table.profile_table(profiled) in guide
    assert measured["variants"]["all"]["ratio"] >= 2.5


def test_the_tables_of_generation_start_and_overlap_are_the_measured_ones() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    benchmarks = {"generation": generation, "startup": startup, "async_overlap": async_overlap}
    for name, benchmark in benchmarks.items():
        measured = json.loads((RESULT.parent / f"{name}_cpu.json").read_text(encoding="utf-8"))
        assert benchmark.table(measured) in guide
