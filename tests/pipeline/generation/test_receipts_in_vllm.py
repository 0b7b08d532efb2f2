"""Receipts of what vLLM really holds: faults in its loader, and parts of processes that split a model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    LinearBase,
    QKVParallelLinear,
    RowParallelLinear,
    UnquantizedLinearMethod,
)

from pipeline.generation.vllm.held_weights import Part, held_parts, whole
from pipeline.weights.receipts import receipt_of

HEAD, HEADS, WIDTH = 16, 4, 1100


@pytest.mark.slow
def test_each_fault_of_an_update_shows_at_that_update_and_names_the_tensor(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.pipeline.generation.receipt_faults", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for kind, faults in found.items():
        assert faults["sound 0"] == faults["sound 1"] == faults["adapter"] == []
        assert faults["dropped"] == ["model.layers.1.mlp.up_proj.weight differs"]
        assert faults["flipped"] == ["model.layers.0.self_attn.k_proj.weight differs"]
        assert faults["stale head"] == (["lm_head.weight differs"] if kind == "tied" else [])
        assert len(faults["adapter not swapped in"]) == 2 * 7


class Rank(nn.Module):
    """The layers of one of two processes that share a model, as vLLM cuts them up."""

    packed_modules_mapping: ClassVar = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}

    def __init__(self, weights: dict[str, torch.Tensor], rank: int, num_kv_heads: int) -> None:
        super().__init__()
        kv_rank, kv_heads = (rank, num_kv_heads // 2) if num_kv_heads > 1 else (0, 1)
        queries, keys = HEADS // 2 * HEAD, kv_heads * HEAD
        cut = {
            "q_proj": range(rank * queries, (rank + 1) * queries),
            "k_proj": range(kv_rank * keys, (kv_rank + 1) * keys),
            "v_proj": range(kv_rank * keys, (kv_rank + 1) * keys),
        }
        rows = [weights[f"{name}.weight"][own.start : own.stop] for name, own in cut.items()]
        biases = [weights[f"{name}.bias"][own.start : own.stop] for name, own in cut.items()]
        self.qkv_proj = layer(QKVParallelLinear, rank, torch.cat(rows), torch.cat(biases))
        self.qkv_proj.output_partition_sizes = [len(own) for own in cut.values()]
        self.qkv_proj.output_sizes = [HEADS * HEAD, 2 * keys, 2 * keys]
        self.qkv_proj.total_num_kv_heads, self.qkv_proj.head_size = num_kv_heads, HEAD
        self.qkv_proj.v_head_size, self.qkv_proj.num_kv_head_replicas = HEAD, 2 if num_kv_heads == 1 else 1
        half = WIDTH // 2
        self.o_proj = layer(
            RowParallelLinear, rank, weights["o_proj.weight"][:, rank * half : (rank + 1) * half], None
        )
        self.up_proj = layer(
            ColumnParallelLinear, rank, weights["up_proj.weight"][rank * half : (rank + 1) * half], None
        )
        self.up_proj.output_partition_sizes, self.up_proj.output_size = [half], WIDTH


def layer(kind: type[LinearBase], rank: int, weight: torch.Tensor, bias: torch.Tensor | None) -> Any:
    made: Any = object.__new__(kind)
    nn.Module.__init__(made)
    made.weight = nn.Parameter(weight, requires_grad=False)
    made.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
    made.quant_method = UnquantizedLinearMethod()
    made.cpu_linear = nn.functional.linear
    made.params_dtype, made.tp_rank = weight.dtype, rank
    made.output_size, made.input_size_per_partition = weight.shape[0], weight.shape[1]
    made.input_size = WIDTH
    return made


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("version", [0, 5, 9])
def test_the_parts_of_two_processes_add_up_to_what_was_published(num_kv_heads: int, version: int) -> None:
    sizes = {"q_proj": HEADS * HEAD, "k_proj": num_kv_heads * HEAD, "v_proj": num_kv_heads * HEAD}
    weights = {f"{name}.weight": torch.randn(size, WIDTH) for name, size in sizes.items()}
    weights |= {f"{name}.bias": torch.randn(size) for name, size in sizes.items()}
    weights |= {"o_proj.weight": torch.randn(WIDTH, WIDTH), "up_proj.weight": torch.randn(WIDTH, WIDTH)}
    ranks = [Rank(weights, rank, num_kv_heads) for rank in range(2)]

    def held() -> dict[str, int]:
        found = [held_parts(rank, version) for rank in ranks]
        assert all(unread == [] for _, unread in found)
        return whole(parts for parts, _ in found)

    published = receipt_of(weights.items(), version)
    assert held() == published
    # One process that holds other keys shows, also where both hold the same ones.
    first = ranks[1].qkv_proj.weight[HEADS // 2 * HEAD]
    first += 1.0
    assert [name for name, value in held().items() if value != published[name]] == ["k_proj.weight"]


@pytest.mark.parametrize("version", [0, 5])
def test_queries_keys_and_values_that_are_one_tensor_in_the_files_are_read_as_one(version: int) -> None:
    """As those of Phi-3 are, and its two projections of the MLP."""
    rows = [HEADS * HEAD, 2 * HEAD, 2 * HEAD]
    weight, bias = torch.randn(sum(rows), WIDTH), torch.randn(sum(rows))
    fused = layer(QKVParallelLinear, 0, weight, bias)
    fused.output_partition_sizes = fused.output_sizes = rows
    fused.total_num_kv_heads, fused.head_size, fused.v_head_size = 2, HEAD, HEAD
    fused.num_kv_head_replicas = fused.tp_size = 1
    model: Any = nn.ModuleDict({"qkv_proj": fused})
    model.packed_modules_mapping = {"qkv_proj": ["qkv_proj"]}
    parts, unread = held_parts(model, version)
    published = {"qkv_proj.weight": weight, "qkv_proj.bias": bias}
    assert unread == [] and whole([parts]) == receipt_of(published.items(), version)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_tensor_of_several_parts_is_read_where_one_process_has_all_of_it(num_processes: int) -> None:
    fused = layer(QKVParallelLinear, 0, torch.randn(3 * HEAD, WIDTH), torch.randn(3 * HEAD))
    fused.output_partition_sizes = fused.output_sizes = [HEAD] * 3
    fused.total_num_kv_heads, fused.head_size, fused.v_head_size = 1, HEAD, HEAD
    fused.num_kv_head_replicas, fused.tp_size = 1, num_processes
    model: Any = nn.ModuleDict({"qkv_proj": fused})
    model.packed_modules_mapping = {"qkv_proj": ["qkv_proj"]}
    parts, unread = held_parts(model, 0)
    assert (unread, bool(parts)) == (([], True) if num_processes == 1 else (["qkv_proj"], False))


def test_convolutions_and_decays_of_linear_attention_are_not_read() -> None:
    class Decays(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.A_log = nn.Parameter(torch.zeros(4, dtype=torch.float64))

    convolution = layer(QKVParallelLinear, 0, torch.randn(3 * HEAD, WIDTH), torch.randn(3 * HEAD))
    convolution.output_partition_sizes = [3 * HEAD]
    convolution.weight = nn.Parameter(torch.randn(3 * HEAD, 1, 4))
    model = nn.ModuleDict({"conv1d": convolution, "mixer": Decays(), "norm": nn.LayerNorm(4)})
    parts, unread = held_parts(model, 0)
    assert unread == ["conv1d", "mixer"] and {part.name for part in parts} == {"norm.weight", "norm.bias"}


def test_what_has_no_known_layout_is_not_read() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w13_weight = nn.Parameter(torch.zeros(2, 3, 4))

    model = nn.ModuleDict({"experts": Experts(), "norm": nn.LayerNorm(4)})
    parts, unread = held_parts(model, 0)
    assert unread == ["experts"] and {part.name for part in parts} == {"norm.weight", "norm.bias"}
    assert whole([[Part("a", 0, 0, 7)], [Part("a", 1, 0, 5)], [Part("a", 1, 0, 5)]]) == {"a": 12}
