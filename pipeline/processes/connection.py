"""Calls over a socket to an object in another process, from any thread; and what can go wrong with them.

``Remote`` is what a caller may ask, wherever the process is: ``LocalProcess`` (pipeline.processes.local) is
the caller's end on this machine, ``RayProcess`` (pipeline.processes.ray_remote) where Ray has the process.
Neither knows what is called nor any deadline: those are the caller's, who can name the setting. Two threads
carry the messages, so that no caller waits for a process that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import socket
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from pipeline.errors import StageError
from pipeline.processes.wire import Answer, Call, Cancel, Cancelled, Done, Failed, Item, frame, receive_from
from rewards.worker import CallCancelledError as CallCancelledError
from rewards.worker import WorkerCallError, WorkerLostError


class CallFailedError(StageError, WorkerCallError):
    """The method raised; the process is well. The message is the error's type and text.

    ``trace``, its traceback in the other process, is a note of it.
    """

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.add_note(f"in the other process:\n{trace}")


class ProcessGoneError(StageError, WorkerLostError):
    """The process has ended; the message says how, and what it said last."""


class ProcessKilledError(ProcessGoneError):
    """The process got a SIGKILL that this one did not send; another try may well succeed."""


class OutOfMemoryError(ProcessGoneError):
    """Ray has ended the process for want of memory."""


class Asked(Future[Any]):
    """The answer to the call of that number, once it has come."""

    def __init__(self, call_id: int) -> None:
        super().__init__()
        self.call_id = call_id
        # Who stops waiting for it does not settle it.
        self.set_running_or_notify_cancel()


class Remote(Protocol):
    """An object in another process. May be used from any thread.

    Its plain methods run one after another, in the order of the calls; its asynchronous ones overlap. A
    constructor that raises fails every call. The futures raise CallFailedError or ProcessGoneError.
    """

    def call(self, method: str, *arguments: object, is_beside: bool = False) -> Future[Any]:
        """What ``method`` returns; with ``is_beside`` a plain one does not wait for the one that runs."""
        ...

    def stream(self, method: str, *arguments: object) -> AsyncIterator[Any]:
        """The items that ``method`` yields; to leave the loop early cancels it there."""
        ...

    def cancel(self, call: Future[Any]) -> None:
        """End that call with CallCancelledError; a plain method that has begun goes on to its end."""
        ...

    def kill(self) -> None:
        """End the process and its family at once, whatever they do. Safe to call twice."""
        ...


class Connection:
    """See pipeline.processes.connection.Remote, but for ``kill``.

    ``obituary`` is asked once, in a thread, when the other end has closed ``connection``.
    """

    def __init__(self, connection: socket.socket, obituary: Callable[[], ProcessGoneError]) -> None:
        self._connection = connection
        self._obituary = obituary
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._takers: dict[int, Callable[[Answer | ProcessGoneError], None]] = {}
        self._gone: ProcessGoneError | None = None
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for work in (self._send, self._listen):
            threading.Thread(target=work, name=f"calls {connection.fileno()}", daemon=True).start()

    def call(self, method: str, *arguments: object, is_beside: bool = False) -> Future[Any]:
        """See Remote."""
        call = Call(call_id=next(self._numbers), method=method, arguments=arguments, is_beside=is_beside)
        answer = Asked(call.call_id)
        self._begin(call, partial(settle, answer))
        return answer

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
                with self._lock:
                    self._takers.pop(call.call_id, None)
                self._outgoing.put(frame(Cancel(call_id=call.call_id)))

    def cancel(self, call: Future[Any]) -> None:
        """See Remote."""
        assert isinstance(call, Asked)
        if not call.done():
            self._outgoing.put(frame(Cancel(call_id=call.call_id)))

    def close(self) -> None:
        """Close this end: what is under way is cancelled over there. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _begin(self, call: Call, take: Callable[[Answer | ProcessGoneError], None]) -> None:
        message = frame(call)
        with self._lock:
            gone = self._gone
            if gone is None:
                self._takers[call.call_id] = take
                self._outgoing.put(message)
        if gone is not None:
            take(gone)

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # It is gone: the listener says so.
            while (message := self._outgoing.get()) is not None:
                self._connection.sendall(message)

    def _listen(self) -> None:
        """Hand out the answers, until the process ends, or sends what is none."""
        fault = ""
        try:
            while True:
                answer: Answer = receive_from(self._connection)
                with self._lock:
                    is_last = not isinstance(answer, Item)
                    take = (self._takers.pop if is_last else self._takers.get)(answer.call_id, None)
                # What comes for a stream that was left is let go.
                if take is not None:
                    take(answer)
        except EOFError:
            pass
        except Exception as error:
            # Whatever follows cannot be told apart any more; the process ends with its connection.
            fault = f"; before, it sent what is no answer ({type(error).__name__}: {error})"
            self.close()
        gone = self._obituary()
        if fault:
            gone = type(gone)(f"{gone}{fault}")
        self._connection.close()
        with self._lock:
            self._gone = gone
            left = list(self._takers.values())
            self._takers.clear()
        self._outgoing.put(None)
        for take in left:
            take(gone)


def value_of(answer: Answer | ProcessGoneError) -> Any:
    """What ``answer`` holds; raises what it tells of."""
    if isinstance(answer, Item | Done):
        return answer.value
    if isinstance(answer, Failed):
        raise CallFailedError(answer.error, answer.trace)
    if isinstance(answer, Cancelled):
        raise CallCancelledError("the call was cancelled")
    raise answer


def settle(future: Future[Any], answer: Answer | ProcessGoneError) -> None:
    """Give ``future`` what ``answer`` holds or tells of."""
    try:
        future.set_result(value_of(answer))
    except Exception as error:
        future.set_exception(error)
