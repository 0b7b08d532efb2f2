"""The bounded buffer between rewards and training.

Slots are given by the rule of pipeline.rollouts.admission, so that no group grows too old: staleness is
bounded by admission, not by throwing work away. A group can still come too old from a generator that went on
with old weights; it is found when it is put, or when a step ends, and leaves at once.

With over-issue a step may start more groups than it trains on, and need not wait for the last of them: what
the steps it may go to have no place left for is given up when a step's groups are in, unfinished groups
first.

    slot = await acquire_slot()   -> issue(slot, draw_id) -> generated(draw_id) -> put(group)
    taken = await take(G, v)      -> the optimiser step   -> trained(v + 1) -> weights_loaded(v + 1)

It lives in one event loop, starts no task and no process, and scores nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.messages import RolloutGroup
from pipeline.rollouts.admission import Admission
from pipeline.rollouts.waiting import BufferCounts, Waiting, no_slot, not_delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The right to issue one group, whose tokens are at least of ``policy_version``."""

    slot_id: int
    policy_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Groups to train on, oldest draw first, and what lost its slot.

    ``dropped`` groups were found too old since the last call. ``surplus`` groups and ``cancelled`` draws,
    which are still at work, were started in excess (over-issue) and have no step left to go to.
    """

    groups: tuple[RolloutGroup, ...]
    dropped: tuple[RolloutGroup, ...]
    surplus: tuple[RolloutGroup, ...] = ()
    cancelled: tuple[int, ...] = ()


class RolloutBuffer:
    """Slots, and the finished groups in them."""

    def __init__(
        self, *, groups_per_step: int, max_staleness: int, version: int = 0, num_extra: int = 0
    ) -> None:
        """``version`` is that of the trainer and the generators at the start (a resume: not 0)."""
        assert version >= 0
        self._rule = Admission(
            groups_per_step=groups_per_step, max_staleness=max_staleness, num_extra=num_extra
        )
        self._rule_in_turn = Admission(groups_per_step=groups_per_step, max_staleness=0, num_extra=num_extra)
        self._alternates = False
        # In turn: the version that all steps of the present block are generated with; None before the first.
        self._block_version: int | None = None
        self._trainer_version = version
        self._policy_version = version
        self._next_slot_id = 0
        self._reserved: dict[int, int] = {}  # slot_id -> policy version
        self._issued: dict[int, int] = {}  # draw_id -> policy version, until put; ready ones stay here too
        self._generated: set[int] = set()
        self._ready: dict[int, RolloutGroup] = {}
        self._stale: list[RolloutGroup] = []  # dropped, not yet returned
        self._on_too_old: Callable[[RolloutGroup], None] = lambda group: None
        self._training: set[int] = set()
        self._waiting = Waiting()

    @property
    def counts(self) -> BufferCounts:
        """How many groups are in each state."""
        return BufferCounts(
            reserved=len(self._reserved),
            generating=len(self._issued) - len(self._generated),
            scoring=len(self._generated) - len(self._ready),
            ready=len(self._ready),
            training=len(self._training),
        )

    def when_too_old(self, call: Callable[[RolloutGroup], None]) -> None:
        """Have ``call`` told of each group that is found too old, when its slot is free again."""
        self._on_too_old = call

    @property
    def num_slots(self) -> int:
        """Slots that may be in use now."""
        rule, version = self._rule, self._policy_version
        if self._alternates and self._block_version is None:
            rule = self._rule_in_turn
        elif self._block_version is not None:
            # As if the generators stayed at it: no slot for what the block does not train on.
            version = self._block_version
        return rule.num_slots(
            trainer_version=self._trainer_version,
            policy_version=version,
            num_training=len(self._training),
        )

    def alternate(self, alternates: bool) -> None:
        """Whether generation and training take turns: no slot while anything waits to be trained on.

        A turn of the generators is the block of steps that one version of the weights may serve,
        max_staleness + 1 of them: the engine is fuller, and its last stragglers are waited for once a block.
        With extra groups a block is one step. Blocks begin when all that was under way is trained on.
        """
        if alternates == self._alternates:
            return
        self._alternates = alternates
        self._block_version = None
        self._changed()

    @property
    def next_step(self) -> int:
        """The step that the trainer is at, or waits for; steps count from 1."""
        return self._trainer_version + 1

    @property
    def open_draws(self) -> tuple[int, ...]:
        """Draws with a slot that are not being trained on, oldest first."""
        return tuple(sorted(self._issued))

    async def acquire_slot(self, deadline_s: float) -> Slot:
        """Wait for the right to issue one group.

        Unblocked by ``weights_loaded`` (generators caught up), ``trained`` and ``drop``. Raises
        TimeoutError that names who held it up, StageError after ``fail``.
        """
        await self._waiting.until(
            lambda: self.counts.in_use < self.num_slots, deadline_s, self._explain_no_slot
        )
        slot = self.take_slot()
        assert slot is not None
        return slot

    def take_slot(self) -> Slot | None:
        """The right to issue one group if it can be had now."""
        if self.counts.in_use >= self.num_slots:
            return None
        slot = Slot(slot_id=self._next_slot_id, policy_version=self._policy_version)
        self._next_slot_id += 1
        self._reserved[slot.slot_id] = slot.policy_version
        return slot

    def issue(self, slot: Slot, draw_id: int) -> None:
        """Use ``slot`` for a draw, which goes to the generators now."""
        assert draw_id not in self._issued and draw_id not in self._training, (
            f"draw {draw_id} was issued twice"
        )
        self._issued[draw_id] = self._reserved.pop(slot.slot_id)

    def release_slot(self, slot: Slot) -> None:
        """Give a slot back that was not used (no task left to draw)."""
        del self._reserved[slot.slot_id]
        self._changed()

    def generated(self, draw_id: int) -> None:
        """Note that all completions of a draw are there and only their rewards are missing."""
        if draw_id in self._issued:
            self._generated.add(draw_id)

    def put(self, group: RolloutGroup) -> None:
        """Hand in a scored group. Never waits: the group has had its place since ``acquire_slot``."""
        assert group.draw_id in self._issued, f"draw {group.draw_id} has no slot"
        assert group.draw_id not in self._ready, f"draw {group.draw_id} was put twice"
        self._generated.add(group.draw_id)
        self._ready[group.draw_id] = group
        self._changed()
        self._drop_too_old()

    def take_back(self, group: RolloutGroup) -> bool:
        """Hand in a group that was scored before a resume; False if it could not be trained on in time."""
        version = _oldest(group)
        slots = [*self._reserved.values(), *self._issued.values()]
        if not self._rule.can_join(
            version, slots, trainer_version=self._trainer_version, num_left=self._num_left
        ):
            return False
        assert group.draw_id not in self._issued and group.draw_id not in self._training
        self._issued[group.draw_id] = version
        self.put(group)
        return True

    def drop(self, draw_id: int) -> None:
        """Free the slot of a draw that will not be trained on (failed, no signal), in whatever state."""
        assert draw_id in self._issued or draw_id in self._training, f"draw {draw_id} has no slot"
        self._issued.pop(draw_id, None)
        self._generated.discard(draw_id)
        self._ready.pop(draw_id, None)
        self._training.discard(draw_id)
        self._changed()

    def pass_over(self, draw_id: int) -> None:
        """Free the slot of a draw whose group is replaced for want of signal.

        Who waits has as long again as at first: another group is on its way (pipeline.rollouts.gate bounds
        how many).
        """
        self._waiting.renew()
        self.drop(draw_id)

    async def take(self, num_groups: int, trainer_version: int, deadline_s: float) -> Taken:
        """Wait for ``num_groups`` groups to train on with weights of ``trainer_version``; oldest draws first.

        A group that is still at work is passed over only while it can be trained in time at a later
        step, so with max_staleness 0 nothing is passed over. A step may take its groups in several
        calls. Unblocked by ``put``. Raises TimeoutError that names who did not deliver, StageError after
        ``fail``.
        """
        assert trainer_version == self._trainer_version, (
            f"take at version {trainer_version}, but trained({self._trainer_version}) was the last"
        )

        def explain(waited_s: float) -> str:
            return self._explain_not_delivered(num_groups, waited_s)

        await self._waiting.until(lambda: self._is_enough(num_groups), deadline_s, explain)
        return self._taken(num_groups)

    def take_now(self, num_groups: int) -> Taken | None:
        """What ``take`` would give without waiting; None where it would wait."""
        return self._taken(num_groups) if self._is_enough(num_groups) else None

    def _is_enough(self, num_groups: int) -> bool:
        assert 0 < num_groups <= self._num_left
        is_whole = self._block_version is None or len(self._ready) == self.counts.in_use - len(self._training)
        return is_whole and self._can_take(num_groups)

    def _taken(self, num_groups: int) -> Taken:
        groups = tuple(self._ready.pop(draw_id) for draw_id in self._oldest_ready(num_groups))
        for group in groups:
            del self._issued[group.draw_id]
            self._generated.discard(group.draw_id)
            self._training.add(group.draw_id)
        dropped, self._stale = tuple(self._stale), []
        surplus, cancelled = self._give_up_surplus()
        return Taken(groups=groups, dropped=dropped, surplus=surplus, cancelled=cancelled)

    @property
    def _num_left(self) -> int:
        """Groups that the step at hand has not taken yet."""
        return self._rule.groups_per_step - len(self._training)

    def _give_up_surplus(self) -> tuple[tuple[RolloutGroup, ...], tuple[int, ...]]:
        """Free what over-issue started and no step has a place for: finished groups and draws at work."""
        surplus: list[RolloutGroup] = []
        cancelled: list[int] = []
        if not self._rule.num_extra or self._num_left:
            return (), ()
        for version in sorted(set(self._issued.values())):
            room = self._rule.may_stay(version, trainer_version=self._trainer_version)
            due = [draw_id for draw_id, other in self._issued.items() if other <= version]
            # Least done first; of those alike, the latest.
            due.sort(key=lambda draw_id: (draw_id in self._ready, draw_id in self._generated, -draw_id))
            for draw_id in due[: max(0, len(due) - room)]:
                if draw_id in self._ready:
                    surplus.append(self._ready[draw_id])
                else:
                    cancelled.append(draw_id)
                self.drop(draw_id)
        return tuple(surplus), tuple(cancelled)

    def _drop_too_old(self) -> None:
        oldest = self._trainer_version - self._rule.max_staleness
        for group in list(self._ready.values()):
            if _oldest(group) < oldest:
                self.drop(group.draw_id)
                self._stale.append(group)
                self._on_too_old(group)

    def _oldest_ready(self, num_groups: int) -> list[int]:
        return sorted(self._ready, key=lambda draw_id: (self._issued[draw_id], draw_id))[:num_groups]

    def _can_take(self, num_groups: int) -> bool:
        """Whether the ``num_groups`` oldest ready groups can go now and leave all others in time."""
        if len(self._ready) < num_groups:
            return False
        chosen = self._oldest_ready(num_groups)
        return self._rule.may_overtake(
            [self._issued[draw_id] for draw_id in chosen],
            [version for draw_id, version in self._issued.items() if draw_id not in chosen],
            {version for draw_id, version in self._issued.items() if draw_id not in self._ready},
            trainer_version=self._trainer_version,
            num_left=self._num_left - num_groups,
        )

    def trained(self, trainer_version: int) -> None:
        """Note the end of an optimiser step: its groups leave, the trainer is at ``trainer_version``."""
        assert trainer_version == self._trainer_version + 1, f"version {trainer_version} skips a step"
        self._trainer_version = trainer_version
        self._training.clear()
        self._changed()
        self._drop_too_old()

    def weights_loaded(self, policy_version: int) -> None:
        """Note that every generator writes with ``policy_version`` or newer from now on."""
        assert self._policy_version <= policy_version <= self._trainer_version
        self._policy_version = policy_version
        self._changed()

    def fail(self, reason: str) -> None:
        """Wake everyone who waits with a StageError of ``reason``: a stage is gone for good."""
        self._waiting.fail(reason)

    def _changed(self) -> None:
        has_blocks = self._alternates and not self._rule.num_extra
        if has_blocks and self._policy_version == self._trainer_version and not self.counts.in_use:
            self._block_version = self._trainer_version
        self._waiting.changed()

    def _explain_not_delivered(self, num_groups: int, waited_s: float) -> str:
        return not_delivered(
            self.counts,
            waited_s=waited_s,
            step=self._trainer_version + 1,
            num_missing=max(1, num_groups - len(self._ready)),
            generating=sorted(set(self._issued) - self._generated),
            scoring=sorted(self._generated - set(self._ready)),
            too_old=sorted(group.draw_id for group in self._stale),
        )

    def _explain_no_slot(self, waited_s: float) -> str:
        return no_slot(
            self.counts,
            waited_s=waited_s,
            num_slots=self.num_slots,
            policy_version=self._policy_version,
            trainer_version=self._trainer_version,
        )


def _oldest(group: RolloutGroup) -> int:
    return min(rollout.completion.min_policy_version for rollout in group.rollouts)
