from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import rows_of
from configs.schema import Config, OutputConfig
from pipeline.evaluation import summary
from pipeline.evaluation.evaluate import EvaluatedSample, EvaluationReport, make_report
from pipeline.evaluation.summary import guards_of, print_summary, write_summary
from pipeline.messages import StepResult
from pipeline.record.ledger import ALARM, GUARD, PLACEMENT_GUARD, Ledger
from pipeline.record.run_folder import RunFolder
from sandbox.result import Outcome
from tests.pipeline.evaluation.answers import result_of

# Every second step is logged: what was logged says nothing of how much was done.
CONFIG = Config.model_validate({"training": {"max_steps": 5}, "output": {"logging_steps": 2}})
SECONDS = {"startup": 1.26, "total": 90.0}
SPECULATING = Config.model_validate({"acceleration": {"speculative": {"enabled": True}}})


def report(**passed: list[bool | None]) -> EvaluationReport:
    """A report of tasks by name; None is a sample that could not be judged."""
    samples = []
    for task_id, verdicts in passed.items():
        for verdict in verdicts:
            outcome = Outcome.INFRA_ERROR if verdict is None else Outcome.PASS if verdict else Outcome.WRONG
            samples.append(EvaluatedSample(task_id=task_id, text="", result=result_of(outcome)))
    return make_report(samples)


BEFORE = report(a=[True, False], b=[False, False], c=[True, None])
AFTER = report(a=[True, True], b=[True, False], c=[True, True])


def write(path: Path, before: EvaluationReport | None, after: EvaluationReport | None) -> dict[str, Any]:
    with RunFolder.create(OutputConfig(dir=str(path), name="run"), "{}") as folder:
        folder.metrics.write_text('{"step": 2, "time_s": 1.0}\n{"step": 4, "time_s": 2.0}\n')
        write_summary(folder, CONFIG, "cpu", "L3", before, after, SECONDS)
        summary: dict[str, Any] = json.loads(folder.summary.read_text(encoding="utf-8"))
    return summary


def test_the_summary_counts_all_steps_however_few_were_logged(tmp_path: Path) -> None:
    summary = write(tmp_path, BEFORE, AFTER)
    assert summary["num_steps"] == 5
    assert summary["num_completions"] == 5 * CONFIG.completions_per_step


def test_the_summary_says_what_ran_where(tmp_path: Path) -> None:
    summary = write(tmp_path, BEFORE, AFTER)
    assert summary["model"] == CONFIG.model.name
    assert summary["mode"] == "balanced"
    assert summary["isolation_level"] == "L3"
    assert summary["hardware"]["device"] == "cpu" and summary["hardware"]["num_cores"] >= 1
    assert summary["hardware"]["num_gpus"] == 0
    assert {"torch", "transformers", "ray", "python"} <= summary["versions"].keys()
    assert summary["seconds"] == {"startup": 1.3, "total": 90.0}


def test_a_machine_without_ray_has_a_summary_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ("ray", "trl")
    monkeypatch.setattr(summary, "package_version", lambda name: "" if name in missing else "1.0")
    assert set(write(tmp_path, BEFORE, AFTER)["versions"]) == {"torch", "transformers", "python"}


def test_the_difference_is_paired_by_task_and_unjudged_samples_are_in_no_count(tmp_path: Path) -> None:
    evaluation = write(tmp_path, BEFORE, AFTER)["evaluation"]
    assert evaluation["before"]["tasks"] == {"a": [1, 2], "b": [0, 2], "c": [1, 1]}
    assert evaluation["before"]["pass_at_1"]["mean"] == pytest.approx(0.5)
    assert evaluation["before"]["outcomes"] == {"pass": 2, "wrong": 3, "infra_error": 1}
    assert evaluation["after"]["pass_at_1"]["mean"] == pytest.approx(2.5 / 3)
    assert evaluation["difference"]["mean"] == pytest.approx(1 / 3)
    assert evaluation["difference"]["num_tasks"] == 3


@pytest.mark.parametrize(("before", "after"), [(None, None), (None, AFTER)])
def test_without_two_measurements_there_is_no_difference(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    before: EvaluationReport | None,
    after: EvaluationReport | None,
) -> None:
    evaluation = write(tmp_path, before, after)["evaluation"]
    assert evaluation["before"] is None
    assert "difference" not in evaluation
    print_summary(tmp_path / "run")
    printed = capsys.readouterr().out
    assert "difference" not in printed and "before" not in printed
    assert ("after training" in printed) == (after is not None)
    assert f"5 steps, {5 * CONFIG.completions_per_step} completions, 1.5 min in all" in printed


def test_what_is_printed_is_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, BEFORE, AFTER)
    print_summary(tmp_path / "run")
    printed = capsys.readouterr().out
    assert "50.0 %" in printed and "83.3 %" in printed
    assert "+33.3 %" in printed
    assert "4 samples a task, temperature 1" in " ".join(printed.split()), "wherever the line was broken"


def commit(ledger: Ledger, step: int, metrics: dict[str, float]) -> None:
    result = StepResult(step=step, num_tokens=1, seconds=1.0, metrics=metrics)
    ledger.commit_step(result, (), {})


@pytest.mark.parametrize("config", [Config(), SPECULATING])
def test_a_run_tells_its_guards_in_the_summary(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder.create(OutputConfig(dir=str(tmp_path), name="run"), "{}") as folder:
        ledger = Ledger(folder.db)
        ledger.event("restart", "no guard")
        ledger.event(PLACEMENT_GUARD, "generation and training run in turn")
        ledger.event(GUARD, "early abort is turned off")
        drafting = {"generation/drafted_tokens": 50.0, "generation/draft_acceptance": 0.5}
        commit(ledger, 1, {"generation/tokens": 100.0, **drafting})
        commit(ledger, 2, {"generation/tokens": 100.0, **drafting, "generation/draft_acceptance": 0.7})
        ledger.close()
        guards = guards_of(folder.db, config)
        assert guards[0] == "generation and training run in turn"
        expected = "drafted 100 tokens for 200 that were written; 60 % of the drafted ones"
        assert guards[1] == "early abort is turned off"
        assert [expected in guard for guard in guards[2:]] == ([True] if config is SPECULATING else [])
        write_summary(folder, config, "cpu", "L3", None, None, {"total": 1.0}, guards=guards)
        assert json.loads(folder.summary.read_text())["guards"] == list(guards)
        print_summary(folder.path)
    said = capsys.readouterr().out
    assert all(f"guard: {guard}" in said for guard in guards)


def test_alarms_of_steps_that_were_gone_back_from_are_not_in_the_summary(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run.db")
    for step in range(1, 7):
        commit(ledger, step, {})
    ledger.event(ALARM, "alarm: step 3: answers are cut off: 97 %")
    ledger.event(ALARM, "alarm: step 6: nothing compiles: 100 %")
    ledger.event(GUARD, "early abort is turned off")
    ledger.rewind(3)
    ledger.event(ALARM, "alarm: step 4: nothing compiles: 99 %")
    ledger.close()
    assert guards_of(tmp_path / "run.db", Config()) == (
        "alarm: step 3: answers are cut off: 97 %",
        "early abort is turned off",
        "alarm: step 4: nothing compiles: 99 %",
    )


def test_the_time_in_all_counts_the_processes_that_this_one_resumed(tmp_path: Path) -> None:
    with RunFolder.create(OutputConfig(dir=str(tmp_path), name="run"), "{}") as folder:
        # The last one went back to a checkpoint, and has a second row.
        for step in (1, 2, 3, 4):
            with closing(Ledger(folder.db)) as ledger:
                if step < 3:
                    commit(ledger, step, {})
        with closing(sqlite3.connect(folder.db)) as database, database:
            # The first ended by itself, the second was killed after its step.
            database.execute("UPDATE runs SET started_at = 1000, ended_at = 1060 WHERE run_id = 1")
            database.execute("UPDATE runs SET started_at = 5000, ended_at = NULL WHERE run_id = 2")
            database.execute("UPDATE steps SET committed_at = 5030 WHERE run_id = 2")
        write_summary(folder, Config(), "cpu", "L3", None, None, {"startup": 3.0, "total": 10.0})
        seconds = json.loads(folder.summary.read_text())["seconds"]
    assert seconds == {"startup": 3.0, "total": 100.0}


def test_an_engine_that_does_not_draft_is_no_guard(tmp_path: Path) -> None:
    config = SPECULATING.model_copy(
        update={"generation": SPECULATING.generation.model_copy(update={"engine": "transformers"})}
    )
    with RunFolder.create(OutputConfig(dir=str(tmp_path), name="run"), "{}") as folder:
        with closing(Ledger(folder.db)) as ledger:
            commit(ledger, 1, {"generation/tokens": 100.0, "generation/drafted_tokens": 0.0})
        assert guards_of(folder.db, config) == ()


def test_drafting_that_drafted_nothing_says_so(tmp_path: Path) -> None:
    with RunFolder.create(OutputConfig(dir=str(tmp_path), name="run"), "{}") as folder:
        with closing(Ledger(folder.db)) as ledger:
            commit(ledger, 1, {"generation/tokens": 100.0, "generation/drafted_tokens": 0.0})
        (told,) = guards_of(folder.db, SPECULATING)
    assert "drafted nothing" in told


def test_a_run_may_have_a_name_that_is_special_in_an_address(tmp_path: Path) -> None:
    with RunFolder.create(OutputConfig(dir=str(tmp_path), name="exp#3 50%20?"), "{}") as folder:
        with closing(Ledger(folder.db)) as ledger:
            ledger.event(GUARD, "early abort is turned off")
        assert guards_of(folder.db, Config()) == ("early abort is turned off",)
    assert rows_of(folder.path, "SELECT kind FROM events") == [(GUARD,)]
