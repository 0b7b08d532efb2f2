"""The groups of one step on their way to the trainer: all at once, or in parts as they come.

    buffer.take ─► make_batch ─► trainer.accumulate ┐
    buffer.take ─► make_batch ─► trainer.accumulate ├─► trainer.step (the last part: the weights change)
    buffer.take ─► make_batch ───────────────────────┘

Where the weights may not change yet the last part has no samples: all of them are at work before.
A part is what is ready when the trainer has nothing to do, a group at least. So parts are small where the
trainer would idle otherwise, and grow where it is the one who is waited for: a group that comes while it
works waits for the next part, with all that come beside it. Does not publish and does not account.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from configs.conditions import why_not_streamed
from pipeline.host.spans import TRAINER, WAITING
from pipeline.messages import RolloutGroup, StepResult, TrainBatch
from pipeline.record.context import Context
from pipeline.rollouts.batch import BatchReport, make_batch
from pipeline.rollouts.buffer import RolloutBuffer, Taken
from pipeline.rollouts.producer import RolloutProducer
from rewards.workers import scoring_deadline_s

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FedStep:
    """A step that was trained: its groups in the order of training, and what the trainer made of them.

    ``waited_s`` is how long the trainer had nothing to do. ``num_too_old`` groups were found too old since
    the last step.
    """

    result: StepResult
    groups: tuple[RolloutGroup, ...]
    report: BatchReport
    waited_s: float
    num_too_old: int


class StepFeed:
    """Feeds the trainer step by step; one step at a time."""

    def __init__(
        self, context: Context, trainer: TrainerHandle, buffer: RolloutBuffer, producer: RolloutProducer
    ) -> None:
        self._config = context.config
        self._progress = context.progress
        self._timeline = context.timeline
        self._stop = context.stop
        self._trainer = trainer
        self._buffer = buffer
        self._producer = producer
        wants_to = self._config.acceleration.stream_steps
        self._can_stream = wants_to and why_not_streamed(self._config) is None
        self._is_streamed = self._can_stream

    def alternate(self, alternates: bool) -> None:
        """Begin to train when all groups of a step are there, whatever the settings allow; or not."""
        self._is_streamed = self._can_stream and not alternates

    async def train(self, step: int, *, after: asyncio.Task[None] | None) -> FedStep:
        """Train ``step`` on its groups; its weights may change only ``after`` that is done.

        Raises what ``after`` raises, and:
            TimeoutError: the groups did not come in time; the message says who owes them.
            StageError: a stage failed.
            StoppedError: the run was asked to end.
        """
        num_groups = self._config.prompts_per_step
        groups: list[RolloutGroup] = []
        num_parts, num_too_old, waited_s = 0, 0, 0.0
        while True:
            started = time.perf_counter()
            self._progress.activity(
                f"step {step}: waiting for rollouts ({len(groups)} of {num_groups} groups)"
            )
            with self._timeline.span(WAITING, f"step {step} waits for rollouts"):
                taken = await self._stop.guard(self._take(step, num_groups - len(groups)))
            waited_s += time.perf_counter() - started
            groups += taken.groups
            num_too_old += len(taken.too_old)
            self._progress.activity(f"step {step}: training ({len(groups)} of {num_groups} groups)")
            batch, report = self._batch(step, taken.groups)
            batch = replace(batch, part=num_parts)
            num_parts += 1
            if len(groups) == num_groups:
                break
            await self._accumulate(batch)
        if after is not None:
            if not after.done():
                await self._accumulate(batch)
                batch = TrainBatch(step=step, samples=(), num_tokens=0, part=num_parts)
            # Who waits may be cancelled; what is waited for goes on.
            with self._timeline.span(WAITING, f"step {step} waits for the weights before it"):
                await self._stop.guard(asyncio.shield(after))
        with self._timeline.span(TRAINER, f"step {step}: update", num_tokens=batch.num_tokens):
            result = await self._trained(self._trainer.step(batch))
        return FedStep(
            result=result,
            groups=tuple(groups),
            report=report if num_parts == 1 else self._batch(step, groups)[1],
            waited_s=waited_s,
            num_too_old=num_too_old,
        )

    async def _accumulate(self, batch: TrainBatch) -> None:
        name = f"step {batch.step}: part {batch.part + 1}"
        with self._timeline.span(TRAINER, name, num_tokens=batch.num_tokens):
            await self._trained(self._trainer.accumulate(batch))

    async def _take(self, step: int, num_left: int) -> Taken:
        """Wait for a group, or where steps are not streamed for all; with it comes what else is ready."""
        runtime = self._config.runtime
        scoring_s = scoring_deadline_s(runtime.reward_timeout_s, self._config.rewards, self._config.execution)
        # Time for a generator to fall silent, to be started again, and to write it all once more.
        writing_s = 2 * runtime.generation_timeout_s + runtime.startup_timeout_s
        num_first = 1 if self._is_streamed else num_left
        parts = [await self._buffer.take(num_first, step - 1, writing_s + scoring_s)]
        for _ in range(num_left - num_first):
            more = self._buffer.take_now(1)
            if more is None:
                break
            parts.append(more)
        taken = Taken(
            groups=tuple(group for part in parts for group in part.groups),
            too_old=tuple(group for part in parts for group in part.too_old),
        )
        if step == self._config.training.max_steps and len(taken.groups) == num_left:
            self._producer.finish()
        return taken

    async def _trained(self, training: Awaitable[T]) -> T:
        # Ranks save together, so what they have begun is finished first.
        has_ranks = self._config.runtime.trainer_ranks > 1
        return await (training if has_ranks else self._stop.guard(training))

    def _batch(self, step: int, groups: Sequence[RolloutGroup]) -> tuple[TrainBatch, BatchReport]:
        return make_batch(step, groups, self._config.grpo, policy_version=step - 1)
