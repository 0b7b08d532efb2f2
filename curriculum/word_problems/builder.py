"""How a file of word problems writes a template down: a function from random numbers to a Draft.

The answer is worked out in the template and again by the reference program, so that the suite can check one
against the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from curriculum.gsm8k import ENTRY_POINT, check_of, question_of
from curriculum.task import Task

# fmt: off
NAMES = (
    "Ana", "Bilal", "Chen", "Dora", "Emeka", "Farah", "Goran", "Hana",
    "Ivo", "Jaya", "Kofi", "Lena", "Mateo", "Nia", "Omar", "Petra",
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One problem: its text, the lines of a program that returns the answer, and the answer."""

    text: str
    program: tuple[str, ...]
    answer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A kind of problem. ``level`` is the number of steps to the answer, 1 to 5."""

    family: str
    level: int
    draft: Callable[[random.Random], Draft]

    def task(self, number: int) -> Task:
        """The problem ``number`` of this kind, always the same."""
        draft = self.draft(random.Random(f"{self.family}/{number}"))
        body = "".join(f"    {line}\n" for line in draft.program)
        return Task(
            task_id=f"word-problems/{self.family.replace(' ', '-')}-{number}",
            prompt=question_of(draft.text),
            entry_point=ENTRY_POINT,
            check_source=check_of(str(draft.answer)),
            reference=f"def {ENTRY_POINT}():\n{body}",
            difficulty=self.level,
            family=self.family,
            source="word-problems",
        )


def two_names(rng: random.Random) -> tuple[str, str]:
    """Two different people."""
    first, second = rng.sample(NAMES, 2)
    return first, second
