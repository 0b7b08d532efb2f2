"""The Task: one function to write, with what is needed to ask for it and to judge it."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.result import CallTest


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One programming task.

    ``prompt`` is what the model is asked, in plain words or as a function head with a docstring.
    ``call_tests`` or ``check_source`` (a program defining ``check(candidate)``) judge the answer:
    exactly one of them is given. ``prelude`` holds imports and helpers of the prompt that solution
    and check may use. ``difficulty`` is a level, 1 (easiest) to 5. ``family`` groups variants of one
    idea: train and held-out sets never share a family.
    """

    task_id: str
    prompt: str
    entry_point: str
    call_tests: tuple[CallTest, ...] = ()
    check_source: str | None = None
    prelude: str = ""
    reference: str = ""
    difficulty: int = 1
    family: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if bool(self.call_tests) == (self.check_source is not None):
            raise ValueError(
                f"task {self.task_id!r}: give either call_tests or check_source, not both and not neither"
            )
