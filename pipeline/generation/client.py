"""Start an engine host, or connect to one, and call its engine. Light: imports no model library.

``launch`` starts the process and returns at once, so that it imports vLLM while the caller goes on;
``EngineClient`` is the connection, and Start, Hello and Welcome are how it begins: what to load, who asks for
the lease. After that both ends speak pipeline.processes.wire. But for seconds to find a host and to end
one, deadlines are pipeline.generation.vllm_generator's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline.generation.settings import IDLE_DEADLINE_S, EngineSettings
from pipeline.host.orphan_guard import MARK
from pipeline.processes.connection import Connection, ProcessGoneError
from pipeline.processes.local import ChildProcess
from pipeline.processes.wire import frame, receive_from

HOST_MODULE = "pipeline.generation.host"
_CLOSE_TIMEOUT_S = 15.0
_CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """First message to a new host: load this. ``socket_path`` is where it may be found by a later run.

    With a path the host outlives its client, for ``idle_s`` seconds without a client at most. ``identity`` is
    what a later run must agree with.
    """

    settings: EngineSettings
    identity: Mapping[str, str]
    socket_path: Path | None
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message to a host found by its path. ``wants`` is "identity", "lease" or "stop"."""

    wants: str
    client_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Answer to Start and to Hello. ``refusal`` says why a wish was not granted; None grants it.

    ``is_kept`` says that the host outlives its client.
    """

    pid: int
    identity: Mapping[str, str]
    refusal: str | None
    is_kept: bool


def launch(environment: Mapping[str, str], command: Sequence[str] = ("-m", HOST_MODULE)) -> ChildProcess:
    """Start a host with ``environment`` added to this process's; it waits for Start (``EngineClient.start``).

    ``command`` is what the interpreter runs.
    """
    # It dies with its parent, or shall outlive it: the run's guard is not for it.
    return ChildProcess(command, environment, without=(MARK,))


class EngineClient:
    """A connection to a host, with the lease of its engine; see EngineEnd."""

    def __init__(self, connection: socket.socket, welcome: Welcome, host: ChildProcess | None) -> None:
        self.pid = welcome.pid
        self.is_kept = welcome.is_kept
        self._host = host
        self._connection = Connection(connection, self._obituary)

    @classmethod
    async def start(cls, host: ChildProcess, start: Start) -> EngineClient:
        """Have a launched host load its engine; with a deadline of the caller's.

        Raises ProcessGoneError, with the end of what the host printed, when it dies instead.
        """
        try:
            welcome = await _welcomed(host.connection, start)
        # OSError: it died before it was told.
        except (EOFError, OSError) as error:
            raise await asyncio.to_thread(host.obituary) from error
        return cls(host.connection, welcome, host)

    @classmethod
    async def connect(cls, path: Path) -> EngineClient:
        """Take the lease of a host found at ``path``; its engine is at its base weights then.

        Raises ProcessGoneError where nobody listens there or the host refuses.
        """
        connection = _connected(path)
        connection.settimeout(None)
        try:
            welcome = await _welcomed(connection, Hello(wants="lease", client_pid=os.getpid()))
        except (EOFError, OSError) as error:
            raise ProcessGoneError("the resident engine's process ended") from error
        return cls(connection, welcome, None)

    def stream(self, method: str, *arguments: object) -> AsyncIterator[Any]:
        """See EngineEnd."""
        return self._connection.stream(method, *arguments)

    async def call(self, method: str, *arguments: object) -> Any:
        """See EngineEnd."""
        return await asyncio.wrap_future(self._connection.call(method, *arguments))

    async def close(self) -> None:
        """Give the lease back; the host ends unless it is kept."""
        if self.is_kept:
            print(
                f"the engine (process {self.pid}) stays for {IDLE_DEADLINE_S / 60:.0f} minutes: "
                "--attach uses it, --stop-resident ends it",
                file=sys.stderr,
            )
        self._connection.close()
        if self._host is not None and not self.is_kept:
            await asyncio.to_thread(self._host.end, _CLOSE_TIMEOUT_S)

    async def kill(self) -> None:
        """End the host, whatever it is doing; a resident one too, whose lease this is."""
        self._connection.close()
        if self._host is not None:
            self._host.kill()
            await asyncio.to_thread(self._host.end)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _obituary(self) -> ProcessGoneError:
        if self._host is None:
            return ProcessGoneError(f"the engine's process {self.pid} died")
        return self._host.obituary()


async def _welcomed(connection: socket.socket, greeting: Start | Hello) -> Welcome:
    """Send ``greeting``; the host's answer. EOFError when it ends, ProcessGoneError when it refuses."""
    try:
        welcome = await asyncio.to_thread(_greet, connection, greeting)
    except asyncio.CancelledError:
        # The thread waits no longer, then.
        connection.shutdown(socket.SHUT_RDWR)
        raise
    if welcome.refusal is not None:
        connection.close()
        raise ProcessGoneError(welcome.refusal)
    return welcome


async def ask(path: Path, wants: str) -> Welcome:
    """Ask the host at ``path`` for its "identity", or to "stop"; ProcessGoneError where none listens."""
    with _connected(path) as connection:
        try:
            return await asyncio.to_thread(_greet, connection, Hello(wants=wants, client_pid=os.getpid()))
        except (EOFError, OSError) as error:
            raise ProcessGoneError(f"nobody answers at {path}") from error


def _connected(path: Path) -> socket.socket:
    """A connection to the host at ``path``, which has ``_CONNECT_TIMEOUT_S`` for each answer."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_CONNECT_TIMEOUT_S)
    try:
        connection.connect(str(path))
    except OSError as error:
        connection.close()
        raise ProcessGoneError(f"nobody listens at {path}") from error
    return connection


def _greet(connection: socket.socket, greeting: Start | Hello) -> Welcome:
    connection.sendall(frame(greeting))
    welcome: Welcome = receive_from(connection)
    return welcome


class EngineEnd(Protocol):
    """This end of a connection to the process of an engine."""

    pid: int

    async def call(self, method: str, *arguments: object) -> Any:
        """What ``method`` of the engine returns.

        Raises ProcessGoneError when the engine's process is gone, StageError when the method raised.
        """
        ...

    def stream(self, method: str, *arguments: object) -> AsyncIterator[Any]:
        """The items that ``method`` yields; to leave the loop early cancels it there. Raises as ``call``."""
        ...

    async def close(self) -> None:
        """End the engine, or leave it to a later run."""
        ...

    async def kill(self) -> None:
        """End the engine at once, without its help."""
        ...
