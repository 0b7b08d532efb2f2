"""How a run is asked to end early, and what that does to what it waits for.

The first SIGINT or SIGTERM asks it to end in good order: waits under ``guard`` are given up, the last
finished step is saved. The second ends the process at once; all others end with it, by the kernel's word.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from configs.command_line import raise_if_interrupted

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """A wait was given up, since the run shall end."""


class StopRequest:
    """Whether the run shall end, and by which signal; belongs to one event loop."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._asked = asyncio.Event()

    def ask(self, number: signal.Signals) -> None:
        """Ask the run to end."""
        self.signal = self.signal or number
        self._asked.set()

    def check(self) -> None:
        """Raise StoppedError where the run was asked to end."""
        if self.signal is not None:
            raise StoppedError

    async def guard(self, work: Awaitable[T]) -> T:
        """The result of ``work``, which is cancelled when the run is asked to end first.

        Raises StoppedError then; work that is done is done.
        """
        job = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({job, asked}, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            raise StoppedError
        finally:
            asked.cancel()
            if not job.done():
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)


@contextmanager
def stop_on_signals(stop: StopRequest, on_first: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """In the block the first signal asks ``stop`` and calls ``on_first``, the second ends the process.

    Gives a function that sets the handlers once more, for when a library (Ray) has put its own in front.
    """
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if stop.signal is not None:
            # A live display hides the cursor, and nobody else will show it again.
            shown = "\x1b[?25h" if sys.stderr.isatty() else ""
            print(f"{shown}ended at once; what was not saved is lost", file=sys.stderr, flush=True)
            os._exit(128 + number)
        text = f"{number.name}: the last finished step is saved, then the run ends (again: it ends at once)"
        print(text, file=sys.stderr, flush=True)
        stop.ask(number)
        on_first()

    def arm() -> None:
        for number in _SIGNALS:
            loop.add_signal_handler(number, handle, number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        arm()
        raise_if_interrupted()
        yield arm
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
