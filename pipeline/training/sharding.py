"""Trainer ranks that share one model: FSDP2 over a process group, gloo on CPU and NCCL on GPU.

Each rank keeps its part of the fp32 weights, gradients and optimiser moments. A layer's weights are gathered
(in bf16, with ``training.bf16``) for its forward and again for its backward; its gradient is added up over
the ranks, in fp32, after each micro-batch. Does not start processes and does not choose what to train on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from pipeline.training.batching import MicroBatchPlan
from pipeline.training.forward import ForwardFn, completion_hidden_states
from pipeline.training.micro_batch import MicroBatch
from pipeline.training.ranks import assign_micro_batches


def join(store: Store, rank: int, num_ranks: int, device: torch.device, timeout_s: float) -> ShardedRanks:
    """Meet the other ranks at ``store``; what they do not take part in fails after ``timeout_s``."""
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)
    distributed.init_process_group(
        "gloo" if device.type == "cpu" else "nccl",
        store=store,
        rank=rank,
        world_size=num_ranks,
        timeout=timedelta(seconds=timeout_s),
    )
    return ShardedRanks(init_device_mesh(device.type, (num_ranks,)))


def leave() -> None:
    """Part from the other ranks."""
    distributed.destroy_process_group()


class ShardedRanks:
    """The ranks of a process group; see pipeline.training.ranks.Ranks."""

    casts_weights = True

    def __init__(self, mesh: DeviceMesh) -> None:
        self.rank: int = mesh.get_rank()
        self.num_ranks: int = mesh.size()
        self._mesh = mesh

    def load_device(self, device: torch.device) -> torch.device:
        """The host: no GPU ever holds the whole model in fp32."""
        return torch.device("cpu")

    def shard(self, model: PreTrainedModel, *, bf16: bool) -> ForwardFn:
        """Shard ``model`` by its layers, and move it to the device of the ranks.

        Embedding, last norm and output head make one more part. It stays whole from a micro-batch's forward
        to the end of its backward, because the output head runs in between (pipeline.training.backward); a
        tied head's gradient and the embedding's meet there, and are added up over the ranks once.
        """
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if bf16 else None,
            reduce_dtype=torch.float32,
            # The embedding sets the dtype of the layers; positions and angles are not to be rounded.
            cast_forward_inputs=False,
        )
        layers = set(model._no_split_modules or ())
        for module in list(model.modules()):
            if type(module).__name__ in layers:
                fully_shard(module, mesh=self._mesh, mp_policy=policy)
        root = fully_shard(_Forward(model), mesh=self._mesh, mp_policy=policy)
        # A pass without loss tokens leaves an untied output head without a gradient.
        root.set_reduce_scatter_unused_params(True)
        forward = cast(nn.Module, root)
        for module in forward.modules():
            if isinstance(module, FSDPModule):
                # Summed, not averaged: the token weights are those of the whole step.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        return lambda _, batch: cast(Tensor, forward(batch))

    def share(self, micro_plans: Sequence[MicroBatchPlan]) -> list[MicroBatchPlan]:
        """This rank's part, the longest first."""
        shares = assign_micro_batches([plan.num_tokens for plan in micro_plans], self.num_ranks)
        return [micro_plans[index] for index in shares[self.rank]]

    def num_idle(self, num_micro_batches: int) -> int:
        """One where the last round had nothing for this rank."""
        num_last = num_micro_batches % self.num_ranks
        return int(0 < num_last <= self.rank)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor of every rank, by rank."""
        gathered = [torch.empty_like(tensor) for _ in range(self.num_ranks)]
        distributed.all_gather(gathered, tensor, group=self._mesh.get_group())
        return gathered

    def full(self, tensor: Tensor) -> Tensor:
        """Gathered from all ranks, on each of them."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def full_weights(self, model: PreTrainedModel) -> dict[str, Tensor] | None:
        """Gathered one by one; the ranks behind the first keep none."""
        weights: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, value in model.state_dict(keep_vars=True).items():
            if id(value) in seen:
                continue
            seen.add(id(value))
            full = self.full(value.detach()).cpu()
            if self.rank == 0:
                weights[name] = full
        return weights

    def own(self, full: Tensor, like: Tensor) -> Tensor:
        """This rank's part, without communication."""
        if not isinstance(like, DTensor):
            return full
        on_device = full.to(like.device)
        return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)


class _Forward(nn.Module):
    """The module whose call FSDP takes for a forward pass: up to the hidden states, without the head."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self._model = model

    def forward(self, batch: MicroBatch) -> Tensor:
        return completion_hidden_states(self._model, batch)
