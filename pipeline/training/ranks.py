"""What a trainer asks of the ranks that share its step, and the answers of a rank that is alone.

Every rank plans the same step, trains on its share of the micro-batches and adds up: token weights are
those of the whole step, so gradients and sums are added, never averaged, and the split changes nothing.
Knows no optimiser and no loss.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypedDict

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pipeline.training.batching import MicroBatchPlan
from pipeline.training.forward import ForwardFn, completion_hidden_states
from pipeline.training.loss_sums import LossSums
from pipeline.training.micro_batch import MicroBatch


class OptimizerState(TypedDict):
    """What torch's optimisers save: the moments by index and name, and the settings."""

    state: dict[int, dict[str, Tensor]]
    param_groups: list[dict[str, object]]


class Ranks(Protocol):
    """The ranks of one trainer; ``rank`` is this process's, from 0. Every rank makes the same calls.

    ``casts_weights``: a sharded model computes in bf16 by itself, where that is asked for.
    """

    rank: int
    num_ranks: int
    casts_weights: bool

    def load_device(self, device: torch.device) -> torch.device:
        """Where to load a model that will train on ``device``."""

    def shard(self, model: PreTrainedModel, *, bf16: bool) -> ForwardFn:
        """Keep only this rank's part of ``model``, in place; returns its forward pass."""

    def share(self, micro_plans: Sequence[MicroBatchPlan]) -> list[MicroBatchPlan]:
        """This rank's part of the step's micro-batches."""

    def num_idle(self, num_micro_batches: int) -> int:
        """How many empty micro-batches this rank runs at the end of a step of ``num_micro_batches`` in all.

        The others wait for it at every layer, so every rank runs as many as the busiest one.
        """

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The ``tensor`` of every rank, by rank; all of one shape."""

    def full(self, tensor: Tensor) -> Tensor:
        """The whole of a parameter, its gradient, its norm or its moments; on every rank."""

    def full_weights(self, model: PreTrainedModel) -> dict[str, Tensor] | None:
        """The whole weights of a sharded ``model`` by name, on the CPU of the first rank; else none.

        None where the model itself has them. A weight of two names has the first.
        """

    def own(self, full: Tensor, like: Tensor) -> Tensor:
        """The inverse of ``full``: this rank's part of a tensor that every rank has whole."""


class OneRank:
    """A trainer without company; see ``Ranks``."""

    rank = 0
    num_ranks = 1
    casts_weights = False

    def load_device(self, device: torch.device) -> torch.device:
        """The device."""
        return device

    def shard(self, model: PreTrainedModel, *, bf16: bool) -> ForwardFn:
        """All of the model."""
        return completion_hidden_states

    def share(self, micro_plans: Sequence[MicroBatchPlan]) -> list[MicroBatchPlan]:
        """All of them, in their order."""
        return list(micro_plans)

    def num_idle(self, num_micro_batches: int) -> int:
        """None: there is no one who waits."""
        return 0

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor alone."""
        return [tensor]

    def full(self, tensor: Tensor) -> Tensor:
        """The tensor."""
        return tensor

    def full_weights(self, model: PreTrainedModel) -> dict[str, Tensor] | None:
        """None: the model has them."""
        return None

    def own(self, full: Tensor, like: Tensor) -> Tensor:
        """The tensor."""
        return full


def assign_micro_batches(costs: Sequence[float], num_ranks: int) -> list[list[int]]:
    """The indices of the micro-batches that each rank runs, in order: one list a rank.

    The ranks meet at every layer, so a round of one micro-batch a rank takes as long as its longest, and
    the sum over the rounds is the time. Full rounds, the longest first, make it smallest (a batch machine's
    FBLPT rule); to balance the sum of each rank would not.
    """
    order = sorted(range(len(costs)), key=lambda index: (-costs[index], index))
    return [order[rank::num_ranks] for rank in range(num_ranks)]


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
    return replace(functools.reduce(operator.add, others, first), log_ratios=log_ratios)


def gathered_state(ranks: Ranks, state: object) -> object:
    """``state``, an optimiser's say, with every tensor whole and on the CPU; None on all ranks but the first.

    One tensor at a time, so that no rank but the first ever holds the whole.
    """
    if isinstance(state, Tensor):
        full = ranks.full(state)
        return full.cpu() if ranks.rank == 0 else None
    if isinstance(state, dict):
        return {key: gathered_state(ranks, value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(gathered_state(ranks, value) for value in state)
    return state


def own_optimizer_state(
    ranks: Ranks, state: OptimizerState, parameters: Sequence[Tensor]
) -> dict[str, object]:
    """The inverse of ``gathered_state`` for an optimiser over ``parameters``: this rank's part of it."""
    own = {
        index: {
            # A count of steps is no part of the parameter.
            name: ranks.own(value, parameters[index]) if value.shape == parameters[index].shape else value
            for name, value in moments.items()
        }
        for index, moments in state["state"].items()
    }
    return {**state, "state": own}
