"""The seconds of a run by part (startup, evaluation_before, training, ...), for its summary.

Called by pipeline.orchestrator, pipeline.heldout and pipeline.baseline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Runs from when it is made; ``seconds`` holds what was noted, by name."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Note the seconds of the block as ``name``; not of a block that fails."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started

    def note(self, name: str) -> None:
        """Note the seconds since the start as ``name``."""
        self.seconds[name] = time.perf_counter() - self._started
