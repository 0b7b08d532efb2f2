"""Takes the program out of a completion.

Does not run, parse or repair it: indentation and blank lines stay as they were written, so that what
is scored is what the model wrote. Called by rewards.rubric and by evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r" {0,3}```[ \t]*([A-Za-z0-9_+-]*)")
_PYTHON_LANGUAGES = frozenset({"", "py", "python", "python3"})
_OPENER = re.compile(r"(?:async def|def|class|import|from)[ \t]|@\w")
# Where a continuation of a function head ends: the stop sequences of Codex (arXiv:2107.03374, 2.2).
_CONTINUATION_END = re.compile(r"^(?:class|def|#|if|print|@)", re.MULTILINE)


def extract_code(text: str, entry_point: str, prompt: str = "") -> str:
    """The program in ``text`` (the prefill of the answer and the completion together).

    The rules, first match wins:

    1. the first complete, non-empty Python code block (language python, python3, py or none), even if
       only a later block defines ``entry_point``;
    2. a block that was never closed (a completion cut at its length limit): all that follows its fence;
    3. no fence at all: the text itself, from its first line that opens a statement at column 0.

    If the program found so does not define ``entry_point`` at column 0, begins with an indented line,
    and ``prompt`` is source that ends in the head of that function (HumanEval's form), it is a
    continuation: the result is the prompt with it, up to the next statement at column 0.

    Returns "" when there is nothing; the result otherwise ends with a newline.
    """
    if any(_FENCE.match(line) for line in text.split("\n")):
        code = next(_python_blocks(text), "")
    else:
        code = _bare_code(text, entry_point, prompt)
    if not code.strip():
        return ""
    if _is_continuation(code, entry_point, prompt):
        code = _join_continuation(prompt, code)
    return code if code.endswith("\n") else code + "\n"


def _python_blocks(text: str) -> Iterator[str]:
    """The non-empty Python blocks of ``text`` in order; the last one may lack its closing fence.

    Any fence line closes a block that has content: a completion that is stopped at its first closing
    fence reads the same as one that went on with another opening fence. A fence line with a language
    inside a block that is still empty opens it again (models repeat the fence that was prefilled).
    """
    language: str | None = None
    body: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if language is None:
            if fence is not None:
                language, body = fence.group(1).lower(), []
        elif fence is None:
            body.append(line)
        elif any(part.strip() for part in body):
            if language in _PYTHON_LANGUAGES:
                yield "\n".join(body) + "\n"
            language = None
        else:
            language = fence.group(1).lower() or None
            body = []
    if language in _PYTHON_LANGUAGES and any(part.strip() for part in body):
        yield "\n".join(body)


def _bare_code(text: str, entry_point: str, prompt: str) -> str:
    """``text`` without the prose before its first statement; all of it where it may be a continuation."""
    if _is_continuation(text, entry_point, prompt):
        return text
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if _OPENER.match(line):
            return "\n".join(lines[index:])
    return text


def _is_continuation(code: str, entry_point: str, prompt: str) -> bool:
    if _defines(code, entry_point) or not _ends_in_head(prompt, entry_point):
        return False
    first = next((line for line in code.split("\n") if line.strip()), "")
    return first[:1] in (" ", "\t")


def _join_continuation(prompt: str, code: str) -> str:
    head = prompt if prompt.endswith("\n") else prompt + "\n"
    end = _CONTINUATION_END.search(code)
    return head + (code if end is None else code[: end.start()])


def _defines(code: str, entry_point: str) -> bool:
    return re.search(rf"^(?:async )?def {re.escape(entry_point)}\b", code, re.MULTILINE) is not None


def _ends_in_head(prompt: str, entry_point: str) -> bool:
    """Whether the last statement of ``prompt`` at column 0 is the head of ``entry_point``."""
    heads = list(re.finditer(r"^\S.*", prompt, re.MULTILINE))
    opening = [match for match in heads if not match.group().startswith((")", "#", '"""', "'''"))]
    return bool(opening) and _defines(opening[-1].group(), entry_point)
