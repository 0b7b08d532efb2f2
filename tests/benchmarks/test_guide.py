"""The tables of SPEEDUP_GUIDE.md are those of the data, and a wrong one is found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import guide
from benchmarks.report import RESULTS
from configs.techniques import TECHNIQUES


@pytest.mark.parametrize("document", guide.DOCUMENTS, ids=lambda path: path.name)
def test_a_documents_tables_are_those_of_the_data_and_the_code(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert guide.written(text) == text, "write it anew: python -m benchmarks.guide"


def test_every_table_has_its_place_in_one_document() -> None:
    texts = [document.read_text(encoding="utf-8") for document in guide.DOCUMENTS]
    found = re.findall(r"<!-- table: ([a-z_]+) -->", "".join(texts))
    assert sorted(found) == sorted({*guide.MEASURED, *guide.DERIVED})


def test_a_training_step_is_as_much_faster_than_trls_as_the_project_promises() -> None:
    measured = json.loads((RESULTS / "train_step_cpu.json").read_text(encoding="utf-8"))
    assert measured["variants"]["all"]["ratio"] >= 2.5


@pytest.mark.parametrize(("mode", "least"), [("conservative", 1.5), ("balanced", 2.5), ("aggressive", 3.5)])
def test_each_mode_is_as_much_faster_than_trl_as_the_project_promises(mode: str, least: float) -> None:
    row = re.search(rf"^\| `{mode}` \| [\d.]+ \| ([\d.]+) \(", guide.printed("modes"), re.MULTILINE)
    assert row is not None and float(row[1]) >= least


@pytest.mark.parametrize("name", ["chaos_cpu", "chaos_after_cpu"])
def test_no_run_that_lost_a_process_lost_anything_else(name: str) -> None:
    measured = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert len(measured["runs"]) >= 14
    assert [run for run in measured["runs"] if run["faults"]] == []


def test_no_figure_is_only_expected() -> None:
    text = guide.GUIDE.read_text(encoding="utf-8").lower()
    assert re.search(r"expected (speed|gain|factor|figure)", text) is None


def test_a_changed_figure_is_found_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "GUIDE.md"
    monkeypatch.setattr(guide, "DOCUMENTS", (own,))
    own.write_text(f"before\n<!-- table: startup -->\n| default | 1.0 s |\n{guide.END}\nafter\n")
    assert guide.main(["--check"]) == 1
    assert guide.main([]) == 0
    assert guide.main(["--check"]) == 0
    text = own.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and guide.printed("startup") in text
    assert "not what it should be" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["<!-- table: nonsense -->\nx\n<!-- end of table -->", "<!-- table: modes -->\n"]
)
def test_a_wrong_marker_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "GUIDE.md"
    monkeypatch.setattr(guide, "DOCUMENTS", (own,))
    own.write_text(text)
    assert guide.main([]) == 2
    assert own.read_text() == text


def test_the_table_of_techniques_has_all_of_them() -> None:
    assert all(f"| {technique.name} (`" in guide.printed("ablation") for technique in TECHNIQUES)
