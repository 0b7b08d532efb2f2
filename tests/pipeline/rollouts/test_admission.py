"""The bound on staleness, by a random search for a schedule that breaks it."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from pipeline.messages import RolloutGroup
from pipeline.record.draw_states import DrawState
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.waiting import Admission
from tests.pipeline.rollouts.test_buffer import group

NUM_STEPS = 25


class Play:
    """One run of trainer and generators in random order, one event at a time, with nothing but the buffer.

    Generators may get weights late, groups finish in any order, draws fail, and with ``old_weights`` some
    come from a generator that went on with earlier weights; those are made again, as the producer does. With
    ``alternates`` turns of generation and training begin and end at random steps; in turn more may be at work
    than a block takes.
    """

    def __init__(
        self, rng: random.Random, *, max_staleness: int, old_weights: bool = False, alternates: bool = False
    ) -> None:
        self.rng = rng
        self.per_step = rng.randint(1, 4)
        self.max_staleness = max_staleness
        self.old_weights = old_weights
        self.alternates = alternates
        self.in_turn_since: int | None = None
        self.buffer = RolloutBuffer(groups_per_step=self.per_step, max_staleness=max_staleness)
        self.buffer.when_too_old(lambda one: self.again.append(one.draw_id))
        self.buffer.when_surplus(self.drop_surplus)
        self.version = 0  # of the generators
        self.next_draw = 0
        self.at_work: dict[int, int] = {}  # draw_id -> version of its oldest token
        self.again: list[int] = []
        self.num_made_again = 0
        self.trained: list[int] = []
        self.ages: set[int] = set()
        self.counts_slots = True
        self.gone: list[int] = []  # draws that failed
        self.surplus: list[int] = []

    async def run(self) -> None:
        for version in range(NUM_STEPS):
            if self.alternates and self.rng.random() < 0.2:
                self.in_turn_since = version if self.in_turn_since is None else None
                self.buffer.alternate(self.in_turn_since is not None)
            if self.alternates:
                self.buffer.signal_share = self.rng.choice((1.0, 0.6, 0.3))
                self.buffer.num_replaceable = self.rng.choice((0, 1, 64))
            left = self.per_step
            while left:
                part = self.rng.randint(1, left)
                groups = await self.take(part, version)
                left -= part
                self.trained += [one.draw_id for one in groups]
                self.ages |= {version - one.rollouts[0].completion.min_policy_version for one in groups}
            if self.in_turn_since is not None and version > self.in_turn_since + self.max_staleness + 2:
                assert not self.at_work and not self.buffer.has_slot, "in turn nothing is generated beside"
            self.some_events()
            self.buffer.trained(version + 1)
            self.some_events()
            self.version = version + 1
            self.buffer.weights_loaded(version + 1)

    async def take(self, num_groups: int, version: int) -> tuple[RolloutGroup, ...]:
        for _ in range(10_000):
            while self.alternates and self.issue():
                pass
            taken = self.buffer.take_now(num_groups)
            if not taken:
                self.event()
                continue
            self.num_made_again += self.buffer.drain_too_old()
            return taken
        raise AssertionError(f"nothing moves: {self.buffer.states}")

    def some_events(self) -> None:
        for _ in range(self.rng.choice((0, 1, 8))):
            self.event()

    def drop_surplus(self, draw_id: int) -> None:
        num_ahead = sum(other < draw_id for other in self.buffer.open_draws)
        num_taken = sum(state is DrawState.TRAINING for state in self.buffer.states.values())
        assert num_ahead + num_taken >= self.buffer.num_slots, "those that the block takes stay"
        self.surplus.append(draw_id)
        self.at_work.pop(draw_id, None)

    def issue(self) -> bool:
        """Use a slot, if there is one."""
        most = self.per_step * (self.max_staleness + 1)
        if self.in_turn_since is not None and self.max_staleness:
            most += math.ceil((most / 0.3 - most) / 2)
        assert self.buffer.in_use <= most or not self.counts_slots
        if not self.buffer.has_slot:
            return False
        draw_id = self.again.pop(0) if self.again else self.next_draw
        self.next_draw += draw_id == self.next_draw
        lag = self.rng.randint(1, 3) if self.old_weights and self.rng.random() < 0.1 else 0
        self.buffer.issue(draw_id)
        self.at_work[draw_id] = max(0, self.version - lag)
        return True

    def event(self) -> None:
        """A slot is used, a group finishes, or a draw fails."""
        if not (self.rng.random() < 0.5 and self.issue()) and self.at_work:
            draw_id = self.rng.choice(sorted(self.at_work))
            version = self.at_work.pop(draw_id)
            if self.rng.random() < 0.05:
                self.gone.append(draw_id)
                self.buffer.release(draw_id, DrawState.DROPPED)
            else:
                self.buffer.generated(draw_id)
                self.buffer.put(group(draw_id, version))


@pytest.mark.parametrize("old_weights", [False, True])
@pytest.mark.parametrize("max_staleness", range(9))
def test_no_group_that_is_trained_on_is_too_old_and_none_is_thrown_away(
    max_staleness: int, old_weights: bool
) -> None:
    ages: set[int] = set()
    num_made_again = 0
    for seed in range(30):
        play = Play(
            random.Random(f"{max_staleness}/{seed}"), max_staleness=max_staleness, old_weights=old_weights
        )
        asyncio.run(play.run())
        assert max(play.ages) <= max_staleness
        assert len(play.trained) == len(set(play.trained)) == NUM_STEPS * play.per_step
        ages |= play.ages
        num_made_again += play.num_made_again
    assert max(ages) == max_staleness, "the search reaches the bound"
    assert (num_made_again > 0) == old_weights, "only what a generator with old weights wrote is dropped"


@pytest.mark.parametrize("max_staleness", range(4))
def test_in_turn_or_not_every_step_gets_its_groups_and_none_is_too_old(max_staleness: int) -> None:
    num_surplus = 0
    for seed in range(20):
        play = Play(random.Random(f"{max_staleness}/{seed}"), max_staleness=max_staleness, alternates=True)
        asyncio.run(play.run())
        assert max(play.ages) <= max_staleness and play.num_made_again == 0
        assert len(play.trained) == NUM_STEPS * play.per_step
        ended = [*play.trained, *play.gone, *play.surplus, *play.buffer.open_draws]
        assert sorted(ended) == list(range(play.next_draw)), "each draw has one end"
        num_surplus += len(play.surplus)
    assert (num_surplus > 0) == (max_staleness > 0)


def test_a_rule_that_gives_one_slot_more_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search above would see a bound that is wrong by one."""
    right = Admission.num_slots

    def one_more(rule: Admission, *, trainer_version: int, policy_version: int) -> int:
        return 1 + right(rule, trainer_version=trainer_version, policy_version=policy_version)

    monkeypatch.setattr(Admission, "num_slots", one_more)
    num_made_again = 0
    for seed in range(30):
        play = Play(random.Random(f"2/{seed}"), max_staleness=2)
        play.counts_slots = False
        asyncio.run(play.run())
        num_made_again += play.num_made_again
    assert num_made_again > 0
