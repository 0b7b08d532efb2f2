"""What a process of vLLM holds, for the receipt of a weight update: read where its kernels read it.

On a CPU they keep a packed copy of each matrix beside, or instead of, the parameter, and it is the copy that
computes: the layer is asked for the product with unit vectors, which is its columns, exactly. Parameters
travel under Hugging Face's names, also those that vLLM keeps in one matrix (q, k and v); of a tensor that is
cut up for tensor parallelism each process reads its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    LinearBase,
    QKVParallelLinear,
    RowParallelLinear,
    UnquantizedLinearMethod,
)
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)

from pipeline.models.files import A_END, B_END, PEFT_PREFIX
from pipeline.weights.receipts import columns_of, digest, numbers

# A module of vLLM's around the one that it adapts.
_ADAPTED = ".base_layer"


Digest = TypeVar("Digest", int, Tensor)


class Part(NamedTuple, Generic[Digest]):
    """The digest of the part of the tensor ``name`` that begins at this row and column.

    As a tensor it may still be being computed.
    """

    name: str
    first_row: int
    first_column: int
    digest: Digest


def held_parts(model: nn.Module, policy_version: int) -> tuple[list[Part[int]], list[str]]:
    """What ``model`` holds of what the receipt of ``policy_version`` looks at, and what cannot be read.

    The latter are modules whose layout is not known here, such as experts. Quantised layers are left out of
    both: pipeline.generation.vllm.transfer notes what they were given.
    """
    parts: list[Part[Tensor]] = []
    unread: list[str] = []
    packed = dict(getattr(model, "packed_modules_mapping", {}))
    head = getattr(model, "lm_head", None)
    tables = (one for one in model.modules() if isinstance(one, VocabParallelEmbedding))
    # What is kept in another precision than the rest is not as it was published: linear attention's decays.
    dtype = next((one.weight.dtype for one in tables), torch.get_default_dtype())
    for path, module in model.named_modules():
        name = path.removesuffix(_ADAPTED)
        own = dict(module.named_parameters(recurse=False))
        if isinstance(module, LinearBase):
            if isinstance(module.quant_method, UnquantizedLinearMethod):
                if _is_known(name, module, packed):
                    parts += _linear(name, module, packed, policy_version)
                else:
                    unread.append(path)
        elif isinstance(module, VocabParallelEmbedding):
            if not isinstance(module.quant_method, UnquantizedEmbeddingMethod):
                unread.append(path)
                continue
            if not isinstance(module, ParallelLMHead):
                parts.append(_vocabulary(f"{name}.weight", module, policy_version, is_head=False))
            if module is head or isinstance(module, ParallelLMHead):
                parts.append(_vocabulary("lm_head.weight", module, policy_version, is_head=True))
        elif own and all(one.dim() == 1 for one in own.values()) and _is_as_given(module, own, dtype):
            parts += [
                _part(f"{name}.{key}", parameter[None], (1, len(parameter)), (0, 0), policy_version)
                for key, parameter in own.items()
            ]
        elif own:
            unread.append(path)
    return _read(parts), unread


def held_adapter(manager: Any, rank: int, policy_version: int) -> list[Part[int]]:
    """The parts of the one adapter of ``rank`` that vLLM's LoRA ``manager`` serves, B times its scale."""
    slot = next(index for index, name in enumerate(manager.lora_index_to_id) if name is not None)
    packed = dict(manager.model.packed_modules_mapping)
    parts: list[Part[Tensor]] = []
    for path, module in manager.modules.items():
        layer = module.base_layer
        if not isinstance(layer, LinearBase):
            continue
        first_column = _columns_of(layer).start
        for index, (name, rows, first_row, num_rows) in enumerate(_slices(path, layer, packed)):
            low = module.lora_a_stacked[index][slot, 0, :rank]
            high = module.lora_b_stacked[index][slot, 0, : len(rows), :rank]
            low_size, high_size = (rank, layer.input_size), (num_rows, rank)
            stem = f"{PEFT_PREFIX}{name}"
            parts += [
                _part(f"{stem}{A_END}", low, low_size, (0, first_column), policy_version),
                _part(f"{stem}{B_END}", high, high_size, (first_row, 0), policy_version),
            ]
    return _read(parts)


def whole(ranks: Iterable[Iterable[Part[int]]]) -> dict[str, int]:
    """The digest of each tensor, of its parts in all processes; a part that several hold counts once."""
    total: dict[str, int] = {}
    # Copies that differ add up to something else.
    for part in {part for held in ranks for part in held}:
        total[part.name] = (total.get(part.name, 0) + part.digest) % 2**64
    return total


def _read(parts: Sequence[Part[Tensor]]) -> list[Part[int]]:
    found = numbers([part.digest for part in parts])
    return [Part(*part[:3], number) for part, number in zip(parts, found, strict=True)]


def _linear(name: str, layer: Any, packed: dict[str, list[str]], version: int) -> Iterator[Part[Tensor]]:
    here = _columns_of(layer)
    wanted: dict[range, Tensor] = {}
    for part_name, rows, first_row, num_rows in _slices(name, layer, packed):
        columns = columns_of(num_rows, layer.input_size, version)
        own = range(max(columns.start, here.start), min(columns.stop, here.stop))
        if own:
            if own not in wanted:
                wanted[own] = _columns(layer, range(own.start - here.start, own.stop - here.start), len(here))
            number = digest(wanted[own][rows.start : rows.stop], own, first_row=first_row)
            yield Part(f"{part_name}.weight", first_row, here.start, number)
        if layer.bias is not None:
            bias = layer.bias[rows.start : rows.stop]
            yield _part(f"{part_name}.bias", bias[None], (1, num_rows), (0, first_row), version)


def _columns(layer: Any, columns: range, width: int) -> Tensor:
    """Those ``columns`` of what the layer multiplies with, which is ``width`` wide here."""
    weight = layer.weight
    if weight.device.type != "cpu":
        part: Tensor = weight[:, columns.start : columns.stop]
        return part
    units = torch.zeros(len(columns), width, dtype=getattr(layer, "params_dtype", weight.dtype))
    units[torch.arange(len(columns)), torch.arange(columns.start, columns.stop)] = 1.0
    products: Tensor = layer.quant_method.apply(layer, units, None)
    return products.t()


def _vocabulary(name: str, layer: Any, version: int, *, is_head: bool) -> Part[Tensor]:
    shard = layer.shard_indices
    num_rows, width = shard.num_org_elements, layer.embedding_dim
    columns = columns_of(layer.org_vocab_size, width, version)
    if is_head:
        values = _columns(layer, columns, width)[:num_rows]
    else:
        values = layer.weight[:num_rows, columns.start : columns.stop]
    first_row = shard.org_vocab_start_index
    return Part(name, first_row, 0, digest(values, columns, first_row=first_row))


def _part(
    name: str, values: Tensor, size: tuple[int, int], first: tuple[int, int], version: int
) -> Part[Tensor]:
    """``values`` begin at row and column ``first`` of a tensor of ``size``."""
    columns = columns_of(*size, version)
    own = range(max(columns.start, first[1]), min(columns.stop, first[1] + values.shape[1]))
    if not own:
        return Part(name, *first, torch.zeros((), dtype=torch.int64, device=values.device))
    seen = values[:, own.start - first[1] : own.stop - first[1]]
    return Part(name, *first, digest(seen, own, first_row=first[0]))


def _columns_of(layer: Any) -> range:
    """The columns of its tensors that ``layer`` has here."""
    if not isinstance(layer, RowParallelLinear):
        return range(layer.input_size)
    width = layer.input_size_per_partition
    return range(layer.tp_rank * width, (layer.tp_rank + 1) * width)


def _is_as_given(module: nn.Module, own: dict[str, nn.Parameter], dtype: torch.dtype) -> bool:
    """Whether the vectors of ``module`` are kept as they were published: those of norms, and of ``dtype``."""
    return "norm" in type(module).__name__.lower() or all(one.dtype == dtype for one in own.values())


def _is_known(name: str, layer: Any, packed: dict[str, list[str]]) -> bool:
    """Whether it is a matrix of as many parts as have names: not a convolution, nor linear attention's.

    One name for several parts is one tensor, which is read where one process has all of it.
    """
    num_names = len(packed.get(name.rpartition(".")[2], [name]))
    sizes = layer.output_partition_sizes if isinstance(layer, ColumnParallelLinear) else [layer.output_size]
    is_one = num_names == 1 and getattr(layer, "tp_size", 1) == 1
    # On a CPU the packed copy is all that is left: the weight is empty.
    return layer.weight.dim() < 3 and (is_one or num_names == len(sizes))


def _slices(name: str, layer: Any, packed: dict[str, list[str]]) -> Iterator[tuple[str, range, int, int]]:
    """The tensors that ``layer`` is made of: name, its rows here, which of them is first, of how many."""
    stem, _, last = name.rpartition(".")
    names = [f"{stem}.{one}" if stem else one for one in packed.get(last, [last])]
    sizes, totals = [layer.output_size], list(getattr(layer, "output_sizes", [layer.output_size]))
    if isinstance(layer, ColumnParallelLinear):
        sizes = list(layer.output_partition_sizes)
    if isinstance(layer, QKVParallelLinear):
        heads = layer.total_num_kv_heads
        totals = [totals[0], heads * layer.head_size, heads * layer.v_head_size]
    if len(names) == 1 and getattr(layer, "tp_size", 1) == 1:
        # One tensor in the files as well, as queries, keys and values of Phi-3 are.
        sizes, totals = [sum(sizes)], [sum(totals)]
    begin = 0
    for index, (one, size) in enumerate(zip(names, sizes, strict=True)):
        place = getattr(layer, "tp_rank", 0) if isinstance(layer, ColumnParallelLinear) else 0
        if isinstance(layer, QKVParallelLinear) and index > 0:
            place //= layer.num_kv_head_replicas
        yield one, range(begin, begin + size), place * size, int(totals[index])
        begin += size
