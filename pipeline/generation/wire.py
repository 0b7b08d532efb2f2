"""Messages between a client and an engine host, over a Unix socket, one length-prefixed pickle each.

Both ends are this project, run by one user: the socket is a pair made by the parent, or lies in a folder
that nobody else can enter.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.generation.settings import EngineSettings

_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """First message to a new host: load this. ``socket_path`` is where it may be found by a later run.

    With a path the host outlives its client, for ``idle_s`` seconds without a client at most, and deletes the
    file ``log``, which takes what it prints, when it ends. ``identity`` is what a later run must agree with.
    """

    settings: EngineSettings
    identity: Mapping[str, str]
    socket_path: str | None
    idle_s: float
    log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message to a host found by its path. ``wants`` is "identity", "lease" or "stop"."""

    wants: str
    client_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Answer to Start and to Hello. ``refusal`` says why a wish was not granted; None grants it."""

    pid: int
    identity: Mapping[str, str]
    refusal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call ``method`` of the engine; ``is_stream`` where it yields items."""

    call_id: int
    method: str
    arguments: tuple[Any, ...]
    is_stream: bool


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
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The call raised; ``reason`` is its type and text."""

    call_id: int
    reason: str


async def receive(reader: asyncio.StreamReader) -> Any:
    """The next message. Raises EOFError when the other end is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError("the other end has closed the connection") from error


def send(writer: asyncio.StreamWriter, message: object) -> None:
    """Queue ``message``; the order of calls is the order of arrival."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    writer.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
