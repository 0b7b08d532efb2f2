"""The tensors of one micro-batch: what goes through the model, what each loss token reads, the way through.

What goes through the model once for several sequences (pipeline.training.rows) still gives each of them its
loss tokens, so none of it changes the gradient. Chooses and packs nothing.

Shapes: B sequences, T tokens of a row or of the longest sequence, N loss tokens of the micro-batch, M
predictions: pairs of a position and the token that it is to predict, which sequences may have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from pipeline.messages import TrainingSample
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

    def moved(values: Sequence[object] | NDArray[Any]) -> Tensor:
        return to_device(torch.as_tensor(values), device)

    ids: list[int] = []
    sequences: list[_LossTokens] = []
    for group, common in zip(groups, shared, strict=True):
        start = len(ids)
        ids += common.token_ids
        if width is not None:
            ids += [pad_token_id] * (start + width - len(ids))
        for item, offset in zip(group, common.offsets(), strict=True):
            sequences.append(_loss_tokens(item, len(sequences), start, len(common.prefix), offset))
    positions, layout = None, None
    if width is None:
        trees = [common.tree for common in shared]
        positions = moved([position_ids(trees)])
        layout = make_layout(trees, device, kernel)
    num_rows = 1 if width is None else len(groups)
    tokens = _LossTokens(*(np.concatenate(parts) for parts in zip(*sequences, strict=True)))
    # A pair of position and target in one number.
    base = int(tokens.targets.max()) + 1
    pairs, numbers, counts = np.unique(
        tokens.sources * base + tokens.targets, return_inverse=True, return_counts=True
    )
    # In the order of the predictions, so that the tokens of a few of these are neighbours.
    order = numbers.argsort(kind="stable")
    tokens = _LossTokens(*(values[order] for values in tokens))
    return MicroBatch(
        input_ids=moved(ids).view(num_rows, -1),
        position_ids=positions,
        layout=layout,
        source_rows=moved(pairs // base),
        target_ids=moved(pairs % base),
        prediction_ids=moved(numbers[order]),
        token_starts=(0, *counts.cumsum().tolist()),
        old_logprobs=moved(tokens.old_logprobs),
        advantages=moved(tokens.advantages),
        weights=moved(tokens.weights),
        on_policy=moved(tokens.on_policy),
        sequence_ids=moved(tokens.sequence_ids),
        num_sequences=len(sequences),
    )


# The last hidden states (M, H) of a micro-batch, as ``completion_hidden_states`` makes them.
ForwardFn = Callable[[PreTrainedModel, MicroBatch], Tensor]


def completion_hidden_states(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """The last hidden state at the positions that predict loss tokens: (M, H).

    ``use_row_attention`` must have been called on ``model`` before a micro-batch in rows comes.
    """
    # All but the output head; adapters stand inside its layers, so that calling it applies them.
    decoder: nn.Module = model.base_model
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


class _LossTokens(NamedTuple):
    """Of some loss tokens, each (n,) on the host: the flattened position that predicts it, and the rest."""

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    old_logprobs: NDArray[np.float32]
    advantages: NDArray[np.float32]
    weights: NDArray[np.float32]
    on_policy: NDArray[np.float32]
    sequence_ids: NDArray[np.int64]


def _loss_tokens(item: WeightedSample, number: int, start: int, num_prefix: int, offset: int) -> _LossTokens:
    """Those of sequence ``number``, whose group begins at ``start``; see SharedPrefix for the others."""
    sample = item.sample
    if not len(sample.token_ids) == len(sample.loss_mask) == len(sample.old_logprobs):
        raise ValueError(
            f"training sample: {len(sample.token_ids)} token_ids, {len(sample.loss_mask)} loss_mask and "
            f"{len(sample.old_logprobs)} old_logprobs; their lengths must be equal"
        )
    assert not any(sample.loss_mask[: max(sample.num_prompt_tokens, 1)]), "a prompt has no loss tokens"
    places = np.flatnonzero(sample.loss_mask)
    on_policy = sample.on_policy or (0,) * len(sample.token_ids)
    same = partial(np.full, len(places), dtype=np.float32)
    return _LossTokens(
        # The first token of the suffix is predicted by the last state of the prefix.
        start + places - 1 + offset * (places > num_prefix),
        np.asarray(sample.token_ids)[places],
        np.asarray(sample.old_logprobs, dtype=np.float32)[places],
        same(fill_value=sample.advantage),
        same(fill_value=item.weight),
        np.asarray(on_policy, dtype=np.float32)[places],
        np.full_like(places, number),
    )
