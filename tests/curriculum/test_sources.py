from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from configs.schema import DatasetConfig
from curriculum.audit.new_tests import as_record
from curriculum.codeio import load_codeio
from curriculum.hub import load_hub
from curriculum.humaneval import load_humaneval
from curriculum.sources import load_named_tasks, load_tasks
from curriculum.task import Task
from sandbox.job import parse_quietly
from sandbox.pool import SandboxPool
from tests.curriculum.answers import passes
from tests.mbpp import MBPP, without_mbpp

CHECK = "def check(candidate):\n    assert candidate(1) == 2\n"
# Tasks whose published solution in this form is wrong, slow, or not judged by plain values.
_MBPP_FAILING = {f"MBPP/{i}" for i in (123, 160, 367, 533, 596, 601, 607, 631, 642, 927)}


def _reference_passes(pool: SandboxPool, task: Task) -> bool:
    """False also for a check program that cannot run at all."""
    try:
        return passes(pool, task, task.reference)
    except ValueError:
        return False


def test_humaneval_has_its_164_tasks_with_prelude_check_and_reference() -> None:
    tasks = load_humaneval()
    assert [task.task_id for task in tasks] == [f"HumanEval/{i}" for i in range(164)]
    for task in tasks:
        assert task.check_source is not None and "def check(candidate)" in task.check_source
        assert task.prompt.startswith(task.prelude)
        assert f"def {task.entry_point}" not in task.prelude
        ast.parse(task.prelude)
        assert task.reference.startswith(task.prompt)


def test_helpers_in_humaneval_prompts_are_in_the_prelude() -> None:
    tasks = load_humaneval()
    for index, helper in ((10, "is_palindrome"), (32, "poly"), (38, "encode_cyclic"), (50, "encode_shift")):
        assert f"def {helper}(" in tasks[index].prelude


def test_references_of_humaneval_pass_in_the_sandbox_and_empty_answers_fail(sandbox: SandboxPool) -> None:
    for task in load_humaneval()[::16]:
        assert passes(sandbox, task, task.reference), task.task_id
        assert not passes(sandbox, task, f"def {task.entry_point}(*args):\n    pass\n"), task.task_id


@without_mbpp
def test_mbpp_in_humaneval_form_is_read_whole_and_its_references_pass(sandbox: SandboxPool) -> None:
    tasks = load_named_tasks(str(MBPP))
    assert len(tasks) == 974
    assert {task.source for task in tasks} == {"mbpp"}
    assert sum(bool(task.call_tests) for task in tasks) > 900
    failed = [task.task_id for task in tasks[::20] if not _reference_passes(sandbox, task)]
    assert set(failed) <= _MBPP_FAILING


def test_codeio_has_hundreds_of_tasks_on_every_level() -> None:
    tasks = load_codeio()
    assert len(tasks) > 1000
    assert {task.difficulty for task in tasks} == {1, 2, 3, 4, 5}
    assert len({task.task_id for task in tasks}) == len(tasks)
    for task in tasks:
        assert task.check_source is not None
        assert parse_quietly(task.check_source) is not None
        assert "main_solution(" in task.prompt


def test_references_of_codeio_pass_in_the_sandbox_and_constant_answers_fail(sandbox: SandboxPool) -> None:
    for task in load_codeio()[::60]:
        assert passes(sandbox, task, task.reference), task.task_id
        for constant in ("None", "0", "True", "[]", "''"):
            program = f"def main_solution(*args):\n    return {constant}\n"
            assert not passes(sandbox, task, program), (task.task_id, constant)


def test_max_samples_takes_the_first_in_the_sources_order() -> None:
    whole = load_tasks(DatasetConfig(name="ladder"))
    assert load_tasks(DatasetConfig(name="ladder", max_samples=7)) == whole[:7]


def test_ladder_splits_share_no_family() -> None:
    train = {task.family for task in load_tasks(DatasetConfig(name="ladder"))}
    heldout = {task.family for task in load_named_tasks("ladder-heldout")}
    assert train and heldout and not train & heldout


@pytest.mark.parametrize(("name", "split"), [("humaneval", "train"), ("mbpp", "test"), ("ladder", "all")])
def test_evaluation_sets_are_refused_for_training(name: str, split: str) -> None:
    with pytest.raises(ValueError, match="evaluation set"):
        DatasetConfig(name=name, split=split)


@pytest.mark.parametrize(
    ("task_id", "is_trained_on"),
    [("MBPP/3", True), ("MBPP/11", False), ("MBPP/510", False), ("MBPP/511", True), ("Mbpp/602", False)],
)
def test_mbpps_training_part_is_trained_on_and_its_test_part_is_not(
    task_id: str, is_trained_on: bool, tmp_path: Path
) -> None:
    record = {"task_id": task_id, "text": "Double x.", "code": "def f(x):\n    return 2 * x\n"}
    file = tmp_path / "mbpp.jsonl"
    file.write_text(json.dumps({**record, "test_list": ["assert f(1) == 2"]}), encoding="utf-8")
    if is_trained_on:
        assert len(load_tasks(DatasetConfig(name=str(file)))) == 1
        return
    with pytest.raises(ValueError, match="mbpp is an evaluation set"):
        load_tasks(DatasetConfig(name=str(file)))


def test_an_evaluation_set_is_trained_on_when_it_is_allowed_by_name() -> None:
    dataset = DatasetConfig(name="humaneval", allow_evaluation_sets=["humaneval"])
    assert len(load_tasks(dataset)) == 164


def test_an_evaluation_set_in_a_file_of_another_name_is_refused(tmp_path: Path) -> None:
    task = load_humaneval()[0]
    record = {
        "task_id": task.task_id,
        "prompt": task.prompt,
        "entry_point": task.entry_point,
        "canonical_solution": task.reference.removeprefix(task.prompt),
        "test": task.check_source,
    }
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match="humaneval is an evaluation set"):
        load_tasks(DatasetConfig(name=str(file)))
    assert load_named_tasks(str(file)) == (task,)


@pytest.mark.parametrize(
    ("task_id", "name"),
    [
        ("HumanEval/3", "humaneval"),
        ("MBPP/11", "mbpp"),
        ("Mbpp/602", "mbpp"),
        ("LiveCodeBench/abc1_a", "livecodebench"),
        (load_named_tasks("ladder-heldout")[0].task_id, "ladder-heldout"),
        (load_named_tasks("word-problems-heldout")[0].task_id, "word-problems-heldout"),
        ("MBPP/600", None),
        ("MBPP/²", None),
        (load_named_tasks("ladder")[0].task_id, None),
        ("HumanEval", None),
        ("11", None),
    ],
)
def test_in_the_plain_form_a_task_is_of_the_set_that_its_id_is_of(
    task_id: str, name: str | None, tmp_path: Path
) -> None:
    record = {"task_id": task_id, "prompt": "Double x.", "entry_point": "f", "check": CHECK}
    file = tmp_path / "tasks.jsonl"
    lines = [{**record, "task_id": "mine"}, record]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    if name is None:
        assert len(load_tasks(DatasetConfig(name=str(file)))) == 2
        return
    with pytest.raises(ValueError, match=rf"{name} is an evaluation set.*{task_id} is of it"):
        load_tasks(DatasetConfig(name=str(file)))
    assert len(load_tasks(DatasetConfig(name=str(file), allow_evaluation_sets=[name]))) == 2


def test_what_an_audit_writes_of_an_evaluation_set_is_still_that_set(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(json.dumps(as_record(task)) for task in load_humaneval()[:3]), encoding="utf-8")
    with pytest.raises(ValueError, match="humaneval is an evaluation set"):
        load_tasks(DatasetConfig(name=str(file)))


def test_an_unknown_evaluation_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'humanevil': use ladder, ladder-heldout, humaneval, mbpp"):
        load_named_tasks("humanevil")


def test_a_folder_beside_needs_no_slash_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    row = {"task_id": "a", "prompt": "Add one.", "entry_point": "f", "tests": CALLS}
    Path("mine/train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (task,) = load_named_tasks("mine", "train")
    assert task.task_id == "a"


def _folder_data_set(folder: Path) -> str:
    row = {"id": "a", "question": "Add one.", "name": "f", "cases": '[{"args": [1], "expected": 2}]', "x": 1}
    (folder / "train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return str(folder)


def test_a_hub_data_set_is_read_through_its_column_mapping(tmp_path: Path) -> None:
    name = _folder_data_set(tmp_path)
    columns = {"task_id": "id", "prompt": "question", "entry_point": "name", "tests": "cases"}
    (task,) = load_hub(name, "train", columns)
    assert (task.task_id, task.prompt, task.entry_point) == ("a", "Add one.", "f")
    assert task.call_tests[0].args == (1,)
    with pytest.raises(ValueError, match=r"dataset.columns: tests: value 'tsts'.*cases"):
        load_hub(name, "train", {**columns, "tests": "tsts"})
    with pytest.raises(ValueError, match=r"dataset.columns: key 'test_cases'"):
        load_hub(name, "train", {"test_cases": "cases"})
    with pytest.raises(ValueError, match=r"row 0: field 'entry_point': value missing"):
        load_hub(name, "train", {"prompt": "question", "tests": "cases"})
    with pytest.raises(ValueError, match=r"dataset.split: value 'nope'"):
        load_hub(name, "nope", columns)


CALLS = [{"args": [1], "expected": 2}]


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"test": CHECK}, {"check": "test"}),
        ({"tests": CHECK}, {"check": "tests"}),
        ({"test_list": CALLS}, {"tests": "test_list"}),
        ({"cases": CALLS, "test": CHECK, "test_list": ["assert f(1) == 2"]}, {"tests": "cases"}),
        ({"judge": CHECK, "tests": CALLS, "test": 1}, {"check": "judge"}),
        ({"cases": CALLS, "code": "def f(x):\n    return x + 1\n"}, {"tests": "cases", "reference": "code"}),
    ],
)
def test_a_mapped_column_is_what_the_mapping_says_though_its_name_is_a_field(
    row: dict[str, object], columns: dict[str, str], tmp_path: Path
) -> None:
    row |= {"task_id": "a", "prompt": "Add one.", "entry_point": "f"}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (task,) = load_hub(str(tmp_path), "train", columns)
    assert (task.task_id, task.source) == ("a", "jsonl")
    if "check" in columns:
        assert task.check_source == CHECK
    else:
        assert [(test.args, test.expected) for test in task.call_tests] == [((1,), 2)]
    assert task.reference == row.get("code", "")


def test_columns_with_our_names_alone_still_tell_the_form(tmp_path: Path) -> None:
    task = load_humaneval()[0]
    row = {"name": task.task_id, "prompt": task.prompt, "entry_point": task.entry_point, "test": CHECK}
    row["canonical_solution"] = task.reference.removeprefix(task.prompt)
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (read,) = load_hub(str(tmp_path), "train", {"task_id": "name"})
    assert (read.task_id, read.source, read.check_source) == (task.task_id, "humaneval", CHECK)
