"""The history index against a loop that looks at every place, and its bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.generation.vllm.history import Draft, HistoryIndex

MAX_MATCH = 4
Rows = list[list[int]]


def brute_force(rows: Rows, recent: Sequence[int], max_tokens: int, min_chance: float) -> Draft:
    """Every place of every row, one comparison at a time."""
    for length in range(min(MAX_MATCH, len(recent)), 0, -1):
        suffix = list(recent[-length:])
        places = [
            (row, end) for row in rows for end in range(length, len(row)) if row[end - length : end] == suffix
        ]
        if not places:
            continue
        tokens: list[int] = []
        shares: list[float] = []
        chance = 1.0
        while len(tokens) < max_tokens:
            following = [row[end] for row, end in places if end < len(row)]
            if not following:
                break
            counts = Counter(following)
            most = max(counts.values())
            token = next(token for token in reversed(following) if counts[token] == most)
            share = most / (len(places) + 1)
            chance *= share
            if chance < min_chance:
                break
            tokens.append(token)
            shares.append(share)
            places = [(row, end + 1) for row, end in places if end < len(row) and row[end] == token]
        return Draft(token_ids=tuple(tokens), shares=tuple(shares), match_length=length)
    return Draft()


def index_of(*rows: Sequence[int], max_bytes: int = 1 << 20) -> HistoryIndex:
    """The history of one task, "a"."""
    index = HistoryIndex(max_bytes)
    for row in rows:
        index.extend(index.open(b"a", ()), row)
    return index


tokens_of_a_row = st.lists(st.integers(0, 3), max_size=90)


@given(
    rows=st.lists(tokens_of_a_row, max_size=7),
    recent=st.lists(st.integers(0, 4), max_size=8),
    max_tokens=st.integers(0, 6),
    min_chance=st.sampled_from([0.0, 0.05, 0.4]),
    max_sequences=st.sampled_from([3, 64]),
)
def test_a_draft_is_what_a_loop_over_all_places_finds(
    rows: Rows, recent: list[int], max_tokens: int, min_chance: float, max_sequences: int
) -> None:
    # Few enough places that none is left uncounted.
    rows = [row[:12] for row in rows]
    index = HistoryIndex(1 << 20, max_match=MAX_MATCH, max_sequences=max_sequences)
    for row in rows:
        index.extend(index.open(b"task", row[:3]), row[3:])
    found = index.propose(b"task", recent, max_tokens, min_chance)
    expected = brute_force(rows[-max_sequences:], recent, max_tokens, min_chance) if max_tokens else Draft()
    assert found == expected


@given(rows=st.lists(tokens_of_a_row, min_size=1, max_size=7), step=st.integers(1, 5))
def test_sequences_written_side_by_side_and_in_pieces_are_the_same_history(rows: Rows, step: int) -> None:
    whole, pieces = index_of(*rows), HistoryIndex(1 << 20)
    handles = [pieces.open(b"a", ()) for _ in rows]
    for start in range(0, 90, step):
        for handle, row in zip(handles, rows, strict=True):
            pieces.extend(handle, row[start : start + step])
    for row in rows:
        assert pieces.propose(b"a", row[:5], 8) == whole.propose(b"a", row[:5], 8)


def test_siblings_in_flight_are_found_and_other_tasks_are_not() -> None:
    index = HistoryIndex(1 << 20)
    first = index.open(b"a", (1, 2))
    index.extend(first, (3, 4, 5))
    assert index.propose(b"a", (1, 2), 8, 0.0).token_ids == (3, 4, 5)
    assert index.propose(b"b", (1, 2), 8, 0.0) == Draft()


def test_the_most_frequent_continuation_wins_and_the_latest_among_equals() -> None:
    index = index_of((7, 1), (7, 1), (7, 2))
    draft = index.propose(b"a", (7,), 1)
    assert draft.token_ids == (1,)
    assert draft.shares == (2 / 4,)
    index.extend(index.open(b"a", ()), (7, 2))
    assert index.propose(b"a", (7,), 1).token_ids == (2,)


def test_the_latest_among_equals_wins_also_where_rows_are_used_again() -> None:
    index = HistoryIndex(1 << 20, max_sequences=2)
    for row in ((7, 1), (7, 2), (7, 3)):
        index.extend(index.open(b"a", ()), row)
    assert index.propose(b"a", (7,), 1).token_ids == (3,)


def test_a_draft_ends_where_its_chance_gets_low() -> None:
    # One place: each token has the share 1/2.
    assert index_of(range(20)).propose(b"a", (0,), 8, 0.1).token_ids == (1, 2, 3)


def test_a_match_does_not_run_from_one_sequence_into_the_next() -> None:
    index = index_of((1, 2), (3, 4))
    assert index.propose(b"a", (1, 2), 8) == Draft()
    assert index.propose(b"a", (2, 3), 8).match_length == 1


def test_memory_stays_in_its_bound_and_the_task_unused_for_longest_goes() -> None:
    index = HistoryIndex(40_000, max_sequences=16)
    handles = []
    for task in range(60):
        for _ in range(3):
            handles.append(index.open(bytes([task]), ()))
            index.extend(handles[-1], range(100))
        assert index.propose(b"\x00", (5,), 1).token_ids == (6,), "used all the time"
        assert index._tasks.currsize <= 40_000
    assert 1 < len(index._tasks) < 60
    assert index.propose(bytes([59]), (5,), 1).token_ids == (6,)
    assert index.propose(bytes([1]), (5,), 1) == Draft()
    # A sequence whose task is gone can still be written to, for nothing.
    index.extend(handles[4], range(5000))
    assert index._tasks.currsize <= 40_000


def test_the_keys_of_tasks_count_as_well() -> None:
    index = HistoryIndex(100_000)
    for number in range(60):
        index.open(number.to_bytes(4_000, "big"), ())
    assert 10 < len(index._tasks) < 25


def test_one_sequence_larger_than_the_bound_is_forgotten_not_kept() -> None:
    index = index_of(range(1000), max_bytes=2_000)
    assert index._tasks.currsize == 0
    assert index.propose(b"a", (5,), 1) == Draft()


def test_of_a_task_the_last_sequences_are_kept() -> None:
    index = HistoryIndex(1 << 20, max_sequences=2)
    first = index.open(b"a", ())
    index.extend(first, (1, 2))
    for token in (3, 5):
        index.extend(index.open(b"a", ()), (token, token + 1))
    index.extend(first, (9, 9))
    assert index.propose(b"a", (1,), 1) == Draft()
    assert index.propose(b"a", (9,), 1) == Draft(), "its place is another's"
    assert index.propose(b"a", (3,), 1).token_ids == (4,)


def test_a_dropped_task_is_gone() -> None:
    index = index_of((1, 2))
    index.drop(b"a")
    index.drop(b"never there")
    assert index._tasks.currsize == 0
    assert index.propose(b"a", (1,), 1) == Draft()


@pytest.mark.parametrize("num_tokens", [0, 1, 2, 9])
def test_a_cut_draft_keeps_its_head(num_tokens: int) -> None:
    draft = Draft(token_ids=(4, 5), shares=(0.5, 0.4), match_length=3)
    cut = draft.cut(num_tokens)
    assert cut.token_ids == draft.token_ids[:num_tokens]
    assert cut.shares == draft.shares[:num_tokens]
