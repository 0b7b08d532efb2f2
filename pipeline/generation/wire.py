"""How a client and an engine host begin: what to load, who asks for the lease; then see processes.wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.generation.settings import EngineSettings


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
