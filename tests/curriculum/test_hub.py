"""Data sets as the package datasets reads them, here from local folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curriculum.hub import load_hub

_CONFIGURATIONS = """---
configs:
- config_name: main
  data_files: a.jsonl
- config_name: other
  data_files: b.jsonl
---
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def _folder(folder: Path, *tests: object) -> str:
    """A data set with a task for each of ``tests``."""
    task = {"prompt": "Add one.", "entry_point": "f"}
    lines = [
        json.dumps({**task, "task_id": f"t{number}", "tests": each}) for number, each in enumerate(tests)
    ]
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return str(folder)


def _call(*args: object, expected: object = 1) -> dict[str, object]:
    return {"args": list(args), "expected": expected}


@pytest.mark.parametrize(
    ("tests", "kind"),
    [
        ([_call("2020-01-01")], r"values of type timestamp\[s\]"),
        ([{"stdin": "2020-01-01", "expected_stdout": "2020-01-01"}], r"values of type timestamp\[s\]"),
        ([_call({"a": 1})], "objects"),
        ([_call(1, expected={"a": 1})], "objects"),
        ([_call("5", 5)], "values of several types"),
        ([_call({"a": 1}), _call({"b": 1})], "values of several types"),
    ],
)
def test_nested_tests_that_may_not_be_what_was_written_are_refused(
    tests: object, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"dataset.name: value .*column 'tests'.* holds {kind}.* JSON text"):
        load_hub(_folder(tmp_path, tests), "train", {})


def test_nested_tests_of_one_type_are_read_as_they_were_written(tmp_path: Path) -> None:
    name = _folder(tmp_path, [_call([1, 2], [3], expected=[[4]])], [_call(expected=None)])
    tests = [test for task in load_hub(name, "train", {}) for test in task.call_tests]
    assert [(test.args, test.expected) for test in tests] == [(([1, 2], [3]), [[4]]), ((), None)]


def test_tests_in_json_text_are_read_as_they_were_written(tmp_path: Path) -> None:
    arguments = ("2020-01-01", "5", 5, 1e-12, {"a": 1})
    name = _folder(tmp_path, json.dumps([_call(*arguments), _call(2), _call(2.5)]))
    (task,) = load_hub(name, "train", {})
    assert repr([test.args for test in task.call_tests]) == repr([arguments, (2,), (2.5,)])


def test_a_number_that_no_answer_can_equal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"field 'tests': .*must be JSON text"):
        load_hub(_folder(tmp_path, '[{"args": [1], "expected": NaN}]'), "train", {})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"train.jsonl": '{"a": 1}\n{"a": '}, "JSON parse error: "),
        ({"train-1.jsonl": '{"a": 1}\n', "train-2.jsonl": '{"b": 1}\n'}, "column names don't match"),
        ({"train.csv": "a,b\n1,2\n1,2,3\n"}, "Expected 2 fields in line 3, saw 3"),
        ({"set.py": "x = 1\n"}, "Dataset scripts are no longer supported, but found set.py"),
        ({"README.md": "---\nconfigs: [\n---\n", "a.jsonl": "{}"}, "while parsing a flow node"),
        (
            {"README.md": _CONFIGURATIONS, "a.jsonl": '{"a": 1}', "b.jsonl": '{"a": 1}'},
            r"it has several configurations, \['main', 'other'\], .* download the one you want",
        ),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_refused_with_the_reason_in_one_line(
    files: dict[str, str], reason: str, tmp_path: Path
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    says = rf"^dataset.name: value '{folder}', dataset.split: value 'train': the folder cannot be loaded: .*"
    with pytest.raises(ValueError, match=f"{says}{reason}.*$"):
        load_hub(str(folder), "train", {})


def test_what_is_no_folder_was_looked_for_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, split: str) -> None:
        raise KeyError

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(ValueError, match=r"is no folder, and could not be had from the hub: KeyError$"):
        load_hub("owner/set", "train", {})


def test_the_whole_numbers_of_a_table_are_ids_and_levels(tmp_path: Path) -> None:
    call = '"[{""args"": [1], ""expected"": 2}]"'
    table = f"id,prompt,entry_point,tests,difficulty\n7,Add.,f,{call},3\n8,Add.,f,{call},\n"
    (tmp_path / "train.csv").write_text(table, encoding="utf-8")
    tasks = load_hub(str(tmp_path), "train", {"task_id": "id"})
    assert [(task.task_id, task.difficulty) for task in tasks] == [("7", 3), ("8", 1)]


def test_gsm8k_s_columns_are_read_in_its_form(tmp_path: Path) -> None:
    row = {"question": "How many are 2 and 3?", "answer": "2 and 3 are <<2+3=5>>5.\n#### 5"}
    (tmp_path / "train.jsonl").write_text(json.dumps(row), encoding="utf-8")
    (task,) = load_hub(str(tmp_path), "train", {})
    assert (task.source, task.entry_point, task.task_id) == ("gsm8k", "solution", "gsm8k/0")
    assert "answer - 5" in (task.check_source or "")
    (tmp_path / "train.jsonl").write_text(json.dumps({"q": row["question"], "a": row["answer"]}))
    assert load_hub(str(tmp_path), "train", {"question": "q", "answer": "a"}) == (task,)


@pytest.mark.parametrize(
    ("row", "columns", "said"),
    [
        (
            {"q": "Add.", "s": "def f(x):\n    return x", "test_list": ["assert f(1) == 1"], "level": 5},
            {"text": "q", "code": "s", "difficulty": "level"},
            "key 'difficulty': is not read .* but task_id, text, prompt, code, test_list",
        ),
        ({"question": "1?", "answer": "#### 1", "id": 3}, {"task_id": "id"}, "key 'task_id'"),
    ],
)
def test_a_column_that_is_mapped_and_would_not_be_read_is_refused(
    row: dict[str, object], columns: dict[str, str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"dataset\.columns: {said}"):
        load_hub(str(tmp_path), "train", columns)


def test_the_prompt_that_is_mapped_is_the_one_that_is_asked(tmp_path: Path) -> None:
    code = "def f(x):\n    return x"
    row = {"text": "Old.", "new": "Rewritten.", "code": code, "test_list": ["assert f(1) == 1"]}
    (tmp_path / "train.jsonl").write_text(json.dumps(row), encoding="utf-8")
    (task,) = load_hub(str(tmp_path), "train", {"prompt": "new"})
    assert task.prompt.startswith("Rewritten.")


def test_tests_of_two_forms_are_not_chosen_from(tmp_path: Path) -> None:
    row = {
        "task_id": 2,
        "prompt": "Add one.",
        "code": "def f(x):\n    return x + 1",
        "test_list": ["assert f(1) == 2"],
        "test": "assert f(1) == 2\nassert f(-1) == 0",
    }
    (tmp_path / "train.jsonl").write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(ValueError, match="MbppPlus"):
        load_hub(str(tmp_path), "train", {})
    (task,) = load_hub(str(tmp_path), "train", {"test_list": "test_list"})
    assert task.source == "mbpp"
