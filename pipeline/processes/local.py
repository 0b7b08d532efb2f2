"""An object in a process of this machine: nothing else has to run for it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.host.files import remove_left_folders
from pipeline.host.limits import num_oom_kills, why_killed
from pipeline.processes.connection import Connection, ProcessGoneError, ProcessKilledError
from pipeline.processes.wire import frame

SERVER = "pipeline.processes.serve"
_END_TIMEOUT_S = 5.0
_LAST_BYTES, _LAST_LINES = 200_000, 12
_TRACEBACK, _SEE_ABOVE = "Traceback (most recent call last):", "See root cause above"
_CAUSE_LINES, _CAUSE_LETTERS = 4, 800
# What vLLM's logger writes before each line of a core's traceback.
_PREFIX = re.compile(r"^\(\w+ pid=\d+\) (?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] ?)?")
# The bindings of a process that did not end in good order complain as it goes.
_LEAKS = re.compile(r"leaked |nanobind|- \.\.\. skipped|further information visit")


class ChildProcess:
    """An interpreter with one end of a socket pair; ``connection`` is the other end.

    It runs ``command``, to which the number of its descriptor is appended, with ``environment`` added to ours
    and the variables ``without`` taken out. What it prints is kept for ``obituary``. It leads a group of its
    own: a Ctrl-C in the terminal is for the run, which then ends it.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, without: Container[str] = ()
    ) -> None:
        self.environment = dict(environment)
        self.connection, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._num_oom_kills = num_oom_kills()
        self._is_killed = False
        kept = {name: value for name, value in os.environ.items() if name not in without} | search_path()
        with theirs:
            self._process = subprocess.Popen(
                # Not the working directory, in which a user may have a rewards.py.
                [sys.executable, "-P", *command, str(theirs.fileno())],
                env=kept | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.pid = self._process.pid

    def kill(self) -> None:
        """End the process and its group at once, whatever they are doing. Safe to call twice."""
        if not self._is_killed:
            self._is_killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self, timeout_s: float = _END_TIMEOUT_S) -> None:
        """Wait for the process, which knows that it is to end; kill it when ``timeout_s`` are over.

        Nothing of it is left in the temporary folder.
        """
        self._wait(timeout_s)
        self.kill()
        self._wait(timeout_s)
        remove_left_folders()

    def obituary(self) -> ProcessGoneError:
        """How the process, which has closed its connection, ended, and what it said last."""
        self._wait(_END_TIMEOUT_S)
        status = self._process.returncode
        how = f"ended (status {status})" if status is not None else "closed its connection"
        kind = ProcessGoneError
        if status == -signal.SIGKILL and not self._is_killed:
            kind, how = ProcessKilledError, f"was killed by SIGKILL: {why_killed(self._num_oom_kills)}"
        elif status is not None and status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _LAST_BYTES, max(0, size - _LAST_BYTES))
        words = last_words(text.decode("utf-8", "replace"), is_failure=status is not None and status > 0)
        return kind(f"process {self.pid} {how}" + (f":\n{words}" if words else ""))

    def _wait(self, timeout_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)


def search_path() -> dict[str, str]:
    """The environment in which a child finds this package where this process did, installed or not."""
    root = str(Path(__file__).parents[2])
    if root not in map(os.path.abspath, sys.path):
        return {}
    given = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([root, given] if given else [root])}


def last_words(log: str, *, is_failure: bool = True) -> str:
    """Why a process ended, by what it printed: its last lines, of a failure the exception that ended it."""
    lines = [_PREFIX.sub("", line) for line in log.strip().splitlines()]
    causes = list(_exceptions(lines)) if is_failure else []
    # vLLM's engine dies of one in its core's process, whose traceback comes first.
    own = [cause for cause in causes if _SEE_ABOVE not in cause] or causes
    if own:
        return own[-1]
    return "\n".join([line for line in lines if not _LEAKS.search(line)][-_LAST_LINES:])


def _exceptions(lines: Sequence[str]) -> Iterator[str]:
    """The exception at the end of each traceback, with what it says on its next lines, indented or not."""
    place = 0
    while place < len(lines):
        place += 1
        if lines[place - 1] != _TRACEBACK:
            continue
        while place < len(lines) and (lines[place].startswith(" ") or not lines[place]):
            place += 1
        found: list[str] = []
        while place < len(lines) and len(found) < _CAUSE_LINES and _goes_on(lines[place], found):
            found.append(lines[place])
            place += 1
        if found:
            text = "\n".join(found)
            yield text if len(text) <= _CAUSE_LETTERS else text[: _CAUSE_LETTERS - 4] + " ..."


def _goes_on(line: str, found: Sequence[str]) -> bool:
    return not found or (bool(line) and line != _TRACEBACK and not _LEAKS.search(line))


class LocalProcess(Connection):
    """See pipeline.processes.connection.Remote.

    ``target`` is MODULE:CLASS, ``arguments`` are its constructor's; ``environment`` is added to ours.
    """

    def __init__(self, target: str, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        self._child = ChildProcess(("-m", SERVER, target), environment or {})
        self.pid = self._child.pid
        # Where it has died already, the first call says so.
        with contextlib.suppress(OSError):
            self._child.connection.sendall(frame(arguments))
        super().__init__(self._child.connection, self._last_of_it)

    def kill(self) -> None:
        """See Remote."""
        self._child.kill()

    def _last_of_it(self) -> ProcessGoneError:
        obituary = self._child.obituary()
        self._child.end()
        return obituary
