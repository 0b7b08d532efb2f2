"""From training samples to padded micro-batches, with the denominators of the whole step.

Sorts by length to save padding and leaves out samples without signal; neither changes the gradient,
because every token carries its final weight (pipeline/loss.py). Does not pack, and does not make
the samples (pipeline/batch_builder.py). Called by the trainer.

Shapes: B sequences, T the longest of them, N loss tokens of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.loss import LossType, sequence_weights
from pipeline.messages import TrainingSample


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Sequences that go through the model together; the loss tokens are flattened.

    ``input_ids`` (B, T) int64, left-aligned and padded on the right. There is no attention mask: under a
    causal mask no real token sees the padding behind it, and attention without a mask is faster. With
    ``prompt_ids`` (1, P) int64, all sequences begin with that prompt and ``input_ids`` holds what follows it.
    ``source_rows`` (N,) int64 index the flattened positions, P of the shared prompt if any and then B * T,
    whose output predicts ``target_ids`` (N,) int64; ``old_logprobs``, ``advantages`` and ``weights`` are (N,)
    fp32.
    """

    prompt_ids: Tensor | None
    input_ids: Tensor
    source_rows: Tensor
    target_ids: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The micro-batches of one optimiser step, and what of the step is in them.

    ``num_real`` tokens and their padding, ``num_padded`` together, go through the model; ``num_shared``
    prompt tokens need not, because another sequence of the group computes them.
    """

    micro_batches: tuple[MicroBatch, ...]
    num_skipped: int
    num_trained_tokens: int
    num_real: int
    num_padded: int
    num_shared: int


def plan_step(
    samples: Sequence[TrainingSample],
    *,
    loss_type: LossType,
    batch_size: int,
    max_completion_length: int,
    pad_token_id: int,
    skip_zero_advantages: bool,
    share_prompts: bool = False,
    device: torch.device | str = "cpu",
) -> StepPlan:
    """Micro-batches of at most ``batch_size`` sequences, the longest first.

    ``skip_zero_advantages`` leaves out the samples whose advantage is zero; that is exact as long as
    the loss has no KL and no entropy term, which the caller answers for. The weights are computed
    before anything is left out or sorted, so no denominator changes. A sample without loss tokens is
    always left out of the forward. With ``share_prompts`` a micro-batch holds one prompt's sequences only,
    and the prompt once.
    """
    lengths = [sum(sample.loss_mask) for sample in samples]
    weights = sequence_weights(
        lengths, loss_type=loss_type, batch_size=batch_size, max_completion_length=max_completion_length
    )
    kept = [
        (sample, weight)
        for sample, weight, length in zip(samples, weights, lengths, strict=True)
        if length > 0 and not (skip_zero_advantages and sample.advantage == 0.0)
    ]
    # The longest first: a micro-batch that does not fit into memory fails at once, not late in the step.
    kept.sort(key=lambda pair: len(pair[0].token_ids), reverse=True)
    by_prompt: dict[tuple[int, ...], list[tuple[TrainingSample, float]]] = {}
    for sample, weight in kept:
        prompt = sample.token_ids[: sample.num_prompt_tokens] if share_prompts else ()
        by_prompt.setdefault(prompt, []).append((sample, weight))
    parts = [
        (prompt, group[start : start + batch_size])
        for prompt, group in by_prompt.items()
        for start in range(0, len(group), batch_size)
    ]
    num_shared = sum(len(prompt) * (len(part) - 1) for prompt, part in parts)
    num_tokens = sum(len(sample.token_ids) for sample, _ in kept)
    num_padding = sum(
        len(part[0][0].token_ids) - len(sample.token_ids) for _, part in parts for sample, _ in part
    )
    return StepPlan(
        micro_batches=tuple(_micro_batch(prompt, part, pad_token_id, device) for prompt, part in parts),
        num_skipped=len(samples) - len(kept),
        num_trained_tokens=sum(sum(sample.loss_mask) for sample, _ in kept),
        num_real=num_tokens - num_shared,
        num_padded=num_tokens - num_shared + num_padding,
        num_shared=num_shared,
    )


def _micro_batch(
    prompt: tuple[int, ...],
    part: Sequence[tuple[TrainingSample, float]],
    pad_token_id: int,
    device: torch.device | str,
) -> MicroBatch:
    """Pad ``part``, longest first, and flatten its loss tokens; built on the host, moved once."""
    # What goes through the model once a sequence: all of it, or what follows the shared prompt.
    num_shared = len(prompt)
    width = len(part[0][0].token_ids) - num_shared
    input_ids = []
    rows: list[int] = []
    targets: list[int] = []
    old: list[float] = []
    advantages: list[float] = []
    weights: list[float] = []
    for index, (sample, weight) in enumerate(part):
        ids = sample.token_ids
        if not len(ids) == len(sample.loss_mask) == len(sample.old_logprobs):
            raise ValueError(
                f"training sample: {len(ids)} token_ids, {len(sample.loss_mask)} loss_mask and "
                f"{len(sample.old_logprobs)} old_logprobs; their lengths must be equal"
            )
        assert sample.loss_mask[0] == 0, "the first token has no prediction"
        positions = [position for position, counts in enumerate(sample.loss_mask) if counts]
        input_ids.append([*ids[num_shared:], *[pad_token_id] * (width - len(ids) + num_shared)])
        # The first token behind a shared prompt is predicted by the prompt's last state, row P - 1.
        rows += [
            num_shared - 1 if position == num_shared else index * width + position - 1
            for position in positions
        ]
        targets += [ids[position] for position in positions]
        old += [sample.old_logprobs[position] for position in positions]
        advantages += [sample.advantage] * len(positions)
        weights += [weight] * len(positions)
    return MicroBatch(
        prompt_ids=_moved(torch.tensor([prompt], dtype=torch.int64), device) if prompt else None,
        input_ids=_moved(torch.tensor(input_ids, dtype=torch.int64), device),
        source_rows=_moved(torch.tensor(rows, dtype=torch.int64), device),
        target_ids=_moved(torch.tensor(targets, dtype=torch.int64), device),
        old_logprobs=_moved(torch.tensor(old, dtype=torch.float32), device),
        advantages=_moved(torch.tensor(advantages, dtype=torch.float32), device),
        weights=_moved(torch.tensor(weights, dtype=torch.float32), device),
    )


def _moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """``tensor`` on ``device`` without waiting for it: only pinned memory is copied in the background."""
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
