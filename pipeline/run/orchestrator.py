"""The main job: start every stage, let them run beside each other, and account for what they did.

    RolloutProducer ──► RolloutBuffer ──► TrainingLoop ──► generator.update_weights
    (pipeline.rollouts.producer)  (bounded)        (pipeline.run.training_loop)     │
          ▲                                                             │
          └───────────────── free slots, policy version ◄───────────────┘

Two loops share one event loop. The producer consumes free slots and produces scored groups; it waits for
slots, which the training loop frees. The training loop consumes groups and produces weights; it waits for
groups, which the producer delivers. Each wait has a deadline that names who held it up. The heavy work
happens in other processes: generators, reward workers, the trainer. Each of them is started again when it
dies, within limits (pipeline.host.restarts); with the trainer the whole run goes back to its last checkpoint,
as a resume does. A signal ends the run after the last finished step is saved (pipeline.host.stopping). The
loops and what is between them: pipeline.run.attempt.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from configs.load import render
from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.errors import RunStoppedError, StageError, TrainerLostError
from pipeline.evaluation.evaluate import EvaluationReport
from pipeline.evaluation.heldout import earlier_measurement, measure
from pipeline.evaluation.summary import guards_of, print_summary, write_summary
from pipeline.generation.generator import Generator
from pipeline.host.limits import explain_full_disk
from pipeline.host.restarts import RestartLimit
from pipeline.host.spans import EVALUATION, Stopwatch, Timeline
from pipeline.host.stopping import StoppedError, StopRequest, stop_on_signals
from pipeline.host.versions import processor_name
from pipeline.models.prompt_tokenizer import PromptTokenizer, find_model
from pipeline.models.prompts import encode_prompt, refuse_useless_seeds
from pipeline.record.checkpoints import latest_checkpoint
from pipeline.record.ledger import Ledger
from pipeline.record.progress import Progress, make_progress
from pipeline.record.run_folder import RunFolder
from pipeline.record.tracking import Tracking, start_tracking, tracker_names
from pipeline.run.attempt import Training
from pipeline.run.early_start import Launched
from pipeline.run.resume import GroupBasis, find_checkpoint, refuse_damaged_run, restore, terms_of
from pipeline.run.stages import Stages, prepare, running_stages
from pipeline.weights.folder import shared_folder
from rewards.breaker import RewardsBrokenError
from rewards.pool import RewardPool

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


def run_training(config: Config, resume: str | None, verbose: bool, early: Launched) -> int:
    """Run the whole job with what was started ``early``; returns the exit status.

    Raises:
        ValueError: the configuration cannot be run (no such model, data set, run folder or custom reward,
            too weak a sandbox), before any model is loaded where that can be known.
        StageError, TimeoutError: a stage failed; the message names it.
        RunStoppedError: a signal ended the run.
    """
    if resume is not None:
        refuse_damaged_run(Path(resume))
    tasks, heldout, device = prepare(config)
    refuse_useless_seeds(config, device)
    tracker_names(config)
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
        except (OSError, sqlite3.OperationalError) as error:
            text = explain_full_disk(error, folder.path)
            if text is None:
                raise
            raise StageError(text) from error
        finally:
            progress.close()
        print_summary(folder.path)
        # Imported here: a start need not wait for the hub's library.
        from pipeline.handover.command import finish_run

        finish_run(folder.path, config)
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
        self._timeline = Timeline(enabled=config.output.timeline_steps > 0)
        self._tracking = Tracking(())
        self._stop = StopRequest()
        self._arm: Callable[[], None] = lambda: None  # sets the signal handlers once more
        self._training: Training | None = None
        self._ledger: Ledger

    async def run(self, *, is_resumed: bool) -> None:
        """Run until the end, or until a signal."""
        job = asyncio.create_task(self._run(is_resumed=is_resumed), name="run")

        def leave() -> None:
            # A training that runs ends by itself, with what it has done saved.
            if self._training is None or not self._training.is_running:
                job.cancel()

        with stop_on_signals(self._stop, leave) as self._arm:
            try:
                await job
            except (asyncio.CancelledError, StoppedError, StageError):
                # What fails because a terminal's Ctrl-C reached other processes as well is no fault.
                if self._stop.signal is None:
                    raise
                raise RunStoppedError(self._resume_hint(), self._stop.signal) from None

    async def _run(self, *, is_resumed: bool) -> None:
        if self._config.generation.tune:
            self._config = await self._tuned()
        config = self._config
        async with AsyncExitStack() as stack:
            weights_folder = shared_folder(self._folder.name)
            stack.callback(shutil.rmtree, weights_folder, ignore_errors=True)
            self._ledger = Ledger(self._folder.db, terms_of(config))
            stack.callback(lambda: self._ledger.close())

            def note(kind: str, text: str) -> None:
                self._ledger.event(kind, text)
                self._progress.message(f"{kind}: {text}")

            runtime = config.runtime
            restarts = RestartLimit(runtime.max_restarts, runtime.restart_window_s, note)
            stages = await stack.enter_async_context(
                running_stages(
                    config,
                    (*self._tasks, *self._heldout),
                    self._device,
                    self._early,
                    reward_cache=self._folder.reward_cache,
                    activity=self._progress.activity,
                    note=note,
                    restarts=restarts,
                    # Ray has handlers of its own.
                    after_ray=self._arm,
                    is_trainer_first=is_resumed or not self._heldout,
                )
            )
            self._ledger.event("isolation", f"sandbox level {stages.scorer.level}")
            self._ledger.event("hardware", f"{self._device}, {processor_name()}, {os.cpu_count()} cores")
            self._ledger.note_tasks(self._tasks)
            stack.callback(lambda: self._tracking.close())
            self._stopwatch.note("startup")
            await self._train_and_measure(stages, weights_folder, restarts, is_resumed=is_resumed)

    async def _tuned(self) -> Config:
        """The configuration with the engine settings that are fastest here; nothing else runs yet."""
        # Imported here: it needs libraries that a start without it does without.
        from pipeline.generation.tuning import tuned

        self._progress.activity("measuring engine settings")
        model_path = str(await asyncio.to_thread(find_model, self._config.model))
        return await tuned(self._config, model_path, self._device, self._progress.message)

    def _sampler(self) -> Sampler:
        return Sampler(self._tasks, self._config.acceleration.curriculum, self._config.training.seed)

    async def _resume(self, sampler: Sampler, trainer: TrainerHandle, tokenizer: PromptTokenizer) -> int:
        """Go back to the last whole checkpoint; returns its step."""
        ledger = self._ledger
        checkpoint = find_checkpoint(self._folder.path, ledger, self._progress.message)
        step = 0
        if checkpoint is not None:
            step = await trainer.load(checkpoint)
        prefill = self._config.generation.assistant_prefill
        resumed = restore(
            ledger,
            sampler,
            step,
            max_staleness=self._config.acceleration.max_staleness,
            tasks=self._tasks,
            prompt_ids=lambda task: encode_prompt(tokenizer, task, prefill),
            basis=GroupBasis(self._config).digest,
        )
        ledger.event("resume", str(resumed))
        self._progress.message(str(resumed))
        return step

    async def _train_and_measure(
        self,
        stages: Stages,
        weights_folder: Path,
        restarts: RestartLimit,
        *,
        is_resumed: bool,
    ) -> None:
        tokenizer, generator, scorer = stages.tokenizer, stages.generator, stages.scorer
        sampler = self._sampler()
        step = await self._resume(sampler, await stages.trainer, tokenizer) if is_resumed else 0
        before = earlier_measurement(self._folder.evaluation("before"))
        if before is None and step == 0:
            # Nothing of it needs the trainer, which may still be loading its model.
            before = await stages.beside_trainer(self._evaluate("before", tokenizer, generator, scorer))
        trainer = await stages.trainer
        self._tracking = start_tracking(
            self._config, self._folder.name, self._folder.path, step, self._progress.message
        )
        while True:
            try:
                self._training = self._new_training(stages, trainer, sampler, weights_folder)
                await self._training.run(step)
                break
            except TrainerLostError as error:
                await self._stop.guard(self._bring_back(trainer, error, restarts))
            await generator.reset()
            # What follows is a run of its own to the ledger, as after --resume.
            self._ledger.close()
            self._ledger = Ledger(self._folder.db, terms_of(self._config))
            sampler = self._sampler()
            step = await self._resume(sampler, trainer, tokenizer)
        after = await self._stop.guard(self._evaluate("after", tokenizer, generator, scorer))
        num_kept = self._config.output.timeline_steps
        self._ledger.note_spans(self._config.training.max_steps, self._timeline.drain(), num_kept)
        self._stopwatch.note("total")
        write_summary(
            self._folder,
            self._config,
            self._device,
            scorer.level,
            before,
            after,
            self._stopwatch.seconds,
            guards=guards_of(self._folder.db, self._folder.metrics, self._config),
            num_gated_groups=sum(gated.num_groups for gated in self._ledger.gated().values()),
        )

    def _new_training(
        self, stages: Stages, trainer: TrainerHandle, sampler: Sampler, weights_folder: Path
    ) -> Training:
        return Training(
            config=self._config,
            folder=self._folder,
            ledger=self._ledger,
            progress=self._progress,
            tasks=self._tasks,
            heldout=self._heldout,
            device=self._device,
            stages=stages,
            trainer=trainer,
            sampler=sampler,
            weights_folder=weights_folder,
            stop=self._stop,
            stopwatch=self._stopwatch,
            timeline=self._timeline,
            tracking=self._tracking,
        )

    async def _bring_back(self, trainer: TrainerHandle, lost: TrainerLostError, limit: RestartLimit) -> None:
        """Start the trainer again; raises TooManyRestartsError."""
        while True:
            limit.admit("the trainer", str(lost))
            self._progress.activity("starting the trainer again")
            try:
                await trainer.start()
                return
            except TrainerLostError as error:
                lost = error

    def _resume_hint(self) -> str:
        """What is saved, and the command that goes on from there."""
        checkpoint = latest_checkpoint(self._folder.path)
        saved = "nothing is saved yet" if checkpoint is None else f"{checkpoint.name} is saved"
        return f"stopped: {saved}; go on with: train_accelerated --resume {self._folder.path}"

    async def _evaluate(
        self, when: str, tokenizer: PromptTokenizer, generator: Generator, scorer: RewardPool
    ) -> EvaluationReport | None:
        """Measure pass@1 on the held-out tasks with the generator's present weights."""
        if not self._heldout:
            return None
        with self._timeline.span(EVALUATION, f"{when} training"):
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
