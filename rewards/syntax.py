"""The syntax reward: is the program Python?

Parses, and never compiles: this process has no limits, and the passes behind the parser have no bound worth
the name. Code generation copies a ``finally`` block for each way out of it (1 KB of nested ones: 6 s and
1.5 GB) and the analysis of names copies all names for each function inside another. What only they find, an
``await`` outside of an async function or a ``nonlocal`` without its variable, the sandbox tells when it
compiles the program (rewards.execution); where nothing is executed nobody does. A size cap comes first,
because the parser takes seconds on a program of a million lines.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from sandbox.job import parse

MAX_SOURCE_BYTES = 64 * 1024
_MAX_MESSAGE_CHARS = 200

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxVerdict:
    """``tree`` is the program's syntax tree, None where it is not Python; ``message`` says why, or ""."""

    tree: ast.Module | None
    message: str

    @property
    def score(self) -> float:
        """1.0 for Python, else 0.0."""
        return 0.0 if self.tree is None else 1.0


def check_syntax(code: str) -> SyntaxVerdict:
    """Parse ``code`` as a module; an empty program and one above the size cap fail."""
    if not code.strip():
        return _failure("no code")
    num_bytes = len(code.encode("utf-8", "surrogatepass"))
    if num_bytes > MAX_SOURCE_BYTES:
        return _failure(f"{num_bytes} bytes of code, allowed are {MAX_SOURCE_BYTES}")
    try:
        tree = parse(code)
    except SyntaxError as error:
        return _failure(f"{type(error).__name__}: {error.msg} (line {error.lineno})")
    # Null bytes, lone surrogates, huge literals, and nesting beyond the parser's stack.
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        return _failure(f"{type(error).__name__}: {error}")
    misplaced = find_misplaced(tree)
    return _failure(f"SyntaxError: {misplaced}") if misplaced else SyntaxVerdict(tree=tree, message="")


def find_misplaced(tree: ast.Module) -> str:
    """What the compiler says of a return, yield, break or continue where none may stand, or "".

    No line that follows mends that.
    """
    # A node, whether it is inside a function, whether inside a loop.
    stack: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
    while stack:
        node, in_function, in_loop = stack.pop()
        if not in_function and isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            what = "return" if isinstance(node, ast.Return) else "yield"
            return f"'{what}' outside function (line {node.lineno})"
        if not in_loop and isinstance(node, ast.Break | ast.Continue):
            what = "'break' outside" if isinstance(node, ast.Break) else "'continue' not properly in"
            return f"{what} loop (line {node.lineno})"
        # Inside a function nothing in an expression is out of place.
        if in_function and isinstance(node, ast.expr):
            continue
        for name, value in ast.iter_fields(node):
            inside = in_function, in_loop
            if name == "body" and isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                inside = isinstance(node, _FUNCTIONS), False
            elif name == "body" and isinstance(node, _LOOPS):
                inside = in_function, True
            children = value if isinstance(value, list) else [value]
            stack += [(child, *inside) for child in children if isinstance(child, ast.AST)]
    return ""


def _failure(message: str) -> SyntaxVerdict:
    return SyntaxVerdict(tree=None, message=message[:_MAX_MESSAGE_CHARS])
