from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from configs.schema import Config
from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.evaluation.evaluate import EvaluationReport
from pipeline.evaluation.heldout import earlier_measurement, spread
from pipeline.generation.generator import GeneratorError
from pipeline.messages import GenerationRequest
from pipeline.record.metrics import read_metrics
from tests.pipeline.fake_stages import FakeRun, make_config, scored

_HELDOUT = tuple(
    Task(task_id=f"e{index}", prompt=f"q{index}", entry_point="f", check_source="def check(f): pass")
    for index in range(6)
)


def _config(*, max_steps: int = 6, **evaluation: object) -> Config:
    return make_config(training={"max_steps": max_steps}, evaluation={"every_steps": 2, **evaluation})


def _measured(run: FakeRun) -> list[int]:
    """The versions that the metrics name as measured, each in the line of a step that is no earlier."""
    versions = []
    for line in read_metrics(run.folder.metrics):
        if "eval/policy_version" in line:
            names = ("eval/policy_version", "eval/newest_policy_version", "step")
            first, newest, step = (int(line[name] or 0) for name in names)
            assert first <= newest and first <= step
            versions.append(first)
    return versions


def _asked(run: FakeRun) -> list[str]:
    return [line.removeprefix("generate evaluation/") for line in run.log if "generate evaluation" in line]


def test_each_measurement_names_its_version_and_leaves_a_report(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, _config(inloop_tasks=3, inloop_samples=2), heldout=_HELDOUT)
    run.train()
    assert _measured(run) == [2, 4]
    assert len(run.scorer.by_tests) == 2 * 3 * 2, "what is measured is judged by its tests alone"
    for version in (2, 4):
        report = earlier_measurement(run.folder.evaluation(f"step-{version:06d}"))
        assert report is not None and [count.task_id for count in report.counts] == ["e0", "e2", "e4"]
        assert report.pass_at_1.mean == 0.5
        assert all(sample.min_policy_version >= version for sample in report.samples)
    assert [note.partition(",")[0] for note in run.notes] == [
        "step 2: pass@1 50.0 % (95 %: 14.6 to 85.4) on 3 tasks",
        "step 4: pass@1 50.0 % (95 %: 14.6 to 85.4) on 3 tasks",
    ]
    assert not list(run.folder.path.glob("*journal*"))


def test_a_measurement_is_logged_by_itself_where_its_step_is_not(tmp_path: Path) -> None:
    config = make_config(
        training={"max_steps": 6}, evaluation={"every_steps": 2}, output={"logging_steps": 5}
    )
    run = FakeRun(tmp_path, config, heldout=_HELDOUT)
    # It ends in step 4: after the first group of that step, before the second.
    for task in _HELDOUT:
        run.generator.held[f"evaluation/{task.task_id}"] = lambda: "completion draw-7 3" in run.log
    run.generator.held["draw-8"] = lambda: run.folder.evaluation("step-000002").exists()
    run.train()
    lines = [json.loads(line) for line in run.folder.metrics.read_text("utf-8").splitlines()]
    (line,) = [line for line in lines if line.get("eval/policy_version") == 2]
    assert line.pop("step") == 4 and line.pop("time_s") >= 0
    assert line.keys() == {
        *("eval/pass_at_1", "eval/pass_at_1_low", "eval/pass_at_1_high", "eval/num_tasks"),
        *("eval/policy_version", "eval/newest_policy_version"),
    }
    assert [line["step"] for line in lines if "train/loss" in line] == [5]
    stored = {number: json.loads(text) for number, text in run.rows("SELECT step, metrics FROM steps")}
    assert line.items() <= stored[4].items() and stored[4]["train/loss"] == 0.5


def test_no_trained_step_waits_for_a_measurement_that_takes_as_long_as_the_run(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, _config(), heldout=_HELDOUT)
    for task in _HELDOUT:
        run.generator.held[f"evaluation/{task.task_id}"] = lambda: "saved 6" in run.log
    run.train()
    end = run.log.index("saved 6")
    assert "trained 6" in run.log[:end] and "generate evaluation/e0" in run.log[:end]
    assert not any(line.startswith("completion evaluation") for line in run.log[:end])
    # What it wrote in the end it wrote with the weights of the last step, and says so.
    report = earlier_measurement(run.folder.evaluation("step-000002"))
    assert report is not None and {sample.max_policy_version for sample in report.samples} == {6}
    assert "step 4 is not measured: the measurement of step 2 still runs" in run.notes
    assert run.notes[-1].endswith("(weights up to step 6)")


def test_it_asks_for_no_more_at_once_than_it_may(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, _config(max_steps=4, inloop_requests=2), heldout=_HELDOUT)
    for task in _HELDOUT[:2]:
        run.generator.held[f"evaluation/{task.task_id}"] = lambda: "saved 4" in run.log
    run.train()
    end = run.log.index("saved 4")
    before = [line for line in run.log[:end] if line.startswith("generate evaluation")]
    assert before == ["generate evaluation/e0", "generate evaluation/e1"]
    assert len(_asked(run)) == len(_HELDOUT)


def test_a_measurement_that_fails_is_noted_and_the_run_goes_on(tmp_path: Path) -> None:
    def fault(request: GenerationRequest) -> None:
        if request.request_id == "evaluation/e1":
            raise GeneratorError("the engine refused")

    run = FakeRun(tmp_path, _config(max_steps=4), heldout=_HELDOUT, fault=fault)
    run.train()
    assert "trained 4" in run.log
    assert run.notes == ["the measurement of step 2 failed: the engine refused"]
    assert _measured(run) == []
    assert not run.folder.evaluation("step-000002").exists()


def test_a_measurement_that_cannot_be_written_is_noted_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(when: str, report: EvaluationReport) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = FakeRun(tmp_path, _config(max_steps=4), heldout=_HELDOUT)
    monkeypatch.setattr(run.folder, "write_evaluation", full)
    run.train()
    assert "trained 4" in run.log
    assert run.notes == ["the measurement of step 2 failed: [Errno 28] No space left on device"]
    assert _measured(run) == []


def test_a_fault_of_the_program_is_not_taken_for_a_failed_measurement(tmp_path: Path) -> None:
    def fault(request: GenerationRequest) -> None:
        if request.request_id == "evaluation/e1":
            raise ZeroDivisionError("a fault")

    with pytest.raises(ZeroDivisionError, match="a fault"):
        FakeRun(tmp_path, _config(), heldout=_HELDOUT, fault=fault).train()


def test_samples_that_could_not_be_judged_count_for_nothing(tmp_path: Path) -> None:
    lost = scored(float("nan"), detail="the sandbox broke")
    run = FakeRun(
        tmp_path,
        _config(max_steps=4, inloop_samples=2),
        heldout=_HELDOUT,
        score_of=lambda task, index: lost if task in _HELDOUT and index == 0 else scored(float(index % 2)),
    )
    run.train()
    report = earlier_measurement(run.folder.evaluation("step-000002"))
    assert report is not None and report.pass_at_1.mean == 1.0
    assert report.outcomes == {"pass": 6, "infra_error": 6}


def test_a_resume_goes_on_with_the_measurement_of_its_step_and_forgets_those_of_later_ones(
    tmp_path: Path,
) -> None:
    config = _config(max_steps=6, inloop_requests=1)
    broken = FakeRun(tmp_path, config, heldout=_HELDOUT)
    broken.trainer.dies_in_step = 3
    broken.generator.held["evaluation/e3"] = lambda: False
    with pytest.raises(StageError, match="the trainer died"):
        # Three tasks are measured before the fourth hangs; the trainer's death ends it.
        broken.generator.held["draw-6"] = lambda: "generate evaluation/e3" in broken.log
        broken.train()
    journal = broken.folder.path / "evaluation_step-000002.journal.jsonl"
    assert len(journal.read_text(encoding="utf-8").splitlines()) == 1 + 3
    # As if an earlier process had come further.
    later = broken.folder.evaluation("step-000004")
    later.write_text("{}", encoding="utf-8")
    abandoned = journal.with_name("evaluation_step-000001.journal.jsonl")
    abandoned.write_text("{}\n", encoding="utf-8")

    resumed = FakeRun(tmp_path, config, heldout=_HELDOUT, done_steps=2)
    resumed.train()
    asked = _asked(resumed)
    assert asked[:3] == ["e3", "e4", "e5"] and asked[3:] == [task.task_id for task in _HELDOUT]
    assert "the measurement of step 1 was not finished; its weights are gone" in resumed.notes
    assert not abandoned.exists() and not journal.exists()
    assert _measured(resumed) == [2, 4]
    assert json.loads(later.read_text(encoding="utf-8"))["pass_at_1"]["num_tasks"] == 6


def test_samples_that_lost_weights_wrote_are_asked_for_anew(tmp_path: Path) -> None:
    config = _config(max_steps=6, inloop_requests=1)
    broken = FakeRun(tmp_path, config, heldout=_HELDOUT)
    broken.trainer.dies_in_step = 3
    broken.generator.held["evaluation/e3"] = lambda: False
    broken.generator.held["draw-6"] = lambda: "generate evaluation/e3" in broken.log
    with pytest.raises(StageError, match="the trainer died"):
        broken.train()
    journal = broken.folder.path / "evaluation_step-000002.journal.jsonl"
    head, first, *others = journal.read_text(encoding="utf-8").splitlines()
    # As if step 3 had been trained, and its weights had written a token of it.
    first = json.dumps({**json.loads(first), "max_policy_version": 3})
    journal.write_text("\n".join([head, first, *others, ""]), encoding="utf-8")
    resumed = FakeRun(tmp_path, config, heldout=_HELDOUT, done_steps=2)
    resumed.train()
    assert _asked(resumed)[:6] == [task.task_id for task in _HELDOUT]


def test_a_resume_that_measures_other_tasks_begins_the_measurement_of_its_step_anew(tmp_path: Path) -> None:
    broken = FakeRun(tmp_path, _config(inloop_requests=1), heldout=_HELDOUT)
    broken.trainer.dies_in_step = 3
    broken.generator.held["evaluation/e3"] = lambda: False
    broken.generator.held["draw-6"] = lambda: "generate evaluation/e3" in broken.log
    with pytest.raises(StageError, match="the trainer died"):
        broken.train()
    resumed = FakeRun(tmp_path, _config(inloop_tasks=2), heldout=_HELDOUT, done_steps=2)
    resumed.train()
    assert _asked(resumed)[:2] == ["e0", "e3"] and _measured(resumed) == [2, 4]


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_measurement_whose_line_was_lost_is_logged_again_and_no_other(
    tmp_path: Path, is_lost: bool
) -> None:
    config = _config(max_steps=16, every_steps=4)
    broken = FakeRun(tmp_path, config, heldout=_HELDOUT).die_in(15)
    logged = read_metrics(broken.folder.metrics)
    (taken_along,) = [int(row["step"] or 0) for row in logged if row.get("eval/policy_version") == 4.0]
    assert taken_along > 4, "so that the file is there where that step is not"
    resumed = FakeRun(tmp_path, config, heldout=_HELDOUT, done_steps=taken_along - is_lost)
    resumed.train()
    assert _measured(resumed) == [4, 8, 12]
    lines = [json.loads(line) for line in resumed.folder.metrics.read_text("utf-8").splitlines()]
    assert len([line for line in lines if line.get("eval/policy_version") == 4]) == 1 + is_lost


def test_a_damaged_measurement_is_noted_and_no_other_is_lost_for_it(tmp_path: Path) -> None:
    FakeRun(tmp_path, _config(), heldout=_HELDOUT).die_in(5)
    damaged = tmp_path / "run" / "evaluation_step-000001.json"
    damaged.write_text("{}", encoding="utf-8")
    resumed = FakeRun(tmp_path, _config(), heldout=_HELDOUT, done_steps=2)
    resumed.train()
    assert _measured(resumed) == [2, 4]
    assert f"{damaged} is damaged ('samples'); delete it to measure again" in resumed.notes


def test_without_every_steps_nothing_is_measured_on_the_way(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(), heldout=_HELDOUT)
    run.train()
    assert _asked(run) == [] and run.notes == []


def test_every_steps_is_refused_where_training_would_have_to_wait() -> None:
    with pytest.raises(ValueError, match=r"generation.weight_update_mode: \"drain\""):
        Config.model_validate(
            {"evaluation": {"every_steps": 5}, "generation": {"weight_update_mode": "drain"}}
        )
    with pytest.raises(ValueError, match="every_steps"):
        Config.model_validate({"evaluation": {"every_steps": 5, "enabled": False}})


def test_tasks_are_taken_at_even_distances() -> None:
    assert [task.task_id for task in spread(_HELDOUT, 2)] == ["e0", "e3"]
    assert spread(_HELDOUT, 100) == _HELDOUT
    assert spread((), 3) == ()
