"""The RewardCache: whole verdicts by the content of what was judged, least recently used out first.

Keeps verdicts that would come out the same again, and no others. Belongs to one process and one
thread; workers share it by its place in the driver, before the pool. Storing on disk is
rewards.cache_file's business.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

from cachetools import LRUCache

from curriculum.task import Task
from rewards.digest import task_digest, update
from rewards.result import RewardResult
from sandbox.result import Outcome

KEY_BYTES = 16
MB = 1_000_000
# These depend on the machine and its load, not on the program alone. A program that ran out of CPU time
# is kept: CPU time does not count the load of others, and a verdict near the limit is as likely to be
# right kept as made anew. Most such programs loop for ever, and are the dearest to judge again.
_NOT_REPRODUCIBLE = frozenset({Outcome.INFRA_ERROR, Outcome.TIMEOUT_WALL, Outcome.OOM})
# All other parts (measured times, users' own rewards) may come out differently the next time: what has one
# is not looked up, and not put here.
REPRODUCIBLE_PARTS = frozenset({"tests", "execution", "syntax", "lint", "complexity", "type_safety"})
# Measured: the key, reward and seconds, and places in the three dictionaries of the cache (CPython
# 3.11) take about 350 of them.
_BYTES_PER_ENTRY = 400
_BYTES_PER_SCORE = 24


@dataclass(slots=True, kw_only=True)
class CacheCounts:
    """What a cache did since it was made; ``saved_s`` is what the verdicts it gave had cost once."""

    num_hits: int = 0
    num_misses: int = 0
    num_evictions: int = 0
    saved_s: float = 0.0


class KeyMaker:
    """Makes the key of a program as an answer to a task, in microseconds.

    ``configuration`` names all that a verdict depends on besides task and program (see
    ``Scorer.configuration``). What a task contributes is digested once and kept with the task object; bounded
    by the number of tasks.
    """

    def __init__(self, configuration: Iterable[str]) -> None:
        digest = blake2b(digest_size=KEY_BYTES)
        for part in configuration:
            update(digest, part)
        self._configured = digest
        self._tasks: dict[str, tuple[Task, blake2b]] = {}

    def key(self, task: Task, code: str) -> bytes:
        """The key of ``code`` as an answer to ``task``."""
        known = self._tasks.get(task.task_id)
        if known is None or known[0] is not task:
            known = self._tasks[task.task_id] = (task, self._configured.copy())
            known[1].update(task_digest(task))
        digest = known[1].copy()
        digest.update(code.encode("utf-8", "surrogatepass"))
        return digest.digest()


def is_reproducible(result: RewardResult) -> bool:
    """Whether the machine had no part in it, so that judging the program again would give the same."""
    return result.outcome not in _NOT_REPRODUCIBLE


def entry_bytes(result: RewardResult) -> int:
    """About how many bytes one kept verdict takes, its key and its place in the cache included."""
    return (
        sys.getsizeof(result)
        + sys.getsizeof(result.breakdown)
        + sys.getsizeof(result.detail)
        + _BYTES_PER_SCORE * len(result.breakdown)
        + _BYTES_PER_ENTRY
    )


class RewardCache:
    """At most ``max_size`` verdicts in at most about ``max_mb`` megabytes.

    ``on_put`` hears of each verdict that is kept for the first time (to store it on disk, say). ``counts``
    says what the cache did so far.
    """

    def __init__(
        self,
        max_size: int,
        max_mb: float = 200.0,
        *,
        on_put: Callable[[bytes, RewardResult], None] = lambda key, result: None,
    ) -> None:
        self._max_size = max_size
        self._results: LRUCache[bytes, RewardResult] = LRUCache(
            maxsize=int(max_mb * MB), getsizeof=entry_bytes
        )
        self._on_put = on_put
        self.counts = CacheCounts()

    def __len__(self) -> int:
        return len(self._results)

    @property
    def num_bytes(self) -> int:
        """About how many bytes the verdicts take."""
        return int(self._results.currsize)

    def get(self, key: bytes) -> RewardResult | None:
        """The verdict under ``key`` with the seconds it once cost, or None; counts a hit or a miss."""
        result = self._results.get(key)
        if result is None:
            self.counts.num_misses += 1
        else:
            self.counts.num_hits += 1
            self.counts.saved_s += result.seconds
        return result

    def put(self, key: bytes, result: RewardResult) -> None:
        """Keep ``result`` if it is reproducible (see ``is_reproducible``)."""
        if is_reproducible(result) and self._keep(key, result):
            self._on_put(key, result)

    def warm(self, stored: Iterable[tuple[bytes, RewardResult]]) -> None:
        """Keep verdicts of an earlier run, in order of their age; ``on_put`` does not hear of them."""
        for key, result in stored:
            self._keep(key, result)

    def _keep(self, key: bytes, result: RewardResult) -> bool:
        if key in self._results:
            return False
        # Names come over the wire as new strings each time; kept once, they cost nothing.
        breakdown = {sys.intern(name): score for name, score in result.breakdown.items()}
        kept = replace(result, breakdown=breakdown)
        if entry_bytes(kept) > self._results.maxsize:
            return False
        num_before = len(self._results)
        self._results[key] = kept
        while len(self._results) > self._max_size:
            self._results.popitem()
        self.counts.num_evictions += num_before + 1 - len(self._results)
        return True
