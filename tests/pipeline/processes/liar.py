"""The other end of a connection, which answers as it is told: never, late, twice, nonsense, or by dying."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Literal

from pipeline.processes.connection import Connection, ProcessGoneError
from pipeline.processes.wire import Call, Done, Item, frame, receive_from

Fault = Literal["hangs", "dies", "is late", "answers twice", "answers nonsense"]
PID = 4711
# Longer than any deadline of these tests.
LATE_S = 1.5


class Liar(Connection):
    """A ``Remote`` whose methods give ``answers``; the one called ``method`` has the ``fault``.

    Of a stream ``answers`` has the items. ``calls`` counts what was asked.
    """

    def __init__(self, answers: Mapping[str, Any], method: str = "", fault: Fault | None = None) -> None:
        ours, self._theirs = socket.socketpair()
        self.pid = PID
        self.calls: list[str] = []
        self._answers, self._method, self._fault = answers, method, fault
        self._is_dead = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()
        super().__init__(ours, self._last_words)

    def kill(self) -> None:
        self._end()

    def _last_words(self) -> ProcessGoneError:
        self._end()
        return ProcessGoneError(f"process {PID} ended (status 1)")

    def _end(self) -> None:
        self._is_dead.set()
        with contextlib.suppress(OSError):
            self._theirs.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                asked = receive_from(self._theirs)
                if isinstance(asked, Call):
                    self.calls.append(asked.method)
                    # Beside each other, as the calls of a real end may be.
                    threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, call: Call) -> None:
        fault = self._fault if call.method == self._method else None
        if fault == "hangs":
            return
        if fault == "dies":
            self._end()
            return
        if fault == "answers nonsense":
            self._write(len(noise := os.urandom(64)).to_bytes(8, "big") + noise)
            return
        if fault == "is late":
            time.sleep(LATE_S)
        answer = self._answers[call.method]
        for _ in range(2 if fault == "answers twice" else 1):
            if call.is_stream:
                for item in answer:
                    self._write(frame(Item(call_id=call.call_id, value=item)))
                self._write(frame(Done(call_id=call.call_id, value=None)))
            else:
                self._write(frame(Done(call_id=call.call_id, value=answer)))

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._theirs.sendall(data)
