"""The training side of a run: train a step, publish the weights, account for it.

    StepFeed.train ─► publisher.write ┬─► StepFeed.train of the next step ─► …
                                      └─► publisher.load ─► checkpoint ─► StepAccount.commit

Consumes scored groups, and produces policy versions, which free the producer's slots. It waits for groups,
which the producer delivers, and before the weights change again for the close of the step before: loading,
checkpoint, account. Both waits have deadlines; the first names who owes the groups.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

from configs.conditions import needs_no_kl, why_not_streamed
from pipeline.evaluation.heldout import InLoopEvaluation
from pipeline.host.spans import CHECKPOINT
from pipeline.host.stopping import StoppedError
from pipeline.messages import RolloutGroup, WeightUpdate
from pipeline.record.checkpoints import prune_checkpoints
from pipeline.record.context import Context
from pipeline.record.ledger import PLACEMENT_GUARD
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.run.overlap_trial import OverlapTrial
from pipeline.run.step_account import StepAccount
from pipeline.run.step_feed import FedStep, StepFeed
from pipeline.run.weight_publisher import WeightPublisher

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


T = TypeVar("T")


class TrainingLoop:
    """Optimiser steps until ``training.max_steps``."""

    def __init__(
        self,
        context: Context,
        *,
        trainer: TrainerHandle,
        buffer: RolloutBuffer,
        feed: StepFeed,
        publisher: WeightPublisher,
        account: StepAccount,
        evaluation: InLoopEvaluation,
        trial: OverlapTrial | None,
    ) -> None:
        """``trial`` decides over the first steps whether generation goes on while the trainer computes."""
        self._config = context.config
        self._folder = context.folder
        self._ledger = context.ledger
        self._progress = context.progress
        self._timeline = context.timeline
        self._note = context.note
        self._trainer = trainer
        self._buffer = buffer
        self._feed = feed
        self._publisher = publisher
        self._account = account
        self._evaluation = evaluation
        self._trial = trial
        self._last_step = 0  # committed
        self._last_saved = 0
        self._closing: asyncio.Task[None] | None = None

    async def run(self, done_steps: int) -> None:
        """Train from ``done_steps`` to the end, and leave a checkpoint of the last step.

        Raises:
            TimeoutError: rollouts or a step took too long; the message says whose.
            RuntimeError: the producer failed; the message says why.
            StoppedError: the run was asked to end; ``save_last`` saves what is done.
        """
        self._last_step = self._last_saved = done_steps
        self._account.begin()
        max_steps = self._config.training.max_steps
        reason = why_not_streamed(self._config)
        if self._config.acceleration.stream_steps and reason is not None:
            self._progress.message(f"a step is trained on when all its groups are there: {reason}")
        reason = needs_no_kl(self._config)
        if self._config.acceleration.refill.enabled and reason is not None:
            self._progress.message(f"groups without signal are not replaced: {reason}")
        try:
            for step in range(done_steps + 1, max_steps + 1):
                await self._step(step)
            await self._closed()
        except StoppedError:
            # ``save_last`` waits for the step that is being closed.
            raise
        except BaseException:
            await self._give_up_closing()
            raise
        self._ledger.event("finished", f"{max_steps} steps")

    async def save_last(self) -> int:
        """Save the last committed step, unless it is saved; returns its number. For a run that is stopped."""
        await self._closed()
        if self._last_step > self._last_saved:
            folder = self._folder.checkpoint(self._last_step)
            await self._trainer.save_beside(folder, self._last_step)
            self._ledger.note_checkpoint(self._last_step, folder.name)
            await self._saved(self._last_step)
        return self._last_step

    async def _save_if_due(self, step: int) -> str | None:
        """Save the checkpoint of ``step`` if it is to have one; returns its folder's name."""
        if step % self._config.output.save_steps and step != self._config.training.max_steps:
            return None
        self._progress.activity(f"saving checkpoint {step}")
        folder = self._folder.checkpoint(step)
        with self._timeline.span(CHECKPOINT, folder.name):
            await self._trainer.save_beside(folder, step)
        return folder.name

    async def _saved(self, step: int) -> None:
        self._last_saved = step
        if self._config.output.text_steps is not None:
            self._ledger.forget_texts(step, self._config.output.text_steps)
        # Gigabytes are removed: the event loop goes on meanwhile.
        limit = self._config.output.save_total_limit
        await asyncio.to_thread(prune_checkpoints, self._folder.path, limit, step)

    async def _step(self, step: int) -> None:
        """Train one step and begin to close it."""
        fed = await self._beside_closing(self._feed.train(step, after=self._closing))
        self._buffer.trained(step)
        started = time.perf_counter()
        update = await self._publisher.write(step)
        self._closing = asyncio.create_task(
            self._close(step, fed, update, started), name=f"close step {step}"
        )

    async def _close(self, step: int, fed: FedStep, update: WeightUpdate, started: float) -> None:
        """What follows from a step: the generator's weights, the checkpoint if it is due, the account."""
        pause_s = await self._publisher.load(update)
        weights = {"weights/update_s": time.perf_counter() - started, "weights/pause_s": pause_s}
        self._buffer.weights_loaded(step)
        self._evaluation.weights_loaded(step)
        checkpoint = await self._save_if_due(step)
        step_s = await self._account.commit(fed, weights, checkpoint)
        self._last_step = step
        self._decide_order(step_s, fed.groups)
        if checkpoint is not None:
            await self._saved(step)

    def _decide_order(self, step_s: float, groups: Sequence[RolloutGroup]) -> None:
        """Tell the trial of a step, and do as it says."""
        if self._trial is None:
            return
        # A prompt costs once a group, and still costs that when the policy has learnt to answer briefly.
        num_tokens = sum(
            len(group.rollouts[0].prompt_ids) + sum(len(one.completion.token_ids) for one in group.rollouts)
            for group in groups
        )
        verdict = self._trial.record(step_s, num_tokens)
        self._buffer.alternate(not self._trial.overlaps)
        self._feed.alternate(not self._trial.overlaps)
        if verdict is not None:
            self._note(PLACEMENT_GUARD, str(verdict))

    async def _closed(self) -> None:
        """Wait until the last step that was trained is closed; raises what closing it raised."""
        if self._closing is not None:
            # Who waits may be cancelled; the close goes on.
            await asyncio.shield(self._closing)

    async def _beside_closing(self, work: Awaitable[T]) -> T:
        """The result of ``work``, given up at once when the step before cannot be closed."""
        job = asyncio.ensure_future(work)
        try:
            if self._closing is not None:
                await asyncio.wait({job, self._closing}, return_when=asyncio.FIRST_COMPLETED)
                if self._closing.done():
                    self._closing.result()
            return await job
        finally:
            if not job.done():
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)

    async def _give_up_closing(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            await asyncio.gather(self._closing, return_exceptions=True)
