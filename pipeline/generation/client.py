"""Start an engine host, or connect to one, and call its engine. Light: imports no model library.

``launch`` starts the process and returns at once, so that it imports vLLM while the caller goes on;
``EngineClient`` is the connection; ``EngineLink`` is an engine at the other end of that or of a Ray actor
(pipeline.generation.ray_actor). None of it knows a deadline; pipeline.generation.vllm_generator has those.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline.generation.settings import IDLE_DEADLINE_S
from pipeline.generation.wire import Hello, Start, Welcome
from pipeline.host.limits import num_oom_kills, why_killed
from pipeline.host.orphan_guard import MARK
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.processes.connection import Connection
from pipeline.processes.remote import ProcessGoneError, ProcessKilledError
from pipeline.processes.wire import frame, receive, receive_from, send

HOST_MODULE = "pipeline.generation.host"
_CLOSE_TIMEOUT_S = 15.0
_CONNECT_TIMEOUT_S = 5.0
# From the end of the connection to the end of the process.
_END_TIMEOUT_S = 2.0
_LAST_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedHost:
    """A host that was started; ``log`` takes what it prints and is deleted when it ends well."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    log: Path
    environment: Mapping[str, str]

    def end(self) -> None:
        """Give the host, whose connection is closed, time to end in good order; then kill it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_CLOSE_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the host and all its processes at once, whatever they are doing."""
        self.connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_CLOSE_TIMEOUT_S)
        self.log.unlink(missing_ok=True)

    def last_words(self) -> str:
        """The end of what the host printed."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-_LAST_LINES:])

    def obituary(self, num_oom_kills_before: int) -> ProcessGoneError:
        """How the host, which has closed its connection, ended, and its last words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_TIMEOUT_S)
        status = self.process.returncode
        if status == -signal.SIGKILL:
            how = f"was killed by SIGKILL: {why_killed(num_oom_kills_before)}"
        else:
            how = f"ended (status {status})" if status is not None else "closed its connection"
        words = self.last_words()
        text = f"the engine's process {self.process.pid} {how}" + (f":\n{words}" if words else "")
        return ProcessKilledError(text) if status == -signal.SIGKILL else ProcessGoneError(text)


def launch(
    environment: Mapping[str, str], folder: Path, command: Sequence[str] = ("-m", HOST_MODULE)
) -> LaunchedHost:
    """Start a host with ``environment`` added to this process's; it waits for Start (``EngineClient.start``).

    Its log is in ``folder``. It has a process group of its own: a Ctrl-C in the terminal is for the run,
    which then ends it. ``command`` is what the interpreter runs, with a descriptor's number appended.
    """
    _delete_old_logs(folder)
    ours, theirs = socket.socketpair()
    log = folder / f"engine-{os.getpid()}-{time.monotonic_ns()}.log"
    with theirs, log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command, str(theirs.fileno())],
            # It dies with its parent, or shall outlive it: the run's guard is not for it.
            env={name: value for name, value in os.environ.items() if name != MARK} | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return LaunchedHost(process=process, connection=ours, log=log, environment=dict(environment))


def _delete_old_logs(folder: Path) -> None:
    """Delete what hosts of killed runs left; the log of a resident one is its own."""
    if any(folder.glob("engine-*.sock")):
        return
    for log in folder.glob("engine-*-*.log"):
        if not Path(f"/proc/{log.name.split('-')[1]}").exists():
            log.unlink(missing_ok=True)


class EngineClient:
    """A connection to a host, with the lease of its engine; see EngineEnd."""

    def __init__(
        self, connection: socket.socket, pid: int, host: LaunchedHost | None, *, is_kept: bool
    ) -> None:
        self.pid = pid
        self.is_kept = is_kept
        self._host = host
        self._num_oom_kills = num_oom_kills()
        self._connection = Connection(connection, self._obituary)

    @classmethod
    async def start(cls, host: LaunchedHost, start: Start) -> EngineClient:
        """Have a launched host load its engine; with a deadline of the caller's.

        Raises ProcessGoneError, with the end of the host's log, when it dies instead.
        """
        num_before = num_oom_kills()
        try:
            pid = await _welcomed(host.connection, start)
        except EOFError as error:
            raise await asyncio.to_thread(host.obituary, num_before) from error
        return cls(host.connection, pid, host, is_kept=start.socket_path is not None)

    @classmethod
    async def connect(cls, path: Path) -> EngineClient:
        """Take the lease of a host found at ``path``; its engine is at its base weights then.

        Raises ProcessGoneError where nobody listens there or the host refuses.
        """
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(_CONNECT_TIMEOUT_S)
            connection.connect(str(path))
            connection.settimeout(None)
            pid = await _welcomed(connection, Hello(wants="lease", client_pid=os.getpid()))
        except OSError as error:
            raise ProcessGoneError(f"nobody listens at {path}") from error
        except EOFError as error:
            raise ProcessGoneError("the resident engine's process ended") from error
        return cls(connection, pid, None, is_kept=True)

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
            await asyncio.to_thread(self._host.end)

    async def kill(self) -> None:
        """End the host, whatever it is doing; a resident one too, whose lease this is."""
        self._connection.close()
        if self._host is not None:
            await asyncio.to_thread(self._host.kill)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _obituary(self) -> ProcessGoneError:
        if self._host is None:
            return ProcessGoneError(f"the engine's process {self.pid} died")
        return self._host.obituary(self._num_oom_kills)


async def _welcomed(connection: socket.socket, greeting: Start | Hello) -> int:
    """Send ``greeting``; the host's process id. EOFError when it ends, ProcessGoneError when it refuses."""

    def greet() -> Welcome:
        connection.sendall(frame(greeting))
        welcome: Welcome = receive_from(connection)
        return welcome

    try:
        welcome = await asyncio.to_thread(greet)
    except asyncio.CancelledError:
        # The thread waits no longer, then.
        connection.shutdown(socket.SHUT_RDWR)
        raise
    if welcome.refusal is not None:
        connection.close()
        raise ProcessGoneError(welcome.refusal)
    return welcome.pid


async def ask(path: Path, wants: str) -> Welcome:
    """Ask the host at ``path`` for its "identity", or to "stop"; ProcessGoneError where none listens."""
    reader, writer = await _open(path)
    try:
        send(writer, Hello(wants=wants, client_pid=os.getpid()))
        welcome = await asyncio.wait_for(receive(reader), _CONNECT_TIMEOUT_S)
    except (EOFError, TimeoutError) as error:
        raise ProcessGoneError(f"nobody answers at {path}") from error
    finally:
        writer.close()
    assert isinstance(welcome, Welcome)
    return welcome


async def _open(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.wait_for(asyncio.open_unix_connection(path), _CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        raise ProcessGoneError(f"nobody listens at {path}") from error


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


class EngineLink:
    """An engine in another process: the methods of VllmEngine. They raise as those of EngineEnd."""

    def __init__(self, end: EngineEnd) -> None:
        self._end = end
        self.pid = end.pid

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See VllmEngine.generate."""
        return self._end.stream("generate", request)

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See VllmEngine.update_weights."""
        loaded: WeightsLoaded = await self._end.call("update_weights", update)
        return loaded

    async def prepare(self) -> str:
        """See VllmEngine.prepare."""
        return str(await self._end.call("prepare"))

    async def stats(self) -> dict[str, float]:
        """See VllmEngine.stats."""
        return dict(await self._end.call("stats"))

    async def reset(self) -> None:
        """See VllmEngine.reset."""
        await self._end.call("reset")

    async def close(self) -> None:
        """End the engine, or leave it to a later run."""
        await self._end.close()

    async def kill(self) -> None:
        """End the engine at once, without its help."""
        await self._end.kill()
