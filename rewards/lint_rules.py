"""What the lint reward counts: the rules of ruff, what of a program is blanked for it, what a finding is."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial

RULES = ("E", "F", "W", "B", "C4", "PLE", "S102", "S307")
LINE_LENGTH = 110
TARGET_VERSION = "py311"
ISSUES_FOR_ZERO = 20

_UNDEFINED = re.compile(r"Undefined name `(\w+)`")
_COMMENT = re.compile(r"#[^\n]*")
# The words by which a comment talks ruff out of a finding, or into another target version.
_SUPPRESSION = re.compile(r"noqa|ruff|flake8|isort|///", re.IGNORECASE)


def lint_score(num_issues: int) -> float:
    """1 - issues / 20, at least 0."""
    return max(0.0, 1.0 - num_issues / ISSUES_FOR_ZERO)


def neutralise_suppressions(code: str) -> str:
    """``code`` with the words that suppress findings blanked in its comments; no column moves.

    A ``#`` inside a string counts as a comment too: there the text of a string changes, which no rule
    here reads.
    """
    blank = partial(_SUPPRESSION.sub, lambda word: "x" * len(word.group()))
    return _COMMENT.sub(lambda comment: blank(comment.group()), code)


def count_findings(findings: Sequence[object], given: Collection[str] = ()) -> int:
    """How many there are, but for names that are ``given`` to the program ("*": any may be).

    At least ``ISSUES_FOR_ZERO`` where ruff could not parse a program that compiles, for then no rule has
    looked at it. (Syntax newer than the target version is parsed all the same.)
    """
    findings = [finding for finding in findings if not _is_given(finding, given)]
    blind = any(
        isinstance(finding, dict)
        and finding["code"] == "invalid-syntax"
        and not finding["message"].startswith("Cannot ")
        for finding in findings
    )
    return max(len(findings), ISSUES_FOR_ZERO) if blind else len(findings)


def _is_given(finding: object, given: Collection[str]) -> bool:
    if not given or not isinstance(finding, dict) or finding["code"] != "F821":
        return False
    name = _UNDEFINED.match(finding["message"])
    return "*" in given or (name is not None and name[1] in given)
