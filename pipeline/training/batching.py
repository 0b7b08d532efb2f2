"""From training samples to micro-batches, of a whole optimiser step or a part of it.

Packs sequences into rows, computes once what a group has in common and leaves out samples without signal, as
asked; none of it changes the gradient, because every token carries its weight (pipeline.training.loss).
``StepTotals`` says what a step was made of in the end. Makes neither samples (pipeline.rollouts.batch) nor
tensors (pipeline.training.micro_batch).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from configs.schema import Config
from configs.training_schema import LossType
from pipeline.messages import TrainBatch, TrainingSample
from pipeline.training.attention import RowKernel
from pipeline.training.loss import token_weights
from pipeline.training.memory import MicroBatchLimit, limits
from pipeline.training.micro_batch import MicroBatch, WeightedSample, build_micro_batch
from pipeline.training.rows import SharedPrefix, pack, share_prefix, share_prompt

# What a prompt's sequences have computed once for all of them; "prefix" is all that they begin with.
Sharing = Literal["nothing", "prompt", "prefix"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchPlan:
    """The samples of a micro-batch, by prompt; ``build`` makes its tensors.

    ``num_tokens`` go through the model, ``num_padding`` of them for nothing. ``capacity`` is how many a
    packed row may have, 0 where nothing is packed.
    """

    groups: tuple[tuple[WeightedSample, ...], ...]
    is_packed: bool
    sharing: Sharing
    pad_token_id: int
    num_tokens: int
    num_padding: int
    capacity: int = 0

    @property
    def num_sequences(self) -> int:
        """Sequences in it."""
        return sum(len(group) for group in self.groups)

    @property
    def samples(self) -> list[WeightedSample]:
        """Its sequences."""
        return [item for group in self.groups for item in group]

    def build(self, device: torch.device | str = "cpu", kernel: RowKernel = "cpu") -> MicroBatch:
        """The tensors, built on the host and moved once; ``kernel`` will go over a row.

        Raises ValueError when a sample is malformed.
        """
        shared = [_shared(group, self.sharing) for group in self.groups]
        width = None if self.is_packed else self.num_tokens // self.num_sequences
        return build_micro_batch(
            self.groups,
            shared,
            width=width,
            pad_token_id=self.pad_token_id,
            device=device,
            kernel=kernel,
        )


class StepPlanner:
    """How a run weights the samples of its steps and cuts them into micro-batches.

    Every one of the ``num_ranks`` ranks plans the same. For a model that ``supports_rows`` of several
    sequences samples lie in packed rows and behind shared prompts, as asked; for another they are padded.
    """

    def __init__(self, config: Config, *, supports_rows: bool, pad_token_id: int, num_ranks: int) -> None:
        training, acceleration = config.training, config.acceleration
        self.batch_size = training.per_device_train_batch_size
        self.loss_type: LossType = config.grpo.loss_type
        # What the first micro-batches may have; with adapts_limit memory errors lower it.
        self.limit = limits(config)[0]
        self.adapts_limit = training.memory == "auto"
        # Where a model takes no rows, what a padded batch may have is bounded all the same.
        self._bounds_tokens = acceleration.token_packing.enabled
        self._packs = self._bounds_tokens and supports_rows
        self._pad_token_id = pad_token_id
        self._num_ranks = num_ranks
        # Of all turns; feedback has no loss tokens.
        self._max_completion_length = config.rollouts.max_turns * config.generation.max_completion_length
        # The KL term has a gradient where the advantage is zero.
        self._skips_zero_advantages = acceleration.skip_zero_advantages and config.grpo.beta == 0
        self._sharing: Sharing = "prefix" if acceleration.shared_prefix else "prompt"
        if not (acceleration.shared_prompt and supports_rows):
            self._sharing = "nothing"
        self._min_pack_ratio = acceleration.token_packing.min_pack_ratio

    def weighted(self, samples: Sequence[TrainingSample]) -> list[WeightedSample]:
        """The samples to train on, with the weights of their tokens.

        To leave out those whose advantage is zero is exact where the loss has no KL and no entropy term. The
        weights are computed before anything is left out, so no denominator changes. A sample without loss
        tokens is always left out.
        """
        lengths = [sum(sample.loss_mask) for sample in samples]
        weights = token_weights(
            lengths,
            loss_type=self.loss_type,
            batch_size=self.batch_size,
            max_completion_length=self._max_completion_length,
        )
        return [
            WeightedSample(sample=sample, weight=weight)
            for sample, weight, length in zip(samples, weights, lengths, strict=True)
            if length > 0 and not (self._skips_zero_advantages and sample.advantage == 0.0)
        ]

    def plan(self, samples: Sequence[WeightedSample], limit: MicroBatchLimit) -> list[MicroBatchPlan]:
        """Micro-batches for ``samples``, the largest first; at least one a rank where the samples suffice.

        Where samples are packed, they are rows of at most ``limit.max_tokens`` (one sequence may exceed it),
        unless that would fill less than ``token_packing.min_pack_ratio`` of them; otherwise they are at most
        ``limit.max_sequences`` sequences, and no more tokens than a row where packing was asked for and
        nothing is shared.
        """
        if not samples:
            return []
        sharing, capacity = self._sharing, 0
        groups: list[Sequence[WeightedSample]] = [*_groups(samples, sharing)]
        rows: list[list[Sequence[WeightedSample]]] = []
        if self._packs:
            groups = self._units(groups, limit.max_tokens)
            rows = self._rows(groups, limit.max_tokens)
            capacity = limit.max_tokens if rows else 0
        if not rows:
            size = min(limit.max_sequences, max(len(samples) // self._num_ranks, 1))
            if self._bounds_tokens and sharing == "nothing":
                size = min(size, max(limit.max_tokens // max(item.num_inputs for item in samples), 1))
            rows = _batches(groups, sharing, size)
        plans = [_micro_plan(row, capacity, sharing, self._pad_token_id) for row in rows]
        plans.sort(key=lambda plan: -plan.num_tokens)
        return plans

    def _units(
        self, groups: Sequence[Sequence[WeightedSample]], max_tokens: int
    ) -> list[Sequence[WeightedSample]]:
        """The groups in parts that fit into a row, and enough of them for all ranks."""
        units = [unit for group in groups for unit in _cut_group(group, self._sharing, max_tokens)]
        # A row that must be shared out has to be cut finer than its groups.
        while self._sharing != "nothing" and len(units) < self._num_ranks and max(map(len, units)) > 1:
            largest = max(units, key=len)
            units.remove(largest)
            units += [largest[: len(largest) // 2], largest[len(largest) // 2 :]]
        return units

    def _rows(
        self, units: Sequence[Sequence[WeightedSample]], max_tokens: int
    ) -> list[list[Sequence[WeightedSample]]]:
        """What of ``units`` is in every row; nothing if they are not to be packed."""
        sizes = [_num_tokens(unit, self._sharing) for unit in units]
        packed = pack(sizes, max_tokens=max_tokens, min_rows=self._num_ranks)
        ratio = sum(sizes) / (len(packed) * max_tokens)
        return [] if ratio < self._min_pack_ratio else [[units[index] for index in row] for row in packed]


def _groups(samples: Sequence[WeightedSample], sharing: Sharing) -> list[list[WeightedSample]]:
    """The samples of each prompt; each sample by itself where nothing is shared."""
    if sharing == "nothing":
        return [[item] for item in samples]
    groups: dict[tuple[int, ...], list[WeightedSample]] = {}
    for item in samples:
        prompt = item.sample.token_ids[: item.sample.num_prompt_tokens]
        groups.setdefault(prompt, []).append(item)
    return list(groups.values())


def _shared(group: Sequence[WeightedSample], sharing: Sharing) -> SharedPrefix:
    """What ``group`` puts through the model; without sharing it is one sequence, all of it prefix."""
    inputs = [item.inputs for item in group]
    if sharing == "prompt":
        return share_prompt(inputs, group[0].sample.num_prompt_tokens)
    return share_prefix(inputs)


def _num_tokens(group: Sequence[WeightedSample], sharing: Sharing) -> int:
    return _shared(group, sharing).tree.num_tokens


def _cut_group(
    group: Sequence[WeightedSample], sharing: Sharing, max_tokens: int
) -> list[Sequence[WeightedSample]]:
    """``group`` in parts that fit into a row, each with the prompt; a sequence is never cut."""
    if _num_tokens(group, sharing) <= max_tokens:
        return [group]
    parts: list[list[WeightedSample]] = [[]]
    for item in group:
        if parts[-1] and _num_tokens([*parts[-1], item], sharing) > max_tokens:
            parts.append([])
        parts[-1].append(item)
    return list(parts)


def _batches(
    groups: Sequence[Sequence[WeightedSample]], sharing: Sharing, batch_size: int
) -> list[list[Sequence[WeightedSample]]]:
    """Micro-batches of at most ``batch_size`` sequences; where they share anything, of one prompt each."""
    if sharing == "nothing":
        longest_first = sorted(groups, key=lambda group: -group[0].num_inputs)
        return [
            longest_first[start : start + batch_size] for start in range(0, len(longest_first), batch_size)
        ]
    return [
        [group[start : start + batch_size]] for group in groups for start in range(0, len(group), batch_size)
    ]


def _micro_plan(
    row: Sequence[Sequence[WeightedSample]], capacity: int, sharing: Sharing, pad_token_id: int
) -> MicroBatchPlan:
    # A group with a shared prompt is a row even where rows hold one group.
    is_row = capacity > 0 or sharing != "nothing"
    lengths = [_num_tokens(group, sharing) for group in row]
    num_tokens = sum(lengths) if is_row else max(lengths) * len(lengths)
    return MicroBatchPlan(
        groups=tuple(tuple(group) for group in row),
        is_packed=is_row,
        sharing=sharing,
        pad_token_id=pad_token_id,
        num_tokens=num_tokens,
        num_padding=num_tokens - sum(lengths),
        capacity=capacity,
    )


@dataclass(slots=True, kw_only=True)
class StepTotals:
    """``num_samples`` came in ``num_parts`` parts that were not empty, with ``num_tokens`` loss tokens.

    ``micro_plans`` are those of all ranks whose gradient counts; what was begun and given up is not in them.
    """

    num_samples: int = 0
    num_tokens: int = 0
    num_parts: int = 0
    micro_plans: list[MicroBatchPlan] = field(default_factory=list)

    def add(self, batch: TrainBatch) -> None:
        """Count a part."""
        self.num_parts += bool(batch.samples)
        self.num_samples += len(batch.samples)
        self.num_tokens += batch.num_tokens

    @property
    def num_trained_samples(self) -> int:
        """Samples that went through the model."""
        return sum(plan.num_sequences for plan in self.micro_plans)

    @property
    def num_trained_tokens(self) -> int:
        """The loss tokens of these."""
        return sum(sum(item.sample.loss_mask) for plan in self.micro_plans for item in plan.samples)

    @property
    def num_shared_prompt_tokens(self) -> int:
        """Prompt tokens that needed no place of their own, because another sequence computes them."""
        groups = [group for plan in self.micro_plans for group in plan.groups]
        return sum((len(group) - 1) * group[0].sample.num_prompt_tokens for group in groups)

    @property
    def num_shared_tokens(self) -> int:
        """All tokens that needed no place of their own."""
        num_inputs = sum(item.num_inputs for plan in self.micro_plans for item in plan.samples)
        return num_inputs - sum(plan.num_tokens - plan.num_padding for plan in self.micro_plans)

    def metrics(self) -> Mapping[str, float]:
        """The step's metrics that follow from them; see pipeline/record/metric_names.py for the names."""
        num_tokens = sum(plan.num_tokens for plan in self.micro_plans)
        num_padding = sum(plan.num_padding for plan in self.micro_plans)
        capacity = sum(plan.capacity for plan in self.micro_plans)
        num_packed = sum(plan.num_tokens for plan in self.micro_plans if plan.capacity)
        num_skipped = self.num_samples - self.num_trained_samples
        return {
            "train/padding_share": num_padding / max(num_tokens, 1),
            "train/pack_ratio": num_packed / max(capacity, 1),
            "train/shared_prompt_tokens": float(self.num_shared_prompt_tokens),
            "train/shared_prefix_tokens": float(self.num_shared_tokens - self.num_shared_prompt_tokens),
            "train/skipped_samples": float(num_skipped),
            "train/skipped_share": num_skipped / max(self.num_samples, 1),
            "train/parts": float(self.num_parts),
            "train/micro_batches": float(len(self.micro_plans)),
        }
