"""The gradient of one optimiser step, whatever becomes of its first attempt.

A micro-batch that does not fit into memory, or compiled code that fails, ends the attempt: the gradients are
cleared and the same step begins again, with smaller micro-batches or uncompiled. No gradient is counted
twice, and the result does not change, because every token carries its final weight. Called by
pipeline.trainer.
"""

from __future__ import annotations

import functools
import gc
import logging
import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pipeline.backward import LossBackward
from pipeline.batching import MicroPlan, StepPlan
from pipeline.compilation import uncompile_layers
from pipeline.loss_sums import LossSums
from pipeline.messages import TrainBatch
from pipeline.precision import MasterWeights
from pipeline.ranks import Ranks, empty_micro_batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchLimit:
    """The most sequences and tokens (padding included) that go through the model together.

    A single sequence may be longer than ``max_tokens``: it cannot be cut.
    """

    max_sequences: int
    max_tokens: int

    def below(self, part: MicroPlan) -> MicroBatchLimit:
        """Half of what ``part`` had, which was too much."""
        return MicroBatchLimit(
            max_sequences=min(self.max_sequences, max(part.num_sequences // 2, 1)),
            max_tokens=min(self.max_tokens, max(part.num_tokens // 2, 1)),
        )


class StepGradient:
    """Sums up the gradients of a step's micro-batches in ``weights``.

    ``plan`` cuts a batch into micro-batches within a limit. ``limit`` only falls, at the first memory
    error, and keeps what was learnt for the steps that follow. ``is_adaptive`` is
    ``training.auto_find_batch_size``; ``is_compiled`` says that the layers are.
    """

    def __init__(
        self,
        weights: MasterWeights,
        backward: LossBackward,
        plan: Callable[[TrainBatch, MicroBatchLimit], StepPlan],
        ranks: Ranks,
        *,
        limit: MicroBatchLimit,
        is_adaptive: bool,
        is_compiled: bool,
    ) -> None:
        self.limit = limit
        self._weights = weights
        self._backward = backward
        self._plan = plan
        self._ranks = ranks
        # To begin a step again is a thing that ranks would have to agree on.
        self._is_adaptive = is_adaptive and ranks.num_ranks == 1
        self._is_compiled = is_compiled and ranks.num_ranks == 1

    def compute(self, batch: TrainBatch) -> tuple[StepPlan, LossSums]:
        """Leave the step's gradient in the masters; returns what was planned and the sums of the loss.

        Raises MemoryError when a single sequence does not fit into memory, or any micro-batch where the
        size may not be adapted.
        """
        while True:
            plan = self._plan(batch, self.limit)
            tried: list[MicroPlan] = []
            try:
                return plan, self._attempt(plan, tried)
            except (RuntimeError, MemoryError) as error:
                failed = tried[-1] if tried else None
                if failed is not None and is_out_of_memory(error):
                    self._shrink(batch.step, failed, error)
                elif self._is_compiled:
                    self._uncompile(batch.step, error)
                else:
                    raise
            # Here the error is gone, and with its traceback the tensors of the failed attempt.
            self._release()

    def _attempt(self, plan: StepPlan, tried: list[MicroPlan]) -> LossSums:
        self._weights.clear_gradients()
        device = self._weights.trained[0].device
        sums = LossSums.zeros(device)
        for part in self._ranks.share(plan.micro_plans):
            tried.append(part)
            # Nothing here waits for a GPU: it computes the last micro-batch while the host builds the next.
            sums = sums + self._backward.accumulate(part.build(device))
        for _ in range(self._ranks.num_idle(len(plan.micro_plans))):
            sums = sums + self._backward.accumulate(empty_micro_batch(device))
        self._weights.complete_gradients()
        first, *others = [LossSums.from_stacked(values) for values in self._ranks.gather(sums.stacked())]
        return functools.reduce(operator.add, others, first)

    def _shrink(self, step: int, part: MicroPlan, error: BaseException) -> None:
        size = f"{part.num_sequences} sequences, {part.num_tokens} tokens with padding"
        if part.num_sequences == 1:
            raise MemoryError(
                f"step {step}: a micro-batch of one sequence of {part.num_tokens} tokens does not fit "
                "into memory; lower generation.max_completion_length or generation.max_prompt_length, set "
                "training.gradient_checkpointing: true, or take a smaller model.name"
            ) from error
        if not self._is_adaptive:
            raise MemoryError(
                f"step {step}: a micro-batch of {size} does not fit into memory; lower "
                "training.per_device_train_batch_size or acceleration.token_packing.max_tokens, or set "
                "training.auto_find_batch_size: true"
            ) from error
        self.limit = self.limit.below(part)
        _log.warning(
            "step %d: a micro-batch of %s does not fit into memory; the step begins again, and from here on "
            "a micro-batch has at most %d sequences and %d tokens",
            step, size, self.limit.max_sequences, self.limit.max_tokens,
        )  # fmt: skip

    def _uncompile(self, step: int, error: BaseException) -> None:
        self._is_compiled = False
        uncompile_layers(self._weights.computed)
        _log.warning(
            "step %d: compiled code failed; the step begins again, and the run goes on uncompiled "
            "(training.torch_compile): %s: %s",
            step, type(error).__name__, " ".join(str(error).strip().splitlines()[:2]),
        )  # fmt: skip

    def _release(self) -> None:
        self._weights.clear_gradients()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that the GPU or the host has no memory left for a tensor."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
