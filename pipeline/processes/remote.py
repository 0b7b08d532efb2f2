"""What a caller may ask of an object in another process, wherever that is, and what can go wrong.

``LocalProcess`` (pipeline.processes.local) is one end, ``RayProcess`` (pipeline.processes.ray_remote) the
other. Knows neither what is called nor any deadline: those are the caller's, who can name the setting.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any, Protocol

from pipeline.errors import StageError
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
