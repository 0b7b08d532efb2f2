"""The owner's handle on one zygote: start it, have it fork the children of a run, end the run.

Moves no program and no verdict; uses no signal handlers, so it works in any thread of any process,
Ray workers included. One run at a time: the pool sees to that. Called by ``pool.py`` and
``execution.py``.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Final, cast

from sandbox.codec import decode, encode
from sandbox.result import Limits

_MAX_MESSAGE: Final = 4096
_START_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 5.0
_KNOWN_WALLS: Final = frozenset({"namespaces", "landlock", "seccomp"})


class SandboxError(RuntimeError):
    """The sandbox itself failed: nothing is known about the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildReport:
    """How a child ended. ``reason`` is who ended it: "stop" (owner), "cpu", "wall", or "" (itself)."""

    reason: str
    exit_code: int
    cpu_s: float
    num_stdout_bytes: int
    num_stderr_bytes: int


class Worker:
    """One zygote process. ``level`` is known after ``wait_ready``."""

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        """Start the process without waiting; ``without`` leaves walls out (tests of weaker hosts)."""
        if not without <= _KNOWN_WALLS:
            raise ValueError(f"without={sorted(without)}: known walls are {sorted(_KNOWN_WALLS)}")
        self.level = ""
        self.num_runs = 0
        self._workdir = tempfile.mkdtemp(prefix="sandbox-")
        self._control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with remote:
            self._process = subprocess.Popen(
                _command(remote.fileno(), self._workdir, without),
                env=_environment(),
                pass_fds=(remote.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The launcher's process id; its death ends the zygote and all children."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait for the jail to be built and tested. Raises SandboxError."""
        message = self._receive(_START_TIMEOUT_S)
        if not isinstance(message, tuple) or message[0] != "hello":
            raise SandboxError(f"the sandbox process could not start: {message}")
        self.level = str(message[1])

    def start_run(self, limits: Limits, channels: list[socket.socket]) -> None:
        """Fork a candidate on the first channel and, given three, a judge on the other two."""
        self.num_runs += 1
        request = (
            1 if len(channels) == 1 else 2,
            float(limits.cpu_s),
            float(limits.wall_s),
            int(limits.memory_bytes),
            int(limits.output_bytes),
        )
        try:
            socket.send_fds(self._control, [encode(request)], [channel.fileno() for channel in channels])
        except OSError as error:
            raise SandboxError("the sandbox process is gone") from error

    def stop_run(self, grace_s: float) -> list[ChildReport]:
        """End the children and return how each ended, in the order of ``start_run``.

        With ``grace_s`` above zero each has that long to finish dying by itself.
        """
        try:
            self._control.send(encode(("stop", grace_s)))
        except OSError as error:
            raise SandboxError("the sandbox process is gone") from error
        reports = cast("list[tuple[str, int, float, int, int]]", self._receive(_END_TIMEOUT_S))
        return [
            ChildReport(
                reason=reason,
                exit_code=exit_code,
                cpu_s=cpu_s,
                num_stdout_bytes=num_stdout_bytes,
                num_stderr_bytes=num_stderr_bytes,
            )
            for reason, exit_code, cpu_s, num_stdout_bytes, num_stderr_bytes in reports
        ]

    def is_alive(self) -> bool:
        """Whether the process is there and silent, as it must be between runs."""
        if self._process.poll() is not None:
            return False
        # Not select(): a process with many descriptors has some above its limit of 1024.
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """End the zygote with all below it and reap it."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait(_END_TIMEOUT_S)
        # The zygote does this itself, unless it was killed.
        shutil.rmtree(self._workdir, ignore_errors=True)

    def _receive(self, timeout_s: float) -> object:
        try:
            self._control.settimeout(timeout_s)
            message = self._control.recv(_MAX_MESSAGE)
        except TimeoutError as error:
            raise SandboxError(f"the sandbox process did not answer within {timeout_s} s") from error
        except OSError as error:
            raise SandboxError("the sandbox process is gone") from error
        if not message:
            raise SandboxError("the sandbox process is gone")
        return decode(message)


def _command(control_fd: int, workdir: str, without: frozenset[str]) -> list[str]:
    """What -I does, but for the environment: that is ours, and sets one hash order for all runs.

    -S leaves site-packages out: a program finds the standard library and nothing else.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from sandbox.zygote import main; "
        f"main({control_fd}, {workdir!r}, frozenset({sorted(without)!r}))"
    )
    return [sys.executable, "-s", "-S", "-P", "-B", "-c", code]


def _environment() -> dict[str, str]:
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "2"}
    # An interpreter may need this to find its own shared library.
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment
