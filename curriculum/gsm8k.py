"""GSM8K's form (Cobbe et al. 2021, arXiv:2110.14168): a word problem, its working, and ``#### 42``.

The problem is answered by a function without arguments that works it out, as in program-aided language
models (Gao et al. 2022, arXiv:2211.10435): an ability that training on code alone should not lose. The
working, with its <<48/2=24>> marks, is not used. Executes nothing. The built-in problems
(curriculum.word_problems) share the question and the check.
"""

from __future__ import annotations

import re
import string

from curriculum.record import Record
from curriculum.task import Task

FIELDS = ("question", "answer")
ENTRY_POINT = "solution"
_ANSWER = re.compile(r"####\s*(\S.*?)\s*$")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_CHECK = string.Template("""
def check(candidate):
    answer = candidate()
    assert isinstance(answer, (int, float)) and not isinstance(answer, bool)
    assert abs(answer - $answer) <= 1e-6 * max(1, abs($answer))
""")


def gsm8k_task(record: Record) -> Task:
    """The task of a record with ``FIELDS``. Raises ValueError for a malformed one."""
    question = record.text("question").strip()
    found = _ANSWER.search(record.text("answer"))
    number = found.group(1).replace(",", "").removeprefix("$") if found else ""
    if not _NUMBER.fullmatch(number):
        raise record.error("answer", "must end in #### and a number")
    # The files have no ids: a problem's place, which ends ``where``, is its name.
    name = f"gsm8k/{re.split('[: ]', record.where)[-1]}"
    num_steps = record.text("answer").count("<<")
    return Task(
        task_id=name,
        prompt=question_of(question),
        entry_point=ENTRY_POINT,
        check_source=check_of(number),
        difficulty=min(5, max(1, num_steps)),
        family=name,
        source="gsm8k",
    )


def question_of(text: str) -> str:
    """A word problem as a prompt."""
    return f"{text}\n\nWrite a Python function {ENTRY_POINT}() that works this out and returns the number."


def check_of(number: str) -> str:
    """The test program for the answer ``number``, digits with an optional sign and decimal point."""
    # A whole number as such, without the zeros in front that Python's literals may not have.
    return _CHECK.substitute(answer=repr(float(number) if "." in number else int(number)))
