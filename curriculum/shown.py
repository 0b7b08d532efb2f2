"""What a prompt shows of the tests that judge its answers, and how to show less.

Where a prompt shows them all, as MBPP's do with its tests as doctests, a policy that is rewarded for passing
learns to look them up: ``if x == 3: return 7``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from curriculum.task import Task
from sandbox.job import parse_quietly, read_literal
from sandbox.result import StdioTest

# What stands between a call and its value in a prompt, and before a call that is all of the left side.
_WORDS: Final = r"(?:should\s+)?(?:returns?|gives|is|be|equals?)\b:?"
_BETWEEN = re.compile(rf"`?\s*(?:(?:={{1,2}}>|->|={{1,2}}|→|➞|#|:)\s*(?:{_WORDS})?|{_WORDS})\s*")
_LINE_START = re.compile(r"\s*(?:>>>|[-*+•>]\s)?\s*`?")
_INSIDE_MORE = re.compile(r"(?:[-+*/%<>=!&|^~@]|\bnot\s)\s*`?\s*$")
_END = re.compile(r"[\s.,;`)]")
_CHAINED = re.compile(r"(?<![<>!=])={1,2}(?![=>])")
_OPERATOR = re.compile(r"\s*(?:[-+*/%<>&|^@]|!=|if\b.*\belse\b)")
# As other languages write them, and prompts do too.
_CONSTANTS: Final = {"true": "True", "false": "False", "null": "None"}
# A line that holds nothing but an example, and where what it prints ends.
_EXAMPLE = re.compile(r"\s*(?:>>>|assert)\s")
_QUOTES = re.compile(r"\"{3}|'{3}")
_END_OF_OUTPUT = re.compile(rf"\s*(?:$|>>>)|.*(?:{_QUOTES.pattern})")


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
        elif quotes := _QUOTES.search(line):
            # They end the docstring.
            kept.append(line[: len(line) - len(line.lstrip())] + quotes.group())
    fewer = replace(task, prompt="\n".join(kept), hides_tests=True)
    return task if _shows_all(fewer) else fewer


def _shows_all(task: Task) -> bool:
    shown = {arguments for arguments, _ in shown_examples(task)}
    return all(literal(test.args) in shown for test in task.call_tests)


def shows_run(test: StdioTest, prompt: str) -> bool:
    """Whether ``prompt`` has the test's input and, behind it, its output, both as words of their own."""
    start = 0
    for words in (test.stdin.split(), test.expected_stdout.split()):
        # What is longer than the prompt is not searched for: hidden tests may be.
        if not words or len(" ".join(words)) > len(prompt) - start:
            return False
        text = r"\s+".join(map(re.escape, words))
        found = re.compile(rf"(?<![\w-])(?<!\d\.){text}(?!\w|\.\d)").search(prompt, start)
        if found is None:
            return False
        start = found.end()
    return True


def shown_examples(task: Task) -> Iterator[tuple[str, str]]:
    """Calls that the prompt shows with their values, both as Python: a tuple of arguments, and a literal.

    A call counts where it is all of the left side: ``len(f(1)) == 2`` says nothing of what ``f`` returns.
    """
    name = task.entry_point.rpartition(".")[2]
    prompt = task.prompt
    last_end = 0
    for match in re.finditer(rf"(?<![\w.]){re.escape(name)}\(", prompt):
        line = prompt.rfind("\n", 0, match.start()) + 1
        if prompt[line : match.start()].lstrip().startswith(("def ", "async ")):
            continue
        if (end := _closing(prompt, match.end())) is None:
            continue
        before = prompt[max(line, last_end) : match.start()]
        last_end = max(last_end, end + 1)
        if not _begins(before):
            continue
        inside = prompt[match.end() : end]
        arguments = _literal_text(f"({inside},)" if inside.strip() else "()")
        opening = prompt[line : match.start()].strip()
        if arguments is None:
            continue
        value = _asserted(prompt[line:].partition("\n")[0]) if opening == "assert" else None
        value = value or _value_after(prompt, end + 1, is_doctest=opening == ">>>")
        if value is not None:
            yield arguments, value


def literal(value: object) -> str | None:
    """``value`` as Python that gives the same again; None where there is no such text."""
    try:
        text = repr(value)
        return text if read_literal(text) == value else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _begins(before: str) -> bool:
    """Whether a call behind ``before``, which is of its line, can be all of the left side."""
    if _LINE_START.fullmatch(before):
        return True
    # A bracket with white space before it is one of a sentence.
    depth = 0
    for place, sign in enumerate(before):
        is_inner = sign in "([{" and (sign != "(" or before[place - 1 : place].strip() != "" or depth > 0)
        depth = max(0, depth + is_inner - (sign in ")]}"))
    return depth == 0 and _INSIDE_MORE.search(before) is None


def _asserted(line: str) -> str | None:
    """The literal that an assert with a message compares with: behind the comma stands no part of it."""
    tree = parse_quietly(line.strip())
    match tree.body if tree is not None else []:
        case [ast.Assert(test=ast.Compare(ops=[ast.Eq()], comparators=[value]), msg=ast.expr())]:
            return _literal_text(ast.unparse(value))
    return None


def _value_after(prompt: str, start: int, is_doctest: bool) -> str | None:
    """The literal that follows a call, on its line or, as in a doctest, at the beginning of the next."""
    rest, _, below = prompt[start:].partition("\n")
    below = below.partition("\n")[0]
    match = _BETWEEN.match(rest)
    on_line = rest[match.end() :] if match else rest
    if not on_line.strip():
        return _value_of(below) if match or is_doctest else None
    if match:
        is_comment = is_doctest and rest.lstrip().startswith("#")
        return (_value_of(below) if is_comment else None) or _value_of(on_line)
    # The output beside the call, ``>>> f(1) [2]``, and none below it, as an item's would be.
    is_beside = is_doctest and rest[0].isspace() and rest.lstrip()[0] not in "+-" and _value_of(below) is None
    return _literal_text(rest) if is_beside else None


def _value_of(text: str) -> str | None:
    """The literal that ``text`` begins with; the last one of ``1 + 2 = 3``."""
    values: list[str] = []
    start = 0
    for sign in _CHAINED.finditer(text):
        side = text[start : sign.start()].strip()
        if _is_constant(side):
            values.append(side)
            start = sign.end()
    found = (_first_literal(text[start:]), *map(_literal_text, reversed(values)))
    return next((value for value in found if value is not None), None)


def _first_literal(text: str) -> str | None:
    text = text.strip().strip("`").rstrip(".,;").strip()
    for end in (len(text), *reversed([found.start() for found in _END.finditer(text)])):
        value = _literal_text(text[:end].rstrip(".,;"))
        if value is not None:
            return None if _OPERATOR.match(text[end:]) else value
    return None


def _is_constant(text: str) -> bool:
    """Whether ``text`` is an expression of literals and operators alone."""
    tree = parse_quietly(text)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return False
    if tree.body[0].end_col_offset != len(text.encode()):
        return False  # a comment
    return not any(isinstance(node, ast.Name | ast.Call) for node in ast.walk(tree))


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
