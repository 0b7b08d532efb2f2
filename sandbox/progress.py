"""The progress of many runs on a screen: a live line on a terminal, plain lines elsewhere.

Counts and prints; knows no files and no programs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TextIO

_PLAIN_INTERVAL_S: Final = 5.0
_LIVE_INTERVAL_S: Final = 0.2


class Progress:
    """How far it is: one line that is written over on a terminal, else a plain line now and then."""

    def __init__(self, num_lines: int, earlier: Sequence[bool], screen: TextIO, verb: str = "scored") -> None:
        """``earlier``: whether each that an earlier process judged passed; ``verb`` says what is done."""
        num_done = len(earlier)
        self._verb = verb
        self._num_lines = num_lines
        self._num_earlier = self._num_done = num_done
        self._num_passed, self._num_unjudged = sum(earlier), 0
        self._screen = screen
        self._is_live = screen.isatty()
        self._interval_s = _LIVE_INTERVAL_S if self._is_live else _PLAIN_INTERVAL_S
        self._started = self._shown = time.monotonic()
        self._write = screen.write
        if num_done:
            self._write(f"resumed: {num_done} of {num_lines} were judged before\n")

    def count(self, passed: bool | None) -> None:
        """Count one verdict, None for a program that could not be judged; show it if it is time."""
        self._num_done += 1
        self._num_passed += passed is True
        self._num_unjudged += passed is None
        if time.monotonic() - self._shown >= self._interval_s:
            self._shown = time.monotonic()
            self._write(f"\r{self._line():<79}" if self._is_live else f"{self._line()}\n")
            self._screen.flush()

    def finish(self) -> None:
        """The last state, whenever the one before was shown."""
        self._write(f"\r{self._line():<79}\n" if self._is_live else f"{self._line()}\n")
        self._screen.flush()

    def _line(self) -> str:
        num_now = self._num_done - self._num_earlier
        rate = num_now / max(time.monotonic() - self._started, 1e-9)
        left = self._num_lines - self._num_done
        parts = [f"{self._num_done} of {self._num_lines}", f"{rate:.0f}/s", f"{self._num_passed} passed"]
        if self._num_unjudged:
            parts.append(f"{self._num_unjudged} not judged")
        if left and rate:
            parts.append(f"{left / rate:.0f} s left")
        return f"{self._verb} {', '.join(parts)}"
