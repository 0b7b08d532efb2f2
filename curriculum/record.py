"""A Record: one parsed line or row of a data set, with reads that say what is wrong and where.

Knows no format; the formats' own files (jsonl, humaneval, mbpp) read their fields through it, so that
every malformed record gives the same kind of message.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.job import parse

_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """``fields`` as parsed from JSON; ``where`` is FILE:LINE, or the data set's name and the row."""

    where: str
    fields: Mapping[str, object]

    def error(self, field: str, right: str) -> ValueError:
        """The error for ``field``: 'FILE:LINE: field ...: value ...: what is right'."""
        value = shorten(self.fields[field]) if field in self.fields else "missing"
        return ValueError(f"{self.where}: field {field!r}: value {value}: {right}")

    def text(self, field: str) -> str:
        """A field that must be there and hold more than white space."""
        value = self.fields.get(field)
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, "must be a string that is not empty")
        return self._encodable(field, value)

    def name(self, field: str) -> str:
        """A field that must be there and be a text, or a whole number, which becomes one."""
        value = self.fields.get(field)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(field)

    def optional_text(self, field: str) -> str:
        """A field that may be missing, null or empty; these give ''."""
        value = self.fields.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(field, "must be a string")
        return self._encodable(field, value)

    def optional_source(self, field: str) -> str:
        """A field that may be missing, null or empty, and else must be Python."""
        source = self.optional_text(field)
        self.parsed(field, source)
        return source

    def texts(self, field: str) -> list[str]:
        """A field that must be there and be a list of strings; may be empty."""
        value = self.fields.get(field)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(field, "must be a list of strings")
        return [self._encodable(field, item) for item in value]

    def identifier(self, field: str) -> str:
        """A field that must be the name of a Python function."""
        name = self.text(field)
        if not name.isidentifier() or keyword.iskeyword(name):
            raise self.error(field, "must be the name of a Python function")
        return name

    def integer(self, field: str, *, default: int, low: int, high: int) -> int:
        """A field that may be missing and else must be a whole number from ``low`` to ``high``."""
        if field not in self.fields:
            return default
        value = self.fields[field]
        # Where some rows have none, pandas makes fractions of the others.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(field, f"must be a whole number from {low} to {high}")
        return value

    def source_defining(self, field: str, function: str, source: str) -> ast.Module:
        """Parse ``source``, which came from ``field`` and must define ``function`` at its top level."""
        module = self.parsed(field, source)
        defined = (ast.FunctionDef, ast.AsyncFunctionDef)
        if not any(isinstance(node, defined) and node.name == function for node in module.body):
            raise self.error(field, f"must define {function}() at its top level")
        return module

    def parsed(self, field: str, source: str) -> ast.Module:
        """The tree of ``source``, which came from ``field`` and must be Python."""
        try:
            return parse(source)
        except (SyntaxError, ValueError, RecursionError) as failure:
            raise self.error(field, f"must be Python source ({failure})") from None

    def _encodable(self, field: str, text: str) -> str:
        """``text``, which will be tokenised and stored: neither takes half of a surrogate pair."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as failure:
            half = ascii(text[failure.start]).strip("'")
            right = f"must be UTF-8; character {failure.start + 1}, {half}, is half of a surrogate pair"
            raise self.error(field, right) from None
        return text


def shorten(value: object) -> str:
    """``repr(value)``, cut to one readable piece."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
