"""The main job: start every stage, let them run beside each other, and account for what they did.

    RolloutProducer ──► RolloutBuffer ──► TrainingLoop ──► generator.update_weights
    (pipeline.rollouts)  (bounded)        (pipeline.training_loop)     │
          ▲                                                             │
          └───────────────── free slots, policy version ◄───────────────┘

Two loops share one event loop. The producer consumes free slots and produces scored groups; it waits
for slots, which the training loop frees. The training loop consumes groups and produces weights; it
waits for groups, which the producer delivers. Each wait has a deadline that names who held it up.
The heavy work happens in other processes: generators, reward workers, the trainer. Called by
pipeline.cli.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from configs.load import render
from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.checkpoint import latest_checkpoint
from pipeline.errors import StageError
from pipeline.evaluate import EvaluationReport
from pipeline.generator import Generator
from pipeline.heldout import earlier_measurement, measure
from pipeline.launch import Launched
from pipeline.ledger import Ledger
from pipeline.metrics import MetricsWriter
from pipeline.progress import Progress, make_progress
from pipeline.prompt_tokenizer import PromptTokenizer, find_model
from pipeline.prompts import encode_prompt
from pipeline.rollout_buffer import RolloutBuffer
from pipeline.rollouts import RolloutProducer, num_extra_groups
from pipeline.run_folder import RunFolder
from pipeline.sampling import training_sampling
from pipeline.stages import Stages, prepare, running_stages
from pipeline.stopwatch import Stopwatch
from pipeline.summary import print_summary, write_summary
from pipeline.trainer_group import TrainerHandle
from pipeline.training_loop import TrainingLoop
from pipeline.weight_folder import shared_folder
from rewards.breaker import RewardsBrokenError
from rewards.pool import RewardPool


def run_training(config: Config, resume: str | None, verbose: bool, early: Launched) -> int:
    """Run the whole job with what was started ``early``; returns the exit status.

    Raises:
        ValueError: the configuration cannot be run (no such model, data set, run folder or custom reward,
            too weak a sandbox), before any model is loaded where that can be known.
        StageError, TimeoutError: a stage failed; the message names it.
    """
    tasks, heldout, device = prepare(config)
    folder = RunFolder.open(resume) if resume else RunFolder.create(config.output, render(config))
    with folder:
        progress = make_progress(config.runtime.progress, title=folder.name)
        try:
            asyncio.run(
                _Run(config, folder, progress, tasks, heldout, device, early).run(
                    is_resumed=resume is not None
                )
            )
        except RewardsBrokenError as error:
            raise StageError(str(error)) from error
        finally:
            progress.close()
        print_summary(folder.path)
    return 0


class _Run:
    """One run, from the start of its stages to their end."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        progress: Progress,
        tasks: tuple[Task, ...],
        heldout: tuple[Task, ...],
        device: str,
        early: Launched,
    ) -> None:
        self._early = early
        self._config = config
        self._folder = folder
        self._progress = progress
        self._tasks = tasks
        self._heldout = heldout
        self._device = device
        self._stopwatch = Stopwatch()

    async def run(self, *, is_resumed: bool) -> None:
        if self._config.generation.tune:
            self._config = await self._tuned()
        config = self._config
        async with AsyncExitStack() as stack:
            weights_folder = shared_folder(self._folder.name)
            stack.callback(shutil.rmtree, weights_folder, ignore_errors=True)
            ledger = Ledger(self._folder.db)
            stack.callback(ledger.close)
            stages = await stack.enter_async_context(
                running_stages(
                    config,
                    (*self._tasks, *self._heldout),
                    self._device,
                    self._early,
                    reward_cache=self._folder.reward_cache,
                    activity=self._progress.activity,
                )
            )
            ledger.event("isolation", f"sandbox level {stages.scorer.level}")
            sampler = Sampler(self._tasks, config.acceleration.curriculum, config.training.seed)
            self._stopwatch.note("startup")
            step = await self._resume(ledger, sampler, await stages.trainer) if is_resumed else 0
            await self._train_and_measure(stages, sampler, ledger, weights_folder, step)

    async def _tuned(self) -> Config:
        """The configuration with the engine settings that are fastest here; nothing else runs yet."""
        # Imported here: it needs libraries that a start without it does without.
        from pipeline.tuning import tuned

        self._progress.activity("measuring engine settings")
        model_path = str(await asyncio.to_thread(find_model, self._config.model))
        return await tuned(self._config, model_path, self._device, self._progress.message)

    async def _resume(self, ledger: Ledger, sampler: Sampler, trainer: TrainerHandle) -> int:
        """Go back to the last whole checkpoint; returns its step."""
        checkpoint = latest_checkpoint(self._folder.path)
        step = 0
        if checkpoint is not None:
            step = await trainer.load(checkpoint)
        ledger.rewind(step)
        state = ledger.load_state(step)
        if state:
            sampler.load_state_dict(state["sampler"])
        self._progress.message(f"resumed from step {step}")
        return step

    async def _train_and_measure(
        self,
        stages: Stages,
        sampler: Sampler,
        ledger: Ledger,
        weights_folder: Path,
        step: int,
    ) -> None:
        tokenizer, generator, scorer = stages.tokenizer, stages.generator, stages.scorer
        before = earlier_measurement("before", self._folder)
        if before is None and step == 0:
            # Nothing of it needs the trainer, which may still be loading its model.
            before = await stages.beside_trainer(self._evaluate("before", tokenizer, generator, scorer))
        trainer = await stages.trainer
        buffer = RolloutBuffer(
            groups_per_step=self._config.prompts_per_step,
            max_staleness=self._config.acceleration.max_staleness,
            version=step,
            num_extra=num_extra_groups(self._config),
        )
        metrics = MetricsWriter(self._folder.path)
        producer = self._producer(tokenizer, generator, scorer, buffer, sampler, ledger, step)
        loop = TrainingLoop(
            config=self._config,
            folder=self._folder,
            trainer=trainer,
            generator=generator,
            scorer=scorer,
            buffer=buffer,
            sampler=sampler,
            ledger=ledger,
            metrics=metrics,
            progress=self._progress,
            producer=producer,
            weights_folder=weights_folder,
        )
        try:
            if step > 0:
                await loop.publish(step)
            self._progress.start(self._config.training.max_steps, step)
            with self._stopwatch.timed("training"):
                producing = asyncio.create_task(producer.run(), name="producer")
                try:
                    await loop.run(step)
                finally:
                    producing.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await producing
        finally:
            metrics.close()
        after = await self._evaluate("after", tokenizer, generator, scorer)
        self._stopwatch.note("total")
        write_summary(
            self._folder, self._config, self._device, scorer.level, before, after, self._stopwatch.seconds
        )

    def _producer(
        self,
        tokenizer: PromptTokenizer,
        generator: Generator,
        scorer: RewardPool,
        buffer: RolloutBuffer,
        sampler: Sampler,
        ledger: Ledger,
        step: int,
    ) -> RolloutProducer:
        config = self._config
        prefill = config.generation.assistant_prefill
        return RolloutProducer(
            generator=generator,
            scorer=scorer,
            buffer=buffer,
            sampler=sampler,
            ledger=ledger,
            prompt_ids=lambda task: encode_prompt(tokenizer, task, prefill),
            tasks=self._tasks,
            sampling=training_sampling(config),
            num_generations=config.grpo.num_generations,
            groups_per_step=config.prompts_per_step,
            first_step=step,
            num_steps=config.training.max_steps - step,
            prefill=prefill,
            score_each=config.acceleration.async_rewards.enabled,
            slot_deadline_s=config.runtime.train_step_timeout_s + config.runtime.weight_update_timeout_s,
            aborts_early=config.acceleration.early_abort.enabled,
            long_tails=config.acceleration.long_tails,
            num_extra=num_extra_groups(config),
        )

    async def _evaluate(
        self, when: str, tokenizer: PromptTokenizer, generator: Generator, scorer: RewardPool
    ) -> EvaluationReport | None:
        """Measure pass@1 on the held-out tasks with the generator's present weights."""
        if not self._heldout:
            return None
        return await measure(
            when,
            self._heldout,
            generator,
            scorer,
            config=self._config,
            tokenizer=tokenizer,
            folder=self._folder,
            progress=self._progress,
            stopwatch=self._stopwatch,
        )
