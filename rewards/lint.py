"""The lint reward: 1 - issues / 20, by ruff with a fixed set of rules.

One ``ruff server`` per Linter answers over LSP on its standard input and output, which costs about a
tenth of a process per program; if it fails or is late it is replaced once, then the command line is
used. A program that ruff dies of, or that takes all its time, scores 0. Project configuration and
suppression comments have no effect. What counts stands in rewards.lint_rules.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path

from ruff import find_ruff_bin  # type: ignore[import-untyped]

from rewards.lint_rules import (
    ISSUES_FOR_ZERO,
    LINE_LENGTH,
    RULES,
    TARGET_VERSION,
    count_findings,
    neutralise_suppressions,
)
from rewards.lint_server import MAX_ANSWER_BYTES, RuffServer, UnreadableError
from rewards.tool_output import read_some

_MAX_TRIES = 2  # of one program
# After so many programs in a row that no server had a verdict on, none is asked for a while.
_MAX_FAILURES = 2
_PAUSE_S = 60.0
# Of the time for a program: CPU that ruff may use. The rest is for a busy machine.
_CPU_SHARE = 0.2
# So it ends where it was the program: its stack is full, it gave up, its CPU time is over.
_DEATHS = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL, -signal.SIGXCPU)

_FILE = "solution.py"
_COMMAND_LINE_ARGUMENTS = (
    "check",
    "--isolated",
    "--no-cache",
    "--ignore-noqa",
    "--quiet",
    "--select",
    ",".join(RULES),
    "--line-length",
    str(LINE_LENGTH),
    "--target-version",
    TARGET_VERSION,
    "--output-format",
    "json",
    _FILE,
)


class LintError(RuntimeError):
    """Ruff gave no verdict, neither as a server nor as a process: an infrastructure error."""


class Linter:
    """Counts the issues of programs with one resident ruff server.

    Not safe for use by several threads. ``close`` ends the server.
    """

    def __init__(self, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._server: RuffServer | None = None
        self._num_failures = 0
        self._no_server_until = -math.inf
        try:
            find_ruff_bin()
        except FileNotFoundError as error:
            raise LintError(f"ruff does not run: its program is missing ({error})") from error
        self.version = f"ruff {version('ruff')}"

    def __enter__(self) -> Linter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def count_issues(self, code: str, given: Collection[str] = ()) -> int:
        """The number of findings in ``code``; ``ISSUES_FOR_ZERO`` stands for a program that ruff cannot take.

        Names that are ``given`` by what stands before the program are no findings. Raises LintError when ruff
        gives no verdict.
        """
        try:
            num_found = self._ask_server(neutralise_suppressions(code), given)
            return count_by_process(code, self._timeout_s, given) if num_found is None else num_found
        except UnreadableError:
            return ISSUES_FOR_ZERO

    def close(self) -> None:
        """End the server, if one runs."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _ask_server(self, code: str, given: Collection[str]) -> int | None:
        """What a server says, None where none does. Raises UnreadableError."""
        if time.monotonic() < self._no_server_until:
            return None
        for _ in range(_MAX_TRIES):
            try:
                if self._server is None:
                    self._server = RuffServer(self._timeout_s)
                num_found = self._server.count_issues(code, given)
            except (OSError, ValueError, KeyError, TimeoutError):
                self.close()
            except UnreadableError:
                # What it was about to say is still on its way.
                self.close()
                raise
            else:
                self._num_failures = 0
                return num_found
        self._num_failures += 1
        if self._num_failures >= _MAX_FAILURES:
            self._num_failures = 0
            self._no_server_until = time.monotonic() + _PAUSE_S
        return None


def count_by_process(code: str, timeout_s: float = 10.0, given: Collection[str] = ()) -> int:
    """The number of findings in ``code`` by a ``ruff`` process of its own: no server, no state.

    Raises LintError, UnreadableError where it is the program's fault.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="lint-") as folder:
            text = neutralise_suppressions(code).encode("utf-8", "replace")
            Path(folder, _FILE).write_bytes(text)
            return count_findings(json.loads(_run_ruff(folder, timeout_s)), given)
    except (OSError, ValueError, KeyError, TypeError, TimeoutError) as error:
        raise LintError(f"ruff gave no verdict: {type(error).__name__}: {error}") from error


def _run_ruff(folder: str, timeout_s: float) -> bytes:
    """What ruff prints about the program in ``folder``. Raises UnreadableError, OSError, TimeoutError."""
    deadline = time.monotonic() + timeout_s
    output = bytearray()
    with subprocess.Popen(
        [find_ruff_bin(), *_COMMAND_LINE_ARGUMENTS],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    ) as process:
        assert process.stdout is not None
        try:
            cpu_s = max(1, round(timeout_s * _CPU_SHARE))
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
            while chunk := read_some(process.stdout, deadline, "ruff"):
                output += chunk
                if len(output) > MAX_ANSWER_BYTES:
                    raise UnreadableError(f"more than {len(output)} bytes to say")
            # Its output is closed: it is about to end.
            code = process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(str(error)) from error
        finally:
            process.kill()
    if code in _DEATHS:
        raise UnreadableError(f"it ended with code {code}")
    return bytes(output)
