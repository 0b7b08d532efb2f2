"""The tables of the first runs and of HumanEval are what their measurements hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quickstart import (
    HUMANEVAL_RESULT,
    answers_table,
    count_answers,
    gather,
    gather_humaneval,
    humaneval_table,
)
from pipeline.evaluation.evaluate import EvaluatedSample
from rewards.result import RewardResult
from sandbox.result import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
LEVELS = {"easy": 1, "hard": 2}


def sample(task_id: str, text: str, outcome: Outcome, *, syntax: float = 1.0) -> EvaluatedSample:
    result = RewardResult(
        reward=0.0,
        breakdown={"syntax": syntax},
        outcome=outcome,
        passed=outcome is Outcome.PASS,
        detail="",
        cached=False,
        seconds=0.0,
    )
    return EvaluatedSample(task_id=task_id, text=text, result=result)


BEFORE = [
    sample("easy", "1234", Outcome.PASS),
    sample("easy", "12", Outcome.EXCEPTION, syntax=0.0),
    sample("hard", "123456", Outcome.WRONG),
    sample("hard", "a text that nobody judged", Outcome.INFRA_ERROR, syntax=0.0),
]
AFTER = [sample("easy", "1", Outcome.PASS), sample("hard", "1", Outcome.PASS)]


def test_answers_are_counted_by_level_and_those_not_judged_are_left_out() -> None:
    assert count_answers(BEFORE, LEVELS) == {
        "judged": {"1": 2, "2": 1},
        "passed": {"1": 1, "2": 0},
        "without_syntax": 1,
        "characters": 12,
    }


def test_the_table_of_answers_adds_the_runs_up() -> None:
    answers = {"before": count_answers(BEFORE, LEVELS), "after": count_answers(AFTER, LEVELS)}
    other = {**answers, "before": count_answers([*BEFORE, *AFTER], LEVELS)}
    assert answers_table({"runs": [{"answers": answers}, {"answers": other}]}).splitlines()[2:] == [
        "| pass@1, level 1 | 60.0 % | 100.0 % |",
        "| pass@1, level 2 | 33.3 % | 100.0 % |",
        "| programs that do not compile | 25 % | 0 % |",
        "| characters of an answer, mean | 3 | 1 |",
    ]


@pytest.mark.parametrize(
    ("evaluation", "complaint"),
    [(None, r"summary\.json: no such file"), ({"before": {}}, "evaluation.enabled")],
)
def test_a_run_that_was_not_measured_is_refused(
    evaluation: dict[str, object] | None, complaint: str, tmp_path: Path
) -> None:
    if evaluation is not None:
        (tmp_path / "summary.json").write_text(json.dumps({"evaluation": evaluation}))
    with pytest.raises(ValueError, match=complaint):
        gather(tmp_path)


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
    with pytest.raises(ValueError, match=r"summary\.json: no such file"):
        gather_humaneval(report, run)
    report.write_text(json.dumps({"reports": {}}))
    with pytest.raises(ValueError, match="compares no two models"):
        gather_humaneval(report, tmp_path / "other")


def test_the_table_in_the_documents_is_the_measured_one() -> None:
    assert humaneval_table(json.loads(HUMANEVAL_RESULT.read_text(encoding="utf-8"))) in PAGE.read_text(
        encoding="utf-8"
    )
