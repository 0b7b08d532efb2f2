"""An object in a process of this machine: nothing else has to run for it.

Two threads a process carry its messages, so that no caller waits for a process that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from typing import Any

from pipeline.host.limits import num_oom_kills, why_killed
from pipeline.processes.remote import (
    CallCancelledError,
    CallFailedError,
    ProcessGoneError,
    ProcessKilledError,
)
from pipeline.processes.wire import Answer, Call, Cancel, Cancelled, Done, Failed, Item, frame, receive_from

SERVER = "pipeline.processes.serve"
_END_TIMEOUT_S = 5.0
_LAST_BYTES, _LAST_LINES = 4000, 12


class LocalProcess:
    """See pipeline.processes.remote.Remote.

    ``target`` is MODULE:CLASS, ``arguments`` are its constructor's; ``environment`` is added to ours.
    """

    def __init__(self, target: str, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        self._connection, theirs = socket.socketpair()
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
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._takers: dict[int, Callable[[Answer | ProcessGoneError], None]] = {}
        self._ids: dict[Future[Any], int] = {}
        self._gone: ProcessGoneError | None = None
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outgoing.put(frame(arguments))
        for work in (self._send, self._listen):
            threading.Thread(target=work, name=f"process {self.pid}", daemon=True).start()

    def call(self, method: str, *arguments: object) -> Future[Any]:
        """See Remote."""
        return self._call(method, arguments, is_beside=False)

    def call_beside(self, method: str, *arguments: object) -> Future[Any]:
        """See Remote."""
        return self._call(method, arguments, is_beside=True)

    async def stream(self, method: str, *arguments: object) -> AsyncIterator[Any]:
        """See Remote."""
        loop = asyncio.get_running_loop()
        answers: asyncio.Queue[Answer | ProcessGoneError] = asyncio.Queue()

        def take(answer: Answer | ProcessGoneError) -> None:
            with contextlib.suppress(RuntimeError):  # The loop has been closed.
                loop.call_soon_threadsafe(answers.put_nowait, answer)

        call = Call(call_id=next(self._numbers), method=method, arguments=arguments, is_stream=True)
        self._begin(call, take)
        is_done = False
        try:
            while True:
                answer = await answers.get()
                is_done = not isinstance(answer, Item)
                if is_done:
                    value_of(answer)
                    return
                yield value_of(answer)
        finally:
            if not is_done:
                self._give_up(call.call_id)

    def cancel(self, call: Future[Any]) -> None:
        """See Remote."""
        with self._lock:
            call_id = self._ids.get(call)
        if call_id is not None:
            self._outgoing.put(frame(Cancel(call_id=call_id)))

    def kill(self) -> None:
        """See Remote."""
        if not self._is_killed:
            self._is_killed = True
            # It leads a group of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _call(self, method: str, arguments: tuple[object, ...], *, is_beside: bool) -> Future[Any]:
        answer: Future[Any] = Future()
        # Who stops waiting for it does not settle it.
        answer.set_running_or_notify_cancel()

        def take(message: Answer | ProcessGoneError) -> None:
            with self._lock:
                self._ids.pop(answer, None)
            settle(answer, message)

        call = Call(call_id=next(self._numbers), method=method, arguments=arguments, is_beside=is_beside)
        with self._lock:
            self._ids[answer] = call.call_id
        self._begin(call, take)
        return answer

    def _begin(self, call: Call, take: Callable[[Answer | ProcessGoneError], None]) -> None:
        message = frame(call)
        with self._lock:
            gone = self._gone
            if gone is None:
                self._takers[call.call_id] = take
                self._outgoing.put(message)
        if gone is not None:
            take(gone)

    def _give_up(self, call_id: int) -> None:
        with self._lock:
            self._takers.pop(call_id, None)
        self._outgoing.put(frame(Cancel(call_id=call_id)))

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # It is gone: the listener says so.
            while (message := self._outgoing.get()) is not None:
                self._connection.sendall(message)

    def _listen(self) -> None:
        """Hand out the answers, until the process ends."""
        with contextlib.suppress(EOFError):
            while True:
                answer = receive_from(self._connection)
                with self._lock:
                    is_last = not isinstance(answer, Item)
                    take = (self._takers.pop if is_last else self._takers.get)(answer.call_id, None)
                # What comes for a stream that was left is let go.
                if take is not None:
                    take(answer)
        gone = self._obituary()
        with self._lock:
            self._gone = gone
            left = list(self._takers.values())
            self._takers.clear()
        self._outgoing.put(None)
        self._connection.close()
        self._log.close()
        for take in left:
            take(gone)

    def _obituary(self) -> ProcessGoneError:
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
        return kind(f"process {self.pid} {how}" + (f":\n{words}" if words else ""))

    def _last_words(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _LAST_BYTES, max(0, size - _LAST_BYTES))
        return "\n".join(text.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:])


def value_of(answer: Answer | ProcessGoneError) -> Any:
    """What ``answer`` holds; raises what it tells of."""
    if isinstance(answer, Item | Done):
        return answer.value
    if isinstance(answer, Failed):
        raise CallFailedError(f"{answer.kind}: {answer.text}", answer.kind, answer.trace)
    if isinstance(answer, Cancelled):
        raise CallCancelledError("the call was cancelled")
    raise answer


def settle(future: Future[Any], answer: Answer | ProcessGoneError) -> None:
    """Give ``future`` what ``answer`` holds or tells of."""
    try:
        future.set_result(value_of(answer))
    except Exception as error:
        future.set_exception(error)
