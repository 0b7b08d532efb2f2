"""The process of one inference engine: answers one client at a time, over a Unix socket.

    python -m pipeline.generation.host FD      (pipeline.generation.client starts it; FD is a connected
    socket)

It imports vLLM once, and vLLM's own processes are forked from it, where vLLM lets them be, instead of
importing it all again. A host lives as long as its first client, unless Start gives it a path and no other
host listens there: then it stays when the client leaves, and a later run finds it there
(pipeline.generation.resident). Whoever holds the lease has the engine to itself; the lease is the connection,
so it ends with the client however that dies. Everything that a client left running is aborted, and the base
weights are loaded again at once, so that the next one need not wait for them. Without a client for ``idle_s``
seconds the host ends itself. The engine's processes die with the host. Knows nothing of Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pipeline.generation import resident
from pipeline.generation.client import Hello, Start, Welcome
from pipeline.generation.settings import EngineSettings
from pipeline.host import spans
from pipeline.processes.serve import Servant, serve
from pipeline.processes.wire import Call, Failed, receive, send
from sandbox.jail import die_with_parent

PROCESS = "engine"
# Between the first sign of an engine's end and the engine's knowing of it.
_SETTLING_S = 0.5


class Engine(Protocol):
    """What a host needs of an engine, besides the methods that clients call by name."""

    async def reset(self) -> None:
        """Go back to the base weights and policy version 0."""
        ...

    async def failure(self) -> str:
        """Return, with the reason, when the engine can no longer work; not before."""
        ...

    async def close(self) -> None:
        """End every process of the engine."""
        ...


def end_children_with_their_parents() -> None:
    """From now on every process forked from this one, or from one of those, dies with its parent."""
    parent = os.getpid()

    def remember() -> None:
        nonlocal parent
        parent = os.getpid()

    def follow() -> None:
        die_with_parent()
        if os.getppid() != parent:
            # It was gone before the kernel was told.
            os._exit(1)

    os.register_at_fork(before=remember, after_in_child=follow)


class EngineHost:
    """The ``engine`` that was loaded for ``start``, and its present client."""

    def __init__(self, engine: Engine, start: Start) -> None:
        self._engine = engine
        self._identity = start.identity
        self._path = start.socket_path
        self._idle_s = start.idle_s
        self._client_pid: int | None = os.getppid()
        self._resetting: asyncio.Task[None] | None = None  # back to how it started, after a client
        self._end = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None  # ends this process, while it has no client

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the first client, then others if Start says so."""
        watch = asyncio.create_task(self._end_with_engine())
        try:
            if self._path is None or (claim := resident.claimed(self._path)) is None:
                self._path = None
                await self._serve(reader, writer)
            else:
                with claim:
                    await self._serve_all(self._path, reader, writer)
        finally:
            watch.cancel()
            if self._resetting is not None:
                self._resetting.cancel()
            await self._engine.close()

    async def _end_with_engine(self) -> None:
        """End this process when the engine has: calls to a dead engine may never return, a client that finds
        its connection closed knows at once.
        """
        reason = await self._engine.failure()
        print(f"the engine is gone: {reason}", file=sys.stderr, flush=True)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        # Not in good order: that would wait for the engine's processes.
        os._exit(1)

    async def _serve_all(
        self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        die_with_parent(0)
        server = await asyncio.start_unix_server(self._greet, path=path)
        try:
            await self._serve(reader, writer)
            await self._end.wait()
        finally:
            # Gone before the engine ends: nobody shall find a host that is about to end.
            path.unlink(missing_ok=True)
            server.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection made by path: tell who this is, then what was wished."""
        try:
            hello = await receive(reader)
            assert isinstance(hello, Hello)
            refusal = None if hello.wants == "identity" else await self._grant(hello)
            if hello.wants == "lease" and refusal is None:
                await self._serve(reader, writer)
            else:
                self._welcome(writer, refusal)
                await writer.drain()
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _grant(self, hello: Hello) -> str | None:
        """Lease the engine, or begin its end; returns why not, or None."""
        if self._client_pid is not None:
            return f"in use by process {self._client_pid}"
        if self._end.is_set():
            return "about to end"
        if hello.wants == "stop":
            self._end.set()
            return None
        self._client_pid = hello.client_pid
        if self._idle is not None:
            self._idle.cancel()
        try:
            if self._resetting is not None:
                await self._resetting
        except Exception as error:
            # An engine in an unknown state serves nobody.
            self._end.set()
            self._client_pid = None
            return f"its base weights could not be loaded again: {type(error).__name__}: {error}"
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the client's calls until it leaves; then nothing of it is left running."""
        servant = _EngineServant(self._engine)
        try:
            self._welcome(writer)
            await serve(servant, reader, writer)
        finally:
            await servant.clear()
            writer.close()
            self._client_pid = None
            if self._path is not None:
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end.set)
                self._resetting = asyncio.create_task(self._engine.reset())

    def _welcome(self, writer: asyncio.StreamWriter, refusal: str | None = None) -> None:
        is_kept = self._path is not None
        send(writer, Welcome(pid=os.getpid(), identity=self._identity, refusal=refusal, is_kept=is_kept))


class _EngineServant(Servant):
    """An engine that is there already."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(type(engine).__name__, ())
        self._engine = engine

    async def made(self) -> Engine:
        """The engine."""
        return self._engine

    async def failed(self, call: Call, error: Exception) -> Failed:
        """See Servant. No answer where the engine has ended, which ends this process.

        A call may learn of that before the watch does: the client must not take it for a failure of the call
        alone.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._engine.failure(), _SETTLING_S)
            await asyncio.Event().wait()
        return await super().failed(call, error)


def serve_engine(descriptor: int, make_engine: Callable[[EngineSettings], Engine]) -> None:
    """Run a host on an inherited, connected socket, until it is done; SIGTERM ends it in good order.

    ``make_engine`` loads the model; it may block.
    """
    end_children_with_their_parents()

    async def main() -> None:
        job = asyncio.current_task()
        assert job is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, job.cancel)
        first = socket.socket(fileno=descriptor)
        with contextlib.suppress(asyncio.CancelledError):
            reader, writer = await asyncio.open_unix_connection(sock=first)
            try:
                start: Start = await receive(reader)
            except EOFError:
                return
            with spans.span(PROCESS, "engine: load, KV cache, warm-up"):
                engine = make_engine(start.settings)
            await EngineHost(engine, start).run(reader, writer)

    asyncio.run(main())


def main() -> None:
    """The process: import vLLM beside whatever the client does, then serve."""
    # Until Start says that the engine may outlive its client.
    die_with_parent()
    # Below Ray's servers it is blocked (pipeline.cluster).
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    spans.note(PROCESS, "interpreter", spans.process_started_s(), time.time(), cpu_s=time.process_time())
    # What is imported stays: to look through it for garbage takes a quarter of the time. Frozen it also
    # stays shared with the engine's processes, which are forked from this one.
    gc.disable()
    with spans.span(PROCESS, "import vllm"):
        # Imported here: a span is measured, and tests run a host without vLLM.
        from pipeline.generation.vllm.engine import VllmEngine
    gc.freeze()
    gc.enable()
    serve_engine(int(sys.argv[1]), VllmEngine)


if __name__ == "__main__":
    main()
