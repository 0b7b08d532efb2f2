"""From training samples to micro-batches, of a whole optimiser step or a part of it.

Packs sequences into rows, computes a group's prompt once and leaves out samples without signal, as asked;
none of it changes the gradient, because every token carries its weight (pipeline/loss.py). Does not make the
samples (pipeline/batch_builder.py). Called by pipeline.trainer.

Shapes: B sequences, T tokens of a row or of the longest sequence, N loss tokens of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.attention import RowLayout, make_layout
from pipeline.loss import LossType, sequence_weights
from pipeline.messages import TrainingSample
from pipeline.packing import Tree, pack, position_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What goes through the model together; the loss tokens are flattened.

    In rows: ``input_ids`` and ``position_ids`` (1, T) int64, and ``layout`` says who sees whom. Padded:
    ``input_ids`` (B, T) int64, left-aligned, the padding on the right, where under a causal mask no real
    token sees it; ``position_ids`` and ``layout`` are None. ``source_rows`` (N,) int64 index the flattened
    positions whose output predicts ``target_ids`` (N,) int64; ``old_logprobs``, ``advantages`` and
    ``weights`` are (N,) fp32, as is ``on_policy``, 1 where the version to be trained wrote the token, else 0;
    ``sequence_ids`` (N,) int64 say which of the ``num_sequences`` sequences a token is of.
    """

    input_ids: Tensor
    position_ids: Tensor | None
    layout: RowLayout | None
    source_rows: Tensor
    target_ids: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    on_policy: Tensor
    sequence_ids: Tensor
    num_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSample:
    """A sample with the weight of each of its loss tokens, as of ``loss.sequence_weights``."""

    sample: TrainingSample
    weight: float

    @property
    def num_inputs(self) -> int:
        """Tokens that go through the model: those up to the last one that predicts a loss token."""
        mask = self.sample.loss_mask
        return len(mask) - 1 - mask[::-1].index(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroPlan:
    """The samples of a micro-batch, by prompt; ``build`` makes its tensors.

    ``num_tokens`` go through the model, ``num_padding`` of them for nothing. ``capacity`` is how many a
    packed row may have, 0 where nothing is packed.
    """

    groups: tuple[tuple[WeightedSample, ...], ...]
    is_packed: bool
    share_prompts: bool
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

    def build(self, device: torch.device | str = "cpu") -> MicroBatch:
        """The tensors, built on the host and moved once. Raises ValueError when a sample is malformed."""
        return _Builder(self).micro_batch(device)


def weigh(
    samples: Sequence[TrainingSample],
    *,
    loss_type: LossType,
    batch_size: int,
    max_completion_length: int,
    skip_zero_advantages: bool,
) -> list[WeightedSample]:
    """The samples to train on, with the weights of their tokens.

    ``skip_zero_advantages`` leaves out the samples whose advantage is zero; that is exact as long as the loss
    has no KL and no entropy term, which the caller answers for. The weights are computed before anything is
    left out, so no denominator changes. A sample without loss tokens is always left out.
    """
    lengths = [sum(sample.loss_mask) for sample in samples]
    weights = sequence_weights(
        lengths, loss_type=loss_type, batch_size=batch_size, max_completion_length=max_completion_length
    )
    return [
        WeightedSample(sample=sample, weight=weight)
        for sample, weight, length in zip(samples, weights, lengths, strict=True)
        if length > 0 and not (skip_zero_advantages and sample.advantage == 0.0)
    ]


def plan_micro_batches(
    samples: Sequence[WeightedSample],
    *,
    pad_token_id: int,
    max_sequences: int,
    share_prompts: bool = False,
    max_tokens: int | None = None,
    min_pack_ratio: float = 0.0,
    min_parts: int = 1,
) -> list[MicroPlan]:
    """Micro-batches for ``samples``, the largest first.

    With ``max_tokens`` samples are packed into rows of at most so many tokens (one sequence may exceed it),
    unless that would fill less than ``min_pack_ratio`` of them; otherwise a micro-batch is at most
    ``max_sequences`` sequences. ``share_prompts`` computes a prompt once for all its sequences in a
    micro-batch. At least ``min_parts`` micro-batches are made where the samples suffice.
    """
    groups = _by_prompt(samples) if share_prompts else [[item] for item in samples]
    rows = _rows(groups, share_prompts, max_tokens, min_pack_ratio, min_parts)
    capacity = max_tokens if rows and max_tokens is not None else 0
    if not rows and samples:
        size = min(max_sequences, max(len(samples) // min_parts, 1))
        rows = _batches(groups, samples, share_prompts, size)
    plans = [_micro_plan(row, capacity, share_prompts, pad_token_id) for row in rows]
    plans.sort(key=lambda plan: -plan.num_tokens)
    return plans


def _prompt(item: WeightedSample) -> tuple[int, ...]:
    return item.sample.token_ids[: item.sample.num_prompt_tokens]


def _by_prompt(items: Sequence[WeightedSample]) -> list[list[WeightedSample]]:
    groups: dict[tuple[int, ...], list[WeightedSample]] = {}
    for item in items:
        groups.setdefault(_prompt(item), []).append(item)
    return list(groups.values())


def _tree(group: Sequence[WeightedSample], share_prompts: bool) -> Tree:
    """How ``group`` lies in a row; without sharing it is one sequence."""
    if not share_prompts:
        return Tree(num_prompt=group[0].num_inputs, completions=())
    num_prompt = group[0].sample.num_prompt_tokens
    return Tree(num_prompt=num_prompt, completions=tuple(item.num_inputs - num_prompt for item in group))


def _rows(
    groups: Sequence[Sequence[WeightedSample]],
    share_prompts: bool,
    max_tokens: int | None,
    min_pack_ratio: float,
    min_parts: int,
) -> list[list[Sequence[WeightedSample]]]:
    """The groups of every row; nothing if they are not to be packed."""
    if max_tokens is None or not groups:
        return []
    units = [unit for group in groups for unit in _cut_group(group, share_prompts, max_tokens)]
    # A row that must be shared out has to be cut finer than its groups.
    while share_prompts and len(units) < min_parts and max(len(unit) for unit in units) > 1:
        largest = max(units, key=len)
        units.remove(largest)
        units += [largest[: len(largest) // 2], largest[len(largest) // 2 :]]
    sizes = [_tree(unit, share_prompts).num_tokens for unit in units]
    rows = [[units[index] for index in row] for row in pack(sizes, max_tokens=max_tokens, min_rows=min_parts)]
    ratio = sum(sizes) / (len(rows) * max_tokens)
    return [] if ratio < min_pack_ratio else rows


def _cut_group(
    group: Sequence[WeightedSample], share_prompts: bool, max_tokens: int
) -> list[Sequence[WeightedSample]]:
    """``group`` in parts that fit into a row, each with the prompt; a sequence is never cut."""
    parts: list[list[WeightedSample]] = [[]]
    for item in group:
        if parts[-1] and _tree([*parts[-1], item], share_prompts).num_tokens > max_tokens:
            parts.append([])
        parts[-1].append(item)
    return list(parts)


def _batches(
    groups: Sequence[Sequence[WeightedSample]],
    kept: Sequence[WeightedSample],
    share_prompts: bool,
    batch_size: int,
) -> list[list[Sequence[WeightedSample]]]:
    """Micro-batches of at most ``batch_size`` sequences; with ``share_prompts`` of one prompt each."""
    if share_prompts:
        return [
            [group[start : start + batch_size]]
            for group in groups
            for start in range(0, len(group), batch_size)
        ]
    ordered = sorted(kept, key=lambda item: -item.num_inputs)
    return [
        [[item] for item in ordered[start : start + batch_size]]
        for start in range(0, len(ordered), batch_size)
    ]


def _micro_plan(
    row: Sequence[Sequence[WeightedSample]], capacity: int, share_prompts: bool, pad_token_id: int
) -> MicroPlan:
    # A group behind its shared prompt is a row even where rows hold one group.
    is_row = capacity > 0 or share_prompts
    lengths = [_tree(group, share_prompts).num_tokens for group in row]
    num_tokens = sum(lengths) if is_row else max(lengths) * len(lengths)
    return MicroPlan(
        groups=tuple(tuple(group) for group in row),
        is_packed=is_row,
        share_prompts=share_prompts,
        pad_token_id=pad_token_id,
        num_tokens=num_tokens,
        num_padding=num_tokens - sum(lengths),
        capacity=capacity,
    )


class _Builder:
    """Collects the tokens of one micro-batch, sequence by sequence."""

    def __init__(self, plan: MicroPlan) -> None:
        self._plan = plan
        self._ids: list[int] = []
        self._rows: list[int] = []
        self._targets: list[int] = []
        self._old: list[float] = []
        self._advantages: list[float] = []
        self._weights: list[float] = []
        self._on_policy: list[int] = []
        self._sequences: list[int] = []
        self._num_sequences = 0

    def micro_batch(self, device: torch.device | str) -> MicroBatch:
        plan = self._plan
        for group in plan.groups:
            num_prompt = 0
            if plan.share_prompts:
                num_prompt = group[0].sample.num_prompt_tokens
                self._ids += _prompt(group[0])
            prompt_end = len(self._ids)
            for item in group:
                self._add(item, num_prompt, prompt_end)
        positions, layout = None, None
        if plan.is_packed:
            trees = [_tree(group, plan.share_prompts) for group in plan.groups]
            positions = _moved(torch.tensor([position_ids(trees)]), device)
            layout = make_layout(trees, device)
        num_rows = 1 if plan.is_packed else plan.num_sequences
        return MicroBatch(
            input_ids=_moved(torch.tensor(self._ids).view(num_rows, -1), device),
            position_ids=positions,
            layout=layout,
            source_rows=_moved(torch.tensor(self._rows), device),
            target_ids=_moved(torch.tensor(self._targets), device),
            old_logprobs=_moved(torch.tensor(self._old, dtype=torch.float32), device),
            advantages=_moved(torch.tensor(self._advantages, dtype=torch.float32), device),
            weights=_moved(torch.tensor(self._weights, dtype=torch.float32), device),
            on_policy=_moved(torch.tensor(self._on_policy, dtype=torch.float32), device),
            sequence_ids=_moved(torch.tensor(self._sequences), device),
            num_sequences=plan.num_sequences,
        )

    def _add(self, item: WeightedSample, num_prompt: int, prompt_end: int) -> None:
        """Append what follows the first ``num_prompt`` tokens of a sequence, and its loss tokens."""
        sample = item.sample
        if not len(sample.token_ids) == len(sample.loss_mask) == len(sample.old_logprobs):
            raise ValueError(
                f"training sample: {len(sample.token_ids)} token_ids, {len(sample.loss_mask)} loss_mask and "
                f"{len(sample.old_logprobs)} old_logprobs; their lengths must be equal"
            )
        assert not any(sample.loss_mask[: max(num_prompt, 1)]), "no prediction for a prompt's tokens"
        start = len(self._ids)
        self._ids += sample.token_ids[num_prompt : item.num_inputs]
        if not self._plan.is_packed:
            width = self._plan.num_tokens // self._plan.num_sequences
            self._ids += [self._plan.pad_token_id] * (width - item.num_inputs)
        positions = [position for position, counts in enumerate(sample.loss_mask) if counts]
        # The first token behind a shared prompt is predicted by the prompt's last state.
        self._rows += [
            prompt_end - 1 if position == num_prompt else start + position - num_prompt - 1
            for position in positions
        ]
        self._targets += [sample.token_ids[position] for position in positions]
        self._old += [sample.old_logprobs[position] for position in positions]
        self._advantages += [sample.advantage] * len(positions)
        self._weights += [item.weight] * len(positions)
        on_policy = sample.on_policy or (0,) * len(sample.token_ids)
        self._on_policy += [on_policy[position] for position in positions]
        self._sequences += [self._num_sequences] * len(positions)
        self._num_sequences += 1


def _moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """``tensor`` on ``device`` without waiting for it: only pinned memory is copied in the background."""
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
