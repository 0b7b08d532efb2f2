"""How commands read their command line and end: hyphens as underscores, a mistake in one line, status 2.

Exit status: 0 done, 1 a stage failed for good or a disk is full, 2 a user's mistake (one line a problem on
standard error), 130 interrupted, 143 terminated, 141 nobody reads the output any more.
"""

from __future__ import annotations

import argparse
import errno
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

from configs.errors import CommandEnd, nearest

T = TypeVar("T")
FAILED = 1
USER_ERROR = 2
INTERRUPTED = 130
# What the extra train brings.
_OF_MODELS = (
    *("filelock", "httpx", "huggingface_hub", "jinja2", "markupsafe", "numpy", "peft", "ray", "rich"),
    *("safetensors", "starlette", "torch", "transformers", "trl", "uvicorn", "vllm"),
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def not_installed(missing: ModuleNotFoundError) -> str | None:
    """What to install, where the module that is ``missing`` comes with the models; else None."""
    if (missing.name or "").partition(".")[0] not in _OF_MODELS:
        return None
    return f"{missing.name} is not installed: models need the extra cpu or gpu, as `make install` has it"


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: command line: {message}; see {self.prog} --help\n")


def make_parser(program: str, description: str) -> Parser:
    parser = Parser(
        prog=program,
        description=description,
        epilog="Flags may be written with hyphens or underscores.",
        allow_abbrev=False,
    )
    parser.add_argument("--verbose", action="store_true", help="say more; show tracebacks of user errors")
    return parser


def positive_number(text: str) -> float:
    """The type of an option that is a finite number above 0."""
    if not 0 < (value := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number > 0")
    return value


def positive_whole(text: str) -> int:
    """The type of an option that is a whole number above 0."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number > 0")
    return value


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Have an OSError in the block name ``path``: that of a write, a full disk's say, names no file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def run_command(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    command: Callable[[argparse.Namespace], int],
) -> int:
    """Parse, then ``command``; a user's mistake or a failed stage becomes a message and a status.

    Anything else is a fault of the program and shows its traceback.
    """
    arguments = _parse(parser, argv)
    before = _remember_interrupts()
    try:
        status = command(arguments)
        raise_if_interrupted()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError as error:
        if not _is_output_closed():
            return _report(error, FAILED, arguments.verbose)
        # Who read the output has enough of it: head, say. Nothing more can be said, also not at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except CommandEnd as end:
        if end.status != FAILED:
            print(end, file=sys.stderr)
            return end.status
        return _report(end, FAILED, arguments.verbose)
    except ModuleNotFoundError as missing:
        if (words := not_installed(missing)) is None:
            raise
        return _report(words, USER_ERROR, arguments.verbose)
    except TimeoutError as error:
        return _report(error, FAILED, arguments.verbose)
    except ValueError as error:
        return _report(error, USER_ERROR, arguments.verbose)
    except OSError as error:
        if error.errno in DISK_FULL:
            status = _report(error, FAILED, arguments.verbose)
            print("error: free some space, and give the command again", file=sys.stderr)
            return status
        if error.filename is None:
            raise
        # A path of the user's, by way of a setting or a flag.
        return _report(f"{error.filename}: {error.strerror}", USER_ERROR, arguments.verbose)
    finally:
        _restore_interrupts(before)


_Handler = Callable[[int, FrameType | None], Any] | int | None
_interrupted = threading.Event()


def _remember_interrupts() -> _Handler:
    """Note each Ctrl-C from now on: a library may catch the exception in our place."""
    _interrupted.clear()

    def interrupt(number: int, frame: FrameType | None) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    # Tests run commands in other threads.
    is_main = threading.current_thread() is threading.main_thread()
    return signal.signal(signal.SIGINT, interrupt) if is_main else None


def _restore_interrupts(before: _Handler) -> None:
    # What comes after the command in this process was not interrupted.
    _interrupted.clear()
    if before is not None:
        signal.signal(signal.SIGINT, before)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt where there was a Ctrl-C since the command began, which somebody has caught."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` within a command: Ctrl-C is noted, and cancels ``main`` where it waits.

    The handler of a command raises wherever it strikes: within an event loop that loses what the loop was
    about to do, and something is waited for that never comes. Raises KeyboardInterrupt after the first Ctrl-C
    when ``main`` has ended, at the second at once.
    """
    # Imported here: a command that only looks at its configuration starts without it.
    import asyncio

    before = signal.getsignal(signal.SIGINT)
    # None is a handler that was not set in Python.
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        return asyncio.run(main)

    async def noted() -> T:
        cancels = signal.getsignal(signal.SIGINT)
        assert callable(cancels)

        def note(number: int, frame: FrameType | None) -> None:
            _interrupted.set()
            cancels(number, frame)

        signal.signal(signal.SIGINT, note)
        try:
            return await main
        finally:
            signal.signal(signal.SIGINT, cancels)

    # asyncio puts its own handler in the place of this one only.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return asyncio.run(noted())
    finally:
        signal.signal(signal.SIGINT, before)


def _is_output_closed() -> bool:
    """Whether nobody reads any more what this process prints."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # It is no file.
        return False
    # What was not written need not be there any more: text of more than a buffer is not kept.
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _report(error: Exception | str, status: int, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    print_error(error)
    return status


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    words = [_hyphenated(word) for word in (sys.argv[1:] if argv is None else argv)]
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_meant(parser, unknown[0])}")
    return arguments


def _meant(parser: argparse.ArgumentParser, word: str) -> str:
    """What an unknown flag was most likely meant to be, as the end of a message."""
    name, equals, _ = word.partition("=")
    flags = [flag for action in parser._actions for flag in action.option_strings]
    guess = None
    if "--set" in flags:
        # Imported here: the schema is wanted by a mistake alone.
        from configs.explain import fields_called

        field = fields_called(name.lstrip("-").replace("-", "_"))
        guess = field and (f"--set {field}=VALUE" if " " not in field else field)
        if equals and "." in name and not name.startswith("-"):
            guess = f"--set {word}"
    guess = guess or nearest(name, flags)
    return f"; did you mean {guess}?" if guess else ""


def _hyphenated(word: str) -> str:
    if not word.startswith("--"):
        return word
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value


def print_error(error: Exception | str) -> None:
    """A user's mistake or a failure on standard error, as "error: ..." lines."""
    for line in [line for line in str(error).splitlines() if line.strip()] or [repr(error)]:
        print(f"error: {line}", file=sys.stderr)
