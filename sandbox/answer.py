"""What a candidate's child sends back, and the check that it has this form.

Made in the child, where nothing can be trusted; parsed by the owner and by the judge, which believe
nothing but its form. Knows no expected value.

Frames: ``("ready", None)``; ``("ok", value)``, or ``("ok", (value, args, kwargs))`` where the call
asked for the arguments; ``("foreign", reason)``; ``("error", (names, args, line))`` with the names of the
exception's class and its bases, the exception's arguments, and the line of the solution that it passed
last, 0 for none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeGuard

from sandbox.codec import CodecError, encode

_MAX_NAMES: Final = 16
_MAX_NAME_CHARS: Final = 80
_MAX_TEXT_CHARS: Final = 2000
_MAX_LINE: Final = 10**6
# What a solution is compiled as.
FILE_NAME: Final = "<solution>"


class ForgedError(Exception):
    """The candidate sent what no honest child sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One parsed frame. ``kind`` is ready, ok, foreign or error; ``text`` is for the detail: the
    reason or the exception's type, with its line. ``args`` and ``kwargs`` are the call's, after it,
    where asked for, or the exception's arguments. All values are plain data."""

    kind: str
    text: str = ""
    value: object = None
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] | None = None
    names: tuple[str, ...] = ()


def parse_answer(frame: object, *, with_args: bool = False) -> Answer:
    """Parse a decoded frame. Raises ForgedError for anything but the forms above."""
    if not isinstance(frame, tuple) or len(frame) != 2 or not isinstance(frame[0], str):
        raise ForgedError("not a pair")
    kind, payload = frame
    if kind == "ok" and with_args:
        if isinstance(payload, tuple) and len(payload) == 3:
            value, args, kwargs = payload
            if isinstance(args, tuple) and isinstance(kwargs, dict):
                return Answer(kind=kind, value=value, args=args, kwargs=kwargs)
        raise ForgedError("no arguments")
    if kind == "ok":
        return Answer(kind=kind, value=payload)
    if kind == "ready" and payload is None:
        return Answer(kind=kind)
    if kind == "foreign" and isinstance(payload, str):
        return Answer(kind=kind, text=payload[:160])
    if kind == "error" and isinstance(payload, tuple) and len(payload) == 3:
        names, args, line = payload
        if isinstance(names, tuple) and isinstance(args, tuple) and is_line(line):
            texts = tuple(name[:_MAX_NAME_CHARS] for name in names[:_MAX_NAMES] if isinstance(name, str))
            if texts and len(names) <= _MAX_NAMES and len(texts) == len(names):
                return Answer(kind=kind, text=with_line(texts[0], line), args=args, names=texts)
    raise ForgedError("unknown kind")


def is_line(line: object) -> TypeGuard[int]:
    """Whether this is the number of a line, or 0."""
    return type(line) is int and 0 <= line <= _MAX_LINE


def with_line(name: str, line: int) -> str:
    """The name of an exception for the detail of a verdict, with its line where there is one."""
    return f"{name}, line {line}" if line else name


def call_answer(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], *, with_args: bool
) -> bytes:
    """Call the candidate; its value is copied at once, so nothing that changes later changes it."""
    try:
        value = function(*args, **kwargs)
        return encode(("ok", (value, args, kwargs) if with_args else value))
    except CodecError as error:
        return encode(("foreign", str(error)[:160]))
    except BaseException as error:
        return error_answer(error)


def error_answer(error: BaseException) -> bytes:
    """The frame for an exception; its class may be the candidate's and do anything when looked at."""
    try:
        bases = type(error).__mro__[:_MAX_NAMES]
        names = tuple(base.__name__[:_MAX_NAME_CHARS] for base in bases)
        # A class of the candidate's own gives its text as it wants it to be read.
        own = type(error).__module__ != "builtins"
        args = (str(error)[:_MAX_TEXT_CHARS],) if own else error.args
        line = line_of(error)
        try:
            return encode(("error", (names, args, line)))
        except CodecError:
            return encode(("error", (names, (str(error)[:_MAX_TEXT_CHARS],), line)))
    except BaseException:
        return encode(("error", (("Exception",), (), 0)))


def line_of(error: BaseException) -> int:
    """The line of the solution, not of a library, that ``error`` passed last; 0 for none."""
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line if is_line(line) else 0
