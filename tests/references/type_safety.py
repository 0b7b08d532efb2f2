"""A second opinion on type safety: a fresh ``mypy`` process, for each program or for many, and the rules
read anew.

Written from the rules as rewards.type_rules states them; takes from there only mypy's flags. Plainer: any
mention of a name that evades the checker is evasion, wherever it stands.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rewards.type_rules import FLAGS
from sandbox.job import parse

_TIMEOUT_S = 120.0
_CONDITIONS = {"TYPE_CHECKING", "MYPY", "PY2", "PY3"}
_TYPING_NAMES = {"cast", "no_type_check", "no_type_check_decorator", "Never", "NoReturn", "AnyStr"}
_OPERATIONS = (
    ast.stmt,
    ast.Call,
    ast.Attribute,
    ast.Subscript,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
)


def reference_type_safety(code: str, prelude: str = "") -> float:
    """1 - errors / 10, at least 0, of ``code``, which compiles and runs after ``prelude``."""
    return type_safety_of_all([(prelude, code)])[prelude, code]


def type_safety_of_all(programs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """That of each program behind its prelude; one process reads all, of those that stop it each has its own.

    A program that lacks a name is read behind its prelude too, and the better score is its own.
    """
    trees = {one: parse(one[1]) for one in programs}
    scores = dict.fromkeys(trees, 0.0)
    honest = [one for one, tree in trees.items() if not any(_is_evasive(node) for node in ast.walk(tree))]
    stripped = {one: _without_comments(one[1]) for one in honest}
    lacking = []
    for one, findings in zip(honest, _mypy_all([stripped[one][0] for one in honest]), strict=True):
        scores[one] = _score(trees[one], stripped[one][1], findings)
        if one[0] and any(finding["code"] == "name-defined" for finding in findings):
            lacking.append(one)
    again = _mypy_all([f"{one[0]}\n{stripped[one][0]}" for one in lacking])
    for one, findings in zip(lacking, again, strict=True):
        num_before = one[0].count("\n") + 1
        own = [
            {**finding, "line": finding["line"] - num_before}
            for finding in findings
            if finding["line"] > num_before or finding["code"] == "syntax"
        ]
        scores[one] = max(scores[one], _score(trees[one], stripped[one][1], own))
    return scores


def _score(tree: ast.Module, num_ignores: int, findings: list[dict[str, Any]]) -> float:
    num_errors = num_ignores + sum(_num_missing_annotations(node) for node in _functions(tree))
    findings = [one for one in findings if one["severity"] == "error"]
    if any(one["code"] == "syntax" for one in findings):
        return 0.0
    wrong_places = {(one["line"], one["column"]) for one in findings if not _is_any(one)}
    for one in findings:
        # An Any in the place of an error comes from that error.
        if not _is_any(one) or (one["line"], one["column"]) not in wrong_places:
            num_errors += _weight(one, tree)
    return max(0.0, 1.0 - num_errors / 10)


def _is_evasive(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name in {"exec", "eval"} | _CONDITIONS | _TYPING_NAMES
        case ast.Attribute(value=ast.Name(id="sys"), attr="platform" | "version_info"):
            return True
        case ast.Attribute(attr=name):
            return name in _CONDITIONS | _TYPING_NAMES
        case ast.ImportFrom(names=aliases):
            return any(alias.name in _CONDITIONS | _TYPING_NAMES for alias in aliases)
        case ast.Call(func=ast.Name(id="TypeVar"), args=[_, _, *_]):
            return True
    return False


def _without_comments(code: str) -> tuple[str, int]:
    """``code`` with blanks in place of its comments, and how many of them were ``type: ignore``."""
    lines = code.splitlines(keepends=True)
    num_ignores = 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + lines[row - 1][column:].replace(token.string, "", 1)
            num_ignores += len(re.findall(r"#\s*(?:type|mypy)\s*:\s*ignore", token.string))
    return "".join(lines), num_ignores


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Each function, and whether it stands right in a class."""
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child, isinstance(parent, ast.ClassDef)


def _num_missing_annotations(found: tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]) -> int:
    """Parameters and results without one, and each return of such a result; ``self`` and the result of
    ``__init__`` need none."""
    function, is_method = found
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if is_method and "staticmethod" not in {ast.unparse(one) for one in function.decorator_list}:
        positional = positional[1:]
    everything = [*positional, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    num_missing = len([one for one in everything if one is not None and one.annotation is None])
    if function.returns is None and function.name != "__init__":
        num_missing += 1 + len([node for node in ast.walk(function) if isinstance(node, ast.Return)])
    return num_missing


def _mypy_all(programs: list[str]) -> list[list[dict[str, Any]]]:
    """The findings in each of ``programs``."""
    names = {f"solution_{number:04}.py": program for number, program in enumerate(programs)}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    left = names
    while left:
        status, findings = _mypy(left)
        named = {Path(one["file"]).name for one in findings}
        if status != 2 or len(left) == 1:
            for one in findings:
                found[Path(one["file"]).name].append(one)
            break
        # What cannot be parsed ends the whole run: no other file was read to its end.
        if not named:
            raise RuntimeError(f"mypy: status 2 names none of {len(left)} files")
        for name in named:
            found[name] = _mypy({name: left[name]})[1]
        left = {name: program for name, program in left.items() if name not in named}
    return list(found.values())


def _mypy(programs: dict[str, str]) -> tuple[int, list[dict[str, Any]]]:
    """The status of one process that reads ``programs``, by file name, and what it finds."""
    with tempfile.TemporaryDirectory() as folder:
        for name, program in programs.items():
            (Path(folder) / name).write_text(program, encoding="utf-8", errors="replace", newline="")
        command = [*("-m", "mypy", *FLAGS), *("--no-incremental", "--cache-dir", os.devnull)]
        done = subprocess.run(
            [sys.executable, *command, "--output", "json", *programs],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            cwd=folder,
        )
    if done.returncode not in (0, 1, 2) or (done.returncode and not done.stdout):
        raise RuntimeError(f"mypy: status {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def _is_any(finding: dict[str, Any]) -> bool:
    return str(finding["message"]).startswith("Expression has type")


def _weight(finding: dict[str, Any], tree: ast.Module) -> int:
    """1; the operations in it for code that mypy did not look at: it is never reached, or of type Any."""
    line = finding["line"]
    if finding["code"] == "unreachable" and finding["message"].startswith("Statement"):
        unseen: list[ast.AST] = [*_rest_of_block(tree, line)]
    elif finding["code"] == "unreachable" or _is_any(finding):
        unseen = [*_expressions_on(tree, line)]
    else:
        return 1
    return max(1, sum(isinstance(node, _OPERATIONS) for one in unseen for node in ast.walk(one)))


def _rest_of_block(tree: ast.Module, line: int) -> Iterator[ast.stmt]:
    for parent in ast.walk(tree):
        for name, block in ast.iter_fields(parent):
            if name not in ("body", "orelse", "finalbody") or not isinstance(block, list):
                continue
            starts = [index for index, child in enumerate(block) if child.lineno == line]
            if starts:
                yield from block[starts[0] :]


def _expressions_on(tree: ast.Module, line: int) -> Iterator[ast.expr]:
    """The expressions that reach over ``line`` and stand right in a statement."""
    for statement in (node for node in ast.walk(tree) if isinstance(node, ast.stmt)):
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.expr) and child.lineno <= line <= (child.end_lineno or child.lineno):
                yield child
