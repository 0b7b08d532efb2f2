"""Messages between a caller and an object in another process, and pickles with their length before them.

Both ends are this project, run by one user: the socket is a pair made by the parent, or lies in a folder that
nobody else can enter.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from dataclasses import dataclass
from typing import Any

_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call ``method``; ``is_beside`` where it does not wait for the plain method that runs."""

    call_id: int
    method: str
    arguments: tuple[Any, ...]
    is_stream: bool = False
    is_beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Nobody waits for that call any more."""

    call_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of a stream."""

    call_id: int
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end of a call, with what it returned (None for a stream)."""

    call_id: int
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The call raised: the error's type and text, its traceback."""

    call_id: int
    error: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The call was cancelled before its end."""

    call_id: int


Answer = Item | Done | Failed | Cancelled


def frame(message: object) -> bytes:
    """``message`` as it travels."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def send(writer: asyncio.StreamWriter, message: object) -> None:
    """Queue ``message``; the order of calls is the order of arrival."""
    writer.write(frame(message))


async def receive(reader: asyncio.StreamReader) -> Any:
    """The next message. Raises EOFError when the other end is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError("the other end has closed the connection") from error


def receive_from(connection: socket.socket) -> Any:
    """As ``receive``, in a thread that waits."""
    length = int.from_bytes(_receive_bytes(connection, _LENGTH_BYTES), "big")
    return pickle.loads(_receive_bytes(connection, length))


def _receive_bytes(connection: socket.socket, number: int) -> bytearray:
    buffer = bytearray(number)
    view, received = memoryview(buffer), 0
    while received < number:
        try:
            size = connection.recv_into(view[received:])
        except OSError:
            size = 0
        if not size:
            raise EOFError("the other end has closed the connection")
        received += size
    return buffer
