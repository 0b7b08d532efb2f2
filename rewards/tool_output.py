"""What a tool's process says on its output, read with a deadline."""

from __future__ import annotations

import math
import os
import select
import time
from typing import IO


def read_some(stream: IO[bytes], deadline: float, who: str) -> bytes:
    """The next bytes, none at the end. Raises TimeoutError past ``deadline`` (monotonic), naming ``who``.

    Also where bytes are still coming: who talks on and on has no more time than who is silent.
    """
    remaining_s = deadline - time.monotonic()
    if not is_ready(stream, select.POLLIN, remaining_s):
        raise TimeoutError(f"{who} is late")
    return os.read(stream.fileno(), 1 << 16)


def is_ready(stream: IO[bytes], event: int, timeout_s: float) -> bool:
    """Whether ``stream`` can be read or written, as ``event`` says (select.POLLIN, POLLOUT), in that time."""
    if timeout_s <= 0.0:
        return False
    # Not select(): a process with many descriptors has some above its limit of 1024.
    poll = select.poll()
    poll.register(stream, event)
    return bool(poll.poll(math.ceil(1000 * timeout_s)))
