"""LiveCodeBench's form (Jain et al. 2024, arXiv:2403.07974): contest problems with examples and hidden tests.

A problem is either a whole program, run once a test with that test's standard input, or a method of a class
``Solution`` that is called (its tests are "functional"). Answers are compared as LiveCodeBench does: numbers
by value, white space around a line or the whole left out, a tuple for a list. Hidden tests may come packed
(curriculum.packed_tests). Executes nothing. An evaluation set: curriculum.sources refuses to train on it
unless it is allowed by name.
"""

from __future__ import annotations

import ast
import json
import string
from collections.abc import Sequence
from dataclasses import dataclass

from curriculum.packed_tests import unpack_tests
from curriculum.record import Record
from curriculum.task import Task
from sandbox.job import parse_quietly
from sandbox.result import StdioTest

_LEVELS = {"easy": 2, "medium": 3, "hard": 5}
_KINDS = ("stdin", "functional")
# What LiveCodeBench puts before every answer, so that one may use a library without importing it.
_STARRED = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io "
    "sys json builtins typing"
)
_PRELUDE = (
    "".join(f"from {name} import *\n" for name in _STARRED.split())
    + f"import {', '.join(name for name in _STARRED.split() if name not in ('builtins', 'typing'))}\n"
    + "sys.setrecursionlimit(50000)\n"
)
_CHECK = string.Template("""
def check(candidate):
    for arguments, expected in $cases:
        answer = candidate(*arguments)
        assert (list(answer) if isinstance(answer, tuple) else answer) == expected
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """A test as the record has it: item ``index`` of its ``field``."""

    kind: str
    given: str
    wanted: str
    field: str
    index: int


def livecodebench_task(record: Record) -> Task:
    """The task of a record with LiveCodeBench's fields; others are ignored.

    Raises ValueError for a malformed record; hidden tests that would run code when unpacked are one.
    """
    question_id = record.text("question_id")
    content = record.text("question_content").strip()
    starter = record.optional_text("starter_code").rstrip()
    tests = _tests(record)
    kinds = {test.kind for test in tests}
    if len(kinds) > 1:
        raise record.error("private_test_cases", f"must all be of one testtype, are {sorted(kinds)}")
    is_program = kinds == {"stdin"}
    runs = (StdioTest(stdin=one.given, expected_stdout=one.wanted, decimals=True) for one in tests)
    return Task(
        task_id=f"LiveCodeBench/{question_id}",
        prompt=content if is_program or not starter else _with_starter(content, starter),
        entry_point="" if is_program else _entry_point(record, starter),
        stdio_tests=tuple(runs) if is_program else (),
        check_source=None if is_program else _check_source(record, tests),
        prelude=_PRELUDE,
        difficulty=_level(record),
        family=f"LiveCodeBench/{question_id}",
        source="livecodebench",
    )


def _with_starter(content: str, starter: str) -> str:
    return f"{content}\n\nBegin with this:\n\n```python\n{starter}\n```\n"


def _check_source(record: Record, tests: Sequence[_Test]) -> str:
    cases = [_case(record, test) for test in tests]
    return _CHECK.substitute(cases=repr(cases))


def _level(record: Record) -> int:
    name = record.text("difficulty")
    if name not in _LEVELS:
        raise record.error("difficulty", f"must be one of {', '.join(_LEVELS)}")
    return _LEVELS[name]


def _tests(record: Record) -> list[_Test]:
    """All tests, the public ones first."""
    found = []
    for field in ("public_test_cases", "private_test_cases"):
        tests = unpack_tests(record, field)
        if not isinstance(tests, list):
            raise record.error(field, "must be a list of tests, or one in JSON text")
        for index, test in enumerate(tests):
            if not isinstance(test, dict):
                raise record.error(field, f"item {index} must be an object")
            values = (test.get("testtype"), test.get("input"), test.get("output"))
            kind, given, wanted = values
            if not isinstance(kind, str) or kind not in _KINDS:
                raise record.error(field, f"item {index}: testtype must be {' or '.join(_KINDS)}")
            if not isinstance(given, str) or not isinstance(wanted, str):
                raise record.error(field, f"item {index}: input and output must be strings")
            found.append(_Test(kind=kind, given=given, wanted=wanted, field=field, index=index))
    if not found:
        raise record.error("public_test_cases", "there must be at least one test, public or private")
    return found


def _case(record: Record, test: _Test) -> tuple[list[object], object]:
    """A call's arguments, one JSON value a line, and its value."""
    try:
        return [json.loads(line) for line in test.given.strip().split("\n")], json.loads(test.wanted)
    except (ValueError, RecursionError) as failure:
        raise record.error(
            test.field,
            f"item {test.index}: input and output of functional tests must be JSON ({failure})",
        ) from None


def _entry_point(record: Record, starter: str) -> str:
    """``Solution.name`` where the starter code is a class (LeetCode's), else the function's name."""
    metadata = record.fields.get("metadata")
    try:
        fields = json.loads(metadata) if isinstance(metadata, str) else metadata
    except ValueError:
        fields = None
    name = fields.get("func_name") if isinstance(fields, dict) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise record.error("metadata", "must hold func_name, the function that functional tests call")
    # Starter code ends in a head without a body.
    module = parse_quietly(f"{starter}\n        pass\n") if starter else None
    for node in module.body if module is not None else ():
        if isinstance(node, ast.ClassDef):
            return f"{node.name}.{name}"
    return name if module is not None and starter.startswith("def ") else f"Solution.{name}"
