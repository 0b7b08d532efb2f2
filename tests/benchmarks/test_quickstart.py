"""The tables of the first runs are what their measurements hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.quickstart import answers_table, count_answers, gather
from pipeline.evaluation.evaluate import EvaluatedSample
from rewards.result import RewardResult
from sandbox.result import Outcome

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
    [(None, r"summary\.json: cannot be read"), ({"before": {}}, "evaluation.enabled")],
)
def test_a_run_that_was_not_measured_is_refused(
    evaluation: dict[str, object] | None, complaint: str, tmp_path: Path
) -> None:
    if evaluation is not None:
        (tmp_path / "summary.json").write_text(json.dumps({"evaluation": evaluation}))
    with pytest.raises(ValueError, match=complaint):
        gather(tmp_path)
