"""One attempt at training: the two loops and what is between them, from a step to the end of the run.

    RolloutProducer ──► RolloutBuffer ──► StepFeed ──► trainer ──► WeightPublisher ──► generator
          ▲                                                               │
          └──────────────── free slots, policy version ◄──────────────────┘

A run has one, and another each time that it goes back to a checkpoint because the trainer was lost. Buffer,
gate, producer and loop are of one attempt alone; stages, sampler and ledger are given to it. Starts and ends
no stage.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from curriculum.sampler import Sampler
from pipeline.evaluation.forms import chat_form
from pipeline.evaluation.heldout import InLoopEvaluation
from pipeline.host.stopping import StoppedError
from pipeline.record.context import Context
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.draws import DrawAccount
from pipeline.rollouts.gate import SignalGate, max_gated
from pipeline.rollouts.producer import RolloutProducer
from pipeline.run.overlap_trial import OverlapTrial
from pipeline.run.resume import GroupBasis
from pipeline.run.stages import Job, Stages
from pipeline.run.step_account import StageMetrics, StepAccount
from pipeline.run.step_feed import StepFeed
from pipeline.run.training_loop import TrainingLoop
from pipeline.run.weight_publisher import WeightPublisher

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


class Attempt:
    """Trains from ``step``, which is done; ``is_running`` while a signal to stop finds its loops at work."""

    def __init__(
        self,
        context: Context,
        job: Job,
        stages: Stages,
        trainer: TrainerHandle,
        sampler: Sampler,
        *,
        step: int,
        weights_folder: Path,
        trial: OverlapTrial | None = None,
    ) -> None:
        config = context.config
        gate = SignalGate(max_gated(config), context.ledger.gated())
        self._context = context
        self._step = step
        self.is_running = False
        self.buffer = RolloutBuffer(
            groups_per_step=config.prompts_per_step,
            max_staleness=config.acceleration.max_staleness,
            version=step,
        )
        form = chat_form(config.generation, stages.tokenizer)
        basis = GroupBasis(config).digest
        self.producer = RolloutProducer(
            context,
            generator=stages.generator,
            scorer=stages.scorer,
            buffer=self.buffer,
            draws=DrawAccount(sampler, context.ledger, job.tasks, form.prompt_ids, basis),
            prompt_ids=form.prompt_ids,
            gate=gate,
            first_step=step,
        )
        self.evaluation = InLoopEvaluation(
            context,
            tasks=job.heldout,
            form=form,
            generator=stages.generator,
            scorer=stages.scorer,
        )
        self._publisher = WeightPublisher(context, trainer, stages.generator, weights_folder)
        counted = StageMetrics(
            self.producer, stages.scorer, stages.generator, config.acceleration.speculative
        )
        self._account = StepAccount(
            context, stages=counted, sampler=sampler, gate=gate, evaluation=self.evaluation
        )
        self.loop = TrainingLoop(
            context,
            trainer=trainer,
            buffer=self.buffer,
            feed=StepFeed(context, trainer, self.buffer, self.producer),
            publisher=self._publisher,
            account=self._account,
            evaluation=self.evaluation,
            trial=trial,
        )

    async def run(self) -> None:
        """Train to the end; raises TrainerLostError where the trainer is lost, StoppedError where a signal
        ended it, and what the loops raise."""
        max_steps = self._context.config.training.max_steps
        try:
            if self._step > 0:
                await self._publisher.load(await self._publisher.write(self._step))
            self.evaluation.begin(self._step)
            self._context.progress.start(max_steps, self._step)
            with self._context.stopwatch.timed("training"):
                await self._run_loops()
                while measured := self.evaluation.drain():
                    self._account.log(max_steps, measured)
        finally:
            await self.evaluation.cancel()
            self.close()

    def close(self) -> None:
        """Close the files that were opened for it; ``run`` does so at its end."""
        self._account.close()

    async def _run_loops(self) -> None:
        """Both loops, until all steps are trained and what was due on the way is measured."""
        producing = asyncio.create_task(self.producer.run(), name="producer")
        self.is_running = True
        try:
            await self.loop.run(self._step)
            await self._context.stop.guard(self.evaluation.finish())
        except StoppedError:
            await self.loop.save_last()
            raise
        finally:
            self.is_running = False
            producing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producing
