"""The tensors of one micro-batch: what goes through the model, what each loss token reads, the way through.

What goes through the model once for several sequences (pipeline.training.rows) still gives each of them its
loss tokens, so none of it changes the gradient. Chooses and packs nothing.

Shapes: B sequences, T tokens of a row or of the longest sequence, N loss tokens of the micro-batch, M
predictions: pairs of a position and the token that it is to predict, which sequences may have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pipeline.messages import TrainingSample
from pipeline.models.loading import decoder_of
from pipeline.training.attention import RowKernel, RowLayout, make_layout
from pipeline.training.rows import SharedPrefix, position_ids, to_device


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What goes through the model together; the loss tokens are flattened.

    In rows: ``input_ids`` and ``position_ids`` (1, T) int64, and ``layout`` says who sees whom. Padded:
    ``input_ids`` (B, T) int64, left-aligned, the padding on the right, where under a causal mask no real
    token sees it; ``position_ids`` and ``layout`` are None. ``source_rows`` (M,) int64 index the flattened
    positions whose output predicts ``target_ids`` (M,) int64. The loss tokens are in the order of their
    predictions: ``prediction_ids`` (N,) int64 say which of these each is, those of prediction m are
    ``token_starts[m]`` to ``token_starts[m + 1]``, M + 1 numbers on the host. ``old_logprobs``,
    ``advantages`` and ``weights`` are (N,) fp32, as is ``on_policy``, 1 where the version to be trained wrote
    the token, else 0; ``sequence_ids`` (N,) int64 say which of the ``num_sequences`` sequences a token is of.
    """

    input_ids: Tensor
    position_ids: Tensor | None
    layout: RowLayout | None
    source_rows: Tensor
    target_ids: Tensor
    prediction_ids: Tensor
    token_starts: tuple[int, ...]
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    on_policy: Tensor
    sequence_ids: Tensor
    num_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSample:
    """A sample with the weight of each of its loss tokens, as of ``loss.token_weights``."""

    sample: TrainingSample
    weight: float

    @property
    def num_inputs(self) -> int:
        """Tokens that go through the model: those up to the last one that predicts a loss token."""
        mask = self.sample.loss_mask
        return len(mask) - 1 - mask[::-1].index(1)

    @property
    def inputs(self) -> tuple[int, ...]:
        """These tokens."""
        return self.sample.token_ids[: self.num_inputs]


def build_micro_batch(
    groups: Sequence[Sequence[WeightedSample]],
    shared: Sequence[SharedPrefix],
    *,
    width: int | None,
    pad_token_id: int,
    device: torch.device | str,
    kernel: RowKernel,
) -> MicroBatch:
    """The tensors of ``groups``, which share as ``shared`` says, built on the host and moved once.

    One row, for ``kernel``; or with ``width`` sequences by themselves, padded to so many tokens. Raises
    ValueError when a sample is malformed.
    """

    def moved(values: Sequence[object], dtype: torch.dtype = torch.int64) -> Tensor:
        return to_device(torch.tensor(values, dtype=dtype), device)

    builder = _Builder()
    for group, common in zip(groups, shared, strict=True):
        num_padding = 0 if width is None else width - len(common.token_ids)
        builder.add_group(group, common, [pad_token_id] * num_padding)
    positions, layout = None, None
    if width is None:
        trees = [common.tree for common in shared]
        positions = moved([position_ids(trees)])
        layout = make_layout(trees, device, kernel)
    num_rows = 1 if width is None else len(groups)
    # In the order of the predictions, so that the tokens of a few of these are neighbours.
    tokens = sorted(builder.tokens, key=lambda token: token.prediction)
    counts = Counter(token.prediction for token in tokens)
    predictions, old, advantages, weights, on_policy, sequences = zip(*tokens, strict=True)
    return MicroBatch(
        input_ids=moved(builder.ids).view(num_rows, -1),
        position_ids=positions,
        layout=layout,
        source_rows=moved([row for row, _ in builder.predictions]),
        target_ids=moved([target for _, target in builder.predictions]),
        prediction_ids=moved(predictions),
        token_starts=(0, *accumulate(counts[number] for number in range(len(counts)))),
        old_logprobs=moved(old, torch.float32),
        advantages=moved(advantages, torch.float32),
        weights=moved(weights, torch.float32),
        on_policy=moved(on_policy, torch.float32),
        sequence_ids=moved(sequences),
        num_sequences=builder.num_sequences,
    )


# The last hidden states (M, H) of a micro-batch, as ``completion_hidden_states`` makes them.
ForwardFn = Callable[[PreTrainedModel, MicroBatch], Tensor]


def completion_hidden_states(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """The last hidden state at the positions that predict loss tokens: (M, H).

    ``use_row_attention`` must have been called on ``model`` before a micro-batch in rows comes.
    """
    decoder = decoder_of(model)
    if batch.layout is None:
        output = decoder(input_ids=batch.input_ids, use_cache=False)
    else:
        output = decoder(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            layout=batch.layout,
        )
    states = cast(Tensor, output.last_hidden_state).flatten(0, 1)
    return states.index_select(0, batch.source_rows)


class _LossToken(NamedTuple):
    prediction: int
    old_logprob: float
    advantage: float
    weight: float
    on_policy: int
    sequence: int


class _Builder:
    """Collects the tokens of one micro-batch, group by group."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.predictions: dict[tuple[int, int], int] = {}  # (position in the row, target) -> its number
        self.tokens: list[_LossToken] = []
        self.num_sequences = 0

    def add_group(
        self, group: Sequence[WeightedSample], shared: SharedPrefix, padding: Sequence[int]
    ) -> None:
        """Append what of a group goes through the model, with ``padding``, and its loss tokens."""
        start, num_prefix = len(self.ids), len(shared.prefix)
        self.ids += [*shared.token_ids, *padding]
        for item, offset in zip(group, shared.offsets(), strict=True):
            self._add(item, start, num_prefix, offset)

    def _add(self, item: WeightedSample, start: int, num_prefix: int, offset: int) -> None:
        """Append the loss tokens of a sequence whose group begins at ``start``."""
        sample = item.sample
        if not len(sample.token_ids) == len(sample.loss_mask) == len(sample.old_logprobs):
            raise ValueError(
                f"training sample: {len(sample.token_ids)} token_ids, {len(sample.loss_mask)} loss_mask and "
                f"{len(sample.old_logprobs)} old_logprobs; their lengths must be equal"
            )
        assert not any(sample.loss_mask[: max(sample.num_prompt_tokens, 1)]), "a prompt has no loss tokens"
        on_policy = sample.on_policy or (0,) * len(sample.token_ids)
        for position, counts in enumerate(sample.loss_mask):
            if counts:
                # The first token of the suffix is predicted by the last state of the prefix.
                source = start + position - 1 + (offset if position > num_prefix else 0)
                prediction = (source, sample.token_ids[position])
                token = _LossToken(
                    self.predictions.setdefault(prediction, len(self.predictions)),
                    sample.old_logprobs[position],
                    sample.advantage,
                    item.weight,
                    on_policy[position],
                    self.num_sequences,
                )
                self.tokens.append(token)
        self.num_sequences += 1
