"""Files of samples that cannot be scored: evaluate_humaneval --samples, and python -m sandbox score."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest

from pipeline.cli import evaluate_humaneval
from sandbox.__main__ import main as sandbox
from tests.bad_input.harness import Case, refuse
from tests.bad_input.test_tasks import GOOD

TASKS = json.dumps(GOOD).encode()
SAMPLE = {"task_id": "double", "completion": "def double(x): return 2 * x"}


def sample(**fields: object) -> bytes:
    return json.dumps({**SAMPLE, **fields}).encode()


def sample_without(field: str) -> bytes:
    return json.dumps({name: value for name, value in SAMPLE.items() if name != field}).encode()


# A line behind a good one.
LINES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "no JSON": (b"double: x", ("(whole line)", "one JSON object")),
    "cut off": (b'{"task_id": "double", "comp', ("(whole line)", "one JSON object")),
    "a list": (b'["double", "x"]', ("(whole line)", "one JSON object")),
    "a number": (b"7", ("(whole line)", "7")),
    "null": (b"null", ("(whole line)", "None")),
    "a text": (b'"x"', ("(whole line)", "'x'")),
    "two objects": (sample() + sample(), ("(whole line)", "Extra data")),
    "NaN": (b'{"task_id": "double", "completion": NaN}', ("NaN is not JSON",)),
    "nested without end": (b"[" * 100_000, ("(whole line)",)),
    "no task_id": (sample_without("task_id"), ("'task_id'", "missing")),
    "task_id null": (sample(task_id=None), ("'task_id'", "None")),
    "task_id a fraction": (sample(task_id=0.5), ("'task_id'", "value 0.5")),
    "task_id empty": (sample(task_id=""), ("'task_id'", "not empty")),
    "task_id a list": (sample(task_id=["double"]), ("'task_id'", "['double']")),
    "no completion": (sample_without("completion"), ("'completion'", "missing")),
    "completion null": (sample(completion=None), ("'completion'", "None")),
    "completion a list": (sample(completion=["x"]), ("'completion'", "['x']")),
    "completion a number": (sample(completion=1.5), ("'completion'", "1.5")),
    "completion an object": (sample(completion={"text": "x"}), ("'completion'", "must be a string")),
    "completion true": (sample(completion=True), ("'completion'", "True")),
    "completions instead": (
        json.dumps({"task_id": "double", "completions": ["x"]}).encode(),
        ("'completion'", "missing"),
    ),
}
FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("no line has a task_id of the chosen tasks, such as 'double'",)),
    "blank lines": (b"\n\n", ("no line has a task_id",)),
    "of other tasks": (sample(task_id="HumanEval/0"), ("no line has a task_id", "'double'")),
    "not UTF-8": (b'{"task_id": "double", "completion": "\xe9"}', ("cannot be read as UTF-8",)),
    "UTF-16": (sample().decode().encode("utf-16"), ("cannot be read as UTF-8",)),
    "an array": (json.dumps([SAMPLE]).encode(), ("samples.jsonl:1", "(whole line)")),
    "packed and not called so": (gzip.compress(sample()), ("cannot be read as UTF-8",)),
    "zeros": (bytes(512), ("samples.jsonl:1", "(whole line)")),
}

evaluate = partial(
    Case,
    command=evaluate_humaneval,
    arguments=("--samples", "samples.jsonl", "--tasks", "tasks.jsonl"),
)
CASES = {
    f"line: {name}": evaluate(
        files={"tasks.jsonl": TASKS, "samples.jsonl": sample() + b"\n" + line + b"\n"},
        says=("samples.jsonl:2", *says),
    )
    for name, (line, says) in LINES.items()
} | {
    f"file: {name}": evaluate(
        files={"tasks.jsonl": TASKS, "samples.jsonl": data}, says=("samples.jsonl", *says)
    )
    for name, (data, says) in FILES.items()
}
CASES |= {
    "no file": evaluate(files={"tasks.jsonl": TASKS}, says=("--samples", "no such file: samples.jsonl")),
    "a folder": evaluate(
        files={"tasks.jsonl": TASKS, "samples.jsonl/": b""}, says=("--samples", "samples.jsonl")
    ),
    "tasks that cannot be read": evaluate(
        files={"tasks.jsonl": b"{}", "samples.jsonl": sample()}, says=("tasks.jsonl:1", "'entry_point'")
    ),
}

PROGRAM = {"id": "a", "solution": "def f(x): return x", "entry_point": "f", "test": "def check(f): pass"}


def program(**fields: object) -> bytes:
    return json.dumps({**PROGRAM, **fields}).encode()


PROGRAMS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "no JSON": (b"a", ("programs.jsonl:2",)),
    "a list": (b"[]", ("programs.jsonl:2",)),
    "no id": (json.dumps({"solution": "x", "test": "x"}).encode(), ("programs.jsonl:2", "id")),
    "id a list": (program(id=["b"]), ("programs.jsonl:2", "id")),
    "id given twice": (program(), ("programs.jsonl:2", "line 1 has it too")),
    "no solution": (json.dumps({"id": "b", "test": "x"}).encode(), ("programs.jsonl:2", "solution")),
    "solution a number": (program(id="b", solution=3), ("programs.jsonl:2", "solution")),
    "test a list": (program(id="b", test=["x"]), ("programs.jsonl:2", "test")),
    "entry_point a number": (program(id="b", entry_point=1), ("programs.jsonl:2", "entry_point")),
    "no test at all": (
        json.dumps({"id": "b", "solution": "x", "entry_point": "f"}).encode(),
        ("programs.jsonl:2",),
    ),
}
score = partial(Case, command=sandbox, arguments=("score", "programs.jsonl", "verdicts.jsonl"))
CASES |= {
    f"sandbox score: {name}": score(files={"programs.jsonl": program() + b"\n" + line + b"\n"}, says=says)
    for name, (line, says) in PROGRAMS.items()
}
CASES |= {
    "sandbox score: an empty file": score(
        files={"programs.jsonl": b""}, says=("programs.jsonl", "holds no line")
    ),
    "sandbox score: no file": score(says=("programs.jsonl",)),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed_samples_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(CASES[name], tmp_path, capsys)
