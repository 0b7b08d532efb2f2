"""Takes the program out of a completion.

Does not run or repair it: indentation and blank lines stay as they were written, so that what is
scored is what the model wrote.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rewards.syntax import MAX_SOURCE_BYTES
from sandbox.job import known_names, parse_quietly

OPENS_REASONING = "<think>"
ENDS_REASONING = re.compile(r"</think>[ \t\r]*$", re.MULTILINE)
FENCE = re.compile(r" {0,3}```[ \t]*([A-Za-z0-9_+-]*)")
PYTHON_LANGUAGES = frozenset({"", "py", "python", "python3"})
_OPENER = re.compile(r"(?:async def|def|class|import|from)[ \t]|@\w")
_DEFINITION = re.compile(r"^(?:(?:async )?def[ \t]|class[ \t]+\w+[ \t]*[:(])", re.MULTILINE)
_TRIPLE_QUOTES = ('"""', "'''")


def extract_code(text: str, entry_point: str, prompt: str = "") -> str:
    """The program in ``text`` (the prefill of the answer and the completion together).

    What comes before is no part of the answer (``without_reasoning``). The rules, first match wins:

    1. the first complete, non-empty Python code block (language python, python3, py or none), even if
       only a later block defines ``entry_point``;
    2. a block that was never closed (a completion cut at its length limit): all that follows its fence;
    3. no fence at all: the text itself. What stands before its first def, class, import or decorator at
       column 0 is left out as prose, unless the text is Python as a whole and these statements use no name
       but builtins and their own: a word that happens to parse does not pass for a program.

    A first fence without a language closes code instead of opening it where a bare function, class, whole
    program or a continuation stands before it, which is then read by rule 3, and where a blank line follows,
    unless a function or a class comes before the next fence: models close fences that nobody opened, and go
    on in prose. Of a block whose fence is indented the lines lose as much.

    If the program found so does not define ``entry_point`` at column 0, begins with an indented line,
    and ``prompt`` is source that ends in the head of that function (HumanEval's form), it is a
    continuation: the result is the prompt with it, up to the next line at column 0 that is not within
    a string of three quotes and does not begin with a closing bracket.

    Returns "" when there is nothing; the result otherwise ends with a newline.
    """
    bare, fenced = _split_at_first_fence(without_reasoning(text), entry_point, prompt)
    code = _bare_code(bare, entry_point, prompt) if bare.strip() else next(_python_blocks(fenced), "")
    if not code.strip():
        return ""
    if _is_continuation(code, entry_point, prompt):
        code = _join_continuation(prompt, code)
    return code if code.endswith("\n") else code + "\n"


def without_reasoning(text: str) -> str:
    """What follows the first line that ends in ``</think>``: the answer of a model that reasons first.

    Where reasoning was begun and not ended, cut at the length limit say, there is no answer yet: "". Whether
    ``<think>`` was written by the model or by its chat template makes no difference to the first of these. A
    text that opens with a code fence has no reasoning.
    """
    first = next((line for line in text.split("\n") if line.strip()), "")
    if FENCE.match(first):
        return text
    end = ENDS_REASONING.search(text)
    if end is not None:
        return text[end.end() :]
    return "" if first.lstrip().startswith(OPENS_REASONING) else text


def _split_at_first_fence(text: str, entry_point: str, prompt: str) -> tuple[str, str]:
    """``text`` as (code without fences, text with fences), one of which is empty."""
    lines = text.split("\n")
    fences = ((index, match) for index, line in enumerate(lines) if (match := FENCE.match(line)))
    first, fence = next(fences, (len(lines), None))
    if fence is None:
        return text, ""
    before = "\n".join(lines[:first])
    if fence.group(1):
        return "", text
    # A number that ends a list of prose is a program as well; one without a call does nothing.
    is_whole = not entry_point and "(" in before and _is_program(before, first)
    if is_whole or _DEFINITION.search(before) or _is_continuation(before, entry_point, prompt):
        return before, ""
    second = next((index for index, _ in fences), len(lines))
    opens = first + 1 < len(lines) and bool(lines[first + 1].strip())
    opens = opens or _DEFINITION.search("\n".join(lines[first + 1 : second])) is not None
    return "", text if opens else "\n".join(lines[first + 1 :])


def _python_blocks(text: str) -> Iterator[str]:
    """The non-empty Python blocks of ``text`` in order; the last one may lack its closing fence.

    Any fence line closes a block that has content: a completion that is stopped at its first closing
    fence reads the same as one that went on with another opening fence. A fence line with a language
    inside a block that is still empty opens it again (models repeat the fence that was prefilled).
    """
    language: str | None = None
    body: list[str] = []
    indent = 0
    for line in text.split("\n"):
        fence, depth = FENCE.match(line), len(line) - len(line.lstrip(" "))
        if language is None:
            if fence is not None:
                language, body, indent = fence.group(1).lower(), [], depth
        elif fence is None:
            body.append(line[min(indent, depth) :])
        elif any(part.strip() for part in body):
            if language in PYTHON_LANGUAGES:
                yield "\n".join(body) + "\n"
            language = None
        else:
            language = fence.group(1).lower() or None
            body, indent = [], depth
    if language in PYTHON_LANGUAGES and any(part.strip() for part in body):
        yield "\n".join(body)


def _bare_code(text: str, entry_point: str, prompt: str) -> str:
    """``text`` without the prose before its first statement; all of it where it may be a continuation."""
    if _is_continuation(text, entry_point, prompt):
        return text
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if _OPENER.match(line):
            return text if _is_program(text, index) else "\n".join(lines[index:])
    return text


def _is_program(text: str, num_lines: int) -> bool:
    """Whether ``text`` is Python, and statements of its first ``num_lines`` lines could run by themselves."""
    # What is too long to compile is not worth the time to parse it.
    module = parse_quietly(text) if len(text) <= MAX_SOURCE_BYTES else None
    if module is None:
        return False
    first = [statement for statement in module.body if statement.lineno <= num_lines]
    used = {node.id for statement in first for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return bool(first) and used <= known_names(first)


def _is_continuation(code: str, entry_point: str, prompt: str) -> bool:
    if _defines(code, entry_point) or not _ends_in_head(prompt, entry_point):
        return False
    first = next((line for line in code.split("\n") if line.strip()), "")
    return first[:1] in (" ", "\t")


def _join_continuation(prompt: str, code: str) -> str:
    head = prompt if prompt.endswith("\n") else prompt + "\n"
    lines = code.split("\n")
    quotes: str | None = None
    for index, line in enumerate(lines):
        if quotes is None and line[:1] not in ("", " ", "\t", ")", "]", "}", "\r"):
            return head + "".join(f"{kept}\n" for kept in lines[:index])
        quotes = _open_quotes(line, quotes)
    return head + code


def _open_quotes(line: str, quotes: str | None) -> str | None:
    """Which three quotes are open after ``line``, when ``quotes`` were before it."""
    rest = line
    while True:
        ends = (quotes,) if quotes else _TRIPLE_QUOTES
        found = [(rest.find(end), end) for end in ends if end in rest]
        if not found:
            return quotes
        position, end = min(found)
        quotes = None if quotes else end
        rest = rest[position + len(end) :]


def _defines(code: str, entry_point: str) -> bool:
    return re.search(rf"^(?:async )?def {re.escape(entry_point)}\b", code, re.MULTILINE) is not None


def _ends_in_head(prompt: str, entry_point: str) -> bool:
    """Whether the last statement of ``prompt`` at column 0 is the head of ``entry_point``."""
    heads = list(re.finditer(r"^\S.*", prompt, re.MULTILINE))
    opening = [match for match in heads if not match.group().startswith((")", "#", '"""', "'''"))]
    return bool(opening) and _defines(opening[-1].group(), entry_point)
