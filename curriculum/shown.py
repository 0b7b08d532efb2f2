"""What a prompt shows of the tests that judge its answers, and how to show less.

Where a prompt shows them all, as MBPP's do with its tests as doctests, a policy that is rewarded for passing
learns to look them up: ``if x == 3: return 7``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from curriculum.task import Task
from sandbox.job import read_literal

# What stands between a call and its value in a prompt.
_BETWEEN = re.compile(
    r"`?\s*(?:={0,2}>|->|==?|→|➞|#|:)?\s*(?:should\s+)?(?:returns?|gives|is|be|equals?)?:?\s*"
)
_END = re.compile(r"[\s.,;`)]")
# As other languages write them, and prompts do too.
_CONSTANTS: Final = {"true": "True", "false": "False", "null": "None"}
# A line that holds nothing but an example, and where what it prints ends.
_EXAMPLE = re.compile(r"\s*(?:>>>|assert)\s")
_END_OF_OUTPUT = re.compile(r"\s*(?:$|>>>)|.*(?:\"{3}|'{3})")


def hide_tests(task: Task) -> Task:
    """``task`` with the first example only in its prompt, where that shows all the tests; else as it is.

    Only examples with lines of their own are taken out: doctests and asserts. Where too little of that is
    found, so that all tests would still be shown, the task stays as it is.
    """
    if len(task.call_tests) < 2 or not _shows_all(task):
        return task
    kept: list[str] = []
    num_examples, is_output = 0, False
    for line in task.prompt.split("\n"):
        if is_example := _EXAMPLE.match(line) is not None:
            num_examples += 1
            is_output = line.lstrip().startswith(">>>")
        elif _END_OF_OUTPUT.match(line):
            is_output = False
        if num_examples < 2 or not (is_example or is_output):
            kept.append(line)
    fewer = replace(task, prompt="\n".join(kept), hides_tests=True)
    return task if _shows_all(fewer) else fewer


def _shows_all(task: Task) -> bool:
    shown = {arguments for arguments, _ in shown_examples(task)}
    return all(literal(test.args) in shown for test in task.call_tests)


def shown_examples(task: Task) -> Iterator[tuple[str, str]]:
    """Calls that the prompt shows with their values, both as Python: a tuple of arguments, and a literal."""
    name = task.entry_point.rpartition(".")[2]
    prompt = task.prompt
    for match in re.finditer(rf"(?<![\w.]){re.escape(name)}\(", prompt):
        line = prompt.rfind("\n", 0, match.start()) + 1
        if prompt[line : match.start()].lstrip().startswith(("def ", "async ")):
            continue
        if (end := _closing(prompt, match.end())) is None:
            continue
        inside = prompt[match.end() : end]
        arguments = _literal_text(f"({inside},)" if inside.strip() else "()")
        if arguments is not None and (value := _value_after(prompt, end + 1)) is not None:
            yield arguments, value


def literal(value: object) -> str | None:
    """``value`` as Python that gives the same again; None where there is no such text."""
    text = repr(value)
    try:
        return text if read_literal(text) == value else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _value_after(prompt: str, start: int) -> str | None:
    """The literal that follows a call, on its line or, as in a doctest, at the beginning of the next."""
    rest, _, below = prompt[start:].partition("\n")
    match = _BETWEEN.match(rest)
    for line in (rest[match.end() if match else 0 :], below.partition("\n")[0]):
        text = line.strip().strip("`").rstrip(".,;").strip()
        for end in (len(text), *reversed([found.start() for found in _END.finditer(text)])):
            value = _literal_text(text[:end].rstrip(".,;"))
            if value is not None:
                return value
    return None


def _literal_text(text: str) -> str | None:
    try:
        return literal(read_literal(_CONSTANTS.get(text.strip(), text.strip())))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _closing(text: str, start: int) -> int | None:
    """Where the bracket that was opened before ``start`` closes, strings aside, within its line."""
    depth, quote = 1, ""
    for place in range(start, len(text)):
        sign = text[place]
        if sign == "\n":
            return None
        if quote:
            quote = "" if sign == quote and text[place - 1] != "\\" else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth == 0:
                return place
    return None
