"""The complexity reward: short, flat programs with few branches score 1.

Reads the syntax tree of a program that compiles; runs nothing. The whole program counts, so that
moving code between functions changes nothing. Called by rewards.fast.
"""

from __future__ import annotations

import ast

MAX_NESTING = 4
MAX_BRANCHES = 10
MAX_LINES = 50
_PENALTY_PER_LEVEL = 0.2
_PENALTY_PER_BRANCH = 0.05
_PENALTY_PER_LINE = 0.02

_BLOCKS = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.IfExp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.match_case,
    ast.comprehension,
)


def complexity_score(code: str) -> float:
    """A score in [0, 1] for ``code``, which must compile.

    Each level of nesting above 4 costs 0.2, each branch above 10 costs 0.05, each line above 50 costs
    0.02. The outermost function is level 0; an ``elif`` is no deeper than its ``if``. Statements
    joined by semicolons count as lines, ``and``/``or`` and the filters of comprehensions as branches.
    A call of ``exec`` or ``eval`` hides code from this reward and scores 0.
    """
    try:
        tree = ast.parse(code)
    except (RecursionError, MemoryError):
        return 0.0
    nesting, num_branches, num_statements, hides_code = _measure(tree)
    if hides_code:
        return 0.0
    num_lines = max(num_statements, sum(1 for line in code.split("\n") if line.strip()))
    penalty = (
        _PENALTY_PER_LEVEL * max(0, nesting - MAX_NESTING)
        + _PENALTY_PER_BRANCH * max(0, num_branches - MAX_BRANCHES)
        + _PENALTY_PER_LINE * max(0, num_lines - MAX_LINES)
    )
    return max(0.0, 1.0 - penalty)


def _measure(tree: ast.Module) -> tuple[int, int, int, bool]:
    """Deepest nesting, branches, statements, and whether code is hidden in strings.

    Walks with an explicit stack: deep trees must not exhaust the interpreter's.
    """
    nesting = num_branches = num_statements = 0
    hides_code = False
    # A node's depth is the number of blocks around it, less the outermost.
    stack: list[tuple[ast.AST, int]] = [(tree, -1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, _BLOCKS):
            depth += 1
        nesting = max(nesting, depth)
        num_branches += isinstance(node, _BRANCHES)
        num_statements += isinstance(node, ast.stmt)
        if isinstance(node, ast.BoolOp):
            num_branches += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            num_branches += len(node.ifs)
        elif isinstance(node, ast.Name):
            hides_code = hides_code or node.id in ("exec", "eval")
        for child in ast.iter_child_nodes(node):
            stack.append((child, depth - 1 if _is_elif(node, child) else depth))
    return nesting, num_branches, num_statements, hides_code


def _is_elif(parent: ast.AST, child: ast.AST) -> bool:
    return (
        isinstance(parent, ast.If)
        and isinstance(child, ast.If)
        and len(parent.orelse) == 1
        and child is parent.orelse[0]
    )
