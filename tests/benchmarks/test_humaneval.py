"""The README's figures of HumanEval are those of a run and of a report, and of the same one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quickstart import HUMANEVAL_RESULT, gather_humaneval, humaneval_table

README = Path(__file__).parents[2] / "README.md"


def written(folder: Path, **changes: Any) -> tuple[Path, Path]:
    """A report and the run whose checkpoint it measured."""
    run = folder / "runs" / "default"
    run.mkdir(parents=True)
    summary = {"mode": "balanced", "seed": 0, "num_steps": 36, "num_completions": 1152}
    (run / "summary.json").write_text(json.dumps({**summary, "hardware": {}, "versions": {}}))
    estimate = {"mean": 0.5, "low": 0.4, "high": 0.6, "num_tasks": 2}
    side = {"pass_at_k": {"1": estimate}, "outcomes": {"passed": 1, "failed": 1}}
    checkpoint = run / "checkpoints" / "step-000036"
    record = {
        "tasks": "humaneval",
        "settings": {"num samples": "1", "temperature": "0.0", "max completion length": "512"},
        "reports": {"base": side, str(checkpoint): side},
        "comparison": {
            "difference": {**estimate, "mean": 0.0},
            "test": "exact McNemar test",
            "p_value": 1.0,
            "first_better": ["a"],
            "second_better": ["b"],
        },
    }
    report = folder / "report.json"
    report.write_text(json.dumps({**record, **changes}))
    return report, run


def test_a_report_and_its_run_become_a_table(tmp_path: Path) -> None:
    result = gather_humaneval(*written(tmp_path))
    assert result["run"]["seed"] == 0 and result["checkpoint"] == "step-000036"
    lines = humaneval_table(result).splitlines()
    assert lines[2] == "| `base` | 50.0 % (40.0 to 60.0) |"
    assert lines[-1].startswith("| difference (1 tasks won, 1 lost; exact McNemar test, p = 1.00) | +0.0 % (")


def test_a_report_of_another_run_or_of_one_model_is_refused(tmp_path: Path) -> None:
    report, run = written(tmp_path)
    (tmp_path / "other").mkdir()
    (run / "summary.json").rename(tmp_path / "other" / "summary.json")
    with pytest.raises(ValueError, match="no checkpoint of"):
        gather_humaneval(report, tmp_path / "other")
    with pytest.raises(ValueError, match=r"summary\.json: cannot be read"):
        gather_humaneval(report, run)
    report.write_text(json.dumps({"reports": {}}))
    with pytest.raises(ValueError, match="compares no two models"):
        gather_humaneval(report, tmp_path / "other")


def test_the_table_in_the_readme_is_the_measured_one() -> None:
    assert humaneval_table(json.loads(HUMANEVAL_RESULT.read_text(encoding="utf-8"))) in README.read_text(
        encoding="utf-8"
    )
