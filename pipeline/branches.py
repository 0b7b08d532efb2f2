"""What the sequences of a group have in common goes through the model once: a trunk, then where they part.

Answers to one task begin alike and are often the same; under a causal model equal beginnings have equal
states. Pure planning on token ids: the loss still has each token of each sequence (pipeline.micro_batch), so
the gradient is the same. Called by pipeline.batching.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pipeline.packing import Tree

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
