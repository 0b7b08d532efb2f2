"""A second opinion on complexity, written from the rules in the docstring of rewards.complexity.

Recursive and slow; shares nothing with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_NESTING = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.IfExp),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
_OPERATIONS = (
    *(ast.BinOp, ast.BoolOp, ast.Call, ast.Compare, ast.IfExp, ast.Lambda, ast.NamedExpr),
    *(ast.Subscript, ast.UnaryOp),
)
_CODE_MAKERS = {"exec", "eval", "__builtins__", "FunctionType", "CodeType"}
_CODE_MODULES = {"builtins", "code", "codeop", "runpy"}
_LOOPS = {"map", "filter", "reduce", "suppress", "starmap", "accumulate"}


def makes_code(tree: ast.Module) -> bool:
    """Whether a program makes code of text, which nobody can judge by reading it."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _CODE_MAKERS:
                return True
            case ast.Import(names=aliases) if any(alias.name in _CODE_MODULES for alias in aliases):
                return True
            case ast.ImportFrom(module=module) if module in _CODE_MODULES:
                return True
            case ast.ImportFrom(names=aliases) if any(alias.name in _CODE_MAKERS for alias in aliases):
                return True
            case ast.Call(func=ast.Name(id="compile")):
                return True
    return False


def reference_complexity(code: str, tree: ast.Module) -> float:
    """Each level of nesting above 4 costs 0.2, each branch above 10 0.05, each line above 50 0.02."""
    if makes_code(tree):
        return 0.0
    # The outermost block is level 0.
    nesting = max(0, max(_depths(tree, 0)) - 1)
    num_branches = sum(_num_branches(node) for node in ast.walk(tree))
    num_lines = max(_num_written_lines(code), _num_statement_lines(tree))
    penalty = 0.2 * max(0, nesting - 4) + 0.05 * max(0, num_branches - 10) + 0.02 * max(0, num_lines - 50)
    return max(0.0, 1.0 - penalty)


def _depths(node: ast.AST, depth: int) -> Iterator[int]:
    """How many blocks are around or at each node under ``node``, itself included."""
    if isinstance(node, _NESTING):
        depth += 1
    yield depth
    # ``elif`` is an if alone in the other branch; it stands beside its if, not inside.
    elifs = []
    if isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        elifs = node.orelse
    for child in ast.iter_child_nodes(node):
        yield from _depths(child, depth - 1 if child in elifs else depth)


def _num_branches(node: ast.AST) -> int:
    match node:
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=filters):
            return 1 + len(filters)
        case ast.If() | ast.For() | ast.AsyncFor() | ast.While():
            return 1
        case ast.IfExp() | ast.ExceptHandler() | ast.match_case():
            return 1
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _LOOPS:
            return 1
        # Choosing from what is written out in place: {...}[x], {...}.get(x), [a, b][x].
        case ast.Subscript(value=ast.Dict(values=choices)):
            return max(0, len(choices) - 1)
        case ast.Call(func=ast.Attribute(value=ast.Dict(values=choices))):
            return max(0, len(choices) - 1)
        case ast.Subscript(value=ast.List(elts=choices) | ast.Tuple(elts=choices), slice=index):
            return 0 if isinstance(index, ast.Slice) else max(0, len(choices) - 1)
        case ast.BinOp(left=left, right=right):
            return isinstance(left, ast.Compare) + isinstance(right, ast.Compare)
    return 0


def _num_written_lines(code: str) -> int:
    """Lines that are not blank; a long one counts once for every 110 columns that it begins."""
    return sum(len(range(0, len(line), 110)) for line in code.split("\n") if line.strip())


def _num_statement_lines(tree: ast.Module) -> int:
    """Statements, ``:=`` within them, and every operation of a statement after its twelfth."""
    num_lines = 0
    for statement in (node for node in ast.walk(tree) if isinstance(node, ast.stmt)):
        operations = list(_operations(statement))
        num_lines += 1 + max(0, len(operations) - 12)
        num_lines += len([one for one in operations if isinstance(one, ast.NamedExpr)])
    return num_lines


def _operations(statement: ast.AST) -> Iterator[ast.AST]:
    """The operations of a statement itself, not of those inside it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            continue
        if isinstance(child, _OPERATIONS):
            yield child
        yield from _operations(child)
