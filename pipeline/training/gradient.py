"""The gradient of one optimiser step, summed up part by part, whatever becomes of a first attempt.

    add(part 0), add(part 1), … ─► finish: the sums, and the factor that the gradient is still to have

The weights of a step's tokens depend on the whole step only by a common factor (pipeline.training.loss), so
parts are trained on before the others exist. A micro-batch that does not fit into memory, or compiled code
that fails, is begun again with smaller micro-batches or uncompiled, and with it what has not been trained on
yet; where a gradient may already hold some of it, all that the step has had so far. No gradient is counted
twice, and the result does not change.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from pipeline.host.limits import return_freed_memory
from pipeline.messages import TrainBatch
from pipeline.training.attention import RowKernel
from pipeline.training.backward import LossBackward
from pipeline.training.batching import MicroBatchPlan, StepPlanner, StepTotals
from pipeline.training.compilation import checkpoint_layers, uncompile_layers
from pipeline.training.loss import LossSums, step_scale
from pipeline.training.micro_batch import WeightedSample
from pipeline.training.precision import MasterWeights
from pipeline.training.ranks import Ranks, empty_micro_batch, sums_of_all

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedGradient:
    """The masters hold the step's gradient but for the factor ``scale``; ``sums`` have it already."""

    totals: StepTotals
    sums: LossSums
    scale: float


class _OpenStep:
    """A step that has had some of its parts, empty ones among them."""

    def __init__(self, step: int, device: torch.device) -> None:
        self.step = step
        self.num_parts = 0
        self.totals = StepTotals()
        self.sums = LossSums.zeros(device)


class StepGradient:
    """Sums up the gradients of a step's micro-batches in ``weights``.

    ``limit`` falls at a memory error, and keeps what was learnt for the steps that follow; ``adopt_limit`` of
    the trainer sets it. ``is_compiled`` says that the layers are compiled, ``kernel`` goes over the rows.
    """

    def __init__(
        self,
        weights: MasterWeights,
        backward: LossBackward,
        planner: StepPlanner,
        ranks: Ranks,
        *,
        is_compiled: bool,
        kernel: RowKernel,
    ) -> None:
        self.limit = planner.limit
        self._weights = weights
        self._backward = backward
        self._planner = planner
        self._ranks = ranks
        self._kernel: RowKernel = kernel
        # To begin again is a thing that ranks would have to agree on.
        self._is_adaptive = planner.adapts_limit and ranks.num_ranks == 1
        self._is_compiled = is_compiled and ranks.num_ranks == 1
        self._open: _OpenStep | None = None

    def add(self, batch: TrainBatch) -> None:
        """Add the gradient of ``batch``; its part 0 opens the step, and forgets one that was left open.

        After an error the step is forgotten, and may begin again at its part 0. Raises ValueError for a part
        that does not follow the last one, MemoryError when a single sequence does not fit into memory, or any
        micro-batch where the size may not be adapted.
        """
        if batch.part == 0:
            self.forget()
            self._open = _OpenStep(batch.step, self._weights.trained[0].device)
        step = self._open
        if step is None or (step.step, step.num_parts) != (batch.step, batch.part):
            had = "no step is open" if step is None else f"step {step.step} has had {step.num_parts} parts"
            raise ValueError(f"part {batch.part} of step {batch.step} does not follow: {had}")
        is_aligned = (
            self._planner.loss_type != "bnpo" or step.totals.num_samples % self._planner.batch_size == 0
        )
        assert is_aligned or not batch.samples, "bnpo: a part begins amidst sequences of one denominator"
        step.num_parts += 1
        step.totals.add(batch)
        try:
            self._run(step, self._planner.weighted(batch.samples))
        except BaseException:
            self.forget()
            raise

    def finish(self) -> FinishedGradient:
        """Complete the step that is open: what no part reached has a gradient of zero."""
        step, self._open = self._open, None
        assert step is not None, "a step begins with its part 0"
        self._weights.complete_gradients()
        totals = step.totals
        scale = step_scale(
            num_sequences=totals.num_samples,
            num_tokens=totals.num_tokens,
            loss_type=self._planner.loss_type,
            batch_size=self._planner.batch_size,
        )
        sums = sums_of_all(self._ranks, step.sums, totals.num_trained_tokens)
        return FinishedGradient(totals=totals, sums=replace(sums, loss=sums.loss * scale), scale=scale)

    def forget(self) -> None:
        """Drop the step that is open, if any, and all gradients."""
        self._open = None
        self._weights.clear_gradients()

    def _run(self, step: _OpenStep, samples: Sequence[WeightedSample]) -> None:
        """Train on ``samples``, in as many attempts as it takes."""
        left = self._attempt(step, samples)
        while left:
            # Here the error is gone, and with its traceback the tensors of the failed attempt.
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            left = self._attempt(step, left)

    def _attempt(self, step: _OpenStep, samples: Sequence[WeightedSample]) -> list[WeightedSample]:
        """Train on ``samples`` until a micro-batch fails; returns what is to be trained on again."""
        device = self._weights.trained[0].device
        plans = self._planner.plan(samples, self.limit)
        own, done = self._ranks.share(plans), step.totals.micro_plans
        for number, plan in enumerate(own):
            versions = self._weights.gradient_versions()
            try:
                # Nothing here waits for a GPU: it computes one micro-batch while the host builds the next.
                sums = self._backward.accumulate(plan.build(device, self._kernel))
            except (RuntimeError, MemoryError) as error:
                self._recover(step.step, plan, error)
                done += own[:number]
                if self._weights.gradient_versions() == versions:
                    return _samples(own[number:])
                again = _samples([*done, *own[number:]])
                done.clear()
                step.sums = LossSums.zeros(device)
                self._weights.clear_gradients()
                return again
            step.sums = step.sums + sums
            if device.type == "cpu":
                # Tensors of another size come next, which may not fit into what these have left.
                return_freed_memory()
        for _ in range(self._ranks.num_idle(len(plans))):
            step.sums = step.sums + self._backward.accumulate(empty_micro_batch(device))
        done += plans
        return []

    def _recover(self, step: int, failed: MicroBatchPlan, error: RuntimeError | MemoryError) -> None:
        """Change what made ``failed`` fail; raises where there is nothing to change."""
        if is_out_of_memory(error):
            self._lower_limit(step, failed, error)
        elif self._is_compiled:
            self._uncompile(step, error)
        else:
            raise error

    def _lower_limit(self, step: int, failed: MicroBatchPlan, error: BaseException) -> None:
        size = f"{failed.num_sequences} sequences, {failed.num_tokens} tokens with padding"
        if self._is_adaptive and failed.num_sequences == 1 and not self.limit.checkpoints:
            self.limit = replace(self.limit, checkpoints=True)
            checkpoint_layers(self._weights.compute_model)
            _log.warning(
                "step %d: one sequence of %d tokens does not fit into memory; it begins again, and from here "
                "on activations are computed anew in the backward",
                step, failed.num_tokens,
            )  # fmt: skip
            return
        if failed.num_sequences == 1:
            raise MemoryError(
                f"step {step}: a micro-batch of one sequence of {failed.num_tokens} tokens does not fit "
                "into memory; lower generation.max_completion_length or generation.max_prompt_length, set "
                "training.gradient_checkpointing: true, or take a smaller model.name"
            ) from error
        if not self._is_adaptive:
            # Several ranks begin again with less where auto is set: see TrainerHandle.
            or_auto = "" if self._planner.adapts_limit else ", or set training.memory: auto"
            raise MemoryError(
                f"step {step}: a micro-batch of {size} does not fit into memory; lower "
                f"training.per_device_train_batch_size or acceleration.token_packing.max_tokens{or_auto}"
            ) from error
        self.limit = self.limit.below(failed.num_sequences, failed.num_tokens)
        _log.warning(
            "step %d: a micro-batch of %s does not fit into memory; it begins again, and from here on "
            "a micro-batch has at most %d sequences and %d tokens",
            step, size, self.limit.max_sequences, self.limit.max_tokens,
        )  # fmt: skip

    def _uncompile(self, step: int, error: BaseException) -> None:
        self._is_compiled = False
        uncompile_layers(self._weights.compute_model)
        _log.warning(
            "step %d: compiled code failed; it begins again, and the run goes on uncompiled "
            "(training.torch_compile): %s: %s",
            step, type(error).__name__, " ".join(str(error).strip().splitlines()[:2]),
        )  # fmt: skip


def _samples(plans: Sequence[MicroBatchPlan]) -> list[WeightedSample]:
    return [item for plan in plans for item in plan.samples]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that the GPU or the host has no memory left for a tensor."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # Of pinned memory CUDA says it in its own words.
    told = ("DefaultCPUAllocator: can't allocate memory", "CUDA error: out of memory")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in told)
