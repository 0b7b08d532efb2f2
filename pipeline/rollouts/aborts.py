"""What early abort saves and costs.

The engine watches every answer while it is written; what that costs is measured here, on every few
completions, by watching them once more. What it saves is an estimate (``AbortAccount``) at the seconds that a
token costs the engine at its present batch. Where the cost is larger, early abort ends for the rest of the
run (``AbortBalance``). Ends no completion itself.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

from pipeline.generation.early_abort import AnswerWatch
from pipeline.messages import Completion

_NUM_REMEMBERED = 512  # lengths, for the estimate
_LEAST, _EVERY = 128, 4


class AbortAccount:
    """Counts what early abort ended and estimates what it saved.

    What an aborted completion would still have written nobody knows. It is taken to be what completions
    that were not aborted had left at that length, on average over the last few hundred that got that
    far; nothing, if none did.
    """

    def __init__(self) -> None:
        self._lengths: deque[int] = deque(maxlen=_NUM_REMEMBERED)
        self._num_aborted = 0
        self._num_tokens_saved = 0.0

    def record(self, completion: Completion) -> float:
        """Count one completion; the tokens that ending it has saved."""
        length = len(completion.token_ids)
        if completion.finish_reason != "abort":
            self._lengths.append(length)
            return 0.0
        left = [other - length for other in self._lengths if other > length]
        num_saved = statistics.fmean(left) if left else 0.0
        self._num_aborted += 1
        self._num_tokens_saved += num_saved
        return num_saved

    def drain(self) -> dict[str, float]:
        """The metrics since the last ``drain()``."""
        counts = {
            "generation/aborted": float(self._num_aborted),
            "generation/tokens_saved": self._num_tokens_saved,
        }
        self._num_aborted, self._num_tokens_saved = 0, 0.0
        return counts


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
        self._num_seen = 0
        self._cost_s = 0.0
        self._saved_s = 0.0
        self.pays = True

    def record(self, completion: Completion, saved_s: float) -> str | None:
        """Count a completion that was watched; ``saved_s`` is what ending it has saved the engine.

        Returns, once, in words, that watching does not pay.
        """
        if not self.pays:
            return None
        self._saved_s += saved_s
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
