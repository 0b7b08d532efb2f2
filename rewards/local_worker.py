"""A reward worker in a process of this machine (rewards.worker_process); nothing else has to run for it.

Messages are pickles over a socket pair, each with its length before it: both ends are this project, and what
a candidate writes is text in them. Given to rewards.workers by whoever runs on one machine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.task import Task
from rewards.worker import CallCancelledError, Scored, WorkerCallError, WorkerInfo, WorkerLostError

_LENGTH_BYTES = 8
_END_TIMEOUT_S = 5.0
_LAST_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Do this; without a task, say what you are."""

    call_id: int
    task: Task | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Nobody waits for that call any more."""

    call_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a call: a value, an error's text, or neither where it was cancelled in time."""

    call_id: int
    value: WorkerInfo | Scored | None = None
    error: str | None = None


class LocalWorker:
    """See rewards.worker.WorkerLink. Its methods may be called from any thread."""

    def __init__(self, rewards: RewardsConfig, execution: ExecutionConfig) -> None:
        self._socket, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rewards.worker_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # A Ctrl-C in the terminal is for the run, which then ends this process.
                start_new_session=True,
            )
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._lost: str | None = None
        send(self._socket, (rewards, execution))
        threading.Thread(target=self._listen, name="reward worker", daemon=True).start()

    def describe(self) -> Future[WorkerInfo]:
        """See WorkerLink."""
        return self._call(None, "")

    def score(self, task: Task, text: str) -> Future[Scored]:
        """See WorkerLink."""
        return self._call(task, text)

    def cancel(self, score: Future[Scored]) -> None:
        """See WorkerLink."""
        with self._lock:
            ids = [call_id for call_id, waiting in self._waiting.items() if waiting is score]
            for call_id in ids:
                with contextlib.suppress(OSError):  # It is gone: the listener says so.
                    send(self._socket, Cancel(call_id=call_id))

    def kill(self) -> None:
        """See WorkerLink."""
        # Its sandbox and tools are in sessions of their own, and end with it.
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def _call(self, task: Task | None, text: str) -> Future[Any]:
        answer: Future[Any] = Future()
        # Who stops waiting for it does not settle it.
        answer.set_running_or_notify_cancel()
        with self._lock:
            if self._lost is not None:
                answer.set_exception(WorkerLostError(self._lost))
                return answer
            call_id = next(self._numbers)
            self._waiting[call_id] = answer
            with contextlib.suppress(OSError):  # It is gone: the listener says so.
                send(self._socket, Call(call_id=call_id, task=task, text=text))
        return answer

    def _listen(self) -> None:
        """Settle the futures, until the process ends."""
        with contextlib.suppress(EOFError):
            while True:
                answer = receive(self._socket)
                with self._lock:
                    waiting = self._waiting.pop(answer.call_id)
                if answer.error is not None:
                    waiting.set_exception(WorkerCallError(answer.error))
                elif answer.value is not None:
                    waiting.set_result(answer.value)
                else:
                    waiting.set_exception(CallCancelledError())
        reason = self._obituary()
        with self._lock:
            self._lost = reason
            left = list(self._waiting.values())
            self._waiting.clear()
        self._socket.close()
        self._words.close()
        for waiting in left:
            waiting.set_exception(WorkerLostError(reason))

    def _obituary(self) -> str:
        """How the process, which has closed its connection, ended, and the last line it wrote."""
        try:
            status = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - _LAST_BYTES))
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        how = f"killed by signal {-status}" if status < 0 else f"status {status}"
        return f"process {self._process.pid} ended ({how})" + (f": {lines[-1].strip()}" if lines else "")


def send(connection: socket.socket, message: object) -> None:
    """Send ``message``; raises OSError when the other end is gone."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    connection.sendall(len(body).to_bytes(_LENGTH_BYTES, "big") + body)


def receive(connection: socket.socket) -> Any:
    """The next message. Raises EOFError when the other end is gone."""
    length = int.from_bytes(_receive_bytes(connection, _LENGTH_BYTES), "big")
    return pickle.loads(_receive_bytes(connection, length))


def _receive_bytes(connection: socket.socket, number: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < number:
        try:
            piece = connection.recv(number - len(pieces))
        except ConnectionError:
            piece = b""
        if not piece:
            raise EOFError("the other end has closed the connection")
        pieces += piece
    return bytes(pieces)
