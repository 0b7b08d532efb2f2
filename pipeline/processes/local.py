"""An object in a process of this machine: nothing else has to run for it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from pipeline.host.limits import num_oom_kills, why_killed
from pipeline.processes.connection import Connection
from pipeline.processes.remote import ProcessGoneError, ProcessKilledError
from pipeline.processes.wire import frame

SERVER = "pipeline.processes.serve"
_END_TIMEOUT_S = 5.0
_LAST_BYTES, _LAST_LINES = 4000, 12


class LocalProcess(Connection):
    """See pipeline.processes.remote.Remote.

    ``target`` is MODULE:CLASS, ``arguments`` are its constructor's; ``environment`` is added to ours.
    """

    def __init__(self, target: str, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._num_oom_kills = num_oom_kills()
        self._is_killed = False
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", SERVER, str(theirs.fileno()), target],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # A Ctrl-C in the terminal is for the run, which then ends this process.
                start_new_session=True,
            )
        self.pid = self._process.pid
        ours.sendall(frame(arguments))
        super().__init__(ours, self._last_of_it)

    def kill(self) -> None:
        """See Remote."""
        if not self._is_killed:
            self._is_killed = True
            # It leads a group of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _last_of_it(self) -> ProcessGoneError:
        """How the process, which has closed its connection, ended, and what it said last."""
        try:
            status = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.wait()
        kind, how = ProcessGoneError, f"ended (status {status})"
        if status == -signal.SIGKILL and not self._is_killed:
            kind, how = ProcessKilledError, f"was killed by SIGKILL: {why_killed(self._num_oom_kills)}"
        elif status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        words = self._last_words()
        self._log.close()
        return kind(f"process {self.pid} {how}" + (f":\n{words}" if words else ""))

    def _last_words(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _LAST_BYTES, max(0, size - _LAST_BYTES))
        return "\n".join(text.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:])
