"""Figures in the README are those that were measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import generation, modes, startup
from benchmarks.async_overlap import __main__ as async_overlap
from benchmarks.quickstart import RESULT, answers_table, table
from benchmarks.train_step import __main__ as train_step

README = Path(__file__).parent.parent / "README.md"
GUIDE = Path(__file__).parent.parent / "SPEEDUP_GUIDE.md"


def test_the_quickstart_tables_are_the_measured_ones() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert len(result["runs"]) >= 3
    text = README.read_text(encoding="utf-8")
    assert table(result) in text and answers_table(result) in text


@pytest.mark.parametrize("mode", modes.MODES)
def test_a_mode_has_its_measured_speed_or_says_that_there_is_none(mode: str) -> None:
    (row,) = [
        line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{mode}`")
    ]
    speed = "not measured yet"
    if modes.RESULT.is_file():
        result = json.loads(modes.RESULT.read_text(encoding="utf-8"))
        speed = modes.times_baseline(result["runs"], mode) or speed
    assert row.endswith(f"| {speed} |")


def test_the_tables_of_the_training_step_are_the_measured_ones() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    measured = json.loads((RESULT.parent / "train_step_cpu.json").read_text(encoding="utf-8"))
    profiled = json.loads((RESULT.parent / "train_step_profile_cpu.json").read_text(encoding="utf-8"))
    assert train_step.table(measured) in guide
    assert train_step.profile_table(profiled) in guide
    assert measured["variants"]["all"]["ratio"] >= 2.5


def test_the_tables_of_generation_start_and_overlap_are_the_measured_ones() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    benchmarks = {
        "generation": generation.table,
        "startup": startup.table,
        "async_overlap": async_overlap.table,
    }
    for name, print_table in benchmarks.items():
        measured = json.loads((RESULT.parent / f"{name}_cpu.json").read_text(encoding="utf-8"))
        assert print_table(measured) in guide
