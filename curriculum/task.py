"""The Task: one function to write, with what is needed to ask for it and to judge it."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.result import CallTest, StdioTest


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One programming task.

    ``prompt`` is what the model is asked, in plain words or as a function head with a docstring.
    ``call_tests``, ``check_source`` (a program defining ``check(candidate)``) or ``stdio_tests`` (the
    answer is a whole program, ``entry_point`` is empty) judge the answer: exactly one of them is given.
    ``check_parts`` names the tests of a ``check_source`` that has several, in order, where one that fails
    leaves the later ones out. ``prelude`` holds imports and helpers of the prompt that solution and check
    may use. ``difficulty`` is a level, 1 (easiest) to 5. ``family`` groups variants of one idea: train and
    held-out sets never share a family. ``hides_tests`` says that the prompt showed all tests, and now shows
    one (curriculum.shown).
    """

    task_id: str
    prompt: str
    entry_point: str
    call_tests: tuple[CallTest, ...] = ()
    check_source: str | None = None
    stdio_tests: tuple[StdioTest, ...] = ()
    check_parts: tuple[str, ...] = ()
    prelude: str = ""
    reference: str = ""
    difficulty: int = 1
    family: str = ""
    source: str = ""
    hides_tests: bool = False

    def __post_init__(self) -> None:
        given = (bool(self.call_tests), self.check_source is not None, bool(self.stdio_tests))
        if sum(given) != 1:
            raise ValueError(
                f"task {self.task_id!r}: give exactly one of call_tests, check_source and stdio_tests, "
                f"not {sum(given)} of them"
            )
