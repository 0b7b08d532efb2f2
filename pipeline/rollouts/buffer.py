"""The bounded buffer between rewards and training.

Slots are given by the rule of pipeline.rollouts.waiting, so that no group grows too old: staleness is
bounded by admission, not by throwing work away. A group can still come too old from a generator that went on
with old weights; it is found when it is put, or when a step ends, and leaves at once, to be requeued.

    await wait_for_slot()  -> issue(draw_id)     -> generated(draw_id) -> put(group)
    taken = await take(G)  -> the optimiser step -> trained(v + 1) -> weights_loaded(v + 1)

It knows the draws that hold a slot, each in its state (pipeline.record.draw_states). It lives in one event
loop, starts no task and no process, and scores nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pipeline.messages import RolloutGroup
from pipeline.record.draw_states import DrawState, DrawStateError, check_move
from pipeline.rollouts.waiting import Admission, Waiting, in_state, why_no_slot, why_not_delivered


@dataclass(slots=True, kw_only=True)
class _Held:
    """A draw that holds a slot, whose tokens are at least of ``policy_version``; scored, it has a group."""

    state: DrawState
    policy_version: int
    group: RolloutGroup | None = None


class RolloutBuffer:
    """Slots, and the finished groups in them.

    Every generator writes with ``policy_version`` or newer. With ``alternates`` generation and training take
    turns (see ``alternate``).
    """

    def __init__(
        self, *, groups_per_step: int, max_staleness: int, version: int = 0, has_turns: bool = False
    ) -> None:
        """``version`` is that of the trainer and the generators at the start (a resume: not 0).

        With ``has_turns`` what is generated may wait for a score, to go on from there.
        """
        assert version >= 0
        self._rule = Admission(groups_per_step=groups_per_step, max_staleness=max_staleness)
        self._rule_in_turn = Admission(groups_per_step=groups_per_step, max_staleness=0)
        self._writers_owe = "generation or rewards owe" if has_turns else "generation owes"
        self.alternates = False
        # The share of groups that are not replaced for want of signal, as far as is known, and how many of a
        # block's may still be (SignalGate).
        self.signal_share, self.num_replaceable = 1.0, 0
        # In turn: the version that all steps of the present block are generated with; None before the first.
        self._block_version: int | None = None
        self._trainer_version = version
        self.policy_version = version
        self._held: dict[int, _Held] = {}  # by draw
        self._too_old: list[int] = []  # draws, since the last ``drain_too_old``
        self._on_too_old: Callable[[RolloutGroup], None] = lambda group: None
        self._on_surplus: Callable[[int], None] = lambda draw_id: None
        self._waiting = Waiting()

    @property
    def in_use(self) -> int:
        """Slots in use."""
        return len(self._held)

    @property
    def states(self) -> dict[int, DrawState]:
        """The draws that hold a slot, by number."""
        return {draw_id: held.state for draw_id, held in self._held.items()}

    def when_too_old(self, call: Callable[[RolloutGroup], None]) -> None:
        """Have ``call`` told of each group that is found too old, when its slot is free again."""
        self._on_too_old = call

    def when_surplus(self, call: Callable[[int], None]) -> None:
        """Have ``call`` told of each draw that was issued ahead for nothing, when its slot is free again."""
        self._on_surplus = call

    @property
    def num_slots(self) -> int:
        """Slots that may be in use now, but for a surplus in turn."""
        rule, version = self._rule, self.policy_version
        if self.alternates and self._block_version is None:
            rule = self._rule_in_turn
        elif self._block_version is not None:
            # As if the generators stayed at it: no slot for what the block does not train on.
            version = self._block_version
        return rule.num_slots(trainer_version=self._trainer_version, policy_version=version)

    def alternate(self, alternates: bool) -> None:
        """Whether generation and training take turns: no slot beyond those of the block of steps.

        A turn of the generators is the block of steps that one version of the weights may serve,
        max_staleness + 1 of them: the engine is fuller, and its last stragglers are waited for once a block.
        Blocks begin when all that was under way is trained on.

        Where groups are replaced (``signal_share``), the last of them would be written nearly alone: more are
        at work than the block takes. The first by draw fill it, whichever ended first, and those beyond are
        dropped, so that what is trained on has the same distribution as without them.
        """
        if alternates == self.alternates:
            return
        if self._block_version is not None:
            self._drop_surplus()
        self.alternates = alternates
        self._block_version = None
        self._changed()

    @property
    def next_step(self) -> int:
        """The step that the trainer is at, or waits for; steps count from 1."""
        return self._trainer_version + 1

    def step_of(self, draw_id: int) -> int:
        """The step that would train on a draw at work, were all those ahead of it trained on before."""
        place = (self._held[draw_id].policy_version, draw_id)
        ahead = sum((held.policy_version, other) < place for other, held in self._open())
        taken = len(self._in_state(DrawState.TRAINING))
        step = self.next_step + (taken + ahead) // self._rule.groups_per_step
        if self._block_version is None:
            return step
        # What is beyond a block would go into it, were one of those ahead replaced.
        return min(step, self._block_version + self._rule.max_staleness + 1)

    @property
    def is_next_step_ready(self) -> bool:
        """Whether the groups of that step can be taken without waiting for anything."""
        return self._is_enough(self._rule.groups_per_step)

    @property
    def open_draws(self) -> tuple[int, ...]:
        """Draws with a slot that are not being trained on, oldest first."""
        return tuple(sorted(draw_id for draw_id, _ in self._open()))

    async def wait_for_slot(self, deadline_s: float) -> None:
        """Wait until one more group may be issued; ``issue`` is to follow without another wait.

        Unblocked by ``weights_loaded`` (generators caught up), ``trained`` and ``release``. Raises
        TimeoutError that names who held it up when nothing has moved for ``deadline_s``, StageError after
        ``fail``.
        """
        await self._waiting.until(lambda: self.has_slot, deadline_s, self._explain_no_slot)

    @property
    def has_slot(self) -> bool:
        """Whether one more group may be issued now."""
        return self.in_use < self.num_slots + self._num_beyond

    @property
    def _num_beyond(self) -> int:
        """Groups that may be at work beyond the block's slots: half as many as are expected to be replaced.

        With as many as that a quarter more was written than was of use. On policy none: what is drawn next
        would depend on which was written first, also after a resume.
        """
        if self._block_version is None or self._rule.max_staleness == 0:
            return 0
        num_done = len(self._in_state(DrawState.TRAINING)) + len(self._in_state(DrawState.SCORED))
        missing = self.num_slots - num_done
        return min(max(0, math.ceil((missing / self.signal_share - missing) / 2)), self.num_replaceable)

    def issue(self, draw_id: int) -> None:
        """Give a slot, which is free, to a draw, which goes to the generators now."""
        held = self._held.get(draw_id)
        check_move(draw_id, held.state if held else DrawState.ISSUED, DrawState.GENERATING)
        assert self.has_slot
        self._held[draw_id] = _Held(state=DrawState.GENERATING, policy_version=self.policy_version)

    def generated(self, draw_id: int) -> None:
        """Note that all completions of a draw are there and only their rewards are missing."""
        self._move(draw_id, DrawState.SCORING)

    def put(self, group: RolloutGroup) -> None:
        """Hand in a scored group. Never waits: the group has had its place since ``issue``."""
        self._move(group.draw_id, DrawState.SCORED).group = group
        self._changed()
        self._requeue_too_old()
        if group.draw_id in self._held:
            # One that came too old moves nothing: without end they would come from a generator that is stuck.
            self.renew_deadlines()

    def restore(self, group: RolloutGroup) -> bool:
        """Hand in a group that was scored before a resume; False if it could not be trained on in time."""
        version = _oldest(group)
        others = [held.policy_version for _, held in self._open()]
        if not self._rule.can_join(
            version, others, trainer_version=self._trainer_version, num_left=self._num_left
        ):
            return False
        assert group.draw_id not in self._held, f"draw {group.draw_id} holds a slot already"
        self._held[group.draw_id] = _Held(state=DrawState.SCORED, policy_version=version, group=group)
        self._changed()
        return True

    def release(self, draw_id: int, state: DrawState) -> None:
        """Free the slot of a draw that becomes ``state``: dropped, failed, trained, or issued: requeued."""
        self._leave(draw_id, state)
        self._changed()

    def renew_deadlines(self) -> None:
        """Give who waits as long again as at first, from the next change on: a deadline bounds standstill.

        For what moves the run on: a group, a step, new weights; and for a group that was replaced for want of
        signal: another is on its way (pipeline.rollouts.draws bounds how many).
        """
        self._waiting.renew()

    def _move(self, draw_id: int, state: DrawState) -> _Held:
        held = self._held.get(draw_id)
        if held is None:
            following = frozenset({DrawState.GENERATING})
            raise DrawStateError(draw_id, "without a slot", following, state)
        check_move(draw_id, held.state, state)
        held.state = state
        return held

    def _leave(self, draw_id: int, state: DrawState) -> None:
        assert not state.has_slot
        self._move(draw_id, state)
        del self._held[draw_id]

    def _open(self) -> list[tuple[int, _Held]]:
        """What is at work or ready: all that holds a slot and is not being trained on."""
        return [
            (draw_id, held) for draw_id, held in self._held.items() if held.state is not DrawState.TRAINING
        ]

    def _in_state(self, state: DrawState) -> list[int]:
        return in_state(self.states, state)

    async def take(self, num_groups: int, deadline_s: float) -> tuple[RolloutGroup, ...]:
        """Wait for ``num_groups`` groups to train on in the next step; oldest weights first, then draws.

        A newer group goes before one that is still at work only while that one can be trained on in time at
        a later step, so with max_staleness 0 none does. A step may take its groups in several
        calls. Unblocked by ``put``. Raises TimeoutError that names who did not deliver, StageError after
        ``fail``.
        """
        explain = partial(self._explain_not_delivered, num_groups)
        await self._waiting.until(lambda: self._is_enough(num_groups), deadline_s, explain)
        return self._taken(num_groups)

    def take_now(self, num_groups: int) -> tuple[RolloutGroup, ...]:
        """What ``take`` would give without waiting; none where it would wait."""
        return self._taken(num_groups) if self._is_enough(num_groups) else ()

    def drain_too_old(self) -> int:
        """The number of groups that were found too old since the last call."""
        number = len(self._too_old)
        self._too_old.clear()
        return number

    def _is_enough(self, num_groups: int) -> bool:
        """Whether the ``num_groups`` oldest ready groups can go now and leave all others in time."""
        assert 0 < num_groups <= self._num_left
        chosen = self._oldest_ready(num_groups)
        if len(chosen) < num_groups or (self._block_version is not None and not self._is_whole):
            return False
        return self._rule.may_overtake(
            [self._held[draw_id].policy_version for draw_id in chosen],
            [held.policy_version for draw_id, held in self._open() if draw_id not in chosen],
            {held.policy_version for _, held in self._open() if held.state is not DrawState.SCORED},
            trainer_version=self._trainer_version,
            num_left=self._num_left - num_groups,
        )

    @property
    def _num_of_block(self) -> int:
        """In turn: open draws that the block has room for, the first ones."""
        return self.num_slots - len(self._in_state(DrawState.TRAINING))

    @property
    def _is_whole(self) -> bool:
        """Whether nothing that the block has room for is at work."""
        ahead = self.open_draws[: self._num_of_block]
        return all(self._held[draw_id].state is DrawState.SCORED for draw_id in ahead)

    def _drop_surplus(self) -> None:
        """Drop the draws that the block has no room for."""
        for draw_id in self.open_draws[self._num_of_block :]:
            self._leave(draw_id, DrawState.DROPPED)
            self._on_surplus(draw_id)

    def _taken(self, num_groups: int) -> tuple[RolloutGroup, ...]:
        taken = [self._move(draw_id, DrawState.TRAINING) for draw_id in self._oldest_ready(num_groups)]
        return tuple(held.group for held in taken if held.group)

    @property
    def _num_left(self) -> int:
        """Groups that the step at hand has not taken yet."""
        return self._rule.groups_per_step - len(self._in_state(DrawState.TRAINING))

    def _requeue_too_old(self) -> None:
        oldest = self._trainer_version - self._rule.max_staleness
        for draw_id, held in self._open():
            if held.group is not None and _oldest(held.group) < oldest:
                self.release(draw_id, DrawState.ISSUED)
                self._too_old.append(draw_id)
                self._on_too_old(held.group)

    def _oldest_ready(self, num_groups: int) -> list[int]:
        ready = self._in_state(DrawState.SCORED)
        return sorted(ready, key=lambda draw_id: (self._held[draw_id].policy_version, draw_id))[:num_groups]

    def trained(self, trainer_version: int) -> None:
        """Note the end of an optimiser step: its groups leave, the trainer is at ``trainer_version``."""
        assert trainer_version == self._trainer_version + 1, f"version {trainer_version} skips a step"
        self._trainer_version = trainer_version
        for draw_id in self._in_state(DrawState.TRAINING):
            self._leave(draw_id, DrawState.TRAINED)
        self.renew_deadlines()
        self._changed()
        self._requeue_too_old()

    def weights_loaded(self, policy_version: int) -> None:
        """Note that every generator writes with ``policy_version`` or newer from now on."""
        assert self.policy_version <= policy_version <= self._trainer_version
        self.policy_version = policy_version
        self.renew_deadlines()
        self._changed()

    def fail(self, reason: str) -> None:
        """Wake everyone who waits with a StageError of ``reason``: a stage is gone for good."""
        self._waiting.fail(reason)

    def _changed(self) -> None:
        if self.alternates and self.policy_version == self._trainer_version and not self.in_use:
            self._block_version = self._trainer_version
        if self._block_version is not None and self._is_whole:
            self._drop_surplus()
        self._waiting.changed()

    def _explain_not_delivered(self, num_groups: int, waited_s: float) -> str:
        owed_by, too_old = self._writers_owe, self._too_old
        return why_not_delivered(self.states, self.next_step, num_groups, too_old, owed_by, waited_s)

    def _explain_no_slot(self, waited_s: float) -> str:
        versions = self._trainer_version, self.policy_version
        return why_no_slot(self.states, self.num_slots, *versions, self._writers_owe, waited_s)


def _oldest(group: RolloutGroup) -> int:
    return min(rollout.completion.min_policy_version for rollout in group.rollouts)
