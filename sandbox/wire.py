"""Length-prefixed frames on a stream socket, with a deadline and a cap on the length.

Knows nothing of what a frame holds: that is the codec's.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from sandbox.codec import MAX_BYTES

_LENGTH: Final = struct.Struct("<I")
_PIECE_BYTES: Final = 1 << 16


class FrameError(ValueError):
    """The peer announced a frame longer than any honest one."""


def frame(payload: bytes) -> bytes:
    """The bytes of one frame."""
    return _LENGTH.pack(len(payload)) + payload


def send_frame(channel: socket.socket, payload: bytes, *, deadline: float | None = None) -> None:
    """Send one frame. Raises EOFError, TimeoutError."""
    send_all(channel, frame(payload), deadline=deadline)


def send_all(channel: socket.socket, data: bytes, *, deadline: float | None = None) -> None:
    """Send bytes; ``deadline`` is on ``time.monotonic``, None leaves the socket's time-out as it is.

    Raises EOFError, TimeoutError.
    """
    if deadline is not None:
        channel.settimeout(max(deadline - time.monotonic(), 0.001))
    try:
        channel.sendall(data)
    except TimeoutError:
        raise
    except OSError as error:
        raise EOFError("the other side is gone") from error


class FrameReader:
    """The frames that come in on a channel, read with as few calls as possible."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._received = bytearray()

    @property
    def has_more(self) -> bool:
        """Whether bytes were read that belong to no frame returned so far."""
        return bool(self._received)

    def receive(self, *, deadline: float | None = None) -> bytes:
        """Return the next frame's payload.

        Raises EOFError, TimeoutError, FrameError; ``deadline`` as for ``send_all``.
        """
        received = self._received
        self._fill(_LENGTH.size, deadline)
        length: int = _LENGTH.unpack_from(received)[0]
        if length > MAX_BYTES:
            raise FrameError(f"a frame of {length} bytes is longer than {MAX_BYTES}")
        end = _LENGTH.size + length
        self._fill(end, deadline)
        payload = bytes(received[_LENGTH.size : end])
        del received[:end]
        return payload

    def _fill(self, num_bytes: int, deadline: float | None) -> None:
        """Receive until there are ``num_bytes`` or more."""
        while len(self._received) < num_bytes:
            if deadline is not None:
                self._channel.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                piece = self._channel.recv(_PIECE_BYTES)
            except TimeoutError:
                raise
            except OSError as error:
                raise EOFError("the other side is gone") from error
            if not piece:
                raise EOFError("the other side is gone")
            self._received += piece
