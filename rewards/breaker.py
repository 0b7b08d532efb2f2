"""The circuit breaker of scoring: stops a run whose rewards are broken, before it trains on the rest."""

from __future__ import annotations

import re
from collections import Counter, deque

from configs.errors import CommandEnd
from rewards.result import RewardResult

_WINDOW = 64
_MAX_ERRORS = 32
_NAMES = re.compile(r"'[^']*'|\d+")


class RewardsBrokenError(CommandEnd, RuntimeError):
    """Scoring itself does not work: most items end in infrastructure errors, or no worker starts."""


class CircuitBreaker:
    """Opens when ``max_errors`` of the last ``window`` scored items were infrastructure errors."""

    def __init__(
        self, window: int = _WINDOW, max_errors: int = _MAX_ERRORS, what: str = "could not be scored"
    ) -> None:
        """``what`` is said of the items that ended in an error."""
        self._what = what
        assert 0 < max_errors <= window
        self._max_errors = max_errors
        # The detail of an error, None for a real verdict.
        self._recent: deque[str | None] = deque(maxlen=window)

    def record(self, result: RewardResult) -> None:
        """Count one item that was really judged (what a cache gave says nothing about the workers)."""
        self._recent.append(result.detail if result.is_infra_error else None)

    def check(self) -> None:
        """Raise RewardsBrokenError, which names the counts and the most frequent reason, when open."""
        errors = [detail for detail in self._recent if detail is not None]
        if len(errors) >= self._max_errors:
            kind, num_times = Counter(map(_kind, errors)).most_common(1)[0]
            reason = next(detail for detail in errors if _kind(detail) == kind)
            raise RewardsBrokenError(
                f"rewards: {len(errors)} of the last {len(self._recent)} completions {self._what}; "
                f"the most frequent reason ({num_times} times): {reason}"
            )


def _kind(detail: str) -> str:
    """The reason without the names and numbers, such as a task's, in which reasons of one kind differ."""
    return _NAMES.sub("_", detail)
