"""The training side of a run: train a step, publish the weights, account for it.

    StepFeed.train ─► trainer.publish ┬─► StepFeed.train of the next step ─► …
                                      └─► generator.update_weights ─► checkpoint ─► ledger, metrics

Consumes scored groups, which the producer delivers; produces policy versions, which free the producer's
slots. A step is closed while the next one is trained: it is waited for only before the weights change again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from configs.conditions import needs_no_kl, why_not_streamed
from configs.schema import Config
from curriculum.sampler import Sampler
from pipeline.evaluation.inloop import InLoopEvaluation
from pipeline.generation.generator import Generator
from pipeline.host.spans import CHECKPOINT, WEIGHTS, Timeline
from pipeline.host.stopping import StoppedError, StopRequest
from pipeline.messages import RolloutGroup, StepResult, WeightUpdate
from pipeline.record.checkpoints import prune_checkpoints
from pipeline.record.ledger import GUARD, PLACEMENT_GUARD, Ledger
from pipeline.record.metrics import MetricsWriter, StepRate, log_samples
from pipeline.record.progress import Progress
from pipeline.record.run_folder import RunFolder
from pipeline.record.tracking import Tracking
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.gate import SignalGate
from pipeline.rollouts.producer import RolloutProducer
from pipeline.run.overlap_trial import OverlapTrial
from pipeline.run.stage_metrics import MismatchWatch, StageMetrics
from pipeline.run.step_feed import FedStep, StepFeed
from pipeline.weights.folder import remove_weights
from rewards.pool import RewardPool

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


T = TypeVar("T")


class TrainingLoop:
    """Optimiser steps until ``training.max_steps``."""

    def __init__(
        self,
        *,
        config: Config,
        folder: RunFolder,
        trainer: TrainerHandle,
        generator: Generator,
        scorer: RewardPool,
        buffer: RolloutBuffer,
        sampler: Sampler,
        ledger: Ledger,
        metrics: MetricsWriter,
        progress: Progress,
        producer: RolloutProducer,
        weights_folder: Path,
        stop: StopRequest,
        trial: OverlapTrial | None = None,
        gate: SignalGate | None = None,
        timeline: Timeline | None = None,
        tracking: Tracking | None = None,
        evaluation: InLoopEvaluation | None = None,
    ) -> None:
        """``trial`` decides over the first steps whether generation goes on while the trainer computes."""
        self._config = config
        self._folder = folder
        self._trainer = trainer
        self._generator = generator
        self._buffer = buffer
        self._sampler = sampler
        self._ledger = ledger
        self._metrics = metrics
        self._progress = progress
        self._weights_folder = weights_folder
        self._stop = stop
        self._trial = trial
        self._gate = gate or SignalGate(budget=0)
        self._timeline = timeline or Timeline(enabled=False)
        self._tracking = tracking or Tracking(())
        self._evaluation = evaluation
        self._published: WeightUpdate | None = None  # kept until superseded: a generator may start again
        self._last_step = 0  # committed
        self._last_saved = 0
        self._stages = StageMetrics(
            producer=producer,
            scorer=scorer,
            generator=generator,
            drafts=config.acceleration.speculative.enabled,
        )
        self._mismatch = MismatchWatch(config.grpo.mismatch_kl_warning)
        self._feed = StepFeed(
            config=config,
            trainer=trainer,
            buffer=buffer,
            producer=producer,
            progress=progress,
            stop=stop,
            timeline=self._timeline,
        )
        self._closing: asyncio.Task[None] | None = None
        self._rate = StepRate()
        self._closed_s = time.perf_counter()  # when the last step was closed

    async def run(self, done_steps: int) -> None:
        """Train from ``done_steps`` to the end, and leave a checkpoint of the last step.

        Raises:
            TimeoutError: rollouts or a step took too long; the message says whose.
            RuntimeError: the producer failed; the message says why.
            StoppedError: the run was asked to end; ``save_last`` saves what is done.
        """
        self._last_step = self._last_saved = done_steps
        self._rate, self._closed_s = StepRate(), time.perf_counter()
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

    async def publish(self, version: int) -> tuple[float, float]:
        """Bring the trainer's weights to the generator; returns the seconds in all and of its pause."""
        started = time.perf_counter()
        pause_s = await self._load(await self._write(version))
        return time.perf_counter() - started, pause_s

    async def _write(self, version: int) -> WeightUpdate:
        with self._timeline.span(WEIGHTS, f"write version {version}"):
            update = await self._trainer.publish(str(self._weights_folder))
        assert update.policy_version == version, (
            f"the trainer published {update.policy_version}, not {version}"
        )
        generation = self._config.generation
        return replace(
            update,
            mode=generation.weight_update_mode,
            recompute_kv_cache=generation.recompute_kv_cache,
        )

    async def _load(self, update: WeightUpdate) -> float:
        with self._timeline.span(WEIGHTS, f"load version {update.policy_version}"):
            loaded = await self._generator.update_weights(update)
        if self._published is not None:
            await asyncio.to_thread(remove_weights, self._published)
        self._published = update
        return loaded.pause_s

    async def _step(self, step: int) -> None:
        """Train one step and begin to close it."""
        fed = await self._beside_closing(self._feed.train(step, after=self._closing))
        self._buffer.trained(step)
        started = time.perf_counter()
        update = await self._write(step)
        self._closing = asyncio.create_task(
            self._close(step, fed, update, started), name=f"close step {step}"
        )

    async def _close(self, step: int, fed: FedStep, update: WeightUpdate, started: float) -> None:
        """What follows from a step: the generator's weights, the checkpoint if it is due, the account."""
        pause_s = await self._load(update)
        update_s = time.perf_counter() - started
        self._buffer.weights_loaded(step)
        if self._evaluation is not None:
            self._evaluation.weights_loaded(step)
        checkpoint = await self._save_if_due(step)
        elapsed_s, self._closed_s = time.perf_counter() - self._closed_s, time.perf_counter()
        metrics = {
            **fed.report.metrics,
            **await self._stages.since_last(fed.result),
            **fed.result.metrics,
            "rollout/dropped_groups": float(fed.num_dropped),
            "rollout/cancelled_groups": float(fed.num_cancelled),
            "rollout/wait_s": fed.waited_s,
            **self._gate.metrics(step),
            **self._sampler.counts_by_level(),
            "weights/update_s": update_s,
            "weights/pause_s": pause_s,
            "step/seconds": elapsed_s,
            "step/samples_per_s": fed.report.num_samples / elapsed_s,
            **self._rate.step(),
            **self._measured(step),
        }
        self._account(replace(fed.result, metrics=metrics), fed.groups, checkpoint)
        self._note_guards(GUARD, fed.result.notes)
        self._decide_order(elapsed_s, fed.groups)
        log_samples(self._folder.samples, step, fed.groups[0])
        if checkpoint is not None:
            await self._saved(step)

    def _measured(self, step: int) -> dict[str, float]:
        """What was measured on the way, for a step that is logged."""
        is_logged = step % self._config.output.logging_steps == 0
        return self._evaluation.drain() if self._evaluation is not None and is_logged else {}

    def _note_guards(self, kind: str, notes: Sequence[str]) -> None:
        for note in notes:
            self._ledger.event(kind, note)
            self._progress.message(note)

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
            self._note_guards(PLACEMENT_GUARD, [str(verdict)])

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

    def _account(self, result: StepResult, groups: Sequence[RolloutGroup], checkpoint: str | None) -> None:
        """Commit the step; no await between taking the sampler's state and the commit."""
        state = {"sampler": self._sampler.state_dict()}
        self._ledger.commit_step(result, [group.draw_id for group in groups], state, checkpoint)
        self._last_step = result.step
        if result.step % self._config.output.logging_steps == 0:
            self._metrics.log(result.step, result.metrics)
            self._tracking.log(result.step, result.metrics)
        num_kept = self._config.output.timeline_steps
        self._ledger.note_spans(result.step, self._timeline.drain(), num_kept)
        self._progress.step(result.step, result.metrics)
        if (warning := self._mismatch.warning(result.step, result.metrics)) is not None:
            self._progress.message(warning)
