"""Does early abort pay here? What watching answers costs, against the tokens that were not written for it.

The engine watches every answer while it is written; what that costs is measured here, on every few
completions, by watching them once more. What it saves is an estimate (pipeline.lengths) at the seconds that a
token costs the engine at its present batch. Where the cost is larger, early abort ends for the rest of the
run. Called by pipeline.rollouts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pipeline.early_abort import AnswerWatch
from pipeline.lengths import AbortAccount
from pipeline.messages import Completion

_LEAST = 128
_EVERY = 4


class AbortBalance:
    """``pays`` says whether answers are still to be watched; once it is False it stays so."""

    def __init__(
        self,
        prefill: str,
        *,
        least: int = _LEAST,
        every: int = _EVERY,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Nothing is decided before ``least`` completions; one in ``every`` is watched again."""
        assert least > 0 and every > 0
        self._prefill = prefill
        self._least = least
        self._every = every
        self._clock = clock
        self._saved = AbortAccount()
        self._num_seen = 0
        self._cost_s = 0.0
        self._saved_s = 0.0
        self.pays = True

    def record(self, completion: Completion, token_s: float) -> str | None:
        """Count a completion that was watched; ``token_s`` is what a token costs the engine now.

        Returns, once, in words, that watching does not pay.
        """
        if not self.pays:
            return None
        self._saved.record(completion)
        self._saved_s += self._saved.drain().num_tokens_saved * token_s
        if self._num_seen % self._every == 0:
            self._cost_s += self._every * self._watch(completion)
        self._num_seen += 1
        if self._num_seen < self._least or self._cost_s <= self._saved_s:
            return None
        self.pays = False
        return (
            f"early abort is turned off: over {self._num_seen} completions watching cost "
            f"{self._cost_s:.2f} s and saved tokens of {self._saved_s:.2f} s (acceleration.early_abort)"
        )

    def _watch(self, completion: Completion) -> float:
        """Seconds to watch the answer as the engine did, a token at a time."""
        text, num = completion.text, max(1, len(completion.token_ids))
        size = max(1, -(-len(text) // num))
        started = self._clock()
        watch = AnswerWatch(self._prefill)
        for start in range(0, len(text), size):
            if watch.feed(text[start : start + size]):
                break
        return self._clock() - started
