"""The fast tier: the rewards that need no execution, in one verdict.

Runs in the reward worker itself. Nothing else runs after a syntax failure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rewards.complexity import complexity_score
from rewards.lint import Linter
from rewards.lint_rules import lint_score
from rewards.syntax import check_syntax
from sandbox.job import bound_name, parse_quietly

# Whose own names are not the module's.
_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FastVerdict:
    """Scores in [0, 1]; ``message`` says why ``syntax`` is 0, and is "" if it is 1.

    ``lint`` is None where nobody asked for it. ``is_answer`` says that the program defines the entry point,
    where it is to have one.
    """

    syntax: float
    lint: float | None
    complexity: float
    is_answer: bool
    message: str


def score_fast(code: str, entry_point: str, linter: Linter | None, prelude: str = "") -> FastVerdict:
    """Score ``code``, without a linter all but ``lint``. Raises LintError when ruff gives no verdict.

    Names that ``prelude`` binds, which runs before it, are defined. A program that does not define
    ``entry_point`` is no answer and has no quality: it scores 0 for lint and complexity, so that an empty or
    evasive answer earns nothing by being tidy.
    """
    verdict = check_syntax(code)
    lint = None if linter is None else 0.0
    if verdict.tree is None or not _is_answer(verdict.tree, entry_point):
        return FastVerdict(
            syntax=verdict.score, lint=lint, complexity=0.0, is_answer=False, message=verdict.message
        )
    complexity = complexity_score(code, verdict.tree)
    # What stands in a string for exec is linted by nobody.
    if linter is not None and complexity is not None:
        lint = lint_score(linter.count_issues(code, _names(prelude)))
    return FastVerdict(syntax=1.0, lint=lint, complexity=complexity or 0.0, is_answer=True, message="")


def _is_answer(tree: ast.Module, entry_point: str) -> bool:
    """Whether a program has what is called: a function, a method's class, or nothing (a whole program)."""
    return entry_point == "" or entry_point.partition(".")[0] in _bound(tree)


@lru_cache(maxsize=64)
def _names(prelude: str) -> frozenset[str]:
    tree = parse_quietly(prelude) if prelude else None
    return frozenset() if tree is None else frozenset(_bound(tree))


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a module assigns, defines or imports at its top level, in whatever branch.

    By hand: ``symtable`` needs seconds and a gigabyte for some programs of 60 KB.
    """
    nodes: list[ast.AST] = [*tree.body]
    while nodes:
        node = nodes.pop()
        if (bound := bound_name(node)) is not None:
            yield bound
        if not isinstance(node, _SCOPES):
            nodes += ast.iter_child_nodes(node)
