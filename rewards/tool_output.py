"""What a tool's process says on its output, read with a deadline."""

from __future__ import annotations

import os
import select
import time
from typing import IO


def read_some(stream: IO[bytes], deadline: float, who: str) -> bytes:
    """The next bytes, none at the end. Raises TimeoutError past ``deadline`` (monotonic), naming ``who``.

    Also where bytes are still coming: who talks on and on has no more time than who is silent.
    """
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0.0 or not select.select([stream], [], [], remaining_s)[0]:
        raise TimeoutError(f"{who} is late")
    return os.read(stream.fileno(), 1 << 16)
