"""What earlier completions say about the next tokens: a bounded index, and drafts from it.

Pure: no engine, no clock. A draft is only a guess; the sampler that verifies it
(pipeline.generation.vllm.samplers) makes the result exact whatever is guessed here. How long drafts should be
is decided in pipeline.generation.vllm.proposer.

Sources: SuffixDecoding (arXiv:2411.04975); drafts from earlier rollouts of the same prompt (RhymeRL,
arXiv:2508.18588; DAS, arXiv:2511.13841).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

NOTHING = -1
_FIRST_NUM_ROWS = 4
_FIRST_WIDTH = 64
# Places that are counted for a continuation: the most recent ones, so that a draft stays cheap.
_MAX_PLACES = 128
# Measured (CPython 3.11): headers of its objects, and its places in the dictionaries of the index.
_BYTES_PER_TASK = 550


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Tokens guessed to come next.

    ``shares[i]`` is the share of the matched places that went on with ``token_ids[i]``, with one place
    more in the denominator. ``match_length`` is the number of recent tokens that the places share.
    """

    token_ids: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    match_length: int = 0

    def cut(self, num_tokens: int) -> Draft:
        """The first ``num_tokens`` of it."""
        return replace(self, token_ids=self.token_ids[:num_tokens], shares=self.shares[:num_tokens])


class _Task:
    """The completions of one task: rows of token ids, each followed by at least one ``NOTHING``."""

    __slots__ = ("lengths", "max_rows", "num_key_bytes", "num_opened", "rows")

    def __init__(self, max_rows: int, num_key_bytes: int) -> None:
        self.max_rows = max_rows
        self.num_key_bytes = num_key_bytes
        self.num_opened = 0
        self.rows: NDArray[np.int32] = np.full(
            (min(_FIRST_NUM_ROWS, max_rows), _FIRST_WIDTH), NOTHING, dtype=np.int32
        )
        self.lengths = [0] * max_rows

    @property
    def num_bytes(self) -> int:
        """About what it takes, its key and its place in the index included."""
        return self.rows.nbytes + self.num_key_bytes + 8 * self.max_rows + _BYTES_PER_TASK

    def open_row(self) -> int:
        """Take the next row, the oldest one when all are in use; returns its running number."""
        number = self.num_opened
        self.num_opened += 1
        row = number % self.max_rows
        if row >= len(self.rows):
            self._grow(min(self.max_rows, 2 * len(self.rows)), self.rows.shape[1])
        self.rows[row] = NOTHING
        self.lengths[row] = 0
        return number

    def extend(self, number: int, token_ids: Sequence[int]) -> None:
        """Append to a row, unless a later one took its place."""
        if number < self.num_opened - self.max_rows:
            return
        row = number % self.max_rows
        start = self.lengths[row]
        end = start + len(token_ids)
        width = self.rows.shape[1]
        if end >= width:
            while end >= width:
                width *= 2
            self._grow(len(self.rows), width)
        self.rows[row, start:end] = token_ids
        self.lengths[row] = end

    def _grow(self, num_rows: int, width: int) -> None:
        rows = np.full((num_rows, width), NOTHING, dtype=np.int32)
        rows[: len(self.rows), : self.rows.shape[1]] = self.rows
        self.rows = rows


@dataclass(frozen=True, slots=True)
class HistorySequence:
    """A sequence being written; made by ``HistoryIndex.open``."""

    task_key: bytes
    task: _Task
    number: int


class HistoryIndex:
    """Token sequences by task, in at most ``max_bytes``: the task unused for longest goes first.

    Of a task the last ``max_sequences`` sequences are kept. Sequences can be read while they are still
    written, so that the members of a group learn from each other.
    """

    def __init__(self, max_bytes: int, max_match: int = 12, max_sequences: int = 64) -> None:
        assert max_bytes > 0 and max_match > 0 and max_sequences > 0
        self._max_match = max_match
        self._max_sequences = max_sequences
        self._tasks: LRUCache[bytes, _Task] = LRUCache(max_bytes, lambda task: task.num_bytes)

    def open(self, task_key: bytes, context: Sequence[int]) -> HistorySequence:
        """Start a sequence that follows ``context``, the last tokens of the prompt."""
        task = self._tasks.get(task_key) or _Task(self._max_sequences, len(task_key))
        sequence = HistorySequence(task_key, task, task.open_row())
        self._keep(task_key, task)
        self.extend(sequence, context)
        return sequence

    def extend(self, sequence: HistorySequence, token_ids: Sequence[int]) -> None:
        """Append to an open sequence; ids are not negative."""
        before = sequence.task.rows.nbytes
        sequence.task.extend(sequence.number, token_ids)
        if sequence.task.rows.nbytes > before and self._tasks.get(sequence.task_key) is sequence.task:
            self._keep(sequence.task_key, sequence.task)

    def drop(self, task_key: bytes) -> None:
        """Forget a task."""
        self._tasks.pop(task_key, None)

    def propose(
        self, task_key: bytes, recent: Sequence[int], max_tokens: int, min_chance: float = 0.05
    ) -> Draft:
        """Guess what follows ``recent``, the last tokens written.

        Looks for the places where the longest suffix of ``recent`` (up to ``max_match`` tokens) stands
        in the task's sequences and something follows; goes on with the most frequent continuation, the
        latest among equals, for as long as the product of its shares is at least ``min_chance``.
        """
        task = self._tasks.get(task_key)
        if task is None or not recent or max_tokens <= 0:
            return Draft()
        # Rows end with NOTHING, which no recent token equals: no match runs across two rows.
        flat = task.rows.reshape(-1)
        places = np.flatnonzero(flat == recent[-1])
        places = places[flat[places + 1] != NOTHING]
        if not len(places):
            return Draft()
        match_length = 1
        for back in range(1, min(self._max_match, len(recent))):
            longer = places[flat[places - back] == recent[-1 - back]]
            if not len(longer):
                break
            places = longer
            match_length += 1
        # The rows are a ring: behind the newest stands the oldest.
        oldest = task.num_opened % task.max_rows * task.rows.shape[1]
        places = np.concatenate((places[places >= oldest], places[places < oldest]))
        token_ids, shares = _follow(flat, places[-_MAX_PLACES:], max_tokens, min_chance)
        return Draft(token_ids=token_ids, shares=shares, match_length=match_length)

    def _keep(self, task_key: bytes, task: _Task) -> None:
        """Count its bytes anew, as the one used last."""
        self._tasks.pop(task_key, None)
        # One that is larger than the bound is not kept at all.
        with suppress(ValueError):
            self._tasks[task_key] = task


def _follow(
    flat: NDArray[np.int32], places: NDArray[np.intp], max_tokens: int, min_chance: float
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The most frequent way on from ``places``, and its shares."""
    token_ids: list[int] = []
    shares: list[float] = []
    chance = 1.0
    while len(token_ids) < max_tokens:
        following = flat[places + 1]
        token, count = _most_frequent(following.tolist())
        if token == NOTHING:
            break
        share = count / (len(places) + 1)
        chance *= share
        if chance < min_chance:
            break
        token_ids.append(token)
        shares.append(share)
        places = places[following == token] + 1
    return tuple(token_ids), tuple(shares)


def _most_frequent(following: list[int]) -> tuple[int, int]:
    """The most frequent token and its count, the latest among equals; ends of sequences do not count."""
    counts = Counter(token for token in reversed(following) if token != NOTHING)
    # Counted in reverse, and the first of equal counts comes first.
    return counts.most_common(1)[0] if counts else (NOTHING, 0)
