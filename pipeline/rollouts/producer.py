"""The rollout side of a run: slot, draw, generate, score, group.

    buffer.wait_for_slot ─► draws.next ─► generator ─► scorer ─► draws.close_group ─► buffer.put
                                                                  └─► no signal: replaced
                                                                  (pipeline.rollouts.draws)

At first it hands in what a resume found scored. Then one loop issues draws as slots come free; each draw
lives in an asyncio task of its own, so that groups overlap freely. Does not train and does not decide how old
a sample may be (the buffer does).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.generation.early_abort import AbortAccount, AbortBalance
from pipeline.generation.generator import Generator, GeneratorError
from pipeline.host.spans import GENERATION, REWARDS, Interval, union
from pipeline.messages import Completion, EarlierTurn, GenerationRequest, Rollout, RolloutGroup
from pipeline.models.prompts import request_seed, training_sampling
from pipeline.record.draw_states import DrawState
from pipeline.record.ledger import GUARD
from pipeline.record.ledger_rows import Draw
from pipeline.record.metrics import StageTimer
from pipeline.record.run_folder import Context
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.draws import DrawAccount, SignalGate
from pipeline.rollouts.turns import Feedback, TurnTerms, as_one, later_turns
from pipeline.rollouts.waiting import group_deadline_s, standstill_s
from rewards.pool import RewardPool
from rewards.result import RewardResult

# So many groups in a row without a usable score mean that scoring is broken, not the answers.
MAX_FAILED_GROUPS = 16


# A whole completion, its score, and the turns before its last answer.
Judged = tuple[Completion, RewardResult, tuple[EarlierTurn, ...]]


@dataclass(slots=True)
class _Work:
    """One draw at work: when what of it was written, with how many tokens, and scored."""

    draw_id: int
    task: Task
    request: GenerationRequest
    writing: list[tuple[Interval, int]] = field(default_factory=list)
    scoring: list[Interval] = field(default_factory=list)


class RolloutProducer:
    """Keeps the buffer full until it is cancelled.

    Issues the groups of the steps after ``first_step``, which is done, up to ``training.max_steps``.
    With ``async_rewards`` a completion is scored as soon as it is finished, otherwise when its whole group
    is. With ``early_abort`` completions that can no longer compile are ended, as long as that pays
    (pipeline.generation.early_abort).
    Groups that ``gate`` holds are replaced. With ``turns`` an answer that failed is followed by feedback and
    another one, as soon as its own score is there.
    """

    def __init__(
        self,
        context: Context,
        *,
        generator: Generator,
        scorer: RewardPool,
        buffer: RolloutBuffer,
        draws: DrawAccount,
        gate: SignalGate,
        first_step: int,
        turns: TurnTerms | None = None,
    ) -> None:
        self._config = config = context.config
        self._generator = generator
        self._timeline = context.timeline
        self._scorer = scorer
        self._buffer = buffer
        self._draws = draws
        self._seed = config.training.seed if config.generation.seed_requests else None
        self._sampling = training_sampling(config)
        self._turns = turns
        self._prefill = config.generation.assistant_prefill
        self._score_each = config.acceleration.async_rewards.enabled
        self.group_deadline_s = group_deadline_s(config, draws.max_stdio_tests)
        self._slot_deadline_s = standstill_s(config, draws.max_stdio_tests)
        self._balance = AbortBalance(self._prefill) if config.acceleration.early_abort.enabled else None
        self._note = context.note
        # Groups that are still to be issued; those that are lost and replaced count once more.
        self._num_left = (config.training.max_steps - first_step) * config.prompts_per_step
        self._more_wanted = asyncio.Event()
        self._num_failed_in_row = 0
        self._gate = gate
        self._running: dict[int, asyncio.Task[None]] = {}  # draw_id -> its work
        self.aborts = AbortAccount()
        self.generation_timer = StageTimer()
        buffer.when_too_old(self._requeue)
        buffer.when_surplus(self._drop_surplus)

    async def run(self) -> None:
        """Issue what the steps need, until it is cancelled.

        Consumes slots and draws, produces groups in the buffer. Waits for a slot, which ``trained``,
        ``weights_loaded`` and ``release`` of the buffer unblock, and, where all was issued, for a group that
        is lost and replaced. A fault in any draw, or in issuing one, is handed to whoever waits on the
        buffer, here too while more is to be issued.
        """
        try:
            # What was scored before a resume counts as issued, as it was.
            self._num_left -= len(self._draws.restore(self._buffer.restore))
            while True:
                while self._num_left <= 0:
                    self._more_wanted.clear()
                    await self._more_wanted.wait()
                await self._buffer.wait_for_slot(self._slot_deadline_s)
                self._issue()
        except Exception as error:
            self._buffer.fail(_describe(error))
            raise
        finally:
            left = list(self._running.values())
            for running in left:
                running.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def finish(self) -> None:
        """Issue nothing more: the last step has its groups. What is still open is dropped."""
        reason = "the last step had its groups"
        while open_draws := self._buffer.open_draws:
            self._buffer.release(open_draws[0], DrawState.DROPPED)
            self._cancel(open_draws[0], reason)
        self._draws.drop_waiting(reason)
        self._num_left = 0

    def _requeue(self, group: RolloutGroup) -> None:
        """Issue a draw once more whose group came too old; the buffer calls this."""
        self._draws.requeue(group.draw_id, "its tokens are older than max_staleness allows")
        self._replace_one()

    def _drop_surplus(self, draw_id: int) -> None:
        """End a draw that was issued ahead and is not needed; the buffer calls this."""
        self._gate.note_surplus()
        self._cancel(draw_id, "it was drawn ahead, and the steps in turn have their groups")
        self._replace_one()

    def _cancel(self, draw_id: int, reason: str) -> None:
        """Stop the work on a draw, whose slot is free; it is trained on in no step."""
        if draw_id in self._running:
            self._running[draw_id].cancel()
        self._draws.drop(draw_id, reason)

    def _replace_one(self) -> None:
        """Issue one group more than planned, in place of one that was lost."""
        self._num_left += 1
        self._more_wanted.set()

    def _issue(self) -> None:
        """Draw a task for the slot that is free and send it off."""
        # The step that it is meant for; it may come to be trained on by another.
        step = self._config.training.max_steps - math.ceil(self._num_left / self._config.prompts_per_step)
        draw, task = self._draws.next(step, self._buffer.policy_version)
        self._num_left -= 1
        self._buffer.issue(draw.draw_id)
        running = asyncio.create_task(self._collect(draw, task), name=f"draw {draw.draw_id}")
        self._running[draw.draw_id] = running
        running.add_done_callback(partial(self._finished, draw.draw_id))

    def _finished(self, draw_id: int, running: asyncio.Task[None]) -> None:
        # A draw that was requeued may have its next work by now.
        if self._running.get(draw_id) is running:
            del self._running[draw_id]
        if running.cancelled():
            return
        error = running.exception()
        if error is not None:
            self._buffer.fail(f"{running.get_name()}: {_describe(error)}")

    async def _collect(self, draw: Draw, task: Task) -> None:
        """Turn one draw into a group in the buffer, or into a failed draw in the ledger."""
        prompt_ids = self._draws.prompt_ids(task)
        num_wanted = self._config.grpo.num_generations
        request = GenerationRequest(
            # Each attempt has its own.
            request_id=f"draw-{draw.draw_id}" + (f".{draw.attempt}" if draw.attempt else ""),
            prompt_ids=prompt_ids,
            num_generations=num_wanted,
            sampling=self._sampling,
            seed=None if self._seed is None else request_seed(self._seed, f"draw/{draw.draw_id}"),
            abort_prefill=self._prefill if self._balance is not None and self._balance.pays else None,
        )
        work = _Work(draw.draw_id, task, request)
        completions: list[Completion] = []
        judging: list[asyncio.Task[Judged]] = []
        try:
            async for completion in self._generate(work, request):
                completions.append(completion)
                if self._score_each:
                    judging.append(asyncio.create_task(self._judge(work, completion)))
            if len(completions) != num_wanted:
                raise GeneratorError(
                    f"the generator gave {len(completions)} of {num_wanted} completions of {task.task_id}"
                )
            if self._turns is None:
                self._buffer.generated(draw.draw_id)
            if not self._score_each:
                judging = [asyncio.create_task(self._judge(work, one)) for one in completions]
            judged = await asyncio.gather(*judging)
            if self._turns is not None:
                self._buffer.generated(draw.draw_id)
        finally:
            for one in judging:
                one.cancel()
        whole, results, earlier = zip(*judged, strict=True)
        group = make_group(draw.draw_id, task, prompt_ids, whole, results, earlier)
        self._note_times(work)
        self._close_group(group, draw.step)

    async def _generate(self, work: _Work, request: GenerationRequest) -> AsyncIterator[Completion]:
        """What ``request``, the draw's first or one of a later turn, is answered with; counts it."""
        asked_s, num_tokens = self._timeline.now(), 0
        with self.generation_timer.busy():
            async for completion in self._generator.generate(request):
                num_tokens += len(completion.token_ids)
                self.generation_timer.add(len(completion.token_ids))
                self._weigh_abort(completion, self.aborts.record(completion))
                yield completion
        work.writing.append(((asked_s, self._timeline.now()), num_tokens))

    async def _judge(self, work: _Work, first: Completion) -> Judged:
        """Score a completion and, with more turns, what follows it: one whole conversation."""
        score = partial(self._score, work)
        result = await score(work.task, first)
        if self._turns is None:
            return first, result, ()
        generate = partial(self._generate, work)
        feedback = partial(self._feedback, work, self._turns.feedback)
        terms = replace(self._turns, feedback=feedback, priority=work.draw_id)
        turns, fault = await later_turns(terms, generate, score, work.task, work.request, first, result)
        whole, result, earlier = as_one(first, result, turns, fault)
        if result.passed and earlier:
            discount = self._config.rollouts.turn_discount ** len(earlier)
            result = replace(result, reward=result.reward * discount)
        return whole, result, earlier

    async def _score(self, work: _Work, task: Task, completion: Completion) -> RewardResult:
        # Whole groups are trained on: rather the rest of an older one than the beginning of another.
        text = self._prefill + completion.text
        with self._scoring(work):
            return await self._scorer.score(task, text, priority=work.draw_id)

    async def _feedback(self, work: _Work, tell: Feedback, *asked: Any) -> str:
        with self._scoring(work):
            return await tell(*asked)

    @contextmanager
    def _scoring(self, work: _Work) -> Iterator[None]:
        started_s = self._timeline.now()
        try:
            yield
        finally:
            work.scoring.append((started_s, self._timeline.now()))

    def _note_times(self, work: _Work) -> None:
        name = work.task.task_id
        for started_s, ended_s in union(interval for interval, _ in work.writing):
            tokens = sum(num for (begun_s, _), num in work.writing if started_s <= begun_s <= ended_s)
            self._timeline.note(
                GENERATION, name, started_s, ended_s=ended_s, draw_id=work.draw_id, num_tokens=tokens
            )
        for started_s, ended_s in union(work.scoring):
            self._timeline.note(REWARDS, name, started_s, ended_s=ended_s, draw_id=work.draw_id)

    def _weigh_abort(self, completion: Completion, num_saved: float) -> None:
        if self._balance is None:
            return
        usage = self.generation_timer.total()
        saved_s = num_saved * usage.seconds / max(1, usage.num_tokens)
        verdict = self._balance.record(completion, saved_s)
        if verdict is not None:
            self._note(GUARD, verdict)

    def _close_group(self, group: RolloutGroup, drawn_for: int) -> None:
        """Hand the group in; one that could not be scored, or that the gate holds, is replaced."""
        step = self._buffer.step_of(group.draw_id)
        is_held = self._gate.holds(group, step, self._buffer.next_step)
        self._buffer.signal_share = self._gate.signal_share
        num_steps = self._config.acceleration.max_staleness + 1
        self._buffer.num_replaceable = self._gate.num_left(self._buffer.next_step, num_steps)
        fault = self._draws.close_group(group, drawn_for, step if is_held else None)
        if fault is None:
            self._num_failed_in_row = 0
            if is_held:
                self._buffer.renew_deadlines()
                self._buffer.release(group.draw_id, DrawState.DROPPED)
                self._replace_one()
            else:
                self._buffer.put(group)
            return
        self._num_failed_in_row += 1
        self._buffer.release(group.draw_id, DrawState.FAILED)
        self._replace_one()
        if self._num_failed_in_row >= MAX_FAILED_GROUPS:
            raise StageError(
                f"{MAX_FAILED_GROUPS} groups in a row could not be scored; the last reason: {fault}"
            )


def _describe(error: BaseException) -> str:
    """The error's message, or its type where it has none (a bare TimeoutError)."""
    return str(error) or type(error).__name__


def make_group(
    draw_id: int,
    task: Task,
    prompt_ids: tuple[int, ...],
    completions: Sequence[Completion],
    results: Sequence[RewardResult],
    earlier: Sequence[tuple[EarlierTurn, ...]] | None = None,
) -> RolloutGroup:
    """The group of one draw, from its completions, their scores and earlier turns in the same order.

    Its rollouts are in the order of their indices, whichever ended first: the order decides how sums are
    rounded, and a replay has the same.
    """
    parts = zip(completions, results, earlier or [()] * len(results), strict=True)
    rollouts = tuple(
        Rollout(
            prompt_ids=prompt_ids,
            completion=completion,
            result=result,
            earlier=turns,
        )
        for completion, result, turns in sorted(parts, key=lambda part: part[0].index)
    )
    return RolloutGroup(draw_id=draw_id, task=task, rollouts=rollouts)
