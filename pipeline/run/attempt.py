"""One attempt at training: the two loops and what is between them, from a step to the end of the run.

    RolloutProducer ──► RolloutBuffer ──► StepFeed ──► trainer ──► weights ──► generator
          ▲                                                           │
          └──────────────── free slots, policy version ◄──────────────┘

    StepFeed.train ─► write weights ┬─► StepFeed.train of the next step ─► …
                                    └─► load weights ─► checkpoint ─► StepAccount.commit

A run has one, and another each time that it goes back to a checkpoint because the trainer was lost. Buffer,
gate and producer are of one attempt alone; stages, sampler and ledger are given to it. Starts and ends no
stage.

The training loop consumes scored groups, and produces policy versions, which free the producer's slots. It
waits for groups, which the producer delivers, and before the weights change again for the close of the step
before: loading, checkpoint, account. Both waits have deadlines; the first names who owes the groups.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from configs.conditions import may_leave_int8, why_not_streamed
from curriculum.sampler import Sampler
from pipeline.errors import StageError, TrainerLostError
from pipeline.evaluation.forms import ChatForm
from pipeline.evaluation.heldout import InLoopEvaluation
from pipeline.host.device import num_gpus
from pipeline.host.shares import is_shared
from pipeline.host.spans import CHECKPOINT, WEIGHTS
from pipeline.host.stopping import StoppedError
from pipeline.messages import RolloutGroup, WeightUpdate
from pipeline.record.checkpoints import prune_checkpoints
from pipeline.record.ledger import GUARD, PLACEMENT_GUARD
from pipeline.record.run_folder import Context
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.draws import DrawAccount, SignalGate, max_gated
from pipeline.rollouts.producer import RolloutProducer
from pipeline.run.job import Job
from pipeline.run.overlap_trial import OverlapTrial, Turns
from pipeline.run.resume import GroupBasis
from pipeline.run.stages import Stages, beside
from pipeline.run.step import FedStep, StepAccount, StepFeed
from pipeline.weights.files import remove_weights

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle


class Attempt:
    """Trains from ``step``, which is done; ``is_running`` while a signal to stop finds its loops at work.

    ``trial`` decides over the first steps whether generation goes on while the trainer computes.
    ``is_quantised`` until the engine has left int8.
    """

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
        is_quantised: bool = True,
    ) -> None:
        config = context.config
        gate = SignalGate(max_gated(config), context.ledger.gated(), config.grpo.warm_start_steps)
        self._context, self._config = context, config
        self._trainer = trainer
        self._generator = stages.generator
        self._weights_folder = weights_folder
        self._trial = trial
        self.is_running, self.is_quantised = False, is_quantised
        self.buffer = RolloutBuffer(
            groups_per_step=config.prompts_per_step,
            max_staleness=config.acceleration.max_staleness,
            version=step,
            has_turns=stages.turns is not None,
        )
        form = ChatForm(tokenizer=stages.tokenizer, generation=config.generation)
        basis = GroupBasis(config).digest
        self.producer = RolloutProducer(
            context,
            generator=stages.generator,
            scorer=stages.scorer,
            buffer=self.buffer,
            draws=DrawAccount(sampler, context.ledger, stages.tasks, form.prompt_ids, basis),
            gate=gate,
            first_step=step,
            turns=stages.turns,
        )
        self.evaluation = InLoopEvaluation(
            context, tasks=job.heldout, form=form, generator=stages.generator, scorer=stages.scorer
        )
        self._account = StepAccount(
            context,
            producer=self.producer,
            scorer=stages.scorer,
            generator=stages.generator,
            sampler=sampler,
            gate=gate,
            evaluation=self.evaluation,
            shares_device=is_shared(context.config, job.device, num_gpus(job.device)),
        )
        self._turns = Turns(context, stages.generator, trainer, job.device)
        before_turn = self._begin_turn if self._turns.sleeps else None
        self._feed = StepFeed(context, trainer, self.buffer, self.producer, before_turn)
        self._loaded: WeightUpdate | None = None  # a generator may start again, and reads it then
        self._last_step = self._last_saved = step  # committed
        self._saved_at_s = time.monotonic()
        self._closing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Train to the end; raises TrainerLostError where the trainer is lost, StoppedError where a signal
        ended it, and what the loops raise."""
        max_steps, step = self._config.training.max_steps, self._last_step
        try:
            if step > 0:
                await self._load_weights(await self._write_weights(step))
            self.evaluation.begin(step)
            self._context.progress.start(max_steps, step)
            with self._context.stopwatch.timed("training"):
                await self._run_loops()
                while measured := self.evaluation.drain():
                    self._account.log(max_steps, measured)
                    self._context.ledger.add_metrics(max_steps, measured)
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
            await self.train()
            await self._context.stop.guard(self.evaluation.finish())
        except StoppedError:
            try:
                await self.save_last()
            except TrainerLostError:
                # A terminal's Ctrl-C has ended its processes as well: nothing is to be said of that.
                raise
            except StageError as error:
                self._context.progress.message(f"error: the last step is not saved: {error}")
                raise
            raise
        finally:
            self.is_running = False
            producing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producing

    async def train(self) -> None:
        """The training loop: steps until ``training.max_steps``, and a checkpoint of the last one.

        Raises:
            TimeoutError: rollouts or a step took too long; the message says whose.
            RuntimeError: the producer failed; the message says why.
            StoppedError: the run was asked to end; ``save_last`` saves what is done.
        """
        config, tell = self._config, self._context.progress.message
        await self._account.begin()
        if self._turns.always:
            self.buffer.alternate(True)
        reason = why_not_streamed(config)
        if config.acceleration.stream_steps and reason is not None:
            tell(f"a step is trained on when all its groups are there: {reason}")
        if self._last_step == config.training.max_steps:
            # A resume after the last step: no step takes what was left open.
            self.producer.finish()
        try:
            for step in range(self._last_step + 1, config.training.max_steps + 1):
                await self._step(step)
            await self._closed()
        except StoppedError:
            # ``save_last`` waits for the step that is being closed.
            raise
        except BaseException:
            if self._closing is not None:
                self._closing.cancel()
                await asyncio.gather(self._closing, return_exceptions=True)
            raise
        self._context.ledger.event("finished", f"{config.training.max_steps} steps")

    async def save_last(self) -> int:
        """Save the last committed step, unless it is saved; returns its number. For a run that is stopped."""
        await self._closed()
        if self._last_step > self._last_saved:
            folder = self._context.folder.checkpoint(self._last_step)
            await self._trainer.save(folder, self._last_step)
            self._context.ledger.note_checkpoint(self._last_step, folder.name)
            await self._saved(self._last_step)
        return self._last_step

    async def _save_if_due(self, step: int) -> str | None:
        """Save the checkpoint of ``step`` if it is to have one; returns its folder's name."""
        output = self._config.output
        is_late = time.monotonic() - self._saved_at_s > 60 * output.save_minutes
        if step % output.save_steps and step != self._config.training.max_steps and not is_late:
            return None
        self._context.progress.activity(f"saving checkpoint {step}")
        folder = self._context.folder.checkpoint(step)
        with self._context.timeline.span(CHECKPOINT, folder.name):
            await self._trainer.save(folder, step)
        return folder.name

    async def _saved(self, step: int) -> None:
        self._last_saved, self._saved_at_s = step, time.monotonic()
        if self._config.output.text_steps is not None:
            self._context.ledger.forget_texts(step, self._config.output.text_steps)
        # Gigabytes are removed: the event loop goes on meanwhile.
        limit, kept = self._config.output.save_total_limit, self._context.ledger.checkpoints()
        await asyncio.to_thread(prune_checkpoints, self._context.folder.path, limit, step, kept)

    async def _step(self, step: int) -> None:
        """Train one step and begin to close it."""
        if not self._turns.always:
            await self._fit_memory()
        feeding = self._feed.train(step, after=self._closing)
        fed = await (feeding if self._closing is None else beside(self._closing, feeding))
        self.buffer.trained(step)
        self._watch_quantisation(step, fed.result.metrics.get("train/mismatch_kl"))
        started = time.perf_counter()
        update = None
        if not self._skips_update(step):
            update = await self._write_weights(step)
            await self._turns.to_generator()
        self._closing = asyncio.create_task(
            self._close(step, fed, update, started), name=f"close step {step}"
        )

    async def _fit_memory(self) -> None:
        if (said := await self._trainer.fit_memory()) is not None:
            self._context.note(GUARD, said)

    async def _begin_turn(self) -> None:
        """What comes before the trainer's turn on a card that the engine gives up meanwhile."""
        # A measurement that waited for the engine would be late.
        await self.evaluation.finish()
        await self._turns.to_trainer()
        if self._turns.always:
            await self._fit_memory()

    def _watch_quantisation(self, step: int, mismatch_kl: float | None) -> None:
        """Leave 8 bits, until a resume, where their policy is too far from the one that is trained."""
        limit, can_leave = self._config.grpo.mismatch_kl_warning, may_leave_int8(self._config)
        if self.is_quantised and can_leave and mismatch_kl is not None and mismatch_kl > limit:
            self.is_quantised = False
            self._context.note(
                GUARD,
                f"generation.quantization: after step {step} the engine's next weights are in 16 bits: "
                f"with int8 train/mismatch_kl is {mismatch_kl:.2g}, above grpo.mismatch_kl_warning "
                f"({limit:g}); what was measured before that is of int8",
            )

    def _skips_update(self, step: int) -> bool:
        """Whether the engine has nothing to write before the next step: a later version is loaded then."""
        waits = self._turns.is_asleep or self.buffer.alternates
        if not waits or step == self._config.training.max_steps:
            return False
        return self.buffer.is_next_step_ready and not self.evaluation.is_due(step)

    async def _close(self, step: int, fed: FedStep, update: WeightUpdate | None, started: float) -> None:
        """What follows from a step: the generator's weights, the checkpoint if it is due, the account.

        Without ``update`` the generator keeps its weights.
        """
        pause_s = 0.0 if update is None else await self._load_weights(update)
        weights = {"weights/update_s": time.perf_counter() - started, "weights/pause_s": pause_s}
        weights |= self._turns.drain()
        if update is not None:
            if update.changed_share is not None:
                weights["weights/changed_share"] = update.changed_share
            self.buffer.weights_loaded(step)
            self.evaluation.weights_loaded(step)
        checkpoint = await self._save_if_due(step)
        metrics = await self._account.commit(fed, weights, checkpoint)
        self._last_step = step
        self._decide_order(metrics, fed.groups)
        if checkpoint is not None:
            await self._saved(step)

    async def _write_weights(self, version: int) -> WeightUpdate:
        """Have the trainer write its weights, which are ``version``, to a file; it stays until the next one
        is loaded."""
        with self._context.timeline.span(WEIGHTS, f"write version {version}"):
            update = await self._trainer.publish(str(self._weights_folder))
        written = update.policy_version
        assert written == version, f"the trainer published {written}, not {version}"
        generation = self._config.generation
        return replace(update, mode=generation.weight_update_mode, is_quantised=self.is_quantised)

    async def _load_weights(self, update: WeightUpdate) -> float:
        """Bring ``update`` to the generators; returns for how many seconds they paused."""
        with self._context.timeline.span(WEIGHTS, f"load version {update.policy_version}"):
            # Before: one of several generators may write with them, and die, before the last one has them.
            self._context.ledger.note_weights(update)
            try:
                loaded = await self._generator.update_weights(update)
            except StageError:
                if update.kind == "offer":
                    # A rank that died while it sent them is the cause, and can be started again.
                    await self._trainer.require_all()
                raise
        self._context.ledger.note_weights(update, loaded)
        if self._loaded is not None:
            await asyncio.to_thread(remove_weights, self._loaded)
        self._loaded = update
        return loaded.pause_s

    def _decide_order(self, metrics: Mapping[str, float], groups: Sequence[RolloutGroup]) -> None:
        """Tell the trial of a step, and do as it says."""
        if self._trial is None:
            return
        # A prompt costs once a group, and still costs that when the policy has learnt to answer briefly.
        num_read = sum(len(group.rollouts[0].prompt_ids) for group in groups)
        num_written = sum(len(one.completion.token_ids) for group in groups for one in group.rollouts)
        # Groups without signal were written too. What was drawn ahead for nothing is a cost of its order.
        num_gated = round(metrics.get("rollout/gated_tokens", 0.0))
        verdict = self._trial.record(metrics["step/seconds"], num_read + 2 * num_written + num_gated)
        if not self._turns.is_asleep:
            # Within a block the engine sleeps on: the order changes at its end.
            self.buffer.alternate(not self._trial.overlaps)
        if verdict is not None:
            self._context.note(PLACEMENT_GUARD, str(verdict))

    async def _closed(self) -> None:
        """Wait until the last step that was trained is closed; raises what closing it raised."""
        if self._closing is not None:
            # Who waits may be cancelled; the close goes on.
            await asyncio.shield(self._closing)
