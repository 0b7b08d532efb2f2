"""The bounded buffer between rewards and training, which keeps samples from growing too old.

A group takes a slot before its task is drawn and keeps it until it has been trained on. With G groups
a step, S = max_staleness, the trainer at version v and the generators at version g <= v, a slot is
given only while fewer than G * (S + 1 - (v - g)) are in use. A group issued now can then always be
trained by version g + S: staleness is bounded by admission, not by throwing work away (the idea of
AReaL's rollout controller, arXiv:2505.24298). S = 0 is on-policy.

With E > 0 extra groups (``acceleration.long_tails.over_issue``) a step may start E groups more than it
trains on, and need not wait for the last of them: what the steps it may go to have no place left for is
given up when a step's groups are in, unfinished groups first.

    slot = await acquire_slot()   -> issue(slot, draw_id) -> generated(draw_id) -> put(group)
    taken = await take(G, v)      -> the optimiser step   -> trained(v + 1) -> weights_loaded(v + 1)

It lives in one event loop, starts no task and no process, and scores nothing. Called by the
orchestrator's loops; who waits on whom is in each method.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.errors import StageError
from pipeline.messages import RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The right to issue one group, whose tokens are at least of ``policy_version``."""

    slot_id: int
    policy_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Groups to train on, oldest draw first, and what lost its slot.

    ``dropped`` groups were found too old. ``surplus`` groups and ``cancelled`` draws, which are still at
    work, were started in excess (over-issue) and have no step left to go to.
    """

    groups: tuple[RolloutGroup, ...]
    dropped: tuple[RolloutGroup, ...]
    surplus: tuple[RolloutGroup, ...] = ()
    cancelled: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferCounts:
    """Groups in each state: slot taken, being generated, being scored, ready, being trained on."""

    reserved: int
    generating: int
    scoring: int
    ready: int
    training: int

    @property
    def in_use(self) -> int:
        """Slots in use."""
        return self.reserved + self.generating + self.scoring + self.ready + self.training


class RolloutBuffer:
    """Slots, and the finished groups in them; see the module's text for the rule."""

    def __init__(
        self, *, groups_per_step: int, max_staleness: int, version: int = 0, num_extra: int = 0
    ) -> None:
        """``version`` is that of the trainer and the generators at the start (a resume: not 0)."""
        assert groups_per_step > 0 and max_staleness >= 0 and version >= 0 and num_extra >= 0
        self._num_extra = num_extra
        self._groups_per_step = groups_per_step
        self._max_staleness = max_staleness
        self._trainer_version = version
        self._policy_version = version
        self._next_slot_id = 0
        self._reserved: dict[int, int] = {}  # slot_id -> policy version
        self._issued: dict[int, int] = {}  # draw_id -> policy version, until put; ready ones stay here too
        self._generated: set[int] = set()
        self._ready: dict[int, RolloutGroup] = {}
        self._stale: list[RolloutGroup] = []  # dropped, not yet returned
        self._training: set[int] = set()
        self._failure: str | None = None
        self._change = asyncio.Event()

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

    @property
    def num_slots(self) -> int:
        """Slots that may be in use now: G * (S + 1 - lag of the generators), never negative.

        The extra ones come on top while a step is left that could use them.
        """
        lag = self._trainer_version - self._policy_version
        planned = max(0, self._groups_per_step * (self._max_staleness + 1 - lag))
        return planned + (self._num_extra if planned > len(self._training) else 0)

    @property
    def open_draws(self) -> tuple[int, ...]:
        """Draws with a slot that are not being trained on, oldest first."""
        return tuple(sorted(self._issued))

    async def acquire_slot(self, deadline_s: float) -> Slot:
        """Wait for the right to issue one group.

        Unblocked by ``weights_loaded`` (generators caught up), ``trained`` and ``drop``. Raises
        TimeoutError that names who held it up, StageError after ``fail``.
        """
        await self._wait_until(lambda: self.counts.in_use < self.num_slots, deadline_s, self._explain_no_slot)
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

    def drop(self, draw_id: int) -> None:
        """Free the slot of a draw that will not be trained on (failed, no signal), in whatever state."""
        assert draw_id in self._issued or draw_id in self._training, f"draw {draw_id} has no slot"
        self._issued.pop(draw_id, None)
        self._generated.discard(draw_id)
        self._ready.pop(draw_id, None)
        self._training.discard(draw_id)
        self._changed()

    async def take(self, num_groups: int, trainer_version: int, deadline_s: float) -> Taken:
        """Wait for ``num_groups`` groups to train on with weights of ``trainer_version``; oldest draws first.

        A group that is still at work is passed over only while it can be trained in time at a later
        step, so with max_staleness 0 nothing is passed over. A step may take its groups in several
        calls. Groups whose oldest token is older than max_staleness (a generator that restarted with
        old weights) are dropped and replaced. Unblocked by ``put``. Raises TimeoutError that names who
        did not deliver, StageError after ``fail``.
        """
        assert trainer_version == self._trainer_version, (
            f"take at version {trainer_version}, but trained({self._trainer_version}) was the last"
        )
        assert 0 < num_groups <= self._groups_per_step - len(self._training)

        def enough() -> bool:
            self._drop_stale()
            return self._can_take(num_groups)

        def explain(waited_s: float) -> str:
            return self._explain_not_delivered(num_groups, waited_s)

        await self._wait_until(enough, deadline_s, explain)
        groups = tuple(self._ready.pop(draw_id) for draw_id in self._oldest_ready(num_groups))
        for group in groups:
            del self._issued[group.draw_id]
            self._generated.discard(group.draw_id)
            self._training.add(group.draw_id)
        dropped, self._stale = tuple(self._stale), []
        surplus, cancelled = self._give_up_surplus()
        return Taken(groups=groups, dropped=dropped, surplus=surplus, cancelled=cancelled)

    def _give_up_surplus(self) -> tuple[tuple[RolloutGroup, ...], tuple[int, ...]]:
        """Free what over-issue started and no step has a place for: finished groups and draws at work.

        Of the groups of version w or older as many may stay as the steps until w + max_staleness take, and
        the extra ones if there is such a step.
        """
        surplus: list[RolloutGroup] = []
        cancelled: list[int] = []
        if not self._num_extra or len(self._training) < self._groups_per_step:
            return (), ()
        for version in sorted(set(self._issued.values())):
            num_steps = version + self._max_staleness - self._trainer_version
            room = self._groups_per_step * num_steps + self._num_extra if num_steps > 0 else 0
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

    def _drop_stale(self) -> None:
        oldest = self._trainer_version - self._max_staleness
        for group in list(self._ready.values()):
            if min(rollout.completion.min_policy_version for rollout in group.rollouts) < oldest:
                self.drop(group.draw_id)
                self._stale.append(group)

    def _oldest_ready(self, num_groups: int) -> list[int]:
        return sorted(self._ready, key=lambda draw_id: (self._issued[draw_id], draw_id))[:num_groups]

    def _can_take(self, num_groups: int) -> bool:
        """Whether the ``num_groups`` oldest ready groups can go now and leave all others in time.

        Earliest deadline first: of the groups of version w or older, no more may stay behind than the
        rest of this step and the steps until w + max_staleness can take, and the extra ones; a newer group
        does not go in front of them.
        """
        if len(self._ready) < num_groups:
            return False
        chosen = self._oldest_ready(num_groups)
        newest = max(self._issued[draw_id] for draw_id in chosen)
        at_work = {version for draw_id, version in self._issued.items() if draw_id not in self._ready}
        staying = [version for draw_id, version in self._issued.items() if draw_id not in chosen]
        rest_of_step = self._groups_per_step - len(self._training) - num_groups
        for version in at_work:
            # Where no newer group is chosen, waiting would change nothing.
            if version < newest:
                num_steps = version + self._max_staleness - self._trainer_version
                num_due = sum(other <= version for other in staying)
                if num_due > rest_of_step + self._groups_per_step * num_steps + self._num_extra:
                    return False
        return True

    def trained(self, trainer_version: int) -> None:
        """Note the end of an optimiser step: its groups leave, the trainer is at ``trainer_version``."""
        assert trainer_version == self._trainer_version + 1, f"version {trainer_version} skips a step"
        self._trainer_version = trainer_version
        self._training.clear()
        self._changed()

    def weights_loaded(self, policy_version: int) -> None:
        """Note that every generator writes with ``policy_version`` or newer from now on."""
        assert self._policy_version <= policy_version <= self._trainer_version
        self._policy_version = policy_version
        self._changed()

    def fail(self, reason: str) -> None:
        """Wake everyone who waits with a StageError of ``reason``: a stage is gone for good."""
        self._failure = self._failure or reason
        self._changed()

    def state(self) -> dict[str, object]:
        """What a resume needs, as JSON. Groups are not in it: open draws are generated again."""
        return {"version": self._trainer_version, "open_draws": sorted(set(self._issued) | self._training)}

    @staticmethod
    def from_state(state: Mapping[str, object], *, groups_per_step: int, max_staleness: int) -> RolloutBuffer:
        """An empty buffer at the version of ``state``; open draws must take their slots again."""
        version = state["version"]
        if not isinstance(version, int) or version < 0:
            raise ValueError(f"state of the rollout buffer: version {version!r} is not a number of steps")
        return RolloutBuffer(groups_per_step=groups_per_step, max_staleness=max_staleness, version=version)

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _wait_until(
        self, ready: Callable[[], bool], deadline_s: float, explain: Callable[[float], str]
    ) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    if self._failure is not None:
                        raise StageError(self._failure)
                    change = self._change
                    if ready():
                        return
                    await change.wait()
        except TimeoutError:
            raise TimeoutError(explain(deadline_s)) from None

    def _explain_not_delivered(self, num_groups: int, waited_s: float) -> str:
        counts = self.counts
        generating = sorted(set(self._issued) - self._generated)
        scoring = sorted(self._generated - set(self._ready))
        owed = [f"generation owes draws {_some(generating)}"] if generating else []
        owed += [f"rewards owe draws {_some(scoring)}"] if scoring else []
        if not owed:
            owed = [f"nothing is at work: the sampler issued none ({counts.reserved} slots reserved)"]
        num_missing = max(1, num_groups - counts.ready)
        return (
            f"waited {waited_s:g} s for {num_missing} more rollout groups"
            f" of step {self._trainer_version + 1}: "
            f"issued {len(self._issued)}, generated {len(self._generated)}, scored {counts.ready}; "
            + "; ".join(owed)
        )

    def _explain_no_slot(self, waited_s: float) -> str:
        counts = self.counts
        if self._policy_version < self._trainer_version:
            culprit = f"generators have version {self._policy_version}, the trainer {self._trainer_version}"
        elif counts.training or counts.ready:
            culprit = f"the trainer holds {counts.training} groups and has {counts.ready} waiting"
        else:
            culprit = f"generation owes {counts.generating} groups, rewards {counts.scoring}"
        in_use = f"{counts.in_use} in use of {self.num_slots}"
        return f"waited {waited_s:g} s for a rollout slot ({in_use}): {culprit}"


def _some(draw_ids: list[int]) -> str:
    shown = ", ".join(str(draw_id) for draw_id in draw_ids[:8])
    return shown if len(draw_ids) <= 8 else f"{shown} and {len(draw_ids) - 8} more"
