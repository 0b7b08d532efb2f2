"""Tasks from JSON records: the project's own plain form, HumanEval's and MBPP's, told apart by field.

The plain form, one JSON object a line (blank lines are skipped):

    task_id      required, unique in the file
    prompt       required: what the model is asked, in words or as a function head with a docstring
    entry_point  required: the function's name
    tests        [{"args": [...], "expected": ...}, ...]: entry_point(*args) == expected; or instead
    check        Python source that defines check(candidate) and raises when the candidate is wrong
    prelude      optional: imports and helpers that the answer and the check may use
    reference    optional: source that defines entry_point and passes
    difficulty   optional: 1 (easiest, the default) to 5
    family       optional: variants of one idea share it

JSON has lists but no tuples or sets: an answer that must be one needs ``check``. A line with
``test_list`` is read as MBPP's form, one with ``test`` as HumanEval's. Executes nothing. Called by
curriculum.sources, curriculum.hub and pipeline.samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from curriculum import humaneval, mbpp
from curriculum.record import Record, shorten
from curriculum.task import Task
from sandbox.result import CallTest

FIELDS = (
    "task_id",
    "prompt",
    "entry_point",
    "tests",
    "check",
    "prelude",
    "reference",
    "difficulty",
    "family",
)


def load_jsonl(path: str | Path) -> tuple[Task, ...]:
    """The tasks of a file, in its order.

    Raises ValueError for a file that is missing or empty and for the first malformed line, as
    'FILE:LINE: field ...: value ...: what is right'.
    """
    return tasks_of_records(read_records(path), origin=str(path))


def read_records(path: str | Path) -> list[Record]:
    """The lines of a file as records, blank ones skipped. Raises ValueError as ``load_jsonl`` does."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as failure:
        raise ValueError(f"{path}: cannot be read as UTF-8 text: {failure}") from None
    return [
        _parse_line(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()
    ]


def tasks_of_records(records: Iterable[Record], origin: str) -> tuple[Task, ...]:
    """The tasks of ``records``; two with one task_id, or none at all, are an error."""
    tasks = []
    first_seen: dict[str, str] = {}
    for record in records:
        task = record_task(record)
        if task.task_id in first_seen:
            raise record.error("task_id", f"must be unique; {first_seen[task.task_id]} has it too")
        first_seen[task.task_id] = record.where
        tasks.append(task)
    if not tasks:
        raise ValueError(f"{origin}: holds no task; at least one is needed")
    return tuple(tasks)


def record_task(record: Record) -> Task:
    """The task of one record, in whichever of the three forms it is."""
    if "test_list" in record.fields:
        return mbpp.mbpp_task(record)
    if "test" in record.fields:
        return humaneval.humaneval_task(record)
    return _plain_task(record)


def _plain_task(record: Record) -> Task:
    for field in record.fields:
        if field not in FIELDS:
            raise record.error(field, f"is no field; the fields are {', '.join(FIELDS)}")
    entry_point = record.identifier("entry_point")
    if ("tests" in record.fields) == ("check" in record.fields):
        raise record.error("tests", "give either tests or check, not both and not neither")
    reference = record.optional_text("reference")
    if reference:
        record.source_defining("reference", entry_point, reference)
    check_source = None
    if "check" in record.fields:
        check_source = record.text("check")
        record.source_defining("check", "check", check_source)
    return Task(
        task_id=record.text("task_id"),
        prompt=record.text("prompt"),
        entry_point=entry_point,
        call_tests=_call_tests(record) if check_source is None else (),
        check_source=check_source,
        prelude=record.optional_text("prelude"),
        reference=reference,
        difficulty=record.integer("difficulty", default=1, low=1, high=5),
        family=record.optional_text("family") or record.text("task_id"),
        source="jsonl",
    )


def _call_tests(record: Record) -> tuple[CallTest, ...]:
    tests = record.fields["tests"]
    if not isinstance(tests, list) or not tests:
        raise record.error("tests", 'must be a list of {"args": [...], "expected": ...}, and not empty')
    for index, test in enumerate(tests):
        if not isinstance(test, dict) or set(test) != {"args", "expected"}:
            raise record.error("tests", f"item {index} must be an object with args and expected only")
        if not isinstance(test["args"], list):
            raise record.error("tests", f"item {index}: args must be a list, was {shorten(test['args'])}")
    return tuple(CallTest(args=tuple(test["args"]), expected=test["expected"]) for test in tests)


def _parse_line(where: str, line: str) -> Record:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as failure:
        raise ValueError(
            f"{where}: field (whole line): value {shorten(line)}: must be one JSON object ({failure})"
        ) from None
    if not isinstance(value, dict):
        raise ValueError(f"{where}: field (whole line): value {shorten(value)}: must be one JSON object")
    return Record(where=where, fields=value)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
