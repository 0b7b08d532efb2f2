"""Packed rows: several sequences without padding, what they share in it once, and who sees whom.

A row is a list of trees: the prefix that the sequences of a group share, then the suffix of each, which sees
the prefix and itself. Answers to one task begin alike and are often the same, and under a causal model equal
prefixes have equal states. The loss still has each token of each sequence (pipeline.training.micro_batch), so
the gradient is the same. Plans by token ids and lengths, and brings what was planned to the device; the
attention over a row is in pipeline.training.attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

Tokens = tuple[int, ...]


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


def places(trees: Sequence[Tree]) -> list[tuple[slice, slice, list[slice]]]:
    """Where each tree lies in its row: the prompt, all the completions, and each that is not empty."""
    found = []
    start = 0
    for tree in trees:
        prompt = slice(start, start + tree.num_prompt)
        each = []
        start = prompt.stop
        for length in tree.completions:
            if length:
                each.append(slice(start, start + length))
            start += length
        found.append((prompt, slice(prompt.stop, start), each))
    return found


def to_device(host: Tensor, device: torch.device | str) -> Tensor:
    """``host`` on ``device`` without waiting for it: only pinned memory is copied in the background."""
    is_cuda = torch.device(device).type == "cuda"
    return (host.pin_memory() if is_cuda else host).to(device, non_blocking=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix:
    """Sequences that all begin with ``prefix``; the i-th goes on with ``suffixes[suffix_of[i]]``."""

    prefix: Tokens
    suffixes: tuple[Tokens, ...]
    suffix_of: tuple[int, ...]

    @property
    def tree(self) -> Tree:
        """How they lie in a row."""
        return Tree(num_prompt=len(self.prefix), completions=tuple(len(suffix) for suffix in self.suffixes))

    @property
    def token_ids(self) -> Tokens:
        """What goes through the model: the prefix, then each suffix."""
        return self.prefix + tuple(token for suffix in self.suffixes for token in suffix)

    def offsets(self) -> list[int]:
        """For each sequence, how far behind its position a token of its suffix lies in ``token_ids``."""
        starts = [0, *accumulate(len(suffix) for suffix in self.suffixes)]
        return [starts[number] for number in self.suffix_of]


def share_prompt(sequences: Sequence[Tokens], num_prompt: int) -> SharedPrefix:
    """The first ``num_prompt`` tokens, which all have in common, once; what follows for each by itself."""
    return SharedPrefix(
        prefix=sequences[0][:num_prompt],
        suffixes=tuple(sequence[num_prompt:] for sequence in sequences),
        suffix_of=tuple(range(len(sequences))),
    )


def share_prefix(sequences: Sequence[Tokens]) -> SharedPrefix:
    """All that the sequences begin with once, and each different suffix once."""
    length = _common_length(sequences)
    number: dict[Tokens, int] = {}
    suffix_of = tuple(number.setdefault(sequence[length:], len(number)) for sequence in sequences)
    return SharedPrefix(prefix=sequences[0][:length], suffixes=tuple(number), suffix_of=suffix_of)


def _common_length(sequences: Sequence[Tokens]) -> int:
    # What the first and the last in order have in common, all between them have.
    first, last = min(sequences), max(sequences)
    for length, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return length
    return min(len(first), len(last))
