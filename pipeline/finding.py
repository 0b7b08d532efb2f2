"""A verdict of the doctor on one thing, and what to do about it. Called by pipeline.doctor_checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``subject`` was looked at, ``said`` is what was found, ``mend`` what to do about it, if anything."""

    subject: str
    verdict: Verdict
    said: str
    mend: str = ""


def worst(findings: Sequence[Finding]) -> Verdict:
    """The gravest verdict among ``findings``."""
    order: tuple[Verdict, ...] = ("ok", "warning", "failure")
    return max((finding.verdict for finding in findings), key=order.index, default="ok")


def ok(subject: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(subject=subject, verdict="ok", said=said)


def warning(subject: str, said: str, mend: str) -> Finding:
    """A run works, but worse than it could."""
    return Finding(subject=subject, verdict="warning", said=said, mend=mend)


def failure(subject: str, said: str, mend: str) -> Finding:
    """A run does not work."""
    return Finding(subject=subject, verdict="failure", said=said, mend=mend)
