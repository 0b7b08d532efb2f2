"""Longest first changes the order alone; over-issue gives the last ones up and accounts for them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from curriculum.task import Task
from pipeline.messages import Completion, RolloutGroup
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.lengths import AbortAccount, ExpectedLengths
from tests.pipeline.fake_stages import GROUPS_PER_STEP, NUM_GENERATIONS, TASKS, FakeRun, make_config


def completion(length: int, finish_reason: str = "stop") -> Completion:
    return Completion(
        index=0,
        token_ids=(7,) * length,
        logprobs=(-1.0,) * length,
        text="",
        finish_reason=finish_reason,
        min_policy_version=0,
        max_policy_version=0,
    )


def group(draw_id: int, version: int) -> RolloutGroup:
    rollout = FakeRollout(version)
    return RolloutGroup(group_id=f"draw-{draw_id}", draw_id=draw_id, task=TASKS[0], rollouts=(rollout,))  # type: ignore[arg-type]


class FakeRollout:
    def __init__(self, version: int) -> None:
        self.completion = Completion(
            index=0,
            token_ids=(7,),
            logprobs=(-1.0,),
            text="",
            finish_reason="stop",
            min_policy_version=version,
            max_policy_version=version,
        )


def test_a_task_is_expected_to_answer_as_it_did_of_late() -> None:
    lengths = ExpectedLengths()
    assert lengths.expect("new", 30) > lengths.expect("other", 20), "long prompts first"
    lengths.record("a", 20, [10, 30])
    assert lengths.expect("a", 20) == 20
    lengths.record("a", 20, [100])
    assert lengths.expect("a", 20) == 60
    assert lengths.expect("new", 10) == 10 * (20 + 100) / 40, "the mean answer, by the length of the prompt"
    assert lengths.expect("new", 20) > lengths.expect("new", 10)


def test_what_an_aborted_completion_saved_is_what_others_had_left_there() -> None:
    account = AbortAccount()
    account.record(completion(5, "abort"))
    assert account.drain().num_tokens_saved == 0, "nothing is known yet"
    for length in (4, 10, 20):
        account.record(completion(length))
    account.record(completion(8, "abort"))
    account.record(completion(15, "abort"))
    counts = account.drain()
    assert counts.num_aborted == 2
    assert counts.num_tokens_saved == ((10 - 8) + (20 - 8)) / 2 + (20 - 15)
    assert account.drain().num_aborted == 0


def issued(run: FakeRun) -> list[str]:
    """The tasks in the order in which the generator was asked for them."""
    task_of = {
        f"draw-{draw_id}": task_id for draw_id, task_id in run.rows("SELECT draw_id, task_id FROM draws")
    }
    return [str(task_of[line.split()[1]]) for line in run.log if line.startswith("generate ")]


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_longest_first_asks_for_the_same_tasks_in_another_order(tmp_path: Path, max_staleness: int) -> None:
    """Six tasks, three steps of two: every step trains on the same tasks, the longer prompt asked first."""
    tasks = tuple(
        Task(task_id=f"t{index}", prompt="p" * index, entry_point="f", check_source="def check(f): pass")
        for index in range(6)
    )
    asked = {}
    trained = {}
    for is_on in (True, False):
        folder = tmp_path / str(is_on)
        folder.mkdir()
        config = make_config(
            acceleration={"max_staleness": max_staleness, "long_tails": {"longest_first": is_on}}
        )
        run = FakeRun(folder, config, tasks=tasks)
        run.producer._prompt_ids = lambda task: (1,) * (1 + len(task.prompt))
        run.train()
        asked[is_on] = issued(run)
        trained[is_on] = run.rows("SELECT draw_id, task_id FROM draws ORDER BY draw_id")
    assert trained[True] == trained[False]
    pairs = [asked[True][start : start + 2] for start in range(0, 6, 2)]
    assert [sorted(pair) for pair in pairs] == [
        sorted(asked[False][start : start + 2]) for start in range(0, 6, 2)
    ]
    assert pairs[0] == sorted(pairs[0], reverse=True), "no answers yet: the longer prompt first"
    assert asked[True] != asked[False]


class SlowDraws:
    """Makes the generator hang in some draws until it is cancelled, and notes that it was."""

    def __init__(self, run: FakeRun, slow: set[str]) -> None:
        self.cancelled: list[str] = []
        plain = run.generator.generate

        async def generate(request):  # type: ignore[no-untyped-def]
            if request.request_id in slow:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    self.cancelled.append(request.request_id)
                    raise
            async for one in plain(request):
                yield one

        run.generator.generate = generate  # type: ignore[method-assign]


def over_issuing(max_staleness: int, over_issue: float = 0.5) -> dict[str, object]:
    return {"max_staleness": max_staleness, "long_tails": {"over_issue": over_issue}}


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_a_straggler_does_not_hold_the_run_and_is_accounted_for(tmp_path: Path, max_staleness: int) -> None:
    """Three groups are started for each step of two; the one that never ends is given up by name."""
    run = FakeRun(tmp_path, make_config(acceleration=over_issuing(max_staleness)))
    slow = SlowDraws(run, {"draw-1", "draw-7"})
    run.train()
    assert len(run.trainer.batches) == 3
    assert all(len(batch.samples) == GROUPS_PER_STEP * NUM_GENERATIONS for batch in run.trainer.batches)
    assert max(run.trainer.staleness) <= max_staleness
    assert set(slow.cancelled) == {"draw-1", "draw-7"}
    states = [state for (state,) in run.rows("SELECT status FROM draws")]
    assert states.count("trained") == 3 * GROUPS_PER_STEP
    assert set(states) == {"trained", "dropped"}, "nothing is left open"
    reasons = {reason for (reason,) in run.rows("SELECT reason FROM draws WHERE status = 'dropped'")}
    assert all("had its groups" in str(reason) for reason in reasons)


def test_a_task_that_was_given_up_comes_again_in_its_epoch(tmp_path: Path) -> None:
    """Six tasks and three steps of two are one epoch: without putting back, one task would be left out."""
    run = FakeRun(tmp_path, make_config(acceleration=over_issuing(0)))
    SlowDraws(run, {"draw-1"})
    run.train()
    (given_up,) = (task for (task,) in run.rows("SELECT task_id FROM draws WHERE draw_id = 1"))
    trained = [task for (task,) in run.rows("SELECT task_id FROM draws WHERE status = 'trained'")]
    assert given_up in trained
    assert len(set(trained)) >= 5


def test_without_over_issue_nothing_is_given_up(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config())
    run.train()
    assert run.rows("SELECT COUNT(*) FROM draws") == [(3 * GROUPS_PER_STEP,)]


def test_metrics_count_what_was_given_up(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(acceleration=over_issuing(0)))
    SlowDraws(run, {"draw-3"})
    run.train()
    text = (run.folder.path / "metrics.jsonl").read_text()
    assert '"rollout/cancelled_groups": 1.0' in text


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_keep_the_bounds(seed: int) -> None:
    """Any order of finishing: every step gets its groups, none too old, and slots stay within their bound."""
    rng = random.Random(seed)
    per_step, staleness, extra = rng.randint(1, 4), rng.randint(0, 1), rng.randint(0, 3)

    async def body() -> None:
        buffer = RolloutBuffer(groups_per_step=per_step, max_staleness=staleness, num_extra=extra)
        at_work: dict[int, int] = {}
        next_draw = 0
        for version in range(12):
            while True:
                slot = buffer.take_slot()
                while slot is not None and rng.random() < 0.9:
                    buffer.issue(slot, next_draw)
                    at_work[next_draw] = slot.policy_version
                    next_draw += 1
                    slot = buffer.take_slot()
                if slot is not None:
                    buffer.release_slot(slot)
                assert buffer.counts.in_use <= per_step * (staleness + 1) + extra
                try:
                    taken = await buffer.take(per_step, version, 0.0)
                    break
                except TimeoutError:
                    if at_work:
                        finished = rng.choice(sorted(at_work))
                        buffer.put(group(finished, at_work.pop(finished)))
            assert len(taken.groups) == per_step
            assert not taken.dropped, "nothing grows too old unseen: it is given up before"
            for one in taken.groups:
                assert version - one.rollouts[0].completion.min_policy_version <= staleness
            assert len(taken.cancelled) + len(taken.surplus) <= extra
            for draw_id in taken.cancelled:
                del at_work[draw_id]
            buffer.trained(version + 1)
            buffer.weights_loaded(version + 1)

    asyncio.run(asyncio.wait_for(body(), 30))
