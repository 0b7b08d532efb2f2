"""The ranks that share a trainer's step: one alone, or those of a process group.

Every rank plans the same step, trains on its share of the micro-batches and adds up: token weights are
those of the whole step, so gradients and sums are added, never averaged, and the split changes nothing.
Starts no processes, computes no loss and makes no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypedDict, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel

from pipeline.models.loading import fill_model
from pipeline.training.batching import MicroBatchPlan
from pipeline.training.loss import LossSums
from pipeline.training.micro_batch import ForwardFn, MicroBatch, completion_hidden_states


class OptimizerState(TypedDict):
    """What torch's optimisers save: the moments, counts and more by index and name, and the settings."""

    state: dict[int, dict[str, object]]
    param_groups: list[dict[str, object]]


class Ranks:
    """The ranks of one trainer, here one alone; ``rank`` is this process's, from 0. All make the same calls.

    ``casts_weights``: a sharded model computes in bf16 by itself, where that is asked for.
    """

    rank = 0
    num_ranks = 1
    casts_weights = False

    def load_device(self, device: torch.device) -> torch.device:
        """Where to load a model that will train on ``device``."""
        return device

    def shard(self, model: PreTrainedModel, path: Path | str, *, bf16: bool) -> ForwardFn:
        """Keep only this rank's part of ``model``, in place; returns its forward pass.

        ``path`` is the folder it was loaded from.
        """
        return completion_hidden_states

    def share(self, micro_plans: Sequence[MicroBatchPlan]) -> list[MicroBatchPlan]:
        """This rank's part of ``micro_plans``, the longest of which comes first (StepPlanner.plan).

        The ranks meet at every layer, so a round of one micro-batch a rank takes as long as its longest, and
        the sum over the rounds is the time. Full rounds, the longest first, make it smallest (a batch
        machine's FBLPT rule); to balance the sum of each rank would not.
        """
        return list(micro_plans[self.rank :: self.num_ranks])

    def num_idle(self, num_micro_batches: int) -> int:
        """How many empty micro-batches this rank runs at the end of a step of ``num_micro_batches`` in all.

        The others wait for it at every layer, so every rank runs as many as the busiest one: one where the
        last round has nothing for this rank.
        """
        num_last = num_micro_batches % self.num_ranks
        return int(0 < num_last <= self.rank)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The ``tensor`` of every rank, by rank; all of one shape."""
        return [tensor]

    def full(self, tensor: Tensor) -> Tensor:
        """The whole of a parameter, its gradient, its norm or its moments; on every rank."""
        return tensor

    def full_weights(self, model: PreTrainedModel) -> dict[str, Tensor] | None:
        """The whole weights of a sharded ``model`` by name, on the CPU of the first rank; else none.

        None where the model itself has them. A weight of two names has the first.
        """
        return None

    def own(self, full: Tensor, like: Tensor) -> Tensor:
        """The inverse of ``full``: this rank's part of a tensor that every rank has whole."""
        return full


class ShardedRanks(Ranks):
    """The ranks of a process group, gloo on CPU and NCCL on GPU, which share one model (FSDP2).

    Each rank keeps its part of the fp32 weights, gradients and optimiser moments. A layer's weights are
    gathered (in bf16, with ``training.bf16``) for its forward and again for its backward; its gradient is
    added up over the ranks, in fp32, after each micro-batch.
    """

    casts_weights = True

    def __init__(self, mesh: DeviceMesh) -> None:
        self.rank = mesh.get_rank()
        self.num_ranks = mesh.size()
        self._mesh = mesh

    def load_device(self, device: torch.device) -> torch.device:
        """None yet: no GPU holds the whole model, nor, but for adapters, the host once a rank."""
        return torch.device("meta")

    def shard(self, model: PreTrainedModel, path: Path | str, *, bf16: bool) -> ForwardFn:
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
        if any(parameter.is_meta for parameter in model.parameters()):
            self._fill(model, path)
        return lambda _, batch: cast(Tensor, forward(batch))

    def _fill(self, model: PreTrainedModel, path: Path | str) -> None:
        # What stands in no file has its values already; to_empty would lose them.
        device = torch.device(self._mesh.device_type)
        kept = [buffer.to(device, copy=True) for buffer in model.buffers()]
        model.to_empty(device=device)
        for buffer, value in zip(model.buffers(), kept, strict=True):
            buffer.copy_(value)
        fill_model(model, path, self.own)

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


def empty_micro_batch(device: torch.device | str) -> MicroBatch:
    """One sequence of one token that is no loss token: its forward and backward add nothing."""
    none = torch.zeros(0, device=device)
    return MicroBatch(
        input_ids=torch.zeros(1, 1, dtype=torch.int64, device=device),
        position_ids=None,
        layout=None,
        source_rows=none.long(),
        target_ids=none.long(),
        prediction_ids=none.long(),
        token_starts=(0,),
        old_logprobs=none,
        advantages=none,
        weights=none,
        on_policy=none,
        sequence_ids=none.long(),
        num_sequences=1,
    )


def sums_of_all(ranks: Ranks, sums: LossSums, num_tokens: int) -> LossSums:
    """The sums of all ranks together, on every rank; ``num_tokens`` is how many loss tokens they have had."""
    # Ranks have different numbers of tokens, and gather tensors of one shape; what is added sorts last.
    padded = sums.log_ratios.new_full((num_tokens,), torch.inf)
    padded[: sums.log_ratios.shape[0]] = sums.log_ratios
    log_ratios = torch.cat(ranks.gather(padded)).sort().values[:num_tokens]
    none = log_ratios[:0]
    first, *others = [LossSums.from_stacked(values, none) for values in ranks.gather(sums.stacked())]
    return replace(sum(others, first), log_ratios=log_ratios)


def gathered_state(ranks: Ranks, state: object) -> object:
    """``state``, an optimiser's say, with every tensor whole and on the CPU; None on all ranks but the first.

    One tensor at a time, so that no rank but the first ever holds the whole.
    """

    def gathered(tensor: Tensor) -> Tensor | None:
        full = ranks.full(tensor)
        return full.cpu() if ranks.rank == 0 else None

    return tree_map_only(Tensor, gathered, state)


def own_optimizer_state(
    ranks: Ranks, state: OptimizerState, parameters: Sequence[Tensor]
) -> dict[str, object]:
    """The inverse of ``gathered_state`` for an optimiser over ``parameters``: this rank's part of it."""
    own = {
        index: {
            # A count of steps is no part of the parameter.
            name: ranks.own(value, parameters[index])
            if isinstance(value, Tensor) and value.shape == parameters[index].shape
            else value
            for name, value in moments.items()
        }
        for index, moments in state["state"].items()
    }
    return {**state, "state": own}
