"""Loss and gradient of one micro-batch, with logits for only some tokens at a time.

The output head, the log-probabilities and the loss run in chunks of rows, each taken back to the hidden
states at once; the model's own backward runs once. Log-probabilities and their gradient are plain functions
in the memory of the logits instead of an autograd node: the gradient of the loss to them may need whole
sequences, so the caller decides when to ask for it. Holds no optimiser and does not clip.

Shapes: N loss tokens of a micro-batch, M predictions that they are (pipeline.training.micro_batch), H hidden
size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from configs.training_schema import GrpoConfig
from pipeline.models.files import refuse_logit_transforms
from pipeline.models.loading import head_of
from pipeline.training.adapters import disabled_adapters
from pipeline.training.loss import LossSums, LossTokens, needs_whole_sequences, policy_loss
from pipeline.training.micro_batch import ForwardFn, MicroBatch, completion_hidden_states

# Tokens whose logits exist at a time: so many, or fewer of a larger vocabulary. On a GPU each chunk begins
# some hundred kernels, and adds to the whole gradient of the head.
LOGITS_ROWS = {"cpu": 1024, "cuda": 4096}
_LOGITS = {"cpu": 2**26, "cuda": 2**28}
# Elements of the head's gradient that are made at a time on a CPU: 8 MiB in fp32.
_CPU_SLICE = 2**21
# Rows turned into probabilities at a time. On a CPU two fp32 buffers of 32 rows stay in the cache; with fewer
# rows the threads' meetings after each operation count, with many more the memory does.
_BLOCK_ROWS = {"cpu": 32, "cuda": 512}


class LossBackward:
    """The objective of a run, applied to one micro-batch after the other.

    ``reference`` is the reference model, needed (and given) only where ``grpo.beta`` > 0. The logits are
    divided by ``temperature``, the one that was sampled with. ``gradient_of`` returns the tensor to which the
    gradient of a parameter is added in place; with it the head's (V, H) is never written for a chunk alone.
    Without it, or where the head is more than one whole trained weight, autograd takes that gradient.
    ``forward`` and ``reference_forward`` are the forward passes of the two models, where these are sharded.
    Raises ValueError for a model whose logits are not what its output head returns.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        grpo: GrpoConfig,
        *,
        temperature: float,
        gradient_of: Callable[[nn.Parameter], Tensor] | None = None,
        forward: ForwardFn = completion_hidden_states,
        reference_forward: ForwardFn = completion_hidden_states,
    ) -> None:
        assert reference is not None or grpo.beta == 0
        settings = model.config.get_text_config()
        # Some fields are computed from others: a folder's config.json does not have those.
        refuse_logit_transforms(lambda name: getattr(settings, name, None), "the model's configuration")
        self._model = model
        self._reference = reference
        self._grpo = grpo
        self._temperature = temperature
        self._forward = forward
        self._reference_forward = reference_forward
        self._gradient_of = gradient_of if _is_one_trained_weight(head_of(model)) else None

    def accumulate(self, batch: MicroBatch) -> LossSums:
        """Add the gradient of ``batch`` to the parameters of the model; returns its sums.

        The logits exist for ``logits_rows`` tokens at a time: each chunk is taken back to the hidden states
        at once, and the model's backward runs once, on their summed gradient. Where a loss needs whole
        sequences and one chunk does not hold all tokens, a first pass without gradient takes the
        log-probabilities of all; the gradient of the loss to them is then known before the chunks begin.
        """
        hidden = self._forward(self._model, batch)  # (M, H)
        states = hidden.detach()
        reference = self._reference_logprobs(batch)
        sums = LossSums.zeros(states.device)
        known: Tensor | None = None
        size = logits_rows(self._model.config.get_text_config().vocab_size, states.device.type)
        if states.shape[0] > size and needs_whole_sequences(self._grpo):
            logprobs = self._logprobs(self._model, states, batch.target_ids)
            known, sums = self._objective(logprobs[batch.prediction_ids], batch, reference, slice(None))
        gradient = torch.empty_like(states)
        for start in range(0, states.shape[0], size):
            rows = slice(start, min(start + size, states.shape[0]))
            gradient[rows], chunk_sums = self._chunk(states[rows], batch, reference, rows, known)
            sums = sums + chunk_sums
        hidden.backward(gradient)  # type: ignore[no-untyped-call]
        return sums

    def _chunk(
        self, states: Tensor, batch: MicroBatch, reference: Tensor | None, rows: slice, known: Tensor | None
    ) -> tuple[Tensor, LossSums]:
        """The gradient to ``states``, of the predictions ``rows``, and the sums over their loss tokens.

        ``known`` (N,) is the gradient to the log-probabilities of all loss tokens, if any.
        """
        head, targets = head_of(self._model), batch.target_ids[rows]
        tokens = slice(batch.token_starts[rows.start], batch.token_starts[rows.stop])
        places = batch.prediction_ids[tokens] - rows.start
        has_graph = self._gradient_of is None
        states.requires_grad_(has_graph)
        with torch.set_grad_enabled(has_graph):
            logits: Tensor = head(states)
        values = logits.detach()
        logprobs, entropy = logprobs_to_probabilities_(values, targets, temperature=self._temperature)
        if known is None:
            upstream, sums = self._objective(logprobs[places], batch, reference, tokens)
        else:
            upstream, sums = known[tokens], LossSums.zeros(states.device)
        upstream = torch.zeros_like(logprobs).index_add_(0, places, upstream)
        logits_gradient_(values, targets, logprobs, upstream, temperature=self._temperature)
        sums = replace(sums, entropy=entropy[places].sum())
        if self._gradient_of is None:
            logits.backward(values)  # type: ignore[no-untyped-call]
            assert states.grad is not None
            return states.grad, sums
        weight = cast(nn.Parameter, head.weight)
        add_weight_gradient_(self._gradient_of(weight), values, states)
        return values @ weight.detach(), sums

    def _objective(
        self, logprobs: Tensor, batch: MicroBatch, reference: Tensor | None, rows: slice
    ) -> tuple[Tensor, LossSums]:
        """The gradient of the loss to ``logprobs``, which are of the loss tokens ``rows``, and the sums."""
        leaf = logprobs.requires_grad_()
        tokens = LossTokens(
            logprobs=leaf,
            old_logprobs=batch.old_logprobs[rows],
            advantages=batch.advantages[rows],
            weights=batch.weights[rows],
            on_policy=batch.on_policy[rows],
            sequence_ids=batch.sequence_ids[rows],
            num_sequences=batch.num_sequences,
            ref_logprobs=None if reference is None else reference[rows],
        )
        loss, sums = policy_loss(tokens, self._grpo)
        (gradient,) = torch.autograd.grad(loss, leaf)
        return gradient, sums

    def _reference_logprobs(self, batch: MicroBatch) -> Tensor | None:
        """The reference model's log-probabilities (N,), or None without one."""
        if self._reference is None:
            return None
        # The reference may be the policy itself, which without its adapters is what it was.
        with torch.no_grad(), disabled_adapters(self._reference):
            hidden = self._reference_forward(self._reference, batch)
        return self._logprobs(self._reference, hidden, batch.target_ids)[batch.prediction_ids]

    @torch.no_grad()
    def _logprobs(self, model: PreTrainedModel, states: Tensor, targets: Tensor) -> Tensor:
        """The log-probabilities of ``targets`` (M,) at ``states`` (M, H), without a gradient: (M,)."""
        head = head_of(model)
        size = logits_rows(model.config.get_text_config().vocab_size, states.device.type)
        chunks = zip(torch.split(states, size), torch.split(targets, size), strict=True)
        return torch.cat(
            [
                logprobs_to_probabilities_(head(rows), chosen, temperature=self._temperature)[0]
                for rows, chosen in chunks
            ]
        )


def logits_rows(vocabulary: int, device: str) -> int:
    """How many tokens have logits at a time."""
    return min(LOGITS_ROWS[device], max(_LOGITS[device] // vocabulary, 1))


def logits_bytes(num_tokens: int, vocabulary: int, width: int, device: str) -> int:
    """What the logits of so many tokens take, of ``width`` bytes each, with the buffers of their sums."""
    blocks = 0 if device == "cpu" else 2 * 4 * _BLOCK_ROWS[device]
    return (min(num_tokens, logits_rows(vocabulary, device)) * width + blocks) * vocabulary


@torch.no_grad()
def logprobs_to_probabilities_(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and the entropy of its distribution: (N,), (N,), fp32.

    ``logits`` (N, V) are consumed: their memory holds the probabilities afterwards, which
    ``logits_gradient_`` needs, so nothing of size N * V exists besides it. The logits are divided by
    ``temperature`` first, so the policy is the one that was sampled from. All sums are in fp32.
    """
    num, size = logits.shape
    assert targets.shape == (num,)
    # No rows come to a rank that is idle in a part of a step.
    block = min(max(num, 1), _BLOCK_ROWS[logits.device.type])
    scores_buffer = torch.empty(block, size, dtype=torch.float32, device=logits.device)
    probabilities_buffer = torch.empty_like(scores_buffer)
    logprobs = torch.empty(num, dtype=torch.float32, device=logits.device)
    entropy = torch.empty_like(logprobs)
    for start in range(0, num, block):
        rows = slice(start, min(start + block, num))
        scores = scores_buffer[: rows.stop - start].copy_(logits[rows])
        if temperature != 1.0:
            scores.div_(temperature)
        scores.sub_(scores.amax(dim=1, keepdim=True))
        probabilities = torch.softmax(scores, dim=1, out=probabilities_buffer[: rows.stop - start])
        logits[rows] = probabilities
        # The largest score is 0 now, so the sum of all exponentials is one over its probability.
        log_total = -probabilities.amax(dim=1).log()
        logprobs[rows] = scores.gather(1, targets[rows, None]).squeeze(1) - log_total
        # A multiplication and a sum: faster than linalg.vecdot, which splits few rows badly over threads.
        entropy[rows] = log_total - scores.mul_(probabilities).sum(dim=1)
    return logprobs, entropy


@torch.no_grad()
def logits_gradient_(
    probabilities: Tensor, targets: Tensor, logprobs: Tensor, upstream: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """The gradient to the logits, (N, V), in the memory of ``probabilities``.

    ``upstream`` (N,) fp32 is the gradient to the log-probabilities; row n becomes
    ``upstream[n] / temperature * (onehot(targets[n]) - probabilities[n])``.
    """
    scale = upstream / temperature
    probabilities.mul_(-scale[:, None].to(probabilities.dtype))
    # 1 - p from the fp32 log-probability: a p near 1 that was rounded to bf16 would lose it.
    exact = (-torch.expm1(logprobs) * scale).to(probabilities.dtype)
    # Not scatter_, which first copies all of the tensor on a CPU.
    rows = torch.arange(targets.shape[0], device=targets.device)
    return probabilities.index_put_((rows, targets), exact)


@torch.no_grad()
def add_weight_gradient_(total: Tensor, gradient: Tensor, states: Tensor) -> None:
    """Add ``gradient.T @ states`` to ``total`` (V, H), given (N, V) and (N, H) of the same type.

    Where ``total`` is fp32 and they are bf16, a GPU's product adds to it in fp32; on a CPU it is made and
    added in slices of the vocabulary that stay in the cache, so that no second (V, H) is written and read for
    each chunk.
    """
    if total.dtype == gradient.dtype:
        total.addmm_(gradient.t(), states)
        return
    if total.device.type == "cuda":
        torch.addmm(total, gradient.t(), states, out_dtype=total.dtype, out=total)
        return
    size = max(_CPU_SLICE // total.shape[1], 1)
    for start in range(0, total.shape[0], size):
        rows = slice(start, start + size)
        total[rows].add_(gradient[:, rows].t() @ states)


def _is_one_trained_weight(head: nn.Module) -> bool:
    """Whether ``head`` is a weight, trained and not sharded, and nothing else."""
    if type(head) is not nn.Linear or head.bias is not None:
        return False
    return type(head.weight) is nn.Parameter and head.weight.requires_grad
