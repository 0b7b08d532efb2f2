"""MBPP (Austin et al. 2021, arXiv:2108.07732) and data in its form: a text, code, and asserts.

Reads both published forms, ``full`` (text, test_setup_code) and ``sanitized`` (prompt, test_imports).
Its rows come from the hub or from a file; this file only turns one into a Task. Its test part is an
evaluation set: curriculum.sources refuses to train on it unless it is allowed by name.
"""

from __future__ import annotations

import ast

from curriculum.asserts import literal_call_tests
from curriculum.record import Record
from curriculum.task import Task
from sandbox.job import parse

# Of its tasks these are for tests, the later ones for validation and training, the ten before them examples.
TEST_NUMBERS = range(11, 511)
FIELDS = ("task_id", "text", "prompt", "code", "test_list", "test_setup_code", "test_imports")


def mbpp_task(record: Record) -> Task:
    """The task of a record with ``text`` or ``prompt``, ``code`` and ``test_list``.

    The entry point is the function of ``code`` that the first test calls. The prompt is the text, the
    function's name and the first assert as an example (the others stay hidden). Asserts of the form
    ``f(literals) == literal`` become call tests; else, and where a set-up goes before them, they all become
    one ``check(candidate)``.
    """
    text_field = "text" if "text" in record.fields else "prompt"
    text = record.text(text_field).strip()
    code = record.text("code").replace("\r\n", "\n")
    tests = [test.strip() for test in record.texts("test_list")]
    if not tests:
        raise record.error("test_list", "must hold at least one assert")
    statements = _asserts(record, tests)
    entry_point = _entry_point(record, code, statements)
    setup = _setup(record)
    call_tests = None if setup else literal_call_tests(statements, entry_point)
    return Task(
        task_id=_task_id(record),
        prompt=f"{text}\nThe function is called {entry_point}. One of its tests:\n\n{tests[0]}\n",
        entry_point=entry_point,
        call_tests=call_tests or (),
        check_source=None if call_tests else _check_source(record, entry_point, setup, statements),
        reference=code,
        difficulty=2,
        family=_task_id(record),
        source="mbpp",
    )


def is_for_training(task: Task) -> bool:
    """Whether ``task`` is one of MBPP's that are not its test part, by its number."""
    number = task.task_id.removeprefix("MBPP/")
    return task.source == "mbpp" and number.isdecimal() and int(number) not in TEST_NUMBERS


def is_test_id(task_id: str) -> bool:
    """Whether a task of that id, in whatever form, is one of MBPP's test part, or one of MBPP+."""
    number = task_id.removeprefix("MBPP/")
    return task_id.startswith("Mbpp/") or (
        number != task_id and number.isdecimal() and int(number) in TEST_NUMBERS
    )


def _task_id(record: Record) -> str:
    value = record.fields.get("task_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"MBPP/{value}"
    return record.text("task_id")


def _setup(record: Record) -> str:
    imports = record.texts("test_imports") if record.fields.get("test_imports") is not None else []
    return "\n".join([*imports, record.optional_text("test_setup_code")]).strip()


def _asserts(record: Record, tests: list[str]) -> list[ast.stmt]:
    try:
        return parse("\n".join(tests)).body
    except (SyntaxError, ValueError, RecursionError) as failure:
        raise record.error("test_list", f"must hold Python asserts ({failure})") from None


def _entry_point(record: Record, code: str, statements: list[ast.stmt]) -> str:
    module = record.parsed("code", code)
    defined = [node.name for node in module.body if isinstance(node, ast.FunctionDef)]
    for statement in statements:
        called = {
            node.func.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        for name in reversed(defined):
            if name in called:
                return name
    raise record.error("code", "must define, at its top level, a function that test_list calls")


def _check_source(record: Record, entry_point: str, setup: str, statements: list[ast.stmt]) -> str:
    check = parse(f"def check(candidate):\n    {entry_point} = candidate\n")
    (function,) = (node for node in check.body if isinstance(node, ast.FunctionDef))
    # From the syntax tree: to indent the text would change a string of several lines.
    function.body += statements
    try:
        source = ast.unparse(check)
    except RecursionError:
        raise record.error("test_list", "must hold asserts that are less deeply nested") from None
    return f"{setup}\n\n\n{source}\n".lstrip("\n")
