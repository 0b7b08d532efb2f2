"""One optimiser step: its groups on their way to the trainer, and the account of it.

    buffer.take ─► make_batch ─► trainer.accumulate ┐
    buffer.take ─► make_batch ─► trainer.accumulate ├─► trainer.step (a last part, empty: the weights change)
    buffer.take ─► make_batch ─► trainer.accumulate ┘

    what the stages counted ─► StepAccount.commit ┬─► run.db, in one transaction
                                                  └─► metrics.jsonl, trackers, progress

Groups are fed all at once, or in parts as they come. A part is what is ready when the trainer has nothing to
do, a group at least. So parts are small where the trainer would idle otherwise, and grow where it is the one
who is waited for: a group that comes while it works waits for the next part, with all that come beside it.

The last part has no samples, so all of them are at work before the weights may change, and that change is
short. A run that shall end gives up the other parts, but never this one: of weights that have changed and
are no finished step nothing could be saved any more.

Publishes, loads and saves nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from configs.conditions import why_not_streamed
from curriculum.sampler import Sampler
from pipeline.errors import StageError
from pipeline.evaluation.heldout import InLoopEvaluation
from pipeline.generation.generator import Generator
from pipeline.host.limits import memory
from pipeline.host.spans import TRAINER, WAITING
from pipeline.messages import RolloutGroup, StepResult, TrainBatch
from pipeline.record.alarms import Alarms
from pipeline.record.ledger import ALARM, GUARD
from pipeline.record.metrics import MetricsWriter, StepRate, log_samples
from pipeline.record.run_folder import Context
from pipeline.rollouts.batch import batch_metrics, make_batch, scored
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.draws import SignalGate
from pipeline.rollouts.producer import RolloutProducer
from rewards.pool import RewardPool

if TYPE_CHECKING:
    from pipeline.training.handle import TrainerHandle

# What the reward pool counts up from the start, and what it has at a moment.
_REWARD_COUNTS = (
    "rewards/cache_hits",
    "rewards/cache_misses",
    "rewards/cache_joins",
    "rewards/cache_evictions",
    "rewards/cache_saved_s",
    "rewards/infra_errors",
    "rewards/worker_restarts",
)
_REWARD_LEVELS = ("rewards/in_flight", "rewards/waiting")
_DRAFTS = ("drafted", "accepted")


@dataclass(frozen=True, slots=True, kw_only=True)
class FedStep:
    """A step that was trained: its groups in the order of training, and what the trainer made of them.

    ``waited_s`` is how long the trainer had nothing to do. ``num_too_old`` groups were found too old since
    the last step. ``layout`` is what a replay needs besides the groups: "parts" has the number of groups in
    each call of the trainer, 0 in the last; the trainer's own stands beside it.
    """

    result: StepResult
    groups: tuple[RolloutGroup, ...]
    layout: Mapping[str, object]
    waited_s: float
    num_too_old: int


class StepFeed:
    """Feeds the trainer step by step; one step at a time."""

    def __init__(
        self,
        context: Context,
        trainer: TrainerHandle,
        buffer: RolloutBuffer,
        producer: RolloutProducer,
        before_turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``before_turn`` is waited for where training begins in turn, when no close is under way."""
        self._config = context.config
        self._progress = context.progress
        self._timeline = context.timeline
        self._stop = context.stop
        self._trainer = trainer
        self._buffer = buffer
        self._producer = producer
        wants_to = self._config.acceleration.stream_steps
        self._can_stream = wants_to and why_not_streamed(self._config) is None
        self._before_turn = before_turn

    async def train(self, step: int, *, after: asyncio.Task[None] | None) -> FedStep:
        """Train ``step`` on its groups; its weights may change only ``after`` that is done.

        Raises what ``after`` raises, and:
            TimeoutError: the groups did not come in time; the message says who owes them.
            StageError: a stage failed.
            StoppedError: the run was asked to end.
        """
        num_groups = self._config.prompts_per_step
        groups: list[RolloutGroup] = []
        parts: list[int] = []
        waited_s = 0.0
        while True:
            # What is there at once is guarded by nothing.
            self._stop.check()
            started = time.perf_counter()
            self._progress.activity(
                f"step {step}: waiting for rollouts ({len(groups)} of {num_groups} groups)"
            )
            with self._timeline.span(WAITING, f"step {step} waits for rollouts"):
                taken = await self._stop.guard(self._take(step, num_groups - len(groups)))
            waited_s += time.perf_counter() - started
            groups += taken
            self._progress.activity(f"step {step}: training ({len(groups)} of {num_groups} groups)")
            batch = make_batch(step, taken, self._config.grpo, part=len(parts))
            parts.append(len(taken))
            if len(groups) == num_groups:
                break
            await self._accumulate(batch)
        num_too_old = self._buffer.drain_too_old()
        if self._buffer.alternates and self._before_turn is not None:
            if after is not None:
                await self._stop.guard(asyncio.shield(after))
            await self._stop.guard(self._before_turn())
        await self._accumulate(batch)
        if after is not None:
            # Who waits may be cancelled; what is waited for goes on.
            with self._timeline.span(WAITING, f"step {step} waits for the weights before it"):
                await self._stop.guard(asyncio.shield(after))
        self._stop.check()
        batch = TrainBatch(step=step, samples=(), part=len(parts))
        with self._timeline.span(TRAINER, f"step {step}: update"):
            # Without guard; it has a deadline of its own.
            result = await self._trainer.step(batch)
        return FedStep(
            result=result,
            groups=tuple(groups),
            # Taken now: the next step may fit other rows into the memory before this one is committed.
            layout={"parts": (*parts, 0), **self._trainer.layout},
            waited_s=waited_s,
            num_too_old=num_too_old,
        )

    async def _accumulate(self, batch: TrainBatch) -> None:
        name = f"step {batch.step}: part {batch.part + 1}"
        with self._timeline.span(TRAINER, name, num_tokens=batch.num_tokens):
            training = self._trainer.accumulate(batch)
            # Ranks save together, so what they have begun is finished first.
            has_ranks = self._config.runtime.trainer_ranks > 1
            await (training if has_ranks else self._stop.guard(training))

    async def _take(self, step: int, num_left: int) -> list[RolloutGroup]:
        """Wait for a group, or where steps are not streamed for all; with it comes what else is ready."""
        # In turn training begins when all groups of a step are there, whatever the settings allow.
        num_first = 1 if self._can_stream and not self._buffer.alternates else num_left
        taken = [*await self._buffer.take(num_first, self._producer.group_deadline_s)]
        while len(taken) < num_left and (more := self._buffer.take_now(1)):
            taken += more
        if step == self._config.training.max_steps and len(taken) == num_left:
            self._producer.finish()
        return taken


class StepAccount:
    """Accounts for one step after the other, and adds what ``evaluation`` has found meanwhile."""

    def __init__(
        self,
        context: Context,
        *,
        producer: RolloutProducer,
        scorer: RewardPool,
        generator: Generator,
        sampler: Sampler,
        gate: SignalGate,
        evaluation: InLoopEvaluation,
        shares_device: bool,
    ) -> None:
        self._context = context
        self._producer = producer
        self._scorer = scorer
        self._generator = generator
        self._has_drafts = context.config.acceleration.speculative.enabled
        self._last_scores = scorer.metrics()
        self._last_drafts: dict[str, float] = {}
        self._rate = StepRate()
        self._closed_s = time.perf_counter()  # when the last step was closed
        self._sampler = sampler
        self._gate = gate
        self._evaluation = evaluation
        self._metrics = MetricsWriter(context.folder.path)
        self._alarms = Alarms(context.config, context.ledger.metrics(), shares_device=shares_device)

    async def begin(self) -> None:
        """What comes from now on is the first step's."""
        if self._has_drafts:
            self._last_drafts = await self._generator.stats()
        self._rate = StepRate()
        self._closed_s = time.perf_counter()

    async def commit(
        self, fed: FedStep, weights: Mapping[str, float], checkpoint: str | None
    ) -> dict[str, float]:
        """Commit a step that was trained as ``fed``; returns its metrics.

        Raises StageError, after that, where ``runtime.strict`` wants a fault to end the run.
        ``weights`` are the metrics of loading what it made, ``checkpoint`` the name of what was saved of it.
        """
        step = fed.result.step
        step_s, self._closed_s = time.perf_counter() - self._closed_s, time.perf_counter()
        metrics = {
            **batch_metrics(step, fed.groups, self._context.config),
            **await self._since_last(fed.result),
            **fed.result.metrics,
            "rollout/requeued_groups": float(fed.num_too_old),
            "rollout/wait_s": fed.waited_s,
            **self._gate.metrics(step),
            **self._sampler.counts_by_level(),
            **weights,
            "step/seconds": step_s,
            "step/samples_per_s": len(scored(fed.groups)) / step_s,
            **self._rate.step(),
            **self._evaluation.drain(),
        }
        for said in fed.result.notes:
            self._context.note(GUARD, said)
        self._enter(fed, metrics, checkpoint)
        log_samples(self._context.folder.samples, step, fed.groups[0])
        return metrics

    async def _since_last(self, result: StepResult) -> dict[str, float]:
        """The metrics of the step that ``result`` ended, since the last call or the beginning."""
        total_gib, free_gib = memory()
        generation = self._producer.generation_timer.drain()
        return {
            "host/memory_used_share": 1.0 - free_gib / total_gib,
            "generation/seconds": generation.seconds,
            "generation/tokens": float(generation.num_tokens),
            "generation/tokens_per_s": generation.tokens_per_s,
            **self._producer.aborts.drain(),
            **self._rewards(),
            "train/seconds": result.seconds,
            "train/tokens": float(result.num_tokens),
            "train/tokens_per_s": result.num_tokens / result.seconds,
            **await self._drafting(),
        }

    def _rewards(self) -> dict[str, float]:
        now, last = self._scorer.metrics(), self._last_scores
        self._last_scores = now
        grown = {name: now[name] - last[name] for name in now}
        num_found = grown["rewards/cache_hits"] + grown["rewards/cache_joins"]
        # In turn all that a block asks for falls into its first step.
        rates = {}
        if grown["rewards/scored"]:
            rates["rewards/seconds_mean"] = grown["rewards/busy_s"] / grown["rewards/scored"]
        if num_asked := num_found + grown["rewards/cache_misses"]:
            rates["rewards/cache_hit_rate"] = num_found / num_asked
        return {
            "rewards/seconds": grown["rewards/busy_s"],
            **rates,
            **{name: grown[name] for name in _REWARD_COUNTS},
            **{name: now[name] for name in _REWARD_LEVELS},
        }

    async def _drafting(self) -> dict[str, float]:
        """What became of the tokens that were drafted since the last step, where any are."""
        if not self._has_drafts:
            return {}
        now, last = await self._generator.stats(), self._last_drafts
        self._last_drafts = now
        # An engine that was started again counts from zero.
        drafted, accepted = (max(0.0, now.get(name, 0.0) - last.get(name, 0.0)) for name in _DRAFTS)
        return {
            "generation/drafted_tokens": drafted,
            "generation/draft_acceptance": min(1.0, accepted / max(1.0, drafted)),
        }

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write ``metrics`` to metrics.jsonl and to the trackers."""
        self._metrics.log(step, metrics)
        self._context.tracking.log(step, metrics)

    def close(self) -> None:
        """Close metrics.jsonl."""
        self._metrics.close()

    def _enter(self, fed: FedStep, metrics: Mapping[str, float], checkpoint: str | None) -> None:
        """Commit the step; no await between taking the sampler's state and the commit."""
        context, step, output = self._context, fed.result.step, self._context.config.output
        result = replace(fed.result, metrics=metrics)
        draw_ids = [group.draw_id for group in fed.groups]
        state = {"sampler": self._sampler.state_dict()}
        context.ledger.commit_step(result, draw_ids, state, checkpoint, fed.layout)
        logged = metrics
        if step % output.logging_steps:
            logged = {name: value for name, value in metrics.items() if name.startswith("eval/")}
        if logged:
            self.log(step, logged)
        context.ledger.note_spans(step, context.timeline.drain(), output.timeline_steps)
        context.progress.step(step, metrics)
        for rule, said in self._alarms.step(metrics):
            text = f"step {step}: {rule.name}: {said}"
            context.note(ALARM, f"alarm: {text}")
            if rule.is_fatal and context.config.runtime.strict:
                raise StageError(f"{text} (runtime.strict ends the run for it)")
