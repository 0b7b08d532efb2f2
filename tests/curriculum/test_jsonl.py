from __future__ import annotations

import json
from pathlib import Path

import pytest

from curriculum.jsonl import load_jsonl
from sandbox.result import CallTest, StdioTest
from tests.curriculum.answers import task_of

_GOOD: dict[str, object] = {
    "task_id": "double",
    "prompt": "Double a number.",
    "entry_point": "double",
    "tests": [{"args": [2], "expected": 4}, {"args": [0], "expected": 0}],
}


def _with(**changes: object) -> str:
    return json.dumps({**_GOOD, **changes})


def _without(*fields: str) -> str:
    return json.dumps({field: value for field, value in _GOOD.items() if field not in fields})


_CHECK_FORM: dict[str, object] = {field: value for field, value in _GOOD.items() if field != "tests"}
_HUMANEVAL_FORM: dict[str, object] = {
    "task_id": "H/1",
    "prompt": "def f(x):\n    '''Add one.'''\n",
    "entry_point": "f",
    "canonical_solution": "    return x + 1\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
}
_MBPP_FORM: dict[str, object] = {
    "task_id": 7,
    "text": "Add one.",
    "code": "def f(x):\n    return x + 1",
    "test_list": ["assert f(1) == 2"],
}


def _written(folder: Path, *lines: str) -> Path:
    file = folder / "tasks.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


MALFORMED = {
    "not JSON": ("{'task_id': 1}", "(whole line)", "one JSON object"),
    "cut short": ('{"task_id": "a", ', "(whole line)", "one JSON object"),
    "NaN": ('{"task_id": NaN}', "(whole line)", "NaN is not JSON"),
    "a list": ("[1, 2]", "(whole line)", "one JSON object"),
    "a number": ("17", "(whole line)", "one JSON object"),
    "no task_id": (_without("task_id"), "'task_id'", "not empty"),
    "task_id a fraction": (_with(task_id=3.5), "'task_id'", "value 3.5"),
    "task_id true": (_with(task_id=True), "'task_id'", "value True"),
    "half an emoji in task_id": (_with(task_id="a\ud83d"), "'task_id'", "character 2, \\ud83d, is half"),
    "half an emoji in prompt": (
        _with(prompt="Double \ude00 it."),
        "'prompt'",
        "character 8, \\ude00, is half",
    ),
    "half an emoji in prelude": (_with(prelude="# \ud83d"), "'prelude'", "must be UTF-8"),
    "half an emoji in family": (_with(family="\ud83d"), "'family'", "must be UTF-8"),
    "half an emoji in an import": (
        json.dumps({**_MBPP_FORM, "test_imports": ["import a\ud83d"]}),
        "'test_imports'",
        "must be UTF-8",
    ),
    "no prompt": (_without("prompt"), "'prompt'", "value missing"),
    "blank prompt": (_with(prompt="  \n"), "'prompt'", "not empty"),
    "no entry_point": (_without("entry_point"), "'entry_point'", "value missing"),
    "entry_point no name": (_with(entry_point="double it"), "'entry_point'", "name of a Python function"),
    "entry_point a keyword": (_with(entry_point="lambda"), "'entry_point'", "name of a Python function"),
    "neither tests nor check": (_without("tests"), "'tests'", "either tests or check"),
    "both tests and check": (_with(check="def check(candidate): pass"), "'tests'", "either tests or check"),
    "tests an object": (_with(tests={"args": [1], "expected": 2}), "'tests'", "must be a list"),
    "tests empty": (_with(tests=[]), "'tests'", "not empty"),
    "test not an object": (_with(tests=[[1, 2]]), "'tests'", "item 0"),
    "test without expected": (_with(tests=[{"args": [1]}]), "'tests'", "args and expected"),
    "test with more": (_with(tests=[{"args": [1], "expected": 1, "x": 1}]), "'tests'", "args and expected"),
    "args not a list": (_with(tests=[{"args": 1, "expected": 2}]), "'tests'", "args must be a list, was 1"),
    "check not Python": (json.dumps({**_CHECK_FORM, "check": "def check(:"}), "'check'", "Python source"),
    "check that returns its verdict": (
        json.dumps({**_CHECK_FORM, "check": "def check(candidate):\n    return candidate(2) == 4\n"}),
        "'check'",
        "must raise where the answer is wrong (assert ...)",
    ),
    "check without check": (json.dumps({**_CHECK_FORM, "check": "x = 1"}), "'check'", "must define check()"),
    "a program with a name": (
        _with(tests=[{"stdin": "1", "expected_stdout": "2"}]),
        "'entry_point'",
        "must be left out",
    ),
    "a program without output": (
        json.dumps({**json.loads(_without("entry_point")), "tests": [{"stdin": "1"}, 3]}),
        "'tests'",
        "item 0 must have texts as stdin and expected_stdout only",
    ),
    "prelude not Python": (_with(prelude="import ("), "'prelude'", "Python source"),
    "a key twice": ('{"task_id": "a", "task_id": "b"}', "(whole line)", "key 'task_id' is given twice"),
    "reference of another": (_with(reference="def triple(x): ..."), "'reference'", "must define double()"),
    "reference no string": (_with(reference=["x"]), "'reference'", "must be a string"),
    "difficulty too high": (_with(difficulty=6), "'difficulty'", "from 1 to 5"),
    "difficulty true": (_with(difficulty=True), "'difficulty'", "whole number"),
    "difficulty text": (_with(difficulty="easy"), "'difficulty'", "value 'easy'"),
    "other names": ('{"id": "a", "question": "x", "entry_point": "f", "tests": []}', "'id'", "is no field"),
    "a question without an answer": (
        '{"id": "a", "question": "x", "entry_point": "f"}',
        "'answer'",
        "(read in GSM8K's form, since it has 'question')",
    ),
    "unknown field": (_with(expcted=4), "'expcted'", "is no field"),
    "HumanEval without head": (json.dumps({**_HUMANEVAL_FORM, "prompt": "x"}), "'prompt'", "head of f()"),
    "HumanEval with prose before the head": (
        json.dumps({**_HUMANEVAL_FORM, "prompt": f"Complete this.\n\n{_HUMANEVAL_FORM['prompt']}"}),
        "'prompt'",
        "before the head of f()",
    ),
    "HumanEval without check": (json.dumps({**_HUMANEVAL_FORM, "test": "x = 1"}), "'test'", "check()"),
    "HumanEval whose check returns": (
        json.dumps({**_HUMANEVAL_FORM, "test": "def check(candidate):\n    return candidate(1) == 2\n"}),
        "'test'",
        "since it has 'test'",
    ),
    "MBPP without tests": (json.dumps({**_MBPP_FORM, "test_list": []}), "'test_list'", "at least one"),
    "MBPP tests no strings": (json.dumps({**_MBPP_FORM, "test_list": [1]}), "'test_list'", "list of strings"),
    "MBPP tests no Python": (json.dumps({**_MBPP_FORM, "test_list": ["f(1) ="]}), "'test_list'", "asserts"),
    "MBPP tests of another": (json.dumps({**_MBPP_FORM, "test_list": ["assert g(1)"]}), "'code'", "calls"),
    "MBPP code no Python": (json.dumps({**_MBPP_FORM, "code": "def f(:"}), "'code'", "Python source"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_line_is_named_with_its_field_value_and_what_is_right(case: str, tmp_path: Path) -> None:
    line, field, right = MALFORMED[case]
    file = _written(tmp_path, _with(task_id="first"), "", line)
    with pytest.raises(ValueError) as raised:
        load_jsonl(file)
    message = str(raised.value)
    assert message.startswith(f"{file}:3: field {field}: value ")
    assert right in message
    assert len(message) < len(str(file)) + 400


def test_a_whole_program_is_tested_by_what_it_reads_and_prints(tmp_path: Path) -> None:
    tests = [{"stdin": "2\n", "expected_stdout": "4"}]
    fields = {"task_id": "double", "prompt": "Read a number, print its double.", "tests": tests}
    task = task_of(tmp_path, {**fields, "reference": "print(2 * int(input()))"})
    assert task.stdio_tests == (StdioTest(stdin="2\n", expected_stdout="4"),)
    assert (task.entry_point, task.call_tests, task.check_source) == ("", (), None)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(f"{_with()}\n", encoding="utf-8-sig")
    (task,) = load_jsonl(file)
    assert task.entry_point == "double"


def test_two_tasks_with_one_id_are_refused_with_both_lines(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tasks.jsonl:2: field 'task_id'.*tasks.jsonl:1 has it too"):
        load_jsonl(_written(tmp_path, _with(), _with()))


def test_an_empty_a_missing_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n", encoding="utf-8")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe{}")
    for name, reason in (("empty", "holds no task"), ("missing", "no such file"), ("binary", "UTF-8")):
        with pytest.raises(ValueError, match=reason):
            load_jsonl(tmp_path / f"{name}.jsonl")


def test_the_plain_form_is_read_in_full(tmp_path: Path) -> None:
    full = _with(reference="def double(x): return 2 * x", difficulty=4, family="sums", prelude="import math")
    check = json.dumps({**_CHECK_FORM, "task_id": "c", "check": "def check(candidate): assert candidate(1)"})
    first, second = load_jsonl(_written(tmp_path, full, check))
    assert first.call_tests == (CallTest(args=(2,), expected=4), CallTest(args=(0,), expected=0))
    assert (first.difficulty, first.family, first.prelude) == (4, "sums", "import math")
    assert first.source == "jsonl"
    assert second.check_source is not None and not second.call_tests
    assert (second.difficulty, second.family) == (1, "c")


def test_a_field_that_is_null_counts_as_left_out(tmp_path: Path) -> None:
    nulls = dict.fromkeys(("check", "prelude", "reference", "difficulty", "family", "test", "question"))
    task = task_of(tmp_path, {**_GOOD, **nulls})
    assert (task.source, task.difficulty, task.family, len(task.call_tests)) == ("jsonl", 1, "double", 2)
    program = {"tests": [{"stdin": "", "expected_stdout": "1"}], "entry_point": None}
    assert task_of(tmp_path, {**_GOOD, **program}).entry_point == ""


def test_whole_numbers_are_ids_and_levels_as_data_frames_write_them(tmp_path: Path) -> None:
    task = task_of(tmp_path, {**_GOOD, "task_id": 7, "difficulty": 2.0})
    assert (task.task_id, task.family, task.difficulty) == ("7", "7", 2)
    assert task_of(tmp_path, {**_HUMANEVAL_FORM, "task_id": 0}).task_id == "0"


def test_half_an_emoji_is_allowed_in_what_a_test_gives_and_expects(tmp_path: Path) -> None:
    task = task_of(tmp_path, {**_GOOD, "tests": [{"args": ["\ud83d"], "expected": "\ude00"}]})
    assert task.call_tests == (CallTest(args=("\ud83d",), expected="\ude00"),)


def test_the_three_forms_may_share_a_file(tmp_path: Path) -> None:
    lines = (_with(), json.dumps(_HUMANEVAL_FORM), json.dumps(_MBPP_FORM))
    plain, humaneval, mbpp = load_jsonl(_written(tmp_path, *lines))
    assert [plain.source, humaneval.source, mbpp.source] == ["jsonl", "humaneval", "mbpp"]
    assert mbpp.task_id == "MBPP/7"
    assert mbpp.call_tests == (CallTest(args=(1,), expected=2),)
    assert "assert f(1) == 2" in mbpp.prompt


def test_mbpp_asserts_that_say_more_than_a_call_become_one_check(tmp_path: Path) -> None:
    tests = ["assert f(1) == 2", "assert math.isclose(f(0.5), 1.5)"]
    task = task_of(tmp_path, {**_MBPP_FORM, "test_list": tests, "test_imports": ["import math"]})
    assert task.check_source is not None
    names: dict[str, object] = {}
    exec(task.check_source, names)
    check = names["check"]
    assert callable(check)
    check(lambda x: x + 1)
    with pytest.raises(AssertionError):
        check(lambda x: 2)


def test_strings_of_several_lines_in_mbpp_asserts_stay_as_they_are(tmp_path: Path) -> None:
    tests = ['assert f("""a\n  b""") == "a\\n  b"', 'assert f(f"""{1}\n2""").split("\\n") == ["1", "2"]']
    task = task_of(tmp_path, {**_MBPP_FORM, "test_list": tests})
    assert task_of(tmp_path, {"question": "f of x?", **_MBPP_FORM, "test_list": tests}) == task
    names: dict[str, object] = {}
    exec(task.check_source or "", names)
    check = names["check"]
    assert callable(check)
    check(lambda x: x)
