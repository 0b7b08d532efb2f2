"""One training: the two loops and what is between them, from a step to the end of the run.

A run has one, and another each time that it goes back to a checkpoint because the trainer was lost: buffer,
gate, producer and loop are of one training alone; stages, sampler and ledger are given to it. Starts and ends
no stage.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.evaluation.forms import chat_form
from pipeline.evaluation.inloop import InLoopEvaluation
from pipeline.host.shares import num_gpus
from pipeline.host.spans import Stopwatch, Timeline
from pipeline.host.stopping import StoppedError, StopRequest
from pipeline.models.prompts import encode_prompt, training_sampling
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import MetricsWriter
from pipeline.record.progress import Progress
from pipeline.record.run_folder import RunFolder
from pipeline.record.tracking import Tracking
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.gate import SignalGate, max_gated
from pipeline.rollouts.producer import RolloutProducer
from pipeline.run.overlap_trial import OverlapTrial
from pipeline.run.resume import GroupBasis
from pipeline.run.stages import Stages
from pipeline.run.training_loop import TrainingLoop

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


class Training:
    """Trains from a step to the end; ``is_running`` while a signal to stop finds its loops at work."""

    def __init__(
        self,
        *,
        config: Config,
        folder: RunFolder,
        ledger: Ledger,
        progress: Progress,
        tasks: tuple[Task, ...],
        heldout: tuple[Task, ...],
        device: str,
        stages: Stages,
        trainer: TrainerHandle,
        sampler: Sampler,
        weights_folder: Path,
        stop: StopRequest,
        stopwatch: Stopwatch,
        timeline: Timeline,
        tracking: Tracking,
    ) -> None:
        self._config = config
        self._folder = folder
        self._ledger = ledger
        self._progress = progress
        self._tasks = tasks
        self._heldout = heldout
        self._device = device
        self._stages = stages
        self._trainer = trainer
        self._sampler = sampler
        self._weights_folder = weights_folder
        self._stop = stop
        self._stopwatch = stopwatch
        self._timeline = timeline
        self._tracking = tracking
        self.is_running = False

    async def run(self, step: int) -> None:
        """Train from ``step``, which is done, to the end; raises TrainerLostError where the trainer is lost,
        StoppedError where a signal ended it, and what the loops raise."""
        buffer = RolloutBuffer(
            groups_per_step=self._config.prompts_per_step,
            max_staleness=self._config.acceleration.max_staleness,
            version=step,
        )
        metrics = MetricsWriter(self._folder.path)
        evaluation = self._evaluation()
        gate = SignalGate(max_gated(self._config), self._ledger.gated())
        producer = self._producer(buffer, step, gate)
        loop = TrainingLoop(
            config=self._config,
            folder=self._folder,
            trainer=self._trainer,
            generator=self._stages.generator,
            scorer=self._stages.scorer,
            buffer=buffer,
            sampler=self._sampler,
            ledger=self._ledger,
            metrics=metrics,
            progress=self._progress,
            producer=producer,
            gate=gate,
            weights_folder=self._weights_folder,
            stop=self._stop,
            trial=OverlapTrial.of_run(self._config, self._device, num_gpus(self._device)),
            timeline=self._timeline,
            tracking=self._tracking,
            evaluation=evaluation,
        )
        try:
            if step > 0:
                await loop.publish(step)
            evaluation.begin(step)
            self._progress.start(self._config.training.max_steps, step)
            with self._stopwatch.timed("training"):
                producing = asyncio.create_task(producer.run(), name="producer")
                self.is_running = True
                try:
                    await loop.run(step)
                    await self._stop.guard(evaluation.finish())
                    while measured := evaluation.drain():
                        metrics.log(self._config.training.max_steps, measured)
                        self._tracking.log(self._config.training.max_steps, measured)
                except StoppedError:
                    await loop.save_last()
                    raise
                finally:
                    self.is_running = False
                    producing.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await producing
        finally:
            await evaluation.cancel()
            metrics.close()

    def _producer(self, buffer: RolloutBuffer, step: int, gate: SignalGate) -> RolloutProducer:
        config = self._config
        prefill = config.generation.assistant_prefill
        return RolloutProducer(
            generator=self._stages.generator,
            scorer=self._stages.scorer,
            buffer=buffer,
            sampler=self._sampler,
            ledger=self._ledger,
            prompt_ids=lambda task: encode_prompt(self._stages.tokenizer, task, prefill),
            tasks=self._tasks,
            basis=GroupBasis(config).digest,
            seed=config.training.seed if config.generation.seed_requests else None,
            sampling=training_sampling(config),
            num_generations=config.grpo.num_generations,
            groups_per_step=config.prompts_per_step,
            first_step=step,
            num_steps=config.training.max_steps - step,
            prefill=prefill,
            score_each=config.acceleration.async_rewards.enabled,
            slot_deadline_s=_slot_deadline_s(config),
            aborts_early=config.acceleration.early_abort.enabled,
            long_tails=config.acceleration.long_tails,
            gate=gate,
            timeline=self._timeline,
        )

    def _evaluation(self) -> InLoopEvaluation:
        """The measurement on the way, which notes what it does in the ledger and for the user."""

        def note(text: str) -> None:
            self._ledger.event("evaluation", text)
            self._progress.message(text)

        return InLoopEvaluation(
            config=self._config,
            tasks=self._heldout,
            form=chat_form(self._config.generation, self._stages.tokenizer),
            generator=self._stages.generator,
            scorer=self._stages.scorer,
            folder=self._folder,
            timeline=self._timeline,
            note=note,
        )


def _slot_deadline_s(config: Config) -> float:
    """For the next slot: a step, its weights, and the restart of a generator in between."""
    runtime = config.runtime
    return runtime.train_step_timeout_s + runtime.weight_update_timeout_s + runtime.startup_timeout_s
