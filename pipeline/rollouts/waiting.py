"""Waiting in the event loop until the buffer allows something, with a deadline that names who held it up.

The buffer calls ``changed`` after each change; who waits looks again then, in the order they came. How long
they wait at most follows from the deadlines of the stages. Starts no task.

What it allows (``Admission``): the rule that keeps samples from growing too old, how many groups may hold a
slot, and who may wait.

A group takes a slot before its task is drawn and keeps it until it has been trained on. With G groups a
step, S = max_staleness, the trainer at version v and the generators at version g <= v, a slot is given only
while fewer than G * (S + 1 - (v - g)) are in use (the idea of AReaL's rollout controller,
arXiv:2505.24298). S = 0 is on-policy.

Why no group then grows too old, for any S: call due(w) the number of groups of version w or older that hold
a slot. They can all be trained on by weights of version w + S, that is by the steps that start from the
versions v, v + 1, …, w + S, if

    due(w) <= G * (w + S + 1 - v)   for every w >= v - S.

A slot of version g keeps that true: for w >= g, due(w) is at most the number of slots in use; any other
due(w) does not change. A step takes G groups, oldest first, and passes over one that is still at work only
where the bound then holds for v + 1 as well. Nothing else lets v or a due(w) rise. Pure.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from configs.conditions import held_up_s
from configs.schema import Config
from pipeline.errors import StageError
from pipeline.record.draw_states import DrawState
from rewards.deadline import scoring_deadline_s


class Waiting:
    """Those who wait for a state, and how it wakes them."""

    def __init__(self) -> None:
        self._change = asyncio.Event()
        self._failure: str | None = None
        self._num_renewed = 0

    def changed(self) -> None:
        """Have everyone who waits look again."""
        self._change.set()
        self._change = asyncio.Event()

    def renew(self) -> None:
        """Give everyone who waits as long again as at first, from when they look next."""
        self._num_renewed += 1

    def fail(self, reason: str) -> None:
        """Wake everyone who waits, now or later, with a StageError of ``reason``; the first reason stays."""
        self._failure = self._failure or reason
        self.changed()

    async def until(
        self, is_ready: Callable[[], bool], deadline_s: float, explain: Callable[[float], str]
    ) -> None:
        """Return when ``is_ready`` holds, looking at once and after each change.

        Raises TimeoutError with ``explain(deadline_s)`` when ``deadline_s`` seconds have passed since the
        call or the last ``renew``, StageError after ``fail``.
        """
        try:
            async with asyncio.timeout(deadline_s) as limit:
                num_renewed = self._num_renewed
                while True:
                    if self._failure is not None:
                        raise StageError(self._failure)
                    change = self._change
                    if is_ready():
                        return
                    await change.wait()
                    if self._num_renewed > num_renewed:
                        num_renewed = self._num_renewed
                        limit.reschedule(asyncio.get_running_loop().time() + deadline_s)
        except TimeoutError:
            raise TimeoutError(explain(deadline_s)) from None


def group_deadline_s(config: Config, num_stdio_tests: int = 0) -> float:
    """For how many seconds at most no group comes while every stage keeps to a deadline of its own.

    ``num_stdio_tests`` is the largest number of a task. Each worker scores its share of a group one by one,
    and makes the feedback on it. vLLM has a deadline for the next completion of a request, once more
    for each ``generation.max_num_seqs`` sequences before it.
    """
    runtime, num_workers = config.runtime, config.acceleration.async_rewards.workers
    score_s = scoring_deadline_s(runtime.reward_timeout_s, config.rewards, config.execution, num_stdio_tests)
    scoring_s = math.ceil(config.grpo.num_generations / num_workers) * score_s
    refill = config.acceleration.refill
    # With those that are drawn ahead of what will be replaced.
    num_steps = (config.acceleration.max_staleness + 1) * (refill.max_draws if refill.enabled else 1)
    num_sequences = config.completions_per_step * num_steps
    if config.evaluation.every_steps is not None:
        num_sequences += config.evaluation.inloop_requests * config.evaluation.inloop_samples
    silence_s = math.ceil(num_sequences / config.generation.max_num_seqs) * runtime.generation_timeout_s
    # Time for a generator to fall silent, to be started again, and to write it all once more.
    writing_s = 2 * (silence_s + held_up_s(config)) + runtime.startup_timeout_s
    later = config.rollouts.max_turns - 1
    return writing_s + scoring_s + later * (writing_s + 2 * scoring_s)


def standstill_s(config: Config, num_stdio_tests: int = 0) -> float:
    """Likewise of groups, steps and weights, in seconds: nothing of these comes."""
    runtime = config.runtime
    # When a step's last group comes a part may be at work; the last part and the update follow it.
    step_s = 3 * runtime.train_step_timeout_s + runtime.weight_update_timeout_s
    return group_deadline_s(config, num_stdio_tests) + step_s


def why_not_delivered(
    states: Mapping[int, DrawState],
    step: int,
    num_groups: int,
    too_old: Sequence[int],
    writers_owe: str,
    waited_s: float,
) -> str:
    """Which stage owes what of the ``num_groups`` that ``step`` waits for, by the draws that hold a slot."""
    generating, scoring, ready = (
        in_state(states, state) for state in (DrawState.GENERATING, DrawState.SCORING, DrawState.SCORED)
    )
    owed = [f"{writers_owe} draws {_some(generating)}"] if generating else []
    owed += [f"rewards owe draws {_some(scoring)}"] if scoring else []
    if not owed:
        owed = ["nothing is at work: the sampler issued none"]
    if too_old:
        draws = _some(sorted(too_old))
        owed.append(f"draws {draws} came too old and were requeued: a generator has old weights")
    num_generated = len(scoring) + len(ready)
    return (
        f"waited {waited_s:g} s for {max(1, num_groups - len(ready))} more rollout groups of step "
        f"{step}: issued {len(generating) + num_generated}, generated {num_generated}, scored "
        f"{len(ready)}; " + "; ".join(owed)
    )


def why_no_slot(
    states: Mapping[int, DrawState],
    num_slots: int,
    trainer_version: int,
    policy_version: int,
    writers_owe: str,
    waited_s: float,
) -> str:
    """Why the producer had no slot, by the draws that hold one."""
    num = Counter(states.values())
    if policy_version < trainer_version:
        culprit = f"generators have version {policy_version}, the trainer {trainer_version}"
        setting = "runtime.weight_update_timeout_s"
    elif num[DrawState.TRAINING] or num[DrawState.SCORED]:
        training, ready = num[DrawState.TRAINING], num[DrawState.SCORED]
        culprit = f"the trainer holds {training} groups and has {ready} waiting"
        setting = "runtime.train_step_timeout_s"
    else:
        writing, scoring = num[DrawState.GENERATING], num[DrawState.SCORING]
        culprit = f"{writers_owe} {writing} groups, rewards {scoring}"
        setting = "runtime.generation_timeout_s"
    return (
        f"waited {waited_s:g} s, in which nothing moved, for a rollout slot ({len(states)} in use of "
        f"{num_slots}): {culprit}; where that is slow and not stuck, raise {setting}"
    )


def in_state(states: Mapping[int, DrawState], state: DrawState) -> list[int]:
    """The draws that are in ``state``, oldest first."""
    return sorted(draw_id for draw_id, own in states.items() if own is state)


def _some(draw_ids: Sequence[int]) -> str:
    shown = ", ".join(str(draw_id) for draw_id in draw_ids[:8])
    return shown if len(draw_ids) <= 8 else f"{shown} and {len(draw_ids) - 8} more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """G and S of the rule."""

    groups_per_step: int
    max_staleness: int

    def __post_init__(self) -> None:
        assert self.groups_per_step > 0 and self.max_staleness >= 0

    def num_slots(self, *, trainer_version: int, policy_version: int) -> int:
        """Slots that may be in use now, never negative."""
        lag = trainer_version - policy_version
        return max(0, self.groups_per_step * (self.max_staleness + 1 - lag))

    def may_overtake(
        self,
        chosen: Sequence[int],
        staying: Sequence[int],
        at_work: Collection[int],
        *,
        trainer_version: int,
        num_left: int,
    ) -> bool:
        """Whether groups of versions ``chosen`` may go into the step in front of those of ``staying``.

        ``at_work`` are the versions of those that are not finished; ``num_left`` counts what the step takes
        after them. Where no newer group would overtake one at work, waiting would change nothing.
        """
        newest = max(chosen)
        return all(
            sum(other <= version for other in staying)
            <= num_left + self.groups_per_step * (version + self.max_staleness - trainer_version)
            for version in at_work
            if version < newest
        )

    def can_join(self, version: int, others: Sequence[int], *, trainer_version: int, num_left: int) -> bool:
        """Whether a finished group of ``version`` and all ``others`` can be trained on in time.

        ``num_left`` counts the groups that the step at hand still takes.
        """
        versions = sorted([version, *others])
        return all(
            number <= num_left + self.groups_per_step * (other + self.max_staleness - trainer_version)
            for number, other in enumerate(versions, start=1)
            if other >= version
        )
