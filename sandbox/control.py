"""The messages between the owner of a sandbox process and its zygote: fixed structs, one datagram each.

Not the codec: reading these in C touches few pages, and what a zygote touches while its child lives
must be copied.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from sandbox.result import Limits

ROLES: Final = ("call", "judge", "stdio")
# Who ended a child: itself, the owner, or a limit.
REASONS: Final = ("", "stop", "cpu", "wall")
# Of a child that could not be confined, or whose own machinery failed.
EXIT_FAILED: Final = 72
MAX_BYTES: Final = 1024
MAX_FDS: Final = 3

_RUN: Final = struct.Struct("<BdddQQ")
_END: Final = struct.Struct("<?d")
_REPORT: Final = struct.Struct("<BidQQ")
_HELLO: Final = b"hello"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildReport:
    """How a child ended. ``reason`` is who ended it: "stop" (owner), "cpu", "wall", or "" (itself);
    ``exit_code`` is minus the signal's number for a death by signal."""

    reason: str
    exit_code: int
    cpu_s: float
    num_stdout_bytes: int
    num_stderr_bytes: int


def pack_hello(walls: bytes) -> bytes:
    """The zygote is ready; these walls held."""
    return _HELLO + walls


def unpack_hello(message: bytes) -> bytes:
    """The walls. Raises ValueError with what the message says instead."""
    if not message.startswith(_HELLO):
        raise ValueError(message.decode("utf-8", "replace"))
    return message[len(_HELLO) :]


def pack_run(role: str, limits: Limits) -> bytes:
    """Fork the children of ``role`` under these limits."""
    return _RUN.pack(
        ROLES.index(role),
        limits.cpu_s,
        limits.wall_s,
        limits.wall_cap_s,
        limits.memory_bytes,
        limits.output_bytes,
    )


def unpack_run(message: bytes) -> tuple[str, Limits]:
    """The inverse of ``pack_run``."""
    role, cpu_s, wall_s, wall_cap_s, memory_bytes, output_bytes = _RUN.unpack(message)
    limits = Limits(
        cpu_s=cpu_s,
        wall_s=wall_s,
        wall_cap_s=wall_cap_s,
        memory_bytes=memory_bytes,
        output_bytes=output_bytes,
    )
    return ROLES[role], limits


def pack_end(*, finish: bool, grace_s: float = 0.0) -> bytes:
    """End the children, each within ``grace_s`` if it is ending by itself; or let them finish."""
    return _END.pack(finish, grace_s)


def unpack_end(message: bytes) -> tuple[bool, float]:
    """The inverse of ``pack_end``."""
    finish, grace_s = _END.unpack(message)
    return finish, grace_s


def pack_reports(reports: list[ChildReport]) -> bytes:
    """How the children of a run ended."""
    return b"".join(
        _REPORT.pack(
            REASONS.index(report.reason),
            report.exit_code,
            report.cpu_s,
            report.num_stdout_bytes,
            report.num_stderr_bytes,
        )
        for report in reports
    )


def unpack_reports(message: bytes) -> list[ChildReport]:
    """The inverse of ``pack_reports``. Raises ValueError with what the message says instead."""
    if len(message) not in (_REPORT.size, 2 * _REPORT.size):
        raise ValueError(message.decode("utf-8", "replace"))
    return [
        ChildReport(
            reason=REASONS[reason],
            exit_code=exit_code,
            cpu_s=cpu_s,
            num_stdout_bytes=num_stdout_bytes,
            num_stderr_bytes=num_stderr_bytes,
        )
        for reason, exit_code, cpu_s, num_stdout_bytes, num_stderr_bytes in _REPORT.iter_unpack(message)
    ]
