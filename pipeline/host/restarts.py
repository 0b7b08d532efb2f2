"""How often a stage may be started again, and what is said of it.

The rule is the same for all stages: so many restarts within a sliding window, then the run ends. Starts and
ends no process itself.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from pipeline.errors import StageError

_MAX_REASON = 600


class RestartLimit:
    """At most ``max_restarts`` restarts of each stage within ``window_s`` seconds, or without work between.

    A start or a step that ends at its own deadline may take longer than the window.
    ``note`` is called once for each restart and for the end, with a kind ("restart", "given up") and a text.
    """

    def __init__(
        self,
        max_restarts: int,
        window_s: float,
        note: Callable[[str, str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert max_restarts >= 0 and window_s > 0
        self._max_restarts = max_restarts
        self._window_s = window_s
        self._note = note
        self._clock = clock
        self._restarts: dict[str, deque[float]] = {}  # stage -> when it was started again, oldest first

    def admit(self, stage: str, reason: str, *, has_worked: bool = True, is_less: bool = False) -> None:
        """Count a restart of ``stage``, which ended for ``reason``; ``has_worked`` since the one before.

        One that asks for less than before (``is_less``) is not counted: there is an end to that.

        Raises:
            StageError: it has used up its restarts and shall not be started again; the message names it, the
                limit and the last reason.
        """
        if is_less and self._max_restarts:
            self._note("restart", f"{stage}, to go on with less: {_short(reason)}")
            return
        now_s = self._clock()
        recent = self._restarts.setdefault(stage, deque())
        while has_worked and recent and recent[0] <= now_s - self._window_s:
            recent.popleft()
        if len(recent) >= self._max_restarts:
            within = f"within {self._window_s:g} s" if has_worked else "without any work between them"
            allowed = f"{self._max_restarts} restarts {within} are allowed"
            text = (
                f"{stage}: not started again ({allowed}: runtime.max_restarts, runtime.restart_window_s); "
                f"the last reason: {_short(reason)}"
            )
            self._note("given up", text)
            raise StageError(text)
        recent.append(now_s)
        self._note("restart", f"{stage} ({len(recent)} of {self._max_restarts}): {_short(reason)}")


def _short(reason: str) -> str:
    return reason if len(reason) <= _MAX_REASON else f"{reason[:_MAX_REASON]} ..."
