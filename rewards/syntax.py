"""The syntax reward: does the program compile?

Compiles, never runs. A size cap comes first, because the compiler takes seconds on a program of a
million lines.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

MAX_SOURCE_BYTES = 64 * 1024
_MAX_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxVerdict:
    """``score`` is 1.0 if the program compiles, else 0.0; ``message`` says why not, and is "" if it does."""

    score: float
    message: str


def check_syntax(code: str) -> SyntaxVerdict:
    """Compile ``code`` as a module; an empty program and one above the size cap fail."""
    if not code.strip():
        return SyntaxVerdict(score=0.0, message="no code")
    num_bytes = len(code.encode("utf-8", "surrogatepass"))
    if num_bytes > MAX_SOURCE_BYTES:
        return SyntaxVerdict(score=0.0, message=f"{num_bytes} bytes of code, allowed are {MAX_SOURCE_BYTES}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "<solution>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return _failure(f"{type(error).__name__}: {error.msg} (line {error.lineno})")
    # Null bytes, lone surrogates, huge literals, and nesting beyond the parser's stack.
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        return _failure(f"{type(error).__name__}: {error}")
    return SyntaxVerdict(score=1.0, message="")


def _failure(message: str) -> SyntaxVerdict:
    return SyntaxVerdict(score=0.0, message=message[:_MAX_MESSAGE_CHARS])
