"""Groups without signal are replaced within a budget, and every draw is accounted for once."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from configs.schema import Config
from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.messages import Gated, GenerationRequest, is_flat
from pipeline.record.audit import audit
from pipeline.record.draw_states import NONE_PASSED, DrawState
from pipeline.record.ledger_tables import num_replaced
from pipeline.record.metrics import read_metrics
from pipeline.rollouts.batch import group_advantages
from pipeline.rollouts.buffer import RolloutBuffer
from pipeline.rollouts.draws import SignalGate, max_gated
from pipeline.run.overlap_trial import OverlapTrial, Verdict
from rewards.result import RewardResult
from tests.pipeline.fake_stages import (
    GROUPS_PER_STEP,
    NUM_GENERATIONS,
    FakeRun,
    make_config,
    scored,
)
from tests.pipeline.rollouts.groups import group, rollout
from tests.pipeline.run.test_resume import NUM_STEPS, end_after, last_saved

FLAT_TASKS = {"t0": 0.0, "t3": 1.0, "t4": 0.0}  # and the reward of all their answers


def some_flat(task: Task, index: int) -> RewardResult:
    return scored(FLAT_TASKS.get(task.task_id, float(index % 2)))


def all_flat(task: Task, index: int) -> RewardResult:
    return scored(0.0)


def config_of(
    max_staleness: int = 0, *, max_draws: float = 4.0, curriculum: bool = False, **others: object
) -> Config:
    return make_config(
        training={"max_steps": NUM_STEPS},
        generation={"seed_requests": True},
        output={"save_steps": 2},
        acceleration={
            "max_staleness": max_staleness,
            "refill": {"enabled": True, "max_draws": max_draws},
            "curriculum": {"enabled": curriculum, "skip_ahead": {"enabled": True}},
            **others,
        },
    )


def steps_of(run: FakeRun) -> list[tuple[object, ...]]:
    """The draws of each step with their tasks, in order."""
    return run.rows(
        "SELECT step, draw_id, task_id FROM draws JOIN steps USING (step_id) ORDER BY step, draw_id"
    )


def assert_adds_up(run: FakeRun) -> None:
    assert audit(run.folder.path).violations == ()
    assert run.rows("SELECT COUNT(*) FROM draws WHERE status = 'trained'") == [(NUM_STEPS * GROUPS_PER_STEP,)]
    assert [len(batch.samples) for batch in run.trainer.batches] == [GROUPS_PER_STEP * NUM_GENERATIONS] * len(
        run.trainer.batches
    )
    assert run.rows("SELECT COUNT(*) FROM draws") == [(run.sampler.state_dict()["num_draws"],)]


@pytest.mark.parametrize("max_staleness", [0, 1, 3])
@pytest.mark.parametrize("stream_steps", [True, False])
def test_steps_are_full_of_groups_with_signal(tmp_path: Path, max_staleness: int, stream_steps: bool) -> None:
    run = FakeRun(tmp_path, config_of(max_staleness, stream_steps=stream_steps), score_of=some_flat)
    run.train()
    assert_adds_up(run)
    assert max(run.trainer.staleness) <= max_staleness
    assert not {task_id for _, _, task_id in steps_of(run)} & FLAT_TASKS.keys()
    gated = run.rows("SELECT task_id, status, reason FROM gated JOIN draws USING (draw_id)")
    assert {(status, reason) for _, status, reason in gated} == {
        ("dropped", f"no signal: all {NUM_GENERATIONS} rewards are {reward}") for reward in (0, 1)
    }
    assert {task_id for task_id, *_ in gated} == FLAT_TASKS.keys()
    assert run.rows("SELECT COUNT(*) FROM tokens") == [(0,)]


def test_metrics_say_what_was_replaced_and_what_it_cost(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, config_of(1), score_of=some_flat)
    run.train()
    lines = read_metrics(run.folder.path / "metrics.jsonl")
    by_step = dict(run.rows("SELECT step, COUNT(*) FROM gated GROUP BY step"))
    assert [line["rollout/gated_groups"] for line in lines] == [by_step.get(n, 0) for n in range(1, 9)]
    names = ("gated_groups", "gated_tokens", "gated_solved_groups")
    total = {name: sum(line[f"rollout/{name}"] or 0.0 for line in lines) for name in names}
    assert total["gated_groups"] > 0
    assert num_replaced(run.folder.db) == NUM_GENERATIONS * total["gated_groups"]
    assert total["gated_tokens"] == 2 * NUM_GENERATIONS * total["gated_groups"], "two tokens an answer"
    solved = run.rows("SELECT COUNT(*) FROM gated JOIN draws USING (draw_id) WHERE task_id = 't3'")
    assert [(total["gated_solved_groups"],)] == solved
    assert all(line["rollout/zero_signal_share"] == 0 for line in lines)
    offered = lines[-1]["curriculum/offered_level_1"]
    visited = lines[-1]["curriculum/visited_level_1"]
    assert offered == visited == NUM_STEPS * GROUPS_PER_STEP + total["gated_groups"], "replaced ones as well"


class InTurn(OverlapTrial):
    """Has the run take turns from its first step on."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def record(self, step_s: float, num_tokens: int) -> Verdict | None:
        self.sizes.append(num_tokens)
        self.overlaps = False
        return None


@pytest.mark.parametrize("max_staleness", [1, 2])
def test_in_turn_groups_are_drawn_ahead_of_those_that_will_be_replaced(
    tmp_path: Path, max_staleness: int
) -> None:
    num_scored = 0

    def flat_at_first(task: Task, index: int) -> RewardResult:
        nonlocal num_scored
        num_scored += 1
        # Then more have signal than is expected after these.
        return scored(0.0) if num_scored <= 12 * NUM_GENERATIONS else some_flat(task, index)

    trial = InTurn()
    run = FakeRun(tmp_path, config_of(max_staleness), score_of=flat_at_first, trial=trial).train()
    assert_adds_up(run)
    assert max(run.trainer.staleness) == max_staleness
    ahead = "status = 'dropped' AND reason LIKE 'it was drawn ahead%'"
    (num_ahead,) = run.rows(f"SELECT COUNT(*), MIN(draw_id) FROM draws WHERE {ahead}")
    lines = read_metrics(run.folder.path / "metrics.jsonl")
    assert sum(line["rollout/surplus_groups"] or 0.0 for line in lines) == num_ahead[0] > 0
    # Which of those with signal are trained on follows from their numbers, not from which was ready first.
    last = "MAX(CASE WHEN status = 'trained' THEN draw_id END)"
    first = f"MIN(CASE WHEN {ahead} THEN draw_id END)"
    blocks = run.rows(f"SELECT {last}, {first} FROM draws GROUP BY policy_version_issued HAVING {first} > 0")
    assert blocks and all(trained < beyond for trained, beyond in blocks)
    # What was written for nothing is no work done: each step counts what it trained on and replaced.
    trained = GROUPS_PER_STEP * (3 + 2 * 2 * NUM_GENERATIONS)
    assert trial.sizes == [trained + (line["rollout/gated_tokens"] or 0.0) for line in lines]


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_a_budget_that_is_spent_lets_the_step_train_on_what_there_is(
    tmp_path: Path, max_staleness: int
) -> None:
    run = FakeRun(tmp_path, config_of(max_staleness, max_draws=2.5), score_of=all_flat)
    run.train()
    assert_adds_up(run)
    per_step = run.rows("SELECT step, COUNT(*) FROM gated GROUP BY step")
    assert {number for _, number in per_step} == {3}, "2.5 times two groups, two of which are trained on"
    lines = read_metrics(run.folder.path / "metrics.jsonl")
    assert {line["rollout/zero_signal_share"] for line in lines} == {1.0}
    spent = [line["rollout/refill_budget_used"] for line in lines]
    # Where generation runs ahead, its last groups are there before the last steps begin.
    assert spent[0] == 1.0 and set(spent) <= {0.0, 1.0}
    assert max_staleness or set(spent) == {1.0}


def test_groups_without_signal_are_replaced_beside_a_kl_term_as_well(tmp_path: Path) -> None:
    config = config_of()
    with_kl = config.model_copy(update={"grpo": config.grpo.model_copy(update={"beta": 0.1})})
    assert max_gated(with_kl) == max_gated(config) > 0
    run = FakeRun(tmp_path, with_kl, score_of=some_flat)
    run.train()
    assert_adds_up(run)
    assert not {task_id for _, _, task_id in steps_of(run)} & FLAT_TASKS.keys()
    assert run.rows("SELECT COUNT(*) FROM gated")[0][0] > 0


def test_a_group_that_could_not_be_scored_is_no_group_without_signal() -> None:
    nan = float("nan")
    assert is_flat(group(rollout(0.5), rollout(0.5), rollout(nan)))
    assert not is_flat(group(rollout(0.5), rollout(0.25), rollout(nan)))
    assert not is_flat(group(rollout(0.5), rollout(nan))), "one score has no statistics: it fails"


def test_the_gate_counts_by_step_and_goes_on_from_what_a_resume_found() -> None:
    flat = group(rollout(1.0), rollout(1.0))
    gate = SignalGate(2, {4: Gated(num_groups=1, num_solved=0, num_tokens=9)})
    assert gate.num_left(4, 2) == 1 + 2
    assert not gate.holds(group(rollout(1.0), rollout(0.0)), 4, 4)
    assert [gate.holds(flat, 4, 4), gate.holds(flat, 4, 4), gate.holds(flat, 5, 5)] == [True, False, True]
    assert gate.num_left(4, 2) == 1
    assert gate.metrics(4) == {
        "rollout/gated_groups": 2.0,
        "rollout/gated_solved_groups": 1.0,
        "rollout/gated_tokens": 9.0 + 4.0,
        "rollout/refill_budget_used": 1.0,
        "rollout/surplus_groups": 0.0,
    }
    assert gate.metrics(5)["rollout/gated_groups"] == 1.0


def test_in_a_warm_start_a_group_stays_that_has_a_passing_answer_and_no_other() -> None:
    solved, failed = group(rollout(1.0), rollout(1.0)), group(rollout(0.3), rollout(0.3))
    gate = SignalGate(9, None, 2)
    uneven = group(rollout(0.1), rollout(0.3))
    assert [gate.holds(uneven, step, step) for step in (1, 2, 3)] == [True, True, False]
    assert [gate.holds(solved, step, step) for step in (1, 2, 3)] == [False, False, True]
    assert [gate.holds(failed, step, step) for step in (1, 2, 3)] == [True, True, True]
    # At the border a group may be trained on by either rule.
    assert [gate.holds(one, 3, 2) for one in (uneven, solved, failed)] == [True, True, True]


@pytest.mark.parametrize("warm_start_steps", [0, 1])
def test_a_group_that_could_not_be_scored_costs_no_budget(warm_start_steps: int) -> None:
    gate = SignalGate(1, None, warm_start_steps)
    assert not gate.holds(group(rollout(math.nan), rollout(math.nan)), 1, 1)
    assert not gate.holds(group(rollout(math.nan), rollout(0.0)), 1, 1)
    assert gate.holds(group(rollout(0.0), rollout(0.0), rollout(math.nan)), 1, 1)


def test_a_warm_start_trains_on_tasks_that_are_solved_and_replaces_others(tmp_path: Path) -> None:
    config = config_of()
    warm = config.model_copy(update={"grpo": config.grpo.model_copy(update={"warm_start_steps": 4})})
    run = FakeRun(tmp_path, warm, score_of=some_flat).train()
    assert_adds_up(run)
    solved = {step for step, _, task_id in steps_of(run) if task_id == "t3"}
    assert solved and solved <= {1, 2, 3, 4}
    held = run.rows("SELECT step, task_id FROM gated JOIN draws USING (draw_id)")
    assert min(step for step, task_id in held if task_id == "t3") > 4
    assert {task_id for step, task_id in held if step <= 4} == {"t0", "t4"}
    lines = read_metrics(run.folder.path / "metrics.jsonl")
    assert all(line["rollout/zero_signal_share"] == 0 for line in lines), "what passed is learned from"


def test_what_a_warm_start_replaces_though_its_rewards_differ_is_no_violation(tmp_path: Path) -> None:
    def none_passes(task: Task, index: int) -> RewardResult:
        partly = replace(scored(0.1 + 0.1 * index), passed=False)
        return partly if task.task_id == "t0" else some_flat(task, index)

    config = config_of(max_draws=5.0)
    warm = config.model_copy(update={"grpo": config.grpo.model_copy(update={"warm_start_steps": 4})})
    run = FakeRun(tmp_path, warm, score_of=none_passes).train()
    assert_adds_up(run)
    found = run.rows("SELECT step, reason FROM gated JOIN draws USING (draw_id) WHERE task_id = 't0'")
    assert found and {(step <= 4, reason) for step, reason in found} == {(True, NONE_PASSED)}
    with sqlite3.connect(run.folder.db) as database:
        draw = "SELECT MIN(draw_id) FROM gated JOIN draws USING (draw_id) WHERE task_id = 't0'"
        database.execute(f"UPDATE rollouts SET passed = 1 WHERE draw_id = ({draw})")
    database.close()
    (told,) = audit(run.folder.path).violations
    assert "has an answer that passed" in str(told)


@pytest.mark.parametrize("seed", range(12))
def test_a_run_that_ends_again_and_again_adds_up_with_refills(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = config_of(
        rng.choice((0, 1, 2, 4)),
        max_draws=rng.choice((1.5, 2.0, 5.0)),
        curriculum=rng.random() < 0.5,
    )
    num_lives, is_done = 0, False
    while not is_done:
        done_steps = last_saved(tmp_path) if num_lives else 0
        run = FakeRun(tmp_path, config, score_of=some_flat, done_steps=done_steps)
        num_lives += 1
        is_done = end_after(run, rng.randint(60, 1200))
        assert audit(run.folder.path).violations == (), num_lives
        assert max(run.trainer.staleness, default=0) <= config.acceleration.max_staleness
        assert num_lives < 60
    assert_adds_up(run)


@pytest.mark.parametrize("curriculum", [False, True])
def test_an_interrupted_run_on_policy_draws_and_replaces_as_an_uninterrupted_one(
    tmp_path: Path, curriculum: bool
) -> None:
    """The same tasks in the same steps, the same draws replaced, and a sampler that knows the same."""

    def play(folder: Path, *, turns: list[int]) -> tuple[object, ...]:
        folder.mkdir()
        seeds: dict[str, int | None] = {}

        def note(request: GenerationRequest) -> None:
            draw = request.request_id.split(".")[0]
            assert seeds.setdefault(draw, request.seed) == request.seed

        config = config_of(0, max_draws=6.0, curriculum=curriculum)
        for num_turns in turns:
            done_steps = last_saved(folder) if (folder / "run").exists() else 0
            run = FakeRun(folder, config, score_of=some_flat, fault=note, done_steps=done_steps)
            end_after(run, num_turns)
        run = FakeRun(
            folder, config, score_of=some_flat, fault=note, done_steps=last_saved(folder) if turns else 0
        )
        run.train()
        state = run.sampler.state_dict()
        known = {name: state[name] for name in ("num_draws", "flat_in_row", "offered", "visited")}
        return steps_of(run), run.rows("SELECT step, draw_id FROM gated ORDER BY draw_id"), seeds, known

    whole = play(tmp_path / "whole", turns=[])
    assert whole[1]
    for number, turns in enumerate(([100], [450, 20, 300], [200, 200, 200, 600])):
        assert play(tmp_path / str(number), turns=turns) == whole, turns


def test_a_draw_replaced_for_what_lost_weights_wrote_is_made_again(tmp_path: Path) -> None:
    config = config_of(0)
    run = FakeRun(tmp_path, config, score_of=some_flat)
    run.trainer.dies_in_step = 4
    with pytest.raises(StageError):
        run.train()
    before = {draw_id for _, draw_id in run.rows("SELECT step, draw_id FROM gated WHERE step = 4")}
    kept = {draw_id for _, draw_id in run.rows("SELECT step, draw_id FROM gated WHERE step <= 3")}
    resumed = FakeRun(tmp_path, config, score_of=some_flat, done_steps=2)
    open_draws = {draw.draw_id for draw in resumed.ledger.unfinished_draws()}
    assert before and before <= open_draws, "weights 3 are lost, and others will bear their number"
    assert kept.isdisjoint(open_draws), "weights up to 2 are there: their word holds"
    assert sum(gated.num_groups for gated in resumed.ledger.gated().values()) == len(kept)
    resumed.train()
    assert_adds_up(resumed)


def test_deadlines_are_renewed_with_each_group_that_is_replaced_for_want_of_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    renew, release = RolloutBuffer.renew_deadlines, RolloutBuffer.release

    def renewed(self: RolloutBuffer) -> None:
        events.append("renewed")
        renew(self)

    def released(self: RolloutBuffer, draw_id: int, state: DrawState) -> None:
        events.append(state)
        release(self, draw_id, state)

    monkeypatch.setattr(RolloutBuffer, "renew_deadlines", renewed)
    monkeypatch.setattr(RolloutBuffer, "release", released)
    FakeRun(tmp_path, config_of(0), score_of=some_flat).train()
    replaced = [place for place, event in enumerate(events) if event == DrawState.DROPPED]
    assert replaced and all(events[place - 1] == "renewed" for place in replaced)


def test_who_waits_for_groups_waits_as_long_again_when_one_is_replaced() -> None:
    """Whatever the budget, the deadline is for the next group, not for all that are replaced."""
    asyncio.run(asyncio.wait_for(wait_through_replacements(replace=replace_for_want_of_signal), 10))
    with pytest.raises(TimeoutError, match="waited 1 s"):
        asyncio.run(asyncio.wait_for(wait_through_replacements(replace=drop), 10))


def drop(buffer: RolloutBuffer, draw_id: int) -> None:
    buffer.release(draw_id, DrawState.DROPPED)


def replace_for_want_of_signal(buffer: RolloutBuffer, draw_id: int) -> None:
    buffer.renew_deadlines()
    drop(buffer, draw_id)


async def wait_through_replacements(*, replace: Callable[[RolloutBuffer, int], None]) -> None:
    """A step of one group whose draw is replaced five times, after 0.25 s each; the deadline is 1 s."""
    buffer = RolloutBuffer(groups_per_step=1, max_staleness=0)
    waiting = asyncio.create_task(buffer.take(1, 1.0))
    for draw_id in range(1, 6):
        await buffer.wait_for_slot(1)
        buffer.issue(draw_id)
        await asyncio.sleep(0.25)
        replace(buffer, draw_id)
    await buffer.wait_for_slot(1)
    buffer.issue(6)
    buffer.generated(6)
    buffer.put(group(rollout(1.0), rollout(0.0), draw_id=6))
    assert [one.draw_id for one in await waiting] == [6]


def test_the_gate_lengthens_the_expected_gradient_by_the_share_of_groups_with_signal() -> None:
    """And keeps its direction: the mean over a step's groups, with the gate and without, over many steps.

    The gradient has a part for each of two tasks, which answers pass with probability 0.9 and 0.3: the mean
    of advantage times whether an answer passed.
    """
    rng = random.Random(0)
    rates, size, num_groups, num_steps = (0.9, 0.3), 4, 2, 4000
    groups = {
        pattern: group(*(rollout(float(passed)) for passed in pattern))
        for pattern in itertools.product((False, True), repeat=size)
    }

    def draw() -> tuple[int, tuple[bool, ...]]:
        task = rng.randrange(2)
        return task, tuple(rng.random() < rates[task] for _ in range(size))

    def mean_gradient(gate: SignalGate) -> tuple[list[float], float]:
        """By task; and how many of the groups drawn had signal."""
        total, num_drawn = [0.0, 0.0], 0
        for step in range(num_steps):
            num_left = num_groups
            while num_left:
                task, pattern = draw()
                num_drawn += 1
                if gate.holds(groups[pattern], step, step):
                    continue
                num_left -= 1
                (advantages,) = group_advantages([[float(passed) for passed in pattern]], "none")
                total[task] += math.fsum(a * p for a, p in zip(advantages, pattern, strict=True)) / size
        return [part / (num_steps * num_groups) for part in total], num_steps * num_groups / num_drawn

    plain, _ = mean_gradient(SignalGate(0))
    gated, share = mean_gradient(SignalGate(10**6))
    assert 0.4 < share < 0.7
    # Some five standard errors.
    assert gated == pytest.approx([part / share for part in plain], abs=0.012)
    assert min(gated) > 4 * 0.012
