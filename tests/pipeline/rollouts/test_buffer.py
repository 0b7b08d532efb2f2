from __future__ import annotations

import asyncio

import pytest

from pipeline.messages import RolloutGroup
from pipeline.record.draw_states import DrawState, DrawStateError
from pipeline.rollouts.buffer import RolloutBuffer
from tests.pipeline.rollouts import groups


def group(draw_id: int, version: int = 0) -> RolloutGroup:
    return groups.group(groups.rollout(1.0, version=version), draw_id=draw_id)


def put(buffer: RolloutBuffer, one: RolloutGroup) -> None:
    """Hand a group in, whose completions may be all there by now."""
    if buffer.states.get(one.draw_id) is DrawState.GENERATING:
        buffer.generated(one.draw_id)
    buffer.put(one)


async def issue(buffer: RolloutBuffer, *draw_ids: int) -> None:
    for draw_id in draw_ids:
        await buffer.wait_for_slot(1)
        buffer.issue(draw_id)


@pytest.mark.parametrize(("max_staleness", "expected"), [(0, 4), (1, 8), (3, 16)])
async def test_slots_are_groups_per_step_times_staleness_plus_one(max_staleness: int, expected: int) -> None:
    buffer = RolloutBuffer(groups_per_step=4, max_staleness=max_staleness)
    await issue(buffer, *range(expected))
    with pytest.raises(TimeoutError, match=f"{expected} in use of {expected}"):
        await buffer.wait_for_slot(0.01)


async def test_on_policy_gives_no_slot_while_a_step_or_its_weights_are_on_the_way() -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=0)
    await issue(buffer, 1, 2)
    put(buffer, group(2))
    put(buffer, group(1))
    taken = await buffer.take(2, 1)
    assert [g.draw_id for g in taken] == [1, 2]
    with pytest.raises(TimeoutError, match="the trainer holds 2 groups"):
        await buffer.wait_for_slot(0.01)
    waiting = asyncio.create_task(buffer.wait_for_slot(5))
    await asyncio.sleep(0)
    buffer.trained(1)
    with pytest.raises(TimeoutError, match="generators have version 0, the trainer 1"):
        await buffer.wait_for_slot(0.01)
    assert not waiting.done()
    buffer.weights_loaded(1)
    await waiting
    assert buffer.policy_version == 1


async def test_in_turn_more_are_at_work_than_the_block_takes_and_the_first_by_draw_fill_it() -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=1)
    surplus: list[int] = []
    buffer.when_surplus(surplus.append)
    buffer.signal_share, buffer.num_replaceable = 1 / 3, 16
    buffer.alternate(True)
    await issue(buffer, *range(8))
    assert not buffer.has_slot
    assert [buffer.step_of(draw_id) for draw_id in range(8)] == [1, 1, 2, 2, 2, 2, 2, 2]
    for draw_id in (7, 6, 4, 2):
        put(buffer, group(draw_id))
    assert not buffer.has_slot, "as many are there as the block takes"
    buffer.release(0, DrawState.DROPPED)
    put(buffer, group(1))
    assert not buffer.is_next_step_ready and surplus == [], "3 and 5 are before 6 and 7"
    buffer.release(3, DrawState.DROPPED)
    put(buffer, group(5))
    assert surplus == [6, 7]
    assert [one.draw_id for one in await buffer.take(2, 1)] == [1, 2]
    buffer.trained(1)
    assert [one.draw_id for one in await buffer.take(2, 1)] == [4, 5]
    buffer.trained(2)
    buffer.weights_loaded(2)
    assert surplus == [6, 7] and buffer.has_slot


async def test_no_more_are_drawn_ahead_than_may_be_replaced() -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=1)
    buffer.signal_share, buffer.num_replaceable = 1 / 65, 3
    buffer.alternate(True)
    await issue(buffer, *range(4 + 3))
    assert not buffer.has_slot
    buffer.num_replaceable = 2
    buffer.release(0, DrawState.DROPPED)
    assert not buffer.has_slot, "6 are at work beside what is replaced"
    buffer.release(1, DrawState.DROPPED)
    assert buffer.has_slot


async def test_the_end_of_turns_drops_what_is_beyond_the_slots() -> None:
    buffer = RolloutBuffer(groups_per_step=1, max_staleness=1)
    surplus: list[int] = []
    buffer.when_surplus(surplus.append)
    buffer.signal_share, buffer.num_replaceable = 0.25, 16
    buffer.alternate(True)
    await issue(buffer, *range(5))
    buffer.alternate(False)
    assert surplus == [2, 3, 4] and buffer.in_use == buffer.num_slots == 2


@pytest.mark.parametrize(("max_staleness", "in_turn"), [(0, True), (1, False)])
async def test_on_policy_or_beside_training_nothing_is_drawn_ahead(max_staleness: int, in_turn: bool) -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=max_staleness)
    buffer.signal_share, buffer.num_replaceable = 0.1, 64
    buffer.alternate(in_turn)
    await issue(buffer, *range(2 * (max_staleness + 1)))
    assert not buffer.has_slot


async def test_a_missing_group_times_out_and_names_who_owes_it() -> None:
    buffer = RolloutBuffer(groups_per_step=8, max_staleness=0, version=6)
    await issue(buffer, *range(8))
    for draw_id in range(7):
        buffer.generated(draw_id)
    for draw_id in range(5):
        put(buffer, group(draw_id, 6))
    with pytest.raises(TimeoutError) as caught:
        await buffer.take(8, 0.01)
    assert str(caught.value) == (
        "waited 0.01 s for 3 more rollout groups of step 7: issued 8, generated 7, scored 5; "
        "generation owes draws 7; rewards owe draws 5, 6"
    )


async def test_a_failed_stage_wakes_everyone_who_waits() -> None:
    buffer = RolloutBuffer(groups_per_step=1, max_staleness=0)
    take = asyncio.create_task(buffer.take(1, 60))
    await issue(buffer, 1)
    slot = asyncio.create_task(buffer.wait_for_slot(60))
    await asyncio.sleep(0)
    buffer.fail("the generator died")
    for waiting in (take, slot):
        with pytest.raises(RuntimeError, match="the generator died"):
            await waiting


async def test_a_slow_group_is_passed_over_only_while_it_can_still_be_trained_in_time() -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=1)
    await issue(buffer, 1, 2, 3, 4)
    for draw_id in (2, 3):
        put(buffer, group(draw_id))
    # 1 is slow, and may wait: the next step still takes version 0.
    assert [g.draw_id for g in await buffer.take(2, 1)] == [2, 3]
    buffer.trained(1)
    buffer.weights_loaded(1)
    await issue(buffer, 5, 6)
    for draw_id in (4, 5, 6):
        put(buffer, group(draw_id, 0 if draw_id == 4 else 1))
    # Now it may not, though two newer groups are ready.
    with pytest.raises(TimeoutError, match="generation owes draws 1"):
        await buffer.take(2, 0.01)
    put(buffer, group(1))
    assert [g.draw_id for g in await buffer.take(2, 1)] == [1, 4]


async def test_a_group_that_is_too_old_is_counted_and_its_slot_is_free() -> None:
    buffer = RolloutBuffer(groups_per_step=1, max_staleness=0, version=5)
    await issue(buffer, 1)
    put(buffer, group(1, version=3))  # a generator that came back with old weights
    take = asyncio.create_task(buffer.take(1, 5))
    await issue(buffer, 2)
    put(buffer, group(2, version=5))
    taken = await take
    assert [g.draw_id for g in taken] == [2]
    assert buffer.drain_too_old() == 1 and buffer.drain_too_old() == 0


async def test_groups_too_old_are_not_lost_when_the_wait_times_out() -> None:
    buffer = RolloutBuffer(groups_per_step=1, max_staleness=0, version=5)
    await issue(buffer, 1)
    put(buffer, group(1, version=3))
    with pytest.raises(TimeoutError, match="nothing is at work"):
        await buffer.take(1, 0.01)
    await issue(buffer, 2)
    put(buffer, group(2, version=5))
    await buffer.take(1, 1)
    assert buffer.drain_too_old() == 1


async def test_dropping_a_draw_frees_its_slot_while_it_is_not_trained_on() -> None:
    buffer = RolloutBuffer(groups_per_step=4, max_staleness=0)
    await issue(buffer, 1, 2, 3, 4)
    buffer.generated(2)
    put(buffer, group(3))
    put(buffer, group(4))
    await buffer.take(1, 1)
    waiting = asyncio.create_task(buffer.wait_for_slot(5))
    for draw_id in (1, 2, 4):
        buffer.release(draw_id, DrawState.DROPPED)
    await waiting
    assert buffer.states == {3: DrawState.TRAINING}
    with pytest.raises(DrawStateError, match="draw 3 cannot become dropped: it is training, and may bec"):
        buffer.release(3, DrawState.DROPPED)
    with pytest.raises(DrawStateError, match="draw 1 cannot become scored: it is without a slot"):
        buffer.put(group(1))


async def test_a_step_cut_short_does_not_wait_for_ever() -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=1)
    await issue(buffer, 1, 2, 3, 4)
    for draw_id in (1, 2, 3, 4):
        put(buffer, group(draw_id))
    await buffer.take(1, 1)
    buffer.trained(1)
    assert len(await buffer.take(2, 1)) == 2


async def test_groups_of_before_a_resume_are_restored_while_all_can_be_trained_in_time() -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=1, version=5)
    assert not buffer.restore(group(1, version=3)), "too old for step 6"
    assert buffer.restore(group(2, version=4)) and buffer.restore(group(3, version=4))
    assert not buffer.restore(group(4, version=4)), "step 6 takes two, and step 7 takes none of 4"
    assert buffer.restore(group(5, version=5)) and buffer.restore(group(6, version=5))
    assert not buffer.restore(group(7, version=5)), "there are no more slots"
    assert buffer.in_use == buffer.num_slots == 4
    assert [g.draw_id for g in await buffer.take(2, 1)] == [2, 3]


async def test_who_requeues_draws_hears_of_a_group_at_once() -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=1, version=5)
    heard: list[int] = []
    buffer.when_too_old(lambda one: heard.append(one.draw_id))
    await issue(buffer, 1, 2, 3, 4)
    put(buffer, group(1, version=3))
    assert heard == [1] and buffer.in_use == 3
    put(buffer, group(2, version=5))
    put(buffer, group(3, version=5))
    put(buffer, group(4, version=4))  # older than its slot: it is not first in line
    assert [g.draw_id for g in await buffer.take(2, 1)] == [2, 3]
    assert buffer.drain_too_old() == 1
    assert heard == [1], "step 6 could take it"
    buffer.trained(6)
    assert heard == [1, 4]
    with pytest.raises(TimeoutError, match="draws 4 came too old and were requeued"):
        await buffer.take(1, 0.01)


async def test_a_group_a_step_and_new_weights_renew_the_deadlines() -> None:
    buffer = RolloutBuffer(groups_per_step=1, max_staleness=0)
    await issue(buffer, 1)
    counts = [buffer._waiting._num_renewed]
    put(buffer, group(1))
    counts.append(buffer._waiting._num_renewed)
    await buffer.take(1, 1)
    buffer.trained(1)
    counts.append(buffer._waiting._num_renewed)
    buffer.weights_loaded(1)
    counts.append(buffer._waiting._num_renewed)
    assert counts == [0, 1, 2, 3]


async def test_who_waits_for_a_slot_is_given_up_when_nothing_moves_and_not_before() -> None:
    """Each group, step and update of weights comes 0.3 s after the one before; the deadline is 1 s."""
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=0)
    await issue(buffer, 1, 2)
    waiting = asyncio.create_task(buffer.wait_for_slot(1.0))
    for draw_id in (1, 2):
        await asyncio.sleep(0.3)
        put(buffer, group(draw_id))
    await buffer.take(2, 1)
    await asyncio.sleep(0.3)
    buffer.trained(1)
    await asyncio.sleep(0.3)
    buffer.weights_loaded(1)
    await waiting
    await issue(buffer, 3, 4)
    waiting = asyncio.create_task(buffer.wait_for_slot(1.0))
    await asyncio.sleep(0.3)
    put(buffer, group(3, version=1))
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError) as caught:
        await waiting
    assert 0.9 < asyncio.get_running_loop().time() - began < 5
    assert str(caught.value) == (
        "waited 1 s, in which nothing moved, for a rollout slot (2 in use of 2): the trainer holds 0 "
        "groups and has 1 waiting; where that is slow and not stuck, raise runtime.train_step_timeout_s"
    )


async def test_groups_that_come_too_old_again_and_again_renew_no_deadline() -> None:
    buffer = RolloutBuffer(groups_per_step=1, max_staleness=0, version=5)
    waiting = asyncio.create_task(buffer.take(1, 0.5))
    clock = asyncio.get_running_loop()
    until = clock.time() + 20
    while not waiting.done():
        assert clock.time() < until
        await issue(buffer, 1)
        put(buffer, group(1, version=3))
        await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError, match="came too old and were requeued"):
        await waiting


async def test_a_draw_belongs_to_the_step_that_those_ahead_of_it_leave_to_it() -> None:
    buffer = RolloutBuffer(groups_per_step=2, max_staleness=2)
    await issue(buffer, *range(1, 7))
    assert [buffer.step_of(draw_id) for draw_id in range(1, 7)] == [1, 1, 2, 2, 3, 3]
    for draw_id in (1, 2, 4):
        put(buffer, group(draw_id))
    await buffer.take(2, 1)
    # What is being trained on leaves no place in its step.
    assert [buffer.step_of(draw_id) for draw_id in range(3, 7)] == [2, 2, 3, 3]
    buffer.release(4, DrawState.DROPPED)
    assert [buffer.step_of(draw_id) for draw_id in (3, 5, 6)] == [2, 2, 3]
    buffer.trained(1)
    assert [buffer.step_of(draw_id) for draw_id in (3, 5, 6)] == [2, 2, 3]
