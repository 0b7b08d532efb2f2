"""The lint reward: 1 - issues / 20, by ruff with a fixed set of rules.

One ``ruff server`` per Linter answers over LSP on its standard input and output, which costs about a
tenth of a process per program; if it fails or is late it is replaced once, then the command line is
used. Project configuration and suppression comments have no effect. The server ends when its standard
input closes, so it dies with its owner.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ruff import find_ruff_bin  # type: ignore[import-untyped]

RULES = ("E", "F", "W", "B", "C4", "PLE", "S102", "S307")
LINE_LENGTH = 110
TARGET_VERSION = "py311"
ISSUES_FOR_ZERO = 20

_MAX_TRIES = 2  # of one program
_MAX_FAILURES = 4  # in a row, after which no server is started any more

_HOME = Path(__file__).parent
_HOME_URI = _HOME.as_uri()
_COMMENT = re.compile(r"#[^\n]*")
# The words by which a comment talks ruff out of a finding, or into another target version.
_SUPPRESSION = re.compile(r"noqa|ruff|flake8|isort|///", re.IGNORECASE)
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
)


class LintError(RuntimeError):
    """Ruff gave no verdict, neither as a server nor as a process: an infrastructure error."""


def lint_score(num_issues: int) -> float:
    """1 - issues / 20, at least 0."""
    return max(0.0, 1.0 - num_issues / ISSUES_FOR_ZERO)


def neutralise_suppressions(code: str) -> str:
    """``code`` with the words that suppress findings blanked in its comments; no column moves.

    A ``#`` inside a string counts as a comment too: there the text of a string changes, which no rule
    here reads.
    """
    return _COMMENT.sub(lambda comment: _SUPPRESSION.sub(_same_width, comment.group()), code)


def _same_width(word: re.Match[str]) -> str:
    return "x" * len(word.group())


class Linter:
    """Counts the issues of programs with one resident ruff server.

    Not safe for use by several threads. ``close`` ends the server.
    """

    def __init__(self, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._server: _RuffServer | None = None
        self._num_failures = 0
        self.version = _ruff_version(timeout_s)

    def __enter__(self) -> Linter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def count_issues(self, code: str) -> int:
        """The number of findings in ``code``. Raises LintError when ruff gives no verdict."""
        neutral = neutralise_suppressions(code)
        for _ in range(_MAX_TRIES):
            if self._num_failures >= _MAX_FAILURES:
                break
            try:
                if self._server is None:
                    self._server = _RuffServer(self._timeout_s)
                num_issues = self._server.count_issues(neutral)
            except (OSError, ValueError, KeyError, TimeoutError):
                self._num_failures += 1
                self.close()
            else:
                self._num_failures = 0
                return num_issues
        return count_issues_many([code], self._timeout_s)[0]

    def close(self) -> None:
        """End the server, if one runs."""
        if self._server is not None:
            self._server.close()
            self._server = None


class _RuffServer:
    """A ``ruff server`` process and the few LSP messages needed to ask it.

    Raises OSError, ValueError or KeyError for a broken server and TimeoutError for a late one.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._buffer = b""
        self._num_requests = 0
        self._process = subprocess.Popen(
            [find_ruff_bin(), "--isolated", "server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_HOME,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        try:
            self._send(_request(0, "initialize", _initialize_parameters()))
            self._answer("initialize")
            self._send(_notification("initialized", {}))
        except (OSError, ValueError, KeyError, TimeoutError):
            self.close()
            raise

    def count_issues(self, code: str) -> int:
        self._num_requests += 1
        uri = f"{_HOME_URI}/solution_{self._num_requests}.py"
        document = {"uri": uri, "languageId": "python", "version": 1, "text": code}
        reference: dict[str, object] = {"textDocument": {"uri": uri}}
        # One write for all three: the server answers from the state at the request, closed or not.
        self._send(
            _notification("textDocument/didOpen", {"textDocument": document}),
            _request(self._num_requests, "textDocument/diagnostic", reference),
            _notification("textDocument/didClose", reference),
        )
        return _num_issues(self._answer("textDocument/diagnostic")["items"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait(timeout=self._timeout_s)
        # What was left in its buffer has no reader any more.
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self._output.close()

    def _answer(self, method: str) -> dict[str, list[object]]:
        deadline = time.monotonic() + self._timeout_s
        while True:
            message = self._receive(deadline)
            if message.get("id") == self._num_requests and "method" not in message:
                result = message["result"]
                if not isinstance(result, dict):
                    raise ValueError(f"ruff server answered {method} with {result!r}")
                return result

    def _send(self, *messages: dict[str, object]) -> None:
        bodies = [json.dumps(message).encode() for message in messages]
        self._input.write(b"".join(b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies))
        self._input.flush()

    def _receive(self, deadline: float) -> dict[str, object]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._read_more(deadline)
        header, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        lengths = [line for line in header.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        num_bytes = int(lengths[0].split(b":")[1]) if lengths else 0
        while len(self._buffer) < num_bytes:
            self._read_more(deadline)
        body, self._buffer = self._buffer[:num_bytes], self._buffer[num_bytes:]
        message = json.loads(body)
        if not isinstance(message, dict):
            raise ValueError("ruff server sent a message that is no object")
        return message

    def _read_more(self, deadline: float) -> None:
        remaining_s = max(0.0, deadline - time.monotonic())
        if not select.select([self._output], [], [], remaining_s)[0]:
            raise TimeoutError(f"ruff server (pid {self._process.pid}) silent for {self._timeout_s} s")
        chunk = os.read(self._output.fileno(), 1 << 16)
        if not chunk:
            raise OSError(f"ruff server (pid {self._process.pid}) ended")
        self._buffer += chunk


def _notification(method: str, parameters: dict[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method, "params": parameters}


def _request(number: int, method: str, parameters: dict[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}


def _initialize_parameters() -> dict[str, object]:
    configuration = {
        "line-length": LINE_LENGTH,
        "target-version": TARGET_VERSION,
        "lint": {"select": list(RULES)},
    }
    settings = {"configurationPreference": "editorOnly", "configuration": configuration}
    return {
        "processId": os.getpid(),
        "rootUri": None,
        # Without the pull-diagnostics capability the server would push, at times of its own choosing.
        "capabilities": {"textDocument": {"diagnostic": {"dynamicRegistration": False}}},
        "initializationOptions": {"settings": settings},
    }


def count_issues_many(codes: Sequence[str], timeout_s: float = 10.0) -> list[int]:
    """The number of findings in each of ``codes`` by one ``ruff`` process: no server, no state.

    The fallback of Linter, and for those who have many programs at once. Raises LintError.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="lint-") as folder:
            names = [f"solution_{index}.py" for index in range(len(codes))]
            for name, code in zip(names, codes, strict=True):
                text = neutralise_suppressions(code).encode("utf-8", "replace")
                Path(folder, name).write_bytes(text)
            done = subprocess.run(
                [find_ruff_bin(), *_COMMAND_LINE_ARGUMENTS, *names],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                cwd=folder,
            )
        found: dict[str, list[object]] = {name: [] for name in names}
        for finding in json.loads(done.stdout):
            found[os.path.basename(finding["filename"])].append(finding)
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        raise LintError(f"ruff gave no verdict: {type(error).__name__}: {error}") from error
    return [_num_issues(found[name]) for name in names]


def _num_issues(findings: Sequence[object]) -> int:
    """How many there are; at least ``ISSUES_FOR_ZERO`` where ruff could not parse a program that compiles,
    for then no rule has looked at it. (Syntax newer than the target version is parsed all the same.)"""
    blind = any(
        isinstance(finding, dict)
        and finding["code"] == "invalid-syntax"
        and not finding["message"].startswith("Cannot ")
        for finding in findings
    )
    return max(len(findings), ISSUES_FOR_ZERO) if blind else len(findings)


def _ruff_version(timeout_s: float) -> str:
    try:
        done = subprocess.run(
            [find_ruff_bin(), "--version"], capture_output=True, timeout=timeout_s, check=True, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LintError(f"ruff does not run: {error}") from error
    return done.stdout.strip()
