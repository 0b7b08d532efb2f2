"""What counts as a type error, apart from how mypy is asked.

mypy's flags, the neutralising of comments, and the findings mypy does not make by itself: a program must
not gain by keeping code away from the checker. Pure; imports no mypy.

What counts, and why:

- every error of mypy, bodies of unannotated functions included;
- every expression of type Any, every explicit Any and every generic without its arguments
  (``disallow_any_expr`` and its kin): whatever becomes Any is checked by nobody, so each use counts,
  however the Any came to be (no annotation, ``getattr``, an unknown module, a lambda, ``json.loads``);
- every parameter and every result without an annotation, with every ``return`` of such a result. The
  entry point's are what the tests call: without them there is nothing to check the program against;
- every ``# type: ignore`` and ``# mypy: ignore-errors``, besides the error it would have hidden;
- code that mypy finds unreachable is not checked, so each operation in it counts;
- whatever ends the checking of a program's parts without a trace (``cast``, ``TYPE_CHECKING``,
  ``no_type_check``, ``Never``, constrained type variables, ``exec``): the program earns nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence

from sandbox.job import parse_quietly

ERRORS_FOR_ZERO = 10
FLAGS = (
    "--config-file=",
    f"--python-version={sys.version_info.major}.{sys.version_info.minor}",
    "--platform=linux",
    "--follow-imports=skip",
    "--no-site-packages",
    "--ignore-missing-imports",
    "--check-untyped-defs",
    "--local-partial-types",
    "--disallow-any-expr",
    "--disallow-any-explicit",
    "--disallow-any-generics",
    "--disallow-any-unimported",
    "--disallow-subclassing-any",
    "--warn-return-any",
    "--warn-unreachable",
    "--show-column-numbers",
    "--show-absolute-path",
    "--hide-error-context",
    "--no-error-summary",
    "--no-color-output",
    "--no-pretty",
)

# mypy reads ``# type:`` and ``# mypy:``; the latter at the start of any line, strings included.
_DIRECTIVE = re.compile(r"#[^\S\n]*(type|mypy)[^\S\n]*:([^\S\n]*ignore)?")
_ERROR = re.compile(r"^.*?:(\d+):(\d+): error: (.*)$")
_UNREACHABLE = "[unreachable]"
_IS_ANY = "Expression has type"
# mypy decides by these very names, whatever they are bound to, which branch it never looks at.
_STATIC_CONDITIONS = frozenset({"TYPE_CHECKING", "MYPY", "PY2", "PY3"})
_SYS_CONDITIONS = frozenset({"platform", "version_info"})
_HIDING_CALLS = frozenset({"exec", "eval"})
_EVASIVE_IMPORTS = frozenset(
    {
        "cast",
        "no_type_check",
        "no_type_check_decorator",
        "Never",
        "NoReturn",
        "AnyStr",
        "assert_never",
        "reveal_type",
        *_STATIC_CONDITIONS,
        *_HIDING_CALLS,
    }
)
_TYPING_MODULES = ("typing", "typing_extensions", "mypy_extensions")
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


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def neutralise_type_comments(code: str) -> tuple[str, int]:
    """``code`` with every comment that mypy would obey blanked, and how many asked it to ignore.

    No column moves. A comment's look-alike in a string changes too: text, which no type depends on.
    """
    matches = [match for match in _DIRECTIVE.finditer(code) if match.group(2)]
    return _DIRECTIVE.sub(lambda match: "#" + "x" * (len(match.group()) - 1), code), len(matches)


def count_hidden(code: str) -> int:
    """Findings of ours in ``code``, which must compile: missing annotations, and all of ``ERRORS_FOR_ZERO``
    for a program that evades the checker."""
    tree = parse_quietly(code)
    if tree is None:
        return ERRORS_FOR_ZERO
    imports_typing = any(
        isinstance(node, ast.Import) and any(alias.name in _TYPING_MODULES for alias in node.names)
        for node in ast.walk(tree)
    )
    num_missing = 0
    for node in ast.walk(tree):
        if _is_evasive(node, imports_typing):
            return ERRORS_FOR_ZERO
        if isinstance(node, _Function):
            num_missing += _num_missing_annotations(node)
        elif isinstance(node, ast.ClassDef):
            # The first parameter of a method needs none: it was counted above, and is taken off here.
            num_missing -= sum(_has_bare_first(item) for item in node.body if isinstance(item, _Function))
    return num_missing


def count_reported(messages: Sequence[str], code: str, num_before: int = 0) -> int:
    """The errors among mypy's ``messages`` on ``code``, before which so many lines stand that do not count.

    Where mypy looked at nothing, because it is unreachable or of type Any, each operation counts: mypy
    says so but once a line. An Any at the very place of another error comes from it, and is not counted.
    """
    tree = parse_quietly(code)
    found = [(int(m[1]) - num_before, int(m[2]), m[3]) for m in map(_ERROR.match, messages) if m is not None]
    errors = [error for error in found if error[0] > 0]
    wrong_places = {(line, column) for line, column, text in errors if not text.startswith(_IS_ANY)}
    num_errors = 0
    for line, column, text in errors:
        if num_errors >= ERRORS_FOR_ZERO:
            break
        is_any = text.startswith(_IS_ANY)
        if is_any and (line, column) in wrong_places:
            continue
        if tree is not None and (is_any or text.endswith(_UNREACHABLE)):
            num_errors += _count_unseen(tree, line, text.startswith("Statement"))
        else:
            num_errors += 1
    return num_errors


def is_blocking(messages: Sequence[str]) -> bool:
    """Whether mypy stopped before it checked anything, as it does where its parser fails."""
    return any(message.rstrip().endswith("[syntax]") for message in messages)


def _is_evasive(node: ast.AST, imports_typing: bool) -> bool:
    match node:
        case ast.Name(id=name):
            return name in _STATIC_CONDITIONS or name in _HIDING_CALLS
        case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name in _SYS_CONDITIONS:
            return True
        case ast.Attribute(attr=name):
            return name in _STATIC_CONDITIONS or (imports_typing and name in _EVASIVE_IMPORTS)
        case ast.ImportFrom(module=module, names=aliases):
            names = {alias.name for alias in aliases}
            return bool(names & _EVASIVE_IMPORTS) or ("*" in names and module in _TYPING_MODULES)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Constant(value=first), _, *_])):
            # TypeVar("T", int, str), under whatever name: mypy says nothing of unreachable code in there.
            return first == name
        case _:
            return False


def _num_missing_annotations(function: _Function) -> int:
    arguments = function.args
    named = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    num_missing = sum(one is not None and one.annotation is None for one in named)
    # mypy takes the result of __init__ for None by itself. What is returned without a declared type is
    # compared with nothing.
    if function.returns is None and function.name != "__init__":
        num_missing += 1 + sum(isinstance(node, ast.Return) for node in ast.walk(function))
    return num_missing


def _has_bare_first(method: _Function) -> bool:
    is_static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in method.decorator_list)
    first = [*method.args.posonlyargs, *method.args.args][:1]
    return not is_static and bool(first) and first[0].annotation is None


def _count_unseen(tree: ast.Module, line: int, rest_of_block: bool) -> int:
    """Operations of the expressions on ``line``, or of the ``rest_of_block`` from there on; at least 1."""
    unseen: list[ast.AST] = []
    for node in ast.walk(tree):
        if not rest_of_block and isinstance(node, ast.stmt):
            unseen += _expressions_of(node, line)
        for field in ("body", "orelse", "finalbody") if rest_of_block else ():
            block = getattr(node, field, None)
            if isinstance(block, list):
                start = next((index for index, child in enumerate(block) if child.lineno == line), len(block))
                unseen += block[start:]
    return max(1, sum(isinstance(node, _OPERATIONS) for part in unseen for node in ast.walk(part)))


def _expressions_of(statement: ast.stmt, line: int) -> list[ast.AST]:
    """The expressions of ``statement`` itself that reach over ``line``; none of those of its blocks."""
    return [
        child
        for child in ast.iter_child_nodes(statement)
        if isinstance(child, ast.expr) and child.lineno <= line <= (child.end_lineno or child.lineno)
    ]
