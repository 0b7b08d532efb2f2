"""Reads task files: plain Python in which a task is a function, followed by asserts of what it returns.

    family, level = "string case", 1

    def shout(text):
        '''Write a function `shout(text)` that returns text in upper case.'''
        return text.upper()
    assert shout("hello") == "HELLO" and shout("") == ""

Family and level hold for every function down to the next such line. The docstring is the prompt, where a line
break stands for a space; the function without it is the reference. Executes nothing and compares no reference
with its tests: the suite does, and so does Python when it runs the file.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from curriculum.asserts import literal_call_tests
from curriculum.task import Task
from sandbox.result import CallTest

_FORM = 'family, level = "NAME", NUMBER, then functions, each followed by its asserts'


def read_tasks(source: str, file: str) -> tuple[Task, ...]:
    """The tasks in a file's text, in its order; ``file`` is its name in messages.

    Raises ValueError with file and line for what has another form, SyntaxError for what is not Python.
    """
    module = ast.parse(source, file)
    header: tuple[str, int] | None = None
    found: list[tuple[tuple[str, int], ast.FunctionDef, list[ast.stmt]]] = []
    for statement in module.body[0 if ast.get_docstring(module) is None else 1 :]:
        match statement:
            case ast.Assign(
                targets=[ast.Tuple(elts=[ast.Name(id="family"), ast.Name(id="level")])],
                value=ast.Tuple(elts=[ast.Constant(value=str(family)), ast.Constant(value=int(level))]),
            ):
                header = (family, level)
            case ast.FunctionDef() if header:
                found.append((header, statement, []))
            case ast.Assert() if found:
                found[-1][-1].append(statement)
            case _:
                raise _error(file, statement, f"a task file holds {_FORM}")
    lines = source.splitlines()
    return tuple(
        _task(file, lines, family, level, function, asserts) for (family, level), function, asserts in found
    )


def _task(
    file: str,
    lines: Sequence[str],
    family: str,
    level: int,
    function: ast.FunctionDef,
    asserts: Sequence[ast.stmt],
) -> Task:
    name = function.name
    prompt = ast.get_docstring(function)
    if prompt is None:
        raise _error(file, function, f"{name} has no docstring: it is the prompt")
    if len(function.body) == 1:
        raise _error(file, function, f"{name} has no body below its docstring: it is the reference")
    if not asserts:
        raise _error(file, function, f"{name} has no asserts below it: they are its tests")
    docstring = function.body[0]
    reference = [
        *lines[function.lineno - 1 : docstring.lineno - 1],
        *lines[docstring.end_lineno : function.end_lineno],
    ]
    return Task(
        task_id=f"ladder/{name}",
        prompt=" ".join(prompt.split()),
        entry_point=name,
        call_tests=tuple(test for one in asserts for test in _call_tests(file, one, name)),
        reference="\n".join(reference) + "\n",
        difficulty=level,
        family=family,
        source="ladder",
    )


def _call_tests(file: str, statement: ast.stmt, name: str) -> tuple[CallTest, ...]:
    tests = literal_call_tests([statement], name)
    if tests is None:
        raise _error(file, statement, f"use assert {name}(LITERALS) == LITERAL, joined by and for several")
    return tests


def _error(file: str, node: ast.stmt, message: str) -> ValueError:
    return ValueError(f"{file}:{node.lineno}: {message}")
