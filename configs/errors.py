"""The one error of a wrong configuration, how it reads, and what else ends a command with a message.

Says where a value was written, which field it is for, what it is and what would be right. Knows nothing
of the schema.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    ``where`` is a file, ``command line`` or ``--set a.b=c``; empty until the loader knows it. ``field`` is
    a dotted path. ``fault`` is what is the matter, with the value; ``allowed`` is what would be right.
    ``related`` are other fields whose values have a part in it.
    """

    field: str
    fault: str
    allowed: str
    where: str = ""
    related: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = (self.where, self.field, self.fault)
        return f"{': '.join(part for part in parts if part)}; allowed: {self.allowed}"


class CommandEnd(Exception):
    """Ends a command with its message and ``status``, without a traceback."""

    status = 1


class ConfigError(ValueError):
    """A configuration that cannot be used; its text holds one line a problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def wrong_value(field: str, value: object, allowed: str, *related: str) -> Problem:
    """The problem that ``value`` is none of the ``allowed`` ones of ``field``."""
    return Problem(field=field, fault=f"{show(value)} is not allowed", allowed=allowed, related=related)


def unknown(field: str, name: str, known: Sequence[str], *also: str) -> Problem:
    """The problem that ``name`` is none of the ``known`` names; ``also`` is what else would be right."""
    guess = nearest(name, known)
    fault = f'"{name}" is unknown' + (f" (did you mean {guess}?)" if guess else "")
    return Problem(field=field, fault=fault, allowed=", ".join([*known, *also]))


def show(value: object) -> str:
    """``value`` as a user would write it in YAML, shortened to one line."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 4] + " ..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was most likely meant to be; None if there is no likely one."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
