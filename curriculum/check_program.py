"""Check programs: source that defines ``check(candidate)``, which raises where the candidate is wrong.

A check that returns its verdict instead passes every answer. Such a one is refused, by reading the syntax
only; where anything that it calls might raise, it is taken. Executes nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from curriculum.record import Record
from sandbox.job import known_names, parse_quietly

# In the name of a function that is defined elsewhere: it may raise, or end the program.
_MAY_FAIL = re.compile(
    "abort|assert|check|compile|ensure|eval|exec|exit|expect|fail|import|main|quit|rais|run|test|valid|verif"
)


def read_check(record: Record, field: str, prelude: str) -> tuple[str, ast.Module]:
    """The check program in ``field``, and its tree; ``prelude`` is source that it may use.

    Raises ValueError for source that defines no check, or one that can fail no answer.
    """
    source = record.text(field)
    module = record.source_defining(field, "check", source)
    if any(isinstance(node, ast.AsyncFunctionDef) and node.name == "check" for node in module.body):
        raise record.error(field, "must define check() without async: it is called, not awaited")
    if _returns_verdict(module) and not _may_fail(module, parse_quietly(prelude)):
        raise record.error(
            field, "must raise where the answer is wrong (assert ...); what check() returns does not count"
        )
    return source, module


def _returns_verdict(module: ast.Module) -> bool:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "check":
            for inner in _own_nodes(node):
                match inner:
                    case ast.Return(value=ast.Constant(value=None) | None):
                        pass
                    case ast.Return():
                        return True
    return False


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What ``function`` holds, without the functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
            yield from _own_nodes(node)


def _may_fail(check: ast.Module, helpers: ast.Module | None) -> bool:
    statements = [*(helpers.body if helpers is not None else ()), *check.body]
    nodes = [node for statement in statements for node in ast.walk(statement)]
    known = known_names(statements)
    # The bodies of these are among the nodes, and a candidate fails on its own account.
    seen = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    seen |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        match node:
            case ast.Assert() | ast.Raise():
                return True
            case ast.ImportFrom(module=module, names=names):
                if (module or "").partition(".")[0] not in sys.stdlib_module_names:
                    known -= {alias.asname or alias.name for alias in names}
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    for function in called:
        match function:
            case ast.Name(id=name):
                if name not in seen and (name not in known or _MAY_FAIL.search(name.lower())):
                    return True
            case ast.Attribute(attr=name):
                if name not in seen and _MAY_FAIL.search(name.lower()):
                    return True
            case _:
                pass
    return False
