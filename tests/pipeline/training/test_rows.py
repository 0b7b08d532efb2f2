"""Packing keeps sequences whole and rows even, and a row's tokens see what they saw in their sequences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.training.rows import Tree, pack, position_ids
from tests.pipeline.training.builders import segments

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=30)
TREES = st.lists(
    st.builds(
        lambda prompt, completions: Tree(num_prompt=prompt, completions=tuple(completions)),
        st.integers(1, 12),
        st.lists(st.integers(0, 12), max_size=5),
    ),
    min_size=1,
    max_size=4,
)


@given(sizes=SIZES, max_tokens=st.integers(1, 100), min_rows=st.integers(1, 4))
def test_every_item_is_in_one_row_and_no_row_of_several_is_too_long(
    sizes: list[int], max_tokens: int, min_rows: int
) -> None:
    rows = pack(sizes, max_tokens=max_tokens, min_rows=min_rows)
    assert sorted(index for row in rows for index in row) == list(range(len(sizes)))
    for row in rows:
        assert len(row) == 1 or sum(sizes[index] for index in row) <= max_tokens
    assert len(rows) >= min(min_rows, len(sizes))


def test_rows_are_balanced_and_the_fullest_comes_first() -> None:
    rows = pack([30, 10, 20, 25, 5, 10], max_tokens=60)
    loads = [sum([30, 10, 20, 25, 5, 10][index] for index in row) for row in rows]
    assert loads == [50, 50]
    assert [sum(row) for row in pack([1, 5], max_tokens=5)] == [1, 0]


def test_an_item_larger_than_a_row_gets_its_own() -> None:
    assert pack([100, 3, 4], max_tokens=10) == [[0], [2, 1]]


def seen_by_segments(trees: list[Tree]) -> set[tuple[int, int]]:
    own, prompts = segments(trees)
    return {
        (query, key)
        for query in range(len(own))
        for key in range(query + 1)
        if own[key] in (own[query], prompts[query])
    }


def seen_by_sequences(trees: list[Tree]) -> set[tuple[int, int]]:
    """The plain meaning: completion i of a tree is a causal sequence that begins with the tree's prompt."""
    pairs = set()
    start = 0
    for tree in trees:
        prompt = list(range(start, start + tree.num_prompt))
        start += tree.num_prompt
        sequences = [prompt]
        for length in tree.completions:
            sequences.append([*prompt, *range(start, start + length)])
            start += length
        for sequence in sequences:
            pairs |= {(query, key) for i, query in enumerate(sequence) for key in sequence[: i + 1]}
    return pairs


@given(trees=TREES)
def test_the_mask_that_attention_is_held_against_is_that_of_whole_sequences(trees: list[Tree]) -> None:
    assert seen_by_segments(trees) == seen_by_sequences(trees)


@given(trees=TREES)
def test_positions_go_on_where_the_prompt_ends(trees: list[Tree]) -> None:
    positions = position_ids(trees)
    assert len(positions) == sum(tree.num_tokens for tree in trees)
    expected = []
    for tree in trees:
        expected += list(range(tree.num_prompt))
        for length in tree.completions:
            expected += list(range(tree.num_prompt, tree.num_prompt + length))
    assert positions == expected
