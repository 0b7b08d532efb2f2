"""Receipts of weight updates: digests that show that an engine holds what the trainer published.

One digest a tensor: the bits of its elements, each times an odd number that its row and column give, summed
modulo 2**64 (multilinear hashing: Lemire and Kaser, arXiv:1202.4961). So a changed element always shows, and
the digests of the parts of a tensor add up to that of the whole: engines that cut it up need not put it
together. Of a large tensor an update looks at a tenth of the columns, at the next tenth
the next time, and so at all of them within ten updates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Final

from pipeline.models.check import B_END

if TYPE_CHECKING:
    from torch import Tensor

NUM_TURNS: Final = 10
_SMALL: Final = 2**16  # elements that are looked at by every update
_CHUNK: Final = 2**17  # elements that fit into a cache as whole numbers
_BITS: Final = {4: "int32", 2: "int16"}  # of whole numbers, by the bytes of an element
_MASK: Final = 2**64 - 1


def columns_of(num_rows: int, num_columns: int, policy_version: int) -> range:
    """The columns of a matrix that the receipt of ``policy_version`` looks at."""
    if num_rows * num_columns <= _SMALL:
        return range(num_columns)
    turn = policy_version % NUM_TURNS
    return range(turn * num_columns // NUM_TURNS, (turn + 1) * num_columns // NUM_TURNS)


def digest(values: Tensor, columns: range, *, first_row: int = 0) -> int:
    """The digest of ``values`` [rows, len(columns)]: those columns of a tensor's rows from ``first_row`` on.

    Minus zero counts as zero.
    """
    # Imported here: the run's driver compares receipts without torch.
    import torch

    assert values.dim() == 2 and values.shape[1] == len(columns)
    of_rows = _odd(torch.arange(first_row, first_row + len(values), device=values.device), 1)
    of_columns = _odd(torch.arange(columns.start, columns.stop, device=values.device), 2)
    if values.t().is_contiguous():
        # As it lies in memory: the sum is the same.
        values, of_rows, of_columns = values.t(), of_columns, of_rows
    num_rows, total = max(1, _CHUNK // max(1, values.shape[1])), 0
    for start in range(0, len(values), num_rows):
        part = values[start : start + num_rows] + 0.0
        bits = part.contiguous().view(getattr(torch, _BITS[part.element_size()])).long()
        # There is no product of matrix and vector of whole numbers on a GPU.
        sums = torch.mv(bits, of_columns) if bits.is_cpu else (bits * of_columns).sum(1)
        total += int((sums * of_rows[start : start + num_rows]).sum())
    return total & _MASK


def tensor_digest(tensor: Tensor, policy_version: int) -> int:
    """The digest of a whole tensor; one of another number of dimensions counts as a matrix."""
    matrix = tensor.detach().reshape(1, -1) if tensor.dim() < 2 else tensor.detach().flatten(1)
    columns = columns_of(matrix.shape[0], matrix.shape[1], policy_version)
    return digest(matrix[:, columns.start : columns.stop], columns)


def noted(
    named_tensors: Iterable[tuple[str, Tensor]],
    policy_version: int,
    receipt: MutableMapping[str, int],
    *,
    scale: float = 1.0,
) -> Iterator[tuple[str, Tensor]]:
    """``named_tensors`` as they are; ``receipt`` gets the digest of each on its way.

    The B factors of an adapter are looked at times its ``scale``, as engines keep them.
    """
    for name, tensor in named_tensors:
        seen = tensor * scale if scale != 1.0 and name.endswith(B_END) else tensor
        receipt[name] = tensor_digest(seen, policy_version)
        yield name, tensor


def receipt_of(
    named_tensors: Iterable[tuple[str, Tensor]], policy_version: int, *, scale: float = 1.0
) -> dict[str, int]:
    """The receipt of all of them; see ``noted``."""
    receipt: dict[str, int] = {}
    for _ in noted(named_tensors, policy_version, receipt, scale=scale):
        pass
    return receipt


def code_of(published: Mapping[str, int], held: Mapping[str, int] | None = None) -> str:
    """A receipt in 16 characters, for rows of the ledger; with ``held``, of what is held of it."""
    # What cannot be read is taken on trust.
    present = {name: (held or {}).get(name, value) for name, value in published.items()}
    lines = "".join(f"{name} {value}\n" for name, value in sorted(present.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def differing(
    published: Mapping[str, int], held: Mapping[str, int], unread: Collection[str] = ()
) -> list[str]:
    """What an engine holds otherwise than it was published, in words, a text each tensor.

    A tied output head that was not published has to be what the input embedding is. Where the engine could
    not read all that it holds (``unread``), what is missing counts as unread. Sorted by name.
    """
    faults = [] if unread else [f"{name} is missing" for name in sorted(published) if name not in held]
    embedding = next((name for name in published if name.endswith("embed_tokens.weight")), None)
    for name, value in sorted(held.items()):
        wanted = published.get(name, published.get(embedding) if embedding else None)
        if wanted is None:
            faults.append(f"{name} was not published")
        elif value != wanted:
            faults.append(f"{name} differs")
    return faults


def _odd(places: Tensor, salt: int) -> Tensor:
    """An odd number of 64 bits for each of ``places``: splitmix64, Steele et al., OOPSLA 2014."""
    mixed = (places + salt * 2**40) * -7046029254386353131
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        # The shift of a signed number would draw its sign in.
        mixed = (mixed ^ ((mixed >> shift) & (2 ** (64 - shift) - 1))) * factor
    return (mixed ^ ((mixed >> 31) & (2**33 - 1))) | 1
