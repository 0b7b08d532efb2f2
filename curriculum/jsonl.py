"""Tasks from JSON records: the project's own plain form and those of data sets, told apart by field.

The plain form, one JSON object a line (blank lines are skipped):

    task_id      required, unique in the file; a whole number becomes text
    prompt       required: what the model is asked, in words or as a function head with a docstring
    entry_point  required: the function's name; left out where the answer is a whole program
    tests        [{"args": [...], "expected": ...}, ...]: entry_point(*args) == expected; or the same as
                 Python, ["assert entry_point((1, 2)) == {3}", ...], literals on both sides; or of a program
                 [{"stdin": "...", "expected_stdout": "..."}, ...]; or instead
    check        Python source that defines check(candidate) and raises when the candidate is wrong
    prelude      optional: imports and helpers that the answer and the check may use
    reference    optional: source that defines entry_point (or is the program) and passes
    difficulty   optional: 1 (easiest, the default) to 5
    family       optional: variants of one idea share it

A field that is null counts as left out. JSON has lists but no tuples or sets: tests that need them are
written as Python. A line with ``test_list`` is read as MBPP's form, one with ``test`` as HumanEval's, with
``base_input`` as EvalPlus's, with ``question_content`` as LiveCodeBench's, with ``question`` and none
of these, ``tests`` or ``check`` as GSM8K's. A file may be packed (.jsonl.gz) and may lie on the hub
(curriculum.hub_file). Executes nothing.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from configs.task_sets import HUB_FILE_PREFIX
from curriculum.asserts import literal_call_tests
from curriculum.check_program import read_check
from curriculum.evalplus import evalplus_task
from curriculum.gsm8k import gsm8k_task
from curriculum.hub_file import fetch_hub_file
from curriculum.humaneval import humaneval_task
from curriculum.livecodebench import livecodebench_task
from curriculum.mbpp import mbpp_task
from curriculum.record import Record, shorten
from curriculum.task import Task
from sandbox.job import parse
from sandbox.result import CallTest, StdioTest

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


# The form of a record with this field, its name first; the first field that is there decides.
_FORMS: dict[str, tuple[str, Callable[[Record], Task]]] = {
    "base_input": ("EvalPlus", evalplus_task),
    "question_content": ("LiveCodeBench", livecodebench_task),
    "test_list": ("MBPP", mbpp_task),
    "test": ("HumanEval", humaneval_task),
    "question": ("GSM8K", gsm8k_task),
}


def load_jsonl(path: str | Path) -> tuple[Task, ...]:
    """The tasks of a file, or of one on the hub, in its order.

    Raises ValueError for a file that is missing or empty and for the first malformed line, as
    'FILE:LINE: field ...: value ...: what is right'.
    """
    return tasks_of_records(read_records(local_file(path)), origin=str(path))


def local_file(path: str | Path) -> str | Path:
    """``path`` itself, or where a file of the hub lies after it was fetched."""
    return fetch_hub_file(path) if isinstance(path, str) and path.startswith(HUB_FILE_PREFIX) else path


def read_records(path: str | Path) -> list[Record]:
    """The lines of a file as records, blank ones skipped. Raises ValueError as ``load_jsonl`` does."""
    return [parse_line(where, line) for where, line in read_lines(path)]


def read_lines(path: str | Path) -> list[tuple[str, str]]:
    """The lines of a file that are not blank, after FILE:LINE. Raises ValueError if it cannot be read."""
    try:
        data = Path(path).read_bytes()
        lines = (gzip.decompress(data) if str(path).endswith(".gz") else data).decode("utf-8-sig").split("\n")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as failure:
        raise ValueError(f"{path}: cannot be read as UTF-8 text: {failure}") from None
    return [(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]


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
    """The task of one record, in whichever form it is. Raises ValueError where it is malformed."""
    # So data frames write what is left out.
    fields = {field: value for field, value in record.fields.items() if value is not None}
    record = replace(record, fields=fields)
    marks = [field for field in _FORMS if field in fields]
    # GSM8K's has an answer instead; others use the word as well.
    if fields.keys() & {"tests", "check"} and "question" in marks:
        marks.remove("question")
    if not marks:
        return _plain_task(record)
    name, read = _FORMS[marks[0]]
    try:
        return read(record)
    except ValueError as failure:
        raise ValueError(f"{failure} (read in {name}'s form, since it has {marks[0]!r})") from None


def _plain_task(record: Record) -> Task:
    for field in record.fields:
        if field not in FIELDS:
            raise record.error(field, f"is no field; the fields are {', '.join(FIELDS)}")
    stdio_tests = _stdio_tests(record)
    if stdio_tests and "entry_point" in record.fields:
        raise record.error("entry_point", "must be left out: tests with stdin are for a whole program")
    entry_point = "" if stdio_tests else record.identifier("entry_point")
    if ("tests" in record.fields) == ("check" in record.fields):
        raise record.error("tests", "give either tests or check, not both and not neither")
    reference = record.optional_source("reference")
    if reference and entry_point:
        record.source_defining("reference", entry_point, reference)
    prelude = record.optional_source("prelude")
    check_source = None
    if "check" in record.fields:
        check_source, _ = read_check(record, "check", prelude)
    task_id = record.name("task_id")
    return Task(
        task_id=task_id,
        prompt=record.text("prompt"),
        entry_point=entry_point,
        call_tests=() if stdio_tests or check_source is not None else _call_tests(record),
        stdio_tests=stdio_tests,
        check_source=check_source,
        prelude=prelude,
        reference=reference,
        difficulty=record.integer("difficulty", default=1, low=1, high=5),
        family=record.optional_text("family") or task_id,
        source="jsonl",
    )


def _stdio_tests(record: Record) -> tuple[StdioTest, ...]:
    """Empty where no test is one of a whole program."""
    tests = record.fields.get("tests")
    if not isinstance(tests, list) or not any(isinstance(test, dict) and "stdin" in test for test in tests):
        return ()
    for index, test in enumerate(tests):
        texts = test if isinstance(test, dict) else {}
        if set(texts) != {"stdin", "expected_stdout"} or not all(
            isinstance(text, str) for text in texts.values()
        ):
            raise record.error("tests", f"item {index} must have texts as stdin and expected_stdout only")
    return tuple(StdioTest(stdin=test["stdin"], expected_stdout=test["expected_stdout"]) for test in tests)


def _call_tests(record: Record) -> tuple[CallTest, ...]:
    tests = record.fields["tests"]
    if not isinstance(tests, list) or not tests:
        raise record.error("tests", 'must be a list of {"args": [...], "expected": ...}, and not empty')
    if all(isinstance(test, str) for test in tests):
        return _asserts(record, tests)
    for index, test in enumerate(tests):
        if not isinstance(test, dict) or set(test) != {"args", "expected"}:
            raise record.error("tests", f"item {index} must be an object with args and expected only")
        if not isinstance(test["args"], list):
            raise record.error("tests", f"item {index}: args must be a list, was {shorten(test['args'])}")
    return tuple(CallTest(args=tuple(test["args"]), expected=test["expected"]) for test in tests)


def _asserts(record: Record, tests: list[str]) -> tuple[CallTest, ...]:
    entry_point = record.identifier("entry_point")
    found: list[CallTest] = []
    for index, test in enumerate(tests):
        try:
            read = literal_call_tests(parse(test).body, entry_point)
        except (SyntaxError, ValueError, RecursionError):
            read = None
        if read is None:
            right = f"'assert {entry_point}(ARGS) == VALUE' with literals; for more give check"
            raise record.error("tests", f"item {index} must read {right}")
        found.extend(read)
    return tuple(found)


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return found


def parse_line(where: str, line: str) -> Record:
    """A line of a file as a record. Raises ValueError, which begins with ``where``, for one that is none."""
    constants: list[str] = []

    def note(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        value = json.loads(line, parse_constant=note, object_pairs_hook=_each_once)
        # EvalPlus's inputs have infinities; nobody else's form does.
        if constants and not (isinstance(value, dict) and "base_input" in value):
            raise ValueError(f"{constants[0]} is not JSON")
    except (ValueError, RecursionError) as failure:
        raise ValueError(
            f"{where}: field (whole line): value {shorten(line)}: must be one JSON object ({failure})"
        ) from None
    if not isinstance(value, dict):
        raise ValueError(f"{where}: field (whole line): value {shorten(value)}: must be one JSON object")
    return Record(where=where, fields=value)
