"""How a command reads its command line: hyphens and underscores alike, a mistake in one line, status 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

USER_ERROR = 2


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: command line: {message}; see {self.prog} --help\n")


def make_parser(program: str, description: str) -> _Parser:
    parser = _Parser(
        prog=program,
        description=description,
        epilog="Flags may be written with hyphens or underscores.",
        allow_abbrev=False,
    )
    parser.add_argument("--verbose", action="store_true", help="say more; show tracebacks of user errors")
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    return parser.parse_args([_hyphenated(word) for word in (sys.argv[1:] if argv is None else argv)])


def _hyphenated(word: str) -> str:
    if not word.startswith("--"):
        return word
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value


def print_error(error: Exception | str) -> None:
    """A user's mistake or a failure on standard error, as "error: ..." lines."""
    for line in str(error).splitlines() or [repr(error)]:
        print(f"error: {line}", file=sys.stderr)
