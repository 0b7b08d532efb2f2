"""The VerdictCache: verdicts by the content of what was judged, least recently used out first.

Keeps verdicts that would come out the same again, and no others. Belongs to one process and one
thread; it is not shared. Called by rewards.rubric.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from cachetools import LRUCache

from rewards.fast import FastVerdict
from sandbox.result import ExecutionResult, Outcome

SCHEMA_VERSION = "1"
_KEY_BYTES = 16
# These depend on the machine and its load, not on the program alone.
_NOT_REPRODUCIBLE = frozenset({Outcome.INFRA_ERROR, Outcome.TIMEOUT_WALL, Outcome.OOM})

Verdict = FastVerdict | ExecutionResult


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounts:
    """What a cache did since it was made."""

    num_hits: int = 0
    num_misses: int = 0
    num_evictions: int = 0


def verdict_key(stage: str, parts: Iterable[str]) -> bytes:
    """The key of a verdict of ``stage``.

    ``parts`` name everything it depends on: tool versions, configuration, source, and for a run its
    tests, entry point, limits and isolation level. Lengths are hashed too, so that no two different
    sequences of parts read alike.
    """
    digest = hashlib.blake2b(digest_size=_KEY_BYTES)
    for part in (SCHEMA_VERSION, stage, *parts):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()


def is_reproducible(verdict: Verdict) -> bool:
    """Whether judging the same program again would give the same verdict."""
    return isinstance(verdict, FastVerdict) or verdict.outcome not in _NOT_REPRODUCIBLE


class VerdictCache:
    """At most ``max_size`` verdicts (arguments as ``cachetools.LRUCache``)."""

    def __init__(self, max_size: int) -> None:
        if max_size < 1:
            raise ValueError(
                f"acceleration.reward_cache.max_size: value {max_size}: at least 1 entry is needed"
            )
        self._verdicts: LRUCache[bytes, Verdict] = LRUCache(maxsize=max_size)
        self._max_size = max_size
        self._num_hits = 0
        self._num_misses = 0
        self._num_evictions = 0

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, key: bytes) -> Verdict | None:
        """The verdict under ``key``, or None; counts a hit or a miss."""
        verdict = self._verdicts.get(key)
        if verdict is None:
            self._num_misses += 1
        else:
            self._num_hits += 1
        return verdict

    def put(self, key: bytes, verdict: Verdict) -> None:
        """Keep ``verdict``, unless it says as much about the machine as about the program."""
        if not is_reproducible(verdict):
            return
        if len(self._verdicts) == self._max_size and key not in self._verdicts:
            self._num_evictions += 1
        self._verdicts[key] = verdict

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and evictions so far."""
        return CacheCounts(
            num_hits=self._num_hits, num_misses=self._num_misses, num_evictions=self._num_evictions
        )
