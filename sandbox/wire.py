"""Length-prefixed frames on a stream socket, with a deadline and a cap on the length.

Knows nothing of what a frame holds: that is the codec's. Called by both sides of every channel.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from sandbox.codec import MAX_BYTES

_LENGTH: Final = struct.Struct("<I")


class FrameError(ValueError):
    """The peer announced a frame longer than any honest one."""


def send_frame(channel: socket.socket, payload: bytes, *, deadline: float | None = None) -> None:
    """Send one frame; ``deadline`` is on ``time.monotonic``. Raises EOFError, TimeoutError."""
    channel.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
    try:
        channel.sendall(_LENGTH.pack(len(payload)) + payload)
    except TimeoutError:
        raise
    except OSError as error:
        raise EOFError("the other side is gone") from error


def receive_frame(channel: socket.socket, *, deadline: float | None = None) -> bytes:
    """Return the next frame's payload. Raises EOFError, TimeoutError, FrameError."""
    (length,) = _LENGTH.unpack(_receive_exactly(channel, _LENGTH.size, deadline))
    if length > MAX_BYTES:
        raise FrameError(f"a frame of {length} bytes is longer than {MAX_BYTES}")
    return _receive_exactly(channel, length, deadline)


def _receive_exactly(channel: socket.socket, num_bytes: int, deadline: float | None) -> bytes:
    received = bytearray()
    while len(received) < num_bytes:
        channel.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
        try:
            piece = channel.recv(min(num_bytes - len(received), 1 << 16))
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError("the other side is gone") from error
        if not piece:
            raise EOFError("the other side is gone")
        received += piece
    return bytes(received)
