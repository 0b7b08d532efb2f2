"""Receipts of weight updates: digests that show that an engine holds what the trainer published.

One digest a tensor: the bits of its elements, each times an odd number that its row and column give, summed
modulo 2**64 (multilinear hashing: Lemire and Kaser, arXiv:1202.4961). So a changed element always shows, and
the digests of the parts of a tensor add up to that of the whole: engines that cut it up need not put it
together. Of a large tensor the update to a version looks at an eleventh of the columns, to the next version
at the next eleventh. Where only every second version is loaded, or every ninth (acceleration.max_staleness),
eleven updates still look at all of them, for eleven is prime.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final

from pipeline.models.files import B_END

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NUM_TURNS: Final = 11
_SMALL: Final = 2**16  # elements that are looked at by every update
# Elements at a time: as whole numbers they fit into a processor's cache; a GPU is given few kernels instead.
_CHUNK: Final = {"cpu": 2**17, "cuda": 2**22}
_BITS: Final = {4: "int32", 2: "int16"}  # of whole numbers, by the bytes of an element
_MASK: Final = 2**64 - 1
# The numbers of the first rows and columns on each device, by salt: as many as a tensor has had there.
_odd_numbers: dict[tuple[int, str], Tensor] = {}


def columns_of(num_rows: int, num_columns: int, policy_version: int) -> range:
    """The columns of a matrix that the receipt of ``policy_version`` looks at."""
    if num_rows * num_columns <= _SMALL:
        return range(num_columns)
    turn = policy_version % NUM_TURNS
    return range(turn * num_columns // NUM_TURNS, (turn + 1) * num_columns // NUM_TURNS)


def digest(values: Tensor, columns: range, *, first_row: int = 0) -> Tensor:
    """The digest of ``values`` [rows, len(columns)]: those columns of a tensor's rows from ``first_row`` on.

    A scalar on their device, which is not waited for: see ``numbers``. Minus zero counts as zero.
    """
    # Imported here: the run's driver compares receipts without torch.
    import torch

    assert values.dim() == 2 and values.shape[1] == len(columns)
    of_rows = _odd(range(first_row, first_row + len(values)), 1, values.device)
    of_columns = _odd(columns, 2, values.device)
    if values.t().is_contiguous():
        # As it lies in memory: the sum is the same.
        values, of_rows, of_columns = values.t(), of_columns, of_rows
    num_rows = max(1, _CHUNK[values.device.type] // max(1, values.shape[1]))
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    for start in range(0, len(values), num_rows):
        part = values[start : start + num_rows] + 0.0
        bits = part.contiguous().view(getattr(torch, _BITS[part.element_size()])).long()
        # There is no product of matrix and vector of whole numbers on a GPU.
        sums = torch.mv(bits, of_columns) if bits.is_cpu else (bits * of_columns).sum(1)
        total += (sums * of_rows[start : start + num_rows]).sum()
    return total


def numbers(digests: Sequence[Tensor]) -> list[int]:
    """What ``digests``, all of one device, are; it is waited for once."""
    import torch

    return [number & _MASK for number in torch.stack(list(digests)).tolist()] if digests else []


def tensor_digest(tensor: Tensor, policy_version: int) -> Tensor:
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
    """``named_tensors`` as they are; when all have been taken, ``receipt`` gets the digest of each.

    The B factors of an adapter are looked at times its ``scale``, as engines keep them.
    """
    digests: dict[str, Tensor] = {}
    for name, tensor in named_tensors:
        seen = tensor * scale if scale != 1.0 and name.endswith(B_END) else tensor
        digests[name] = tensor_digest(seen, policy_version)
        yield name, tensor
    receipt.update(zip(digests, numbers(list(digests.values())), strict=True))


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


def _odd(places: range, salt: int, device: torch.device) -> Tensor:
    """An odd number of 64 bits for each of ``places``: splitmix64, Steele et al., OOPSLA 2014."""
    import torch

    known = _odd_numbers.get((salt, str(device)))
    if known is None or len(known) < places.stop:
        known = _splitmix(torch.arange(places.stop, device=device), salt)
        _odd_numbers[salt, str(device)] = known
    return known[places.start : places.stop]


def _splitmix(places: Tensor, salt: int) -> Tensor:
    mixed = (places + salt * 2**40) * -7046029254386353131
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        # The shift of a signed number would draw its sign in.
        mixed = (mixed ^ ((mixed >> shift) & (2 ** (64 - shift) - 1))) * factor
    return (mixed ^ ((mixed >> 31) & (2**33 - 1))) | 1
