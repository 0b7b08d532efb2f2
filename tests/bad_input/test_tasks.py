"""Task files and data sets that cannot be read, given to training and to evaluation."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest

from pipeline.cli import evaluate_humaneval, train_accelerated
from tests.bad_input.harness import Case, refuse, write_files
from tests.curriculum.test_jsonl import MALFORMED

GOOD = {
    "task_id": "double",
    "prompt": "Double a number.",
    "entry_point": "double",
    "tests": [{"args": [2], "expected": 4}],
}


def changed(**fields: object) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def without(field: str) -> bytes:
    return json.dumps({name: value for name, value in GOOD.items() if name != field}).encode()


# What follows a good line, and what the message must say of it.
LINES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    name: (line.encode(), (field, right)) for name, (line, field, right) in MALFORMED.items()
} | {
    "true": (b"true", ("(whole line)", "True", "one JSON object")),
    "null": (b"null", ("(whole line)", "None")),
    "text": (b'"double"', ("(whole line)", "'double'")),
    "two objects": (b"{} {}", ("(whole line)", "Extra data")),
    "nested without end": (b'{"a": ' + b"[" * 100_000, ("(whole line)", "one JSON object")),
    "a raw tab in a text": (b'{"task_id": "a\tb"}', ("(whole line)", "control character")),
    "infinite": (b'{"task_id": Infinity}', ("Infinity is not JSON",)),
    "no fields": (b"{}", ("'entry_point'", "missing")),
    "task_id null": (changed(task_id=None), ("'task_id'", "missing")),
    "task_id a list": (changed(task_id=["a"]), ("'task_id'", "['a']")),
    "task_id blank": (changed(task_id=" "), ("'task_id'", "not empty")),
    "prompt a number": (changed(prompt=5, task_id="b"), ("'prompt'", "value 5")),
    "prompt a list": (changed(prompt=["x"], task_id="b"), ("'prompt'", "['x']")),
    "entry_point with a dot": (changed(entry_point="a.b"), ("'entry_point'", "'a.b'")),
    "entry_point a number": (changed(entry_point=3), ("'entry_point'", "value 3")),
    "entry_point a call": (changed(entry_point="double(x)"), ("'entry_point'", "name of a Python function")),
    "tests text": (changed(tests="double(2) == 4"), ("'tests'", "must be a list")),
    "tests null": (changed(tests=None), ("'tests'", "missing", "either tests or check")),
    "second test wrong": (
        changed(tests=[{"args": [1], "expected": 2}, {"args": {}, "expected": 1}]),
        ("'tests'", "item 1"),
    ),
    "check a number": (json.dumps({**GOOD, "check": 1}).encode().replace(b'"tests"', b'"x"'), ("'x'",)),
    "prelude a list": (changed(prelude=[], task_id="b"), ("'prelude'", "[]")),
    "reference no Python": (changed(reference="def double(:"), ("'reference'", "Python source")),
    "difficulty zero": (changed(difficulty=0, task_id="b"), ("'difficulty'", "from 1 to 5")),
    "difficulty a fraction": (changed(difficulty=2.5, task_id="b"), ("'difficulty'", "2.5")),
    "family a number": (changed(family=1, task_id="b"), ("'family'", "value 1")),
    "a field of another form": (without("tests")[:-1] + b', "answer": 4}', ("'answer'", "is no field")),
}
# Whole files.
FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("holds no task",)),
    "blank lines": (b"\n \n\n", ("holds no task",)),
    "not UTF-8": (b"\xff\xfe" + changed(), ("cannot be read as UTF-8",)),
    "UTF-16": ('{"task_id": "é"}'.encode("utf-16"), ("cannot be read as UTF-8",)),
    "a byte order mark in the second line": (
        changed() + b"\n\xef\xbb\xbf" + changed(task_id="b"),
        ("tasks.jsonl:2", "(whole line)"),
    ),
    "an array instead of lines": (json.dumps([GOOD]).encode(), ("(whole line)", "one JSON object")),
    "an object over several lines": (json.dumps(GOOD, indent=1).encode(), ("tasks.jsonl:1", "(whole line)")),
    "YAML": (b"task_id: double\nprompt: x\n", ("tasks.jsonl:1", "(whole line)")),
    "a table": (b"task_id,prompt\ndouble,x\n", ("tasks.jsonl:1", "(whole line)")),
    "packed and not called so": (gzip.compress(changed()), ("cannot be read as UTF-8",)),
    "zeros": (bytes(4096), ("tasks.jsonl:1", "(whole line)")),
}

TRAIN = ("--dataset", "tasks.jsonl", "--set", "generation.engine=transformers")
SILENT = ("--set", "rollouts.feedback=verdict")
evaluate = partial(
    Case,
    command=evaluate_humaneval,
    arguments=("--model", "smollm2-135m-instruct", "--tasks", "tasks.jsonl"),
)
train = partial(Case, command=train_accelerated, arguments=TRAIN)

CASES = {
    f"line: {name}": evaluate(
        files={"tasks.jsonl": changed(task_id="first") + b"\n\n" + line + b"\n"},
        says=("tasks.jsonl:", *says),
    )
    for name, (line, says) in LINES.items()
} | {
    f"file: {name}": train(files={"tasks.jsonl": data}, says=("tasks.jsonl", *says))
    for name, (data, says) in FILES.items()
}

CASES |= {
    "line: the same task again": evaluate(
        files={"tasks.jsonl": changed() + b"\n" + changed() + b"\n"},
        says=("tasks.jsonl:2", "'task_id'", "tasks.jsonl:1 has it too"),
    ),
    "a folder called .jsonl": train(files={"tasks.jsonl/": b""}, says=("tasks.jsonl",)),
    "no file": train(says=("tasks.jsonl", "no such file")),
    "held-out tasks that cannot be read": train(
        arguments=(*TRAIN[2:], "--set", "evaluation.tasks=tasks.jsonl"),
        files={"tasks.jsonl": b"{"},
        says=("tasks.jsonl:1", "(whole line)"),
    ),
    "an evaluation set in a file": train(
        files={
            "tasks.jsonl": json.dumps(
                {
                    "task_id": "HumanEval/0",
                    "prompt": "def f(x):\n    '''Add one.'''\n",
                    "entry_point": "f",
                    "canonical_solution": "    return x + 1\n",
                    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
                }
            ).encode()
        },
        says=("'tasks.jsonl'", "humaneval is an evaluation set", "dataset.allow_evaluation_sets"),
    ),
    **{
        f"a second turn: {settings[-1]}": train(
            arguments=(*TRAIN, "--set", "rollouts.max_turns=2", *settings),
            files={"tasks.jsonl": changed(), "my_feedback.py": b"def needs(hint): ...\n"},
            says=says,
        )
        for settings, says in {
            ("--set", "rollouts.feedback=public"): (
                "rollouts.feedback",
                '"public"',
                "shows an example",
                "verdict",
            ),
            ("--set", "rollouts.feedback=full"): (
                "rollouts.feedback",
                '"full"',
                "several tests",
                "public or verdict",
            ),
            (*SILENT, "--set", "rollouts.custom_feedback=my_feedback"): (
                "rollouts.custom_feedback",
                "package.module:function",
            ),
            (*SILENT, "--set", "rollouts.custom_feedback=my_feedback:hint"): (
                "rollouts.custom_feedback",
                "defines no hint",
            ),
            (*SILENT, "--set", "rollouts.custom_feedback=my_feedback:needs"): (
                "rollouts.custom_feedback",
                "cannot be called",
                "outcome",
            ),
        }.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_malformed_tasks_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(CASES[name], tmp_path, capsys)


ROW: dict[str, object] = {
    "id": "a",
    "question": "Add one.",
    "name": "f",
    "cases": '[{"args": [1], "expected": 2}]',
}
COLUMNS = "dataset.columns={task_id: id, prompt: question, entry_point: name, tests: cases}"
# Rows of a data set in a local folder, settings beside its name, what is said.
DATA_SETS: dict[str, tuple[list[dict[str, object]], tuple[str, ...], tuple[str, ...]]] = {
    "a column that is not there": (
        [ROW],
        ("dataset.columns={prompt: q}",),
        ("dataset.columns", "prompt", "'q'", "question"),
    ),
    "a field that is none": ([ROW], ("dataset.columns={promt: question}",), ("dataset.columns", "'promt'")),
    "no column of ours": ([{"x": 1}], (), ("row 0", "'entry_point'", "missing")),
    "no such split": ([ROW], (COLUMNS, "dataset.split=test"), ("dataset.split", "'test'")),
    "tests that are no JSON": (
        [{**ROW, "cases": "f(1) == 2"}],
        (COLUMNS,),
        ("row 0", "'tests'", "JSON text"),
    ),
    "tests without arguments": (
        [{**ROW, "cases": '[{"expected": 1}]'}],
        (COLUMNS,),
        ("row 0", "'tests'", "item 0"),
    ),
    "a second row with the same id": ([ROW, ROW], (COLUMNS,), ("row 1", "'task_id'", "row 0 has it too")),
    "tests that may have been changed": (
        [{**ROW, "cases": [{"args": ["2020-01-01"], "expected": 1}]}],
        (COLUMNS,),
        ("'owner/set'", "'cases'", "type timestamp[s]", "JSON text"),
    ),
    "a name that is none": ([{**ROW, "name": "f g"}], (COLUMNS,), ("row 0", "'entry_point'", "'f g'")),
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_malformed_data_sets_are_refused(
    name: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    rows, settings, says = DATA_SETS[name]
    write_files(
        tmp_path, {"owner/set/train.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows)}
    )
    arguments = ["--dataset", "owner/set", "--set", "generation.engine=transformers"]
    for setting in settings:
        arguments += ["--set", setting]
    case = Case(command=train_accelerated, arguments=tuple(arguments), says=says, needs_hub=True)
    refuse(case, tmp_path, capsys)
