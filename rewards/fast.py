"""The fast tier: the rewards that need no execution, in one verdict.

Runs in the reward worker itself. Nothing else runs after a syntax failure.
"""

from __future__ import annotations

import platform
import symtable
from dataclasses import dataclass

from rewards.complexity import judge_complexity
from rewards.lint import LINE_LENGTH, RULES, TARGET_VERSION, Linter, lint_score
from rewards.syntax import MAX_SOURCE_BYTES, check_syntax


@dataclass(frozen=True, slots=True, kw_only=True)
class FastVerdict:
    """Scores in [0, 1]; ``message`` says why ``syntax`` is 0, and is "" if it is 1.

    ``is_answer`` says that the program defines the entry point, where it is to have one.
    """

    syntax: float
    lint: float
    complexity: float
    is_answer: bool
    message: str


def score_fast(code: str, entry_point: str, linter: Linter) -> FastVerdict:
    """Score ``code``. Raises LintError when ruff gives no verdict.

    A program that does not define ``entry_point`` is no answer and has no quality: it scores 0 for
    lint and complexity, so that an empty or evasive answer earns nothing by being tidy.
    """
    verdict = check_syntax(code)
    if verdict.score == 0.0:
        return FastVerdict(syntax=0.0, lint=0.0, complexity=0.0, is_answer=False, message=verdict.message)
    if not _is_answer(code, entry_point):
        return FastVerdict(syntax=verdict.score, lint=0.0, complexity=0.0, is_answer=False, message="")
    complexity = judge_complexity(code)
    return FastVerdict(
        syntax=verdict.score,
        # What stands in a string for exec is linted by nobody.
        lint=0.0 if complexity.hides_code else lint_score(linter.count_issues(code)),
        complexity=complexity.score,
        is_answer=True,
        message="",
    )


def fast_configuration(linter: Linter) -> tuple[str, ...]:
    """All that a fast verdict depends on besides the program: tool versions and fixed settings."""
    return (
        platform.python_version(),
        linter.version,
        ",".join(RULES),
        str(LINE_LENGTH),
        TARGET_VERSION,
        str(MAX_SOURCE_BYTES),
    )


def _is_answer(code: str, entry_point: str) -> bool:
    """Whether ``code`` has what is called: a function, a method's class, or nothing (a whole program)."""
    return entry_point == "" or _binds(code, entry_point.partition(".")[0])


def _binds(code: str, name: str) -> bool:
    """Whether the module ``code`` assigns, defines or imports ``name`` at its top level."""
    try:
        symbol = symtable.symtable(code, "<solution>", "exec").lookup(name)
    except KeyError:
        return False
    return symbol.is_assigned() or symbol.is_imported()
