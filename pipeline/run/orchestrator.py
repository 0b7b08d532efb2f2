"""The main job: start every stage, let them run beside each other, and account for what they did.

    run_training ─► prepare (tasks, device; what can be refused is) ─► run folder
        _Run ─► Context (what every part is given), running_stages (generators, reward workers, trainer)
             ─► with --resume: back to the last whole checkpoint
             ─► measure the held-out tasks
             ─► Attempt: two loops until the last step ──► the trainer was lost: back to the checkpoint ─┐
             ─► measure again, summary.json                     └──────────── a new Attempt ◄────────────┘

Two loops share one event loop (pipeline.run.attempt). The producer consumes free slots and produces scored
groups; it waits for slots, which the training loop frees. The training loop consumes groups and produces
weights; it waits for groups, which the producer delivers. Each wait has a deadline that names who held it up.
The heavy work happens in other processes: generators, reward workers, the trainer. Each of them is started
again when it dies, within limits (pipeline.host.restarts); with the trainer the whole run goes back to its
last checkpoint, as a resume does. A signal ends the run after the last finished step is saved
(pipeline.host.stopping).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from configs.load import render
from configs.schema import Config
from curriculum.sampler import Sampler
from pipeline.errors import RunStoppedError, StageError, TrainerLostError
from pipeline.evaluation.evaluate import EvaluationReport
from pipeline.evaluation.forms import ChatForm
from pipeline.evaluation.heldout import earlier_measurement, measure
from pipeline.evaluation.scorers import PoolScorer
from pipeline.evaluation.summary import guards_of, print_summary, write_summary
from pipeline.host.device import num_gpus
from pipeline.host.limits import explain_full_disk
from pipeline.host.restarts import RestartLimit
from pipeline.host.spans import EVALUATION, Timeline
from pipeline.host.stopping import StoppedError, stop_on_signals
from pipeline.host.versions import processor_name
from pipeline.models.find import with_commit
from pipeline.record.checkpoints import latest_checkpoint
from pipeline.record.ledger import STOP, Ledger
from pipeline.record.ledger_tables import known_checkpoints
from pipeline.record.progress import make_progress
from pipeline.record.run_folder import Context, RunFolder
from pipeline.record.tracking import start_tracking
from pipeline.run.attempt import Attempt
from pipeline.run.early_start import Launched
from pipeline.run.job import Job, prepare, prepare_resume
from pipeline.run.overlap_trial import OverlapTrial
from pipeline.run.resume import CHANGED, find_checkpoint, refuse_other_tasks, restore, terms_of
from pipeline.run.stages import Stages, beside, running_stages
from pipeline.weights.files import remove_all_weights, shared_folder

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


def run_training(config: Config, resume: str | None, early: Launched) -> int:
    """Run the whole job with what was started ``early``; returns the exit status.

    Raises:
        ValueError: the configuration cannot be run (no such model, data set, run folder or custom reward,
            too weak a sandbox), before any model is loaded where that can be known.
        StageError, TimeoutError, RewardsBrokenError: a stage failed; the message names it.
        RunStoppedError: a signal ended the run.
    """
    job, changes = (prepare(config), []) if resume is None else prepare_resume(config, Path(resume))
    return _Run(job, early, changes).run(resume)


def _raise_with_advice(error: OSError | sqlite3.OperationalError, folder: Path, advice: str) -> NoReturn:
    """Raise ``error`` again, or StageError with ``advice`` where there is no room left below ``folder``."""
    if (said := explain_full_disk(error, folder, advice=advice)) is None:
        raise error
    raise StageError(said) from error


class _Run:
    """One run, from the start of its stages to their end."""

    def __init__(self, job: Job, early: Launched, changes: Sequence[str]) -> None:
        self._job = job
        self._early = early
        self._changes = changes
        runtime = job.config.runtime
        self._restarts = RestartLimit(runtime.max_restarts, runtime.restart_window_s, self._note)
        self._lost_after = -1  # the newest step that was done when the trainer was lost
        self._limit_of_shortage = -1  # of micro-batches, when it was last lost for want of memory
        self._arm: Callable[[], None] = lambda: None  # sets the signal handlers once more
        self._context: Context  # its ledger is opened anew when the trainer was lost
        self._attempt: Attempt | None = None

    def run(self, resume: str | None) -> int:
        """See run_training."""
        config = self._job.config
        made = RunFolder.create(config.output, render(config)) if resume is None else RunFolder.open(resume)
        with made as folder:
            progress = make_progress(config.runtime.progress, title=folder.name)
            try:
                self._context = Context(
                    config=config,
                    folder=folder,
                    ledger=Ledger(folder.db, terms_of(config)),
                    progress=progress,
                    timeline=Timeline(enabled=config.output.timeline_steps > 0),
                )
                asyncio.run(self._run_until_stopped(is_resumed=resume is not None))
            except (OSError, sqlite3.OperationalError) as error:
                advice = "nothing had begun: make room, then start again"
                if folder.is_kept():
                    advice = (
                        "nothing was overwritten, the last checkpoint is whole: make room, then go on with: "
                        f"train_accelerated --resume {folder.path}"
                    )
                _raise_with_advice(error, folder.path, advice)
            finally:
                progress.close()
            print_summary(folder.path)
            # Imported here: a start need not wait for the hub's library.
            from pipeline.handover.command import finish_run

            try:
                finish_run(folder.path, config)
            except OSError as error:
                advice = (
                    "the run has ended, and its model is in its last checkpoint: make room, then: "
                    f"python -m pipeline hand-over {folder.path} OUT"
                )
                _raise_with_advice(error, folder.path, advice)
        return 0

    async def _run_until_stopped(self, *, is_resumed: bool) -> None:
        """Run until the end, or until a signal."""
        job = asyncio.create_task(self._run(is_resumed=is_resumed), name="run")
        stop = self._context.stop

        def leave() -> None:
            # An attempt that runs ends by itself, with what it has done saved.
            if self._attempt is None or not self._attempt.is_running:
                job.cancel()
            with suppress(sqlite3.Error, StageError):  # It ends, whether that can be noted or not.
                self._context.ledger.event(STOP, "a signal asked the run to end")

        with stop_on_signals(stop, leave) as self._arm:
            try:
                await job
            except (asyncio.CancelledError, StoppedError, StageError):
                # What fails because a terminal's Ctrl-C reached other processes as well is no fault.
                if stop.signal is None:
                    raise
                # Its threads (a download, a check of tasks) are waited for in any case: here a second signal
                # is still obeyed.
                await asyncio.get_running_loop().shutdown_default_executor()
                raise RunStoppedError(self._resume_hint(), stop.signal) from None

    async def _run(self, *, is_resumed: bool) -> None:
        async with AsyncExitStack() as stack:
            stack.callback(lambda: self._context.ledger.close())
            job, context = self._job, self._context
            weights_folder = stack.enter_context(shared_folder(context.folder.name))
            stages = await stack.enter_async_context(
                running_stages(
                    job,
                    self._early,
                    folder=context.folder,
                    progress=context.progress,
                    note=self._note,
                    restarts=self._restarts,
                    # Ray has handlers of its own.
                    after_ray=self._arm,
                    is_trainer_first=is_resumed or not job.heldout,
                )
            )
            if is_resumed:
                refuse_other_tasks(context.folder.path, stages.tasks, job.config)
            else:
                self._write_config(stages)
            context.ledger.event("isolation", f"sandbox level {stages.scorer.level}")
            there = f"{os.cpu_count()} cores, {num_gpus(job.device)} GPUs"
            context.ledger.event("hardware", f"{job.device}, {processor_name(job.device)}, {there}")
            context.ledger.note_tasks(stages.tasks)
            stack.callback(lambda: self._context.tracking.close())
            context.stopwatch.note("startup")
            await self._train_and_measure(stages, weights_folder, is_resumed=is_resumed)

    def _note(self, kind: str, text: str) -> None:
        """Keep a restart, and tell the user of it."""
        self._context.ledger.event(kind, text)
        self._context.progress.message(f"{kind}: {text}")

    def _write_config(self, stages: Stages) -> None:
        config = with_commit(self._context.config, stages.model_path)
        self._context.folder.write_config(render(config))

    def _sampler(self, stages: Stages) -> Sampler:
        config = self._context.config
        return Sampler(stages.tasks, config.acceleration.curriculum, config.training.seed)

    async def _resume(self, sampler: Sampler, trainer: TrainerHandle, stages: Stages) -> int:
        """Go back to the last whole checkpoint; returns its step."""
        config, ledger = self._context.config, self._context.ledger
        checkpoint = find_checkpoint(self._context.folder.path, ledger, self._context.progress.message)
        step = 0 if checkpoint is None else await trainer.load(checkpoint)
        for change in self._changes:
            self._context.note("settings", f"{CHANGED}{change}")
        self._changes = ()
        # Not before all is known for which the resume could be refused.
        self._write_config(stages)
        resumed = restore(
            config,
            ledger,
            sampler,
            step,
            stages.tasks,
            prompt_ids=ChatForm(tokenizer=stages.tokenizer, generation=config.generation).prompt_ids,
        )
        if step < config.training.max_steps:
            self._context.folder.remove_end()
        self._context.note("resume", resumed)
        return step

    async def _train_and_measure(self, stages: Stages, weights_folder: Path, *, is_resumed: bool) -> None:
        context, job, config = self._context, self._job, self._context.config
        sampler, step = self._sampler(stages), 0
        if is_resumed:
            sampler, step = await self._resume_on(await stages.trainer, stages)
        before = earlier_measurement(context.folder.evaluation("before"))
        if before is None and step == 0:
            # Nothing of it needs the trainer, which may still be loading its model.
            before = await beside(stages.trainer, self._evaluate("before", stages))
        trainer = await stages.trainer
        tracking = start_tracking(
            config, context.folder.name, context.folder.path, step, context.progress.message
        )
        self._context = replace(context, tracking=tracking)
        while True:
            self._attempt = Attempt(
                self._context,
                job,
                stages,
                trainer,
                sampler,
                step=step,
                weights_folder=weights_folder,
                trial=OverlapTrial.of_run(config, job.device, num_gpus(job.device)),
                # At the start nothing is published: the engine is as it was when it began.
                is_quantised=self._attempt is None or step == 0 or self._attempt.is_quantised,
            )
            try:
                await self._attempt.run()
                break
            except TrainerLostError as error:
                lost = error
            await context.stop.guard(self._bring_back(trainer, lost))
            await stages.generator.reset()
            # Nobody reads them any more: an engine that starts again begins with the base weights.
            await asyncio.to_thread(remove_all_weights, weights_folder)
            # What follows is a run of its own to the ledger, as after --resume.
            self._context.ledger.close()
            self._context = replace(self._context, ledger=Ledger(context.folder.db, terms_of(config)))
            sampler, step = await self._resume_on(trainer, stages)
        after = await context.stop.guard(self._evaluate("after", stages))
        self._sum_up(stages.scorer.level, before, after)

    def _sum_up(
        self, isolation_level: str, before: EvaluationReport | None, after: EvaluationReport | None
    ) -> None:
        """Write what is left to write when all is done."""
        context, config = self._context, self._context.config
        num_kept = config.output.timeline_steps
        context.ledger.note_spans(config.training.max_steps, context.timeline.drain(), num_kept)
        context.stopwatch.note("total")
        write_summary(
            context.folder,
            config,
            self._job.device,
            isolation_level,
            before,
            after,
            context.stopwatch.seconds,
            guards=guards_of(context.folder.db, config),
        )

    async def _bring_back(self, trainer: TrainerHandle, lost: TrainerLostError) -> None:
        """Start the trainer again; raises StageError."""
        done = self._context.ledger.last_step()
        has_worked, self._lost_after = done > self._lost_after, max(done, self._lost_after)
        # It takes smaller micro-batches then, or ends as none are left. It counts where it came not so far.
        limit = trainer.layout["limit"]
        is_auto = self._job.config.training.memory == "auto"
        is_less = is_auto and trainer.is_short and limit > self._limit_of_shortage
        self._limit_of_shortage = limit if is_less else self._limit_of_shortage
        while True:
            self._restarts.admit("the trainer", str(lost), has_worked=has_worked, is_less=is_less)
            has_worked = is_less = False
            self._context.progress.activity("starting the trainer again")
            try:
                await trainer.start()
                return
            except TrainerLostError as error:
                lost = error

    async def _resume_on(self, trainer: TrainerHandle, stages: Stages) -> tuple[Sampler, int]:
        """``_resume`` with a trainer that is started again where it is lost while it loads; sampler and step.

        Raises StageError.
        """
        while True:
            sampler = self._sampler(stages)
            try:
                return sampler, await self._resume(sampler, trainer, stages)
            except TrainerLostError as error:
                lost = error
            await self._context.stop.guard(self._bring_back(trainer, lost))

    def _resume_hint(self) -> str:
        """What is saved, and the command that goes on from there."""
        run = self._context.folder.path
        checkpoint = latest_checkpoint(run, known_checkpoints(self._context.folder.db))
        saved = "nothing is saved yet" if checkpoint is None else f"{checkpoint.name} is saved"
        return f"stopped: {saved}; go on with: train_accelerated --resume {run}"

    async def _evaluate(self, when: str, stages: Stages) -> EvaluationReport | None:
        """Measure pass@1 on the held-out tasks with the generator's present weights."""
        context = self._context
        if not self._job.heldout:
            return None
        with context.timeline.span(EVALUATION, f"{when} training"):
            return await measure(
                when,
                self._job.heldout,
                stages.generator,
                PoolScorer(stages.scorer),
                config=context.config,
                tokenizer=stages.tokenizer,
                folder=context.folder,
                progress=context.progress,
                stopwatch=context.stopwatch,
            )
