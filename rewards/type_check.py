"""The type safety reward: 1 - errors / 10, by mypy; off by default (weight 0).

Asks a resident mypy in a process of its own (rewards.type_server), which costs 2 ms a program where a
fresh process costs a second. It is started again when it fails; after ``_MAX_FAILURES`` failures in a row
a plain ``mypy`` process answers instead, for a minute. It ends when its standard input closes, so it dies
with its owner. What counts as an error stands in rewards.type_rules.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rewards.tool_output import read_some
from rewards.type_rules import (
    ERRORS_FOR_ZERO,
    FLAGS,
    count_hidden,
    count_reported,
    is_blocking,
    neutralise_type_comments,
)

_ROOT = Path(__file__).parents[1]
_START_TIMEOUT_S = 60.0
_MAX_FAILURES = 3
_PAUSE_S = 60.0
_CPU_SHARE = 0.2
_PROCESS_CPU_S = 20


class TypeCheckError(RuntimeError):
    """mypy gave no verdict, neither as a server nor as a process: an infrastructure error."""


def type_score(num_errors: int) -> float:
    """1 - errors / 10, at least 0."""
    return max(0.0, 1.0 - num_errors / ERRORS_FOR_ZERO)


class TypeChecker:
    """Counts the type errors of programs with one resident mypy, started at the first program.

    ``timeout_s``: wall seconds for one program; a fifth of it is its limit of CPU time, beyond which the
    program has all the errors there are. Not for several threads at once. ``close`` ends the process.
    Raises TypeCheckError where mypy is not installed.
    """

    def __init__(self, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._server: _Server | None = None
        self._num_failures = 0
        self._no_server_until = -math.inf
        try:
            self.version = f"mypy {version('mypy')}"
        except PackageNotFoundError as error:
            raise TypeCheckError("mypy is not installed: pip install mypy") from error

    def __enter__(self) -> TypeChecker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def count_errors(self, code: str, prelude: str = "") -> int:
        """The number of type errors in ``code``, which must compile; 10 stands for 10 and more.

        Names that it lacks may stand in ``prelude``, which runs before it. Raises TypeCheckError when mypy
        gives no verdict.
        """
        neutral, num_ignores = neutralise_type_comments(code)
        num_errors = num_ignores + count_hidden(code)
        if num_errors < ERRORS_FOR_ZERO:
            messages = self._ask(neutral)
            # None: the program broke mypy. Blocked: mypy looked at nothing. Neither proves anything.
            if messages is None or is_blocking(messages):
                return ERRORS_FOR_ZERO
            num_reported = count_reported(messages, neutral)
            if prelude and any(message.endswith("[name-defined]") for message in messages):
                # Not at once: what the program has again would be an error, for mypy keeps the first.
                before = f"{prelude}\n"
                messages = self._ask(before + neutral)
                if messages is not None and not is_blocking(messages):
                    num_reported = min(num_reported, count_reported(messages, neutral, before.count("\n")))
            num_errors += num_reported
        return min(num_errors, ERRORS_FOR_ZERO)

    def close(self) -> None:
        """End the server, if one runs."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _ask(self, code: str) -> list[str] | None:
        """mypy's errors, or None where it is the program's fault that there is no verdict."""
        reply = self._ask_server(code)
        if reply is None or "unloaded" in reply:
            return _check_by_process(code, self._timeout_s + _START_TIMEOUT_S)
        messages = reply.get("messages")
        return [str(message) for message in messages] if isinstance(messages, list) else None

    def _ask_server(self, code: str) -> dict[str, object] | None:
        if self._num_failures >= _MAX_FAILURES and time.monotonic() >= self._no_server_until:
            self._num_failures = 0
        while self._num_failures < _MAX_FAILURES:
            try:
                if self._server is None:
                    self._server = _Server(self._timeout_s)
                reply = self._server.check(code)
            except (OSError, ValueError, TimeoutError):
                self._num_failures += 1
                self._no_server_until = time.monotonic() + _PAUSE_S
                self.close()
            else:
                self._num_failures = 0
                return reply
        return None


class _Server:
    """A rewards.type_server process. Raises OSError or ValueError for a broken one, TimeoutError for
    a late one."""

    def __init__(self, timeout_s: float) -> None:
        # The server's own limit comes first: it then says so, and need not be started again.
        self._timeout_s = timeout_s + 1.0
        self._folder = tempfile.mkdtemp(prefix="types-")
        limits = (str(timeout_s), str(timeout_s * _CPU_SHARE))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rewards.type_server", self._folder, *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
            env=_environment(),
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        try:
            self._receive(_START_TIMEOUT_S)
        except (OSError, ValueError, TimeoutError):
            self.close()
            raise

    def check(self, code: str) -> dict[str, object]:
        """The server's reply, see rewards.type_server.serve."""
        self._input.write(json.dumps({"code": code}).encode() + b"\n")
        self._input.flush()
        reply = self._receive(self._timeout_s)
        if "failure" in reply:
            raise OSError(f"mypy server (pid {self._process.pid}): {reply['failure']}")
        return reply

    def close(self) -> None:
        # A closed input ends it and its worker; the signal is for a stuck one.
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10.0)
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _receive(self, timeout_s: float) -> dict[str, object]:
        deadline, who = time.monotonic() + timeout_s, f"mypy server (pid {self._process.pid})"
        data = bytearray()
        while not data.endswith(b"\n"):
            chunk = read_some(self._output, deadline, who)
            if not chunk:
                raise OSError(f"{who} ended")
            data += chunk
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError(f"mypy server sent {message!r}")
        return message


def _check_by_process(code: str, timeout_s: float) -> list[str] | None:
    """mypy's errors by a process of its own, with the same flags.

    None where the program stops it, or CPU time ends.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="types-") as folder:
            Path(folder, "solution.py").write_text(code, encoding="utf-8", errors="replace", newline="")
            with subprocess.Popen(
                [sys.executable, "-m", "mypy", *FLAGS, "--cache-dir", os.devnull, "solution.py"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=_environment(),
                text=True,
            ) as process:
                try:
                    resource.prlimit(process.pid, resource.RLIMIT_CPU, (_PROCESS_CPU_S, _PROCESS_CPU_S + 5))
                    output, errors = process.communicate(timeout=timeout_s)
                finally:
                    process.kill()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TypeCheckError(f"mypy gave no verdict: {type(error).__name__}: {error}") from error
    messages = output.splitlines()
    # 0: no errors, 1: errors; 2: blocked by the program, or broken.
    if process.returncode == 0 or (process.returncode == 1 and messages) or is_blocking(messages):
        return messages
    # Blocked by something else than its parser, it has looked at nothing either.
    is_blocked = process.returncode == 2 and any(" error: " in message for message in messages)
    if is_blocked or process.returncode == -signal.SIGXCPU:
        return None
    raise TypeCheckError(f"mypy gave no verdict: status {process.returncode}: {errors[-200:]}")


def _environment() -> dict[str, str]:
    """Ours without what would send mypy elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MYPY")}
