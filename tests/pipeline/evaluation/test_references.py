"""Tasks whose own solution fails are left out, by name; nobody waits for a verdict twice."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from configs.load import load_config
from configs.schema import Config, ExecutionConfig
from curriculum.judging import Executor
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from pipeline.evaluation import sound_tasks as module
from pipeline.evaluation.sound_tasks import sound_tasks
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome
from tests.fake_sandbox import make_run

Notes = list[tuple[str, str]]


def task_of(name: str, reference: str, prelude: str = "") -> Task:
    tests = (CallTest(args=(2,), expected=4),)
    return Task(
        task_id=name, prompt="?", entry_point="f", call_tests=tests, reference=reference, prelude=prelude
    )


GOOD = task_of("good", "def f(x):\n    return 2 * x")
WRONG = task_of("wrong", "def f(x):\n    return x")
RAISES = task_of("raises", "def f(x):\n    return x / 0")
SLOW = task_of("slow", "def f(x):\n    while True:\n        pass")
NONE = task_of("none", "")
WEAK = Task(
    task_id="weak",
    prompt="?",
    entry_point="f",
    check_source="def check(f):\n    assert f(2) >= 0\n",
    reference="def f(x):\n    return 2 * x",
)
BROKEN = task_of("broken", "def f(x):\n    return 2 * x", prelude="1 / 0")


def sandbox_of(
    run: Callable[[ExecutionRequest], ExecutionResult],
) -> Callable[..., AbstractContextManager[object]]:
    return lambda *arguments: nullcontext(SimpleNamespace(run=run, level="L3"))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "tasks.jsonl"
    file.write_text("{}", encoding="utf-8")
    return load_config(overrides=[f"dataset.name={file}", "execution.timeout=0.3"])


def test_references_that_fail_are_left_out_and_named(config: Config) -> None:
    notes: Notes = []
    tasks = [GOOD, WRONG, RAISES, SLOW, NONE, BROKEN]
    kept = sound_tasks(tasks, config, lambda kind, text: notes.append((kind, text)))
    assert kept == (GOOD, SLOW, NONE)
    ((kind, said),) = notes
    assert kind == "wrong references"
    assert "of 3 of 6 tasks fail" in said and "ZeroDivisionError" in said
    for name in ("wrong: wrong", "raises: exception", "broken: prelude"):
        assert name in said


def test_a_run_that_ends_meanwhile_keeps_what_was_measured_and_what_another_run_wrote(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "cache" / "code-grpo" / "references.json"
    asked: list[str] = []

    def judge(sandbox: Executor, execution: ExecutionConfig, task: Task) -> str:
        if not asked:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"of another run": ""}')
        asked.append(task.task_id)
        time.sleep(0.02)
        return ""

    monkeypatch.setattr(module, "_fault_of_reference", judge)
    # As many at a time, whatever machine this is.
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    tasks = [task_of(f"task {number}", GOOD.reference) for number in range(50)]
    with pytest.raises(InterruptedError):
        sound_tasks(tasks, config, lambda kind, text: None, lambda: len(asked) > 3)
    num_asked, kept = len(asked), json.loads(path.read_text())
    assert 3 < num_asked < 50 and 1 < len(kept) <= num_asked + 1 and "of another run" in kept
    assert sound_tasks(tasks, config, lambda kind, text: None) == tuple(tasks)
    assert len(asked) <= 50 + num_asked - (len(kept) - 1)


def test_verdicts_are_kept_as_long_as_task_reference_and_limits_are_the_same(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    judge = module._fault_of_reference

    def noted(sandbox: Executor, execution: ExecutionConfig, task: Task) -> str | None:
        asked.append(task.task_id)
        return judge(sandbox, execution, task)

    monkeypatch.setattr(module, "_fault_of_reference", noted)
    for _ in range(2):
        assert sound_tasks([GOOD, WRONG], config, lambda kind, text: None) == (GOOD,)
    assert sorted(asked) == ["good", "wrong"]
    mended = task_of("wrong", GOOD.reference)
    assert sound_tasks([GOOD, mended], config, lambda kind, text: None) == (GOOD, mended)
    execution = config.execution.model_copy(update={"max_memory": 256})
    sound_tasks([GOOD], config.model_copy(update={"execution": execution}), lambda kind, text: None)
    # What was mended is of the good one's content by now.
    assert asked[2:] == ["good"]
    # Of another judge, Python or module nothing is known.
    monkeypatch.setattr(module, "judge_digest", lambda: "another")
    sound_tasks([GOOD], config, lambda kind, text: None)
    assert asked[3:] == ["good"]


def test_what_the_sandbox_could_not_judge_is_asked_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = config.dataset.model_copy(update={"min_mutants_killed": 0.1})
    config = config.model_copy(update={"dataset": dataset})
    unjudged = ExecutionResult(
        outcome=Outcome.INFRA_ERROR,
        num_passed=0,
        num_tests=1,
        detail="no memory",
        clean=False,
        cpu_s=0.0,
        wall_s=0.0,
        level="L3",
    )

    with monkeypatch.context() as patch:
        patch.setattr(module, "start_sandbox", sandbox_of(lambda request: unjudged))
        assert sound_tasks([WRONG], config, lambda kind, text: None) == (WRONG,)
    with pytest.raises(ValueError, match="wrong references: those of 1 of 1"):
        sound_tasks([WRONG], config, lambda kind, text: None)


def slow_today(program: str, number: int) -> Outcome:
    return Outcome.TIMEOUT_CPU


def flaky_today(program: str, number: int) -> Outcome:
    return Outcome.PASS if number < 3 else Outcome.WRONG


def without_mutants_today(program: str, number: int) -> Outcome:
    return Outcome.PASS if program == WEAK.reference else Outcome.INFRA_ERROR


@pytest.mark.parametrize("outcome_of", [slow_today, flaky_today, without_mutants_today])
def test_tests_that_could_not_be_measured_are_measured_by_the_next_run(
    config: Config, monkeypatch: pytest.MonkeyPatch, outcome_of: Callable[[str, int], Outcome]
) -> None:
    dataset = config.dataset.model_copy(update={"min_mutants_killed": 0.9})
    config = config.model_copy(update={"dataset": dataset})
    asked: list[str] = []

    def run(request: ExecutionRequest) -> ExecutionResult:
        asked.append(request.solution)
        outcome = outcome_of(request.solution, len(asked))
        return make_run(outcome, 4 * (outcome is Outcome.PASS))

    with monkeypatch.context() as patch:
        patch.setattr(module, "start_sandbox", sandbox_of(run))
        assert sound_tasks([WEAK], config, lambda kind, text: None) == (WEAK,)
    with pytest.raises(ValueError, match="weak tests: those of 1 of 1 tasks kill less than 90%"):
        sound_tasks([WEAK], config, lambda kind, text: None)


def test_a_cache_that_cannot_be_written_ends_nothing(config: Config, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, no folder", encoding="utf-8")
    assert sound_tasks([GOOD, WRONG], config, lambda kind, text: None) == (GOOD,)


def test_a_set_without_one_sound_task_is_refused(config: Config) -> None:
    with pytest.raises(ValueError, match=r"dataset\.name: .*tasks\.jsonl.* 1 of 1 tasks .* no task is left"):
        sound_tasks([WRONG], config, lambda kind, text: None)


def test_built_in_sets_and_runs_without_execution_are_not_looked_at(config: Config) -> None:
    for settings in ("dataset.name=ladder", "execution.enabled=false"):
        assert sound_tasks([WRONG], load_config(overrides=[settings]), lambda kind, text: None) == (WRONG,)


def test_tasks_whose_tests_catch_too_little_are_left_out_where_it_is_asked_for(config: Config) -> None:
    notes: Notes = []
    for least, kept in ((None, (GOOD, WEAK)), (0.2, (GOOD, WEAK)), (0.9, (GOOD,))):
        dataset = config.dataset.model_copy(update={"min_mutants_killed": least})
        asked = config.model_copy(update={"dataset": dataset})
        assert sound_tasks([GOOD, WEAK], asked, lambda kind, text: notes.append((kind, text))) == kept
    ((kind, said),) = notes
    assert kind == "weak tests" and "1 of 2 tasks kill less than 90% of their mutants (weak: " in said


def test_tasks_near_a_benchmark_are_left_out_where_it_is_asked_for(config: Config) -> None:
    (known, *_) = load_named_tasks("humaneval")
    copied = Task(
        task_id="copied",
        prompt=f"Please do this.\n{known.prompt}",
        entry_point=known.entry_point,
        check_source=known.check_source,
        reference=known.reference,
    )
    dataset = config.dataset.model_copy(update={"max_overlap": 0.5})
    notes: Notes = []
    asked = config.model_copy(update={"dataset": dataset})
    assert sound_tasks([GOOD, copied], asked, lambda kind, text: notes.append((kind, text))) == (GOOD,)
    assert notes[-1][0] == "tasks near a benchmark" and "copied: HumanEval/0 (0." in notes[-1][1]
