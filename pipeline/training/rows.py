"""Rows of several sequences without padding: which samples share a row, and who sees whom in it.

A row is a list of trees: the prompt of a group once, then its completions, each of which sees the prompt
and itself. What all completions begin with lies with the prompt (pipeline.training.rows). Pure planning on
lengths; the attention over a row is in pipeline.training.attention.

What the sequences of a group have in common goes through the model once: a trunk, then where they part.

Answers to one task begin alike and are often the same; under a causal model equal beginnings have equal
states. Pure planning on token ids: the loss still has each token of each sequence
(pipeline.training.micro_batch), so the gradient is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One prompt and what follows it: token counts of the prompt and of each completion in a row."""

    num_prompt: int
    completions: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens that the tree takes in its row."""
        return self.num_prompt + sum(self.completions)


def pack(sizes: Sequence[int], *, max_tokens: int, min_rows: int = 1) -> list[list[int]]:
    """Indices of ``sizes`` in rows of at most ``max_tokens``, as equal as may be; a larger item gets its own.

    The largest item goes to the emptiest row first (longest processing time, Graham 1969). Rows come the
    fullest first, so that what does not fit into memory fails at once; none is empty.
    """
    num_rows = max(min_rows, -(-sum(min(size, max_tokens) for size in sizes) // max_tokens), 1)
    rows: list[list[int]] = [[] for _ in range(num_rows)]
    loads = [0] * num_rows
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        row = min(range(len(rows)), key=lambda row: (loads[row], row))
        if rows[row] and loads[row] + sizes[index] > max_tokens:
            row = len(rows)
            rows.append([])
            loads.append(0)
        rows[row].append(index)
        loads[row] += sizes[index]
    order = sorted(range(len(rows)), key=lambda row: (-loads[row], row))
    return [rows[row] for row in order if rows[row]]


def position_ids(trees: Sequence[Tree]) -> list[int]:
    """The position of every token of a row: a completion goes on where its prompt ends."""
    positions: list[int] = []
    for tree in trees:
        positions += range(tree.num_prompt)
        for length in tree.completions:
            positions += range(tree.num_prompt, tree.num_prompt + length)
    return positions


def segments(trees: Sequence[Tree]) -> tuple[list[int], list[int]]:
    """For every token of a row its segment, and the segment of its prompt.

    A token sees those before it in the row that are of its own segment or of its prompt's.
    """
    own: list[int] = []
    prompts: list[int] = []
    num = 0
    for tree in trees:
        prompt = num
        for length in (tree.num_prompt, *tree.completions):
            own += [num] * length
            prompts += [prompt] * length
            num += 1
    return own, prompts


Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """Sequences as a tree: all begin with ``trunk``, and the i-th goes on with ``branches[branch_of[i]]``."""

    trunk: Tokens
    branches: tuple[Tokens, ...]
    branch_of: tuple[int, ...]

    @property
    def tree(self) -> Tree:
        """How they lie in a row."""
        return Tree(num_prompt=len(self.trunk), completions=tuple(len(branch) for branch in self.branches))

    @property
    def token_ids(self) -> Tokens:
        """What goes through the model: the trunk, then each branch."""
        return self.trunk + tuple(token for branch in self.branches for token in branch)

    def offsets(self) -> list[int]:
        """For each sequence, how far behind its position a token behind the trunk lies in ``token_ids``."""
        starts = [0, *accumulate(len(branch) for branch in self.branches)]
        return [starts[branch] for branch in self.branch_of]


def apart(sequence: Tokens) -> Branches:
    """A sequence that shares nothing."""
    return Branches(trunk=sequence, branches=((),), branch_of=(0,))


def behind_prompt(sequences: Sequence[Tokens], num_prompt: int) -> Branches:
    """The first ``num_prompt`` tokens, which all have in common, once; what follows for each by itself."""
    return Branches(
        trunk=sequences[0][:num_prompt],
        branches=tuple(sequence[num_prompt:] for sequence in sequences),
        branch_of=tuple(range(len(sequences))),
    )


def behind_prefix(sequences: Sequence[Tokens]) -> Branches:
    """All that the sequences begin with once, and each different way on once."""
    length = _common_length(sequences)
    place: dict[Tokens, int] = {}
    branch_of = tuple(place.setdefault(sequence[length:], len(place)) for sequence in sequences)
    return Branches(trunk=sequences[0][:length], branches=tuple(place), branch_of=branch_of)


def _common_length(sequences: Sequence[Tokens]) -> int:
    # What the first and the last in order have in common, all between them have.
    first, last = min(sequences), max(sequences)
    for length, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return length
    return min(len(first), len(last))
