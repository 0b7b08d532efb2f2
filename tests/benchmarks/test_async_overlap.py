"""The overlap benchmark scales recorded costs, knows what cannot be beaten, and runs the real loops."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import recording
from benchmarks.async_overlap.__main__ import (
    STAGES,
    make_costs,
    on_policy_bound_s,
    own_times,
    planned_s,
    read_recorded,
    table,
)
from benchmarks.async_overlap.loops import Steps, make_config, run, start_rewards
from benchmarks.async_overlap.sleeping_stages import Order, Shape, StageCosts
from benchmarks.recording import costs_of, read_costs
from benchmarks.report import command_line
from pipeline.cluster import running_ray
from pipeline.record.ledger_tables import SCHEMA_VERSION
from tests.pipeline.planning.test_plan import write_run

SHAPE = Shape(groups_per_step=2, num_generations=2, num_generating=2, num_reward_workers=2)


@pytest.mark.parametrize("slowest", STAGES)
def test_a_mix_has_the_own_times_that_it_is_asked_for(slowest: str) -> None:
    costs = make_costs(slowest, read_recorded(), SHAPE)
    own = own_times(costs, SHAPE, "asynchronous")
    assert {stage: round(seconds, 6) for stage, seconds in own.items()} == {
        stage: 3.0 if stage == slowest else 1.8 for stage in STAGES
    }
    assert 0 < costs.pause_s == costs.update_s < 0.1 * 3.0
    assert len(set(costs.completion_s)) > 10 and len(set(costs.reward_s)) > 10


def test_recorded_stages_keep_their_relation_and_four_generators_write_four_times_as_fast() -> None:
    recorded = read_recorded()
    costs = make_costs("recorded", recorded, SHAPE)
    own = own_times(costs, SHAPE, "two steps ahead")
    assert max(own.values()) == pytest.approx(3.0)
    longest = max(recorded.run.own_s.values())
    assert own == pytest.approx({stage: 3.0 * s / longest for stage, s in recorded.run.own_s.items()})
    four = replace(SHAPE, num_generators=4)
    assert make_costs("recorded, 4 generators", recorded, four) == costs
    writing = (
        own_times(costs, shape, "asynchronous")["generation"] - costs.pause_s for shape in (SHAPE, four)
    )
    assert next(writing) == pytest.approx(4 * next(writing))


@pytest.mark.parametrize("order", ["synchronous", "asynchronous"])
def test_the_plan_tells_a_step_from_the_same_order_of_another_mix(order: str) -> None:
    own_s = {"generation": 2.0, "training": 3.0, "rewards": 1.0}
    found = (("training", 9.0, own_s), ("rewards", 4.0, {**own_s, "training": 1.0}), ("recorded", 8.0, own_s))
    rows = [
        {"slowest": slowest, "order": order, "step_s": step_s, "own_s": own, "longest_s": 2.0}
        for slowest, step_s, own in found
    ]
    # All in turn, and the longest answer: 8 s and 6 s; training cannot end before it and 3 s.
    told = [3.0, 2.0, 3.0] if order == "asynchronous" else [4.0 * 8 / 6, 9.0 * 6 / 8, 9.0]
    assert planned_s(rows[:1], rows[0]) == (3.0 if order == "asynchronous" else None)
    assert [planned_s(rows, row) for row in rows] == told


def test_the_on_policy_bound_is_the_longest_chain_of_a_step() -> None:
    ends = {"optimizer_s": 0.5, "publish_s": 0.25, "update_s": 0.25, "pause_s": 0.0}
    # Two at a time: 4 completions of 1 and 3 s take 4 s; then a score, a backward, and the end.
    written = StageCosts(completion_s=(1.0, 3.0), reward_s=(0.5,), train_group_s=0.75, **ends)
    assert on_policy_bound_s(written, SHAPE, 5) == pytest.approx(4.0 + 0.5 + 0.75 + 1.0)
    # The first group is there after 3.5 s; then both are trained.
    trained = StageCosts(completion_s=(1.0, 3.0), reward_s=(0.5,), train_group_s=5.0, **ends)
    assert on_policy_bound_s(trained, SHAPE, 5) == pytest.approx(3.5 + 10.0 + 1.0)
    # Scores of 6 s, two at a time, from the first completion on.
    scored = StageCosts(completion_s=(1.0, 3.0), reward_s=(6.0,), train_group_s=0.75, **ends)
    assert on_policy_bound_s(scored, SHAPE, 5) == pytest.approx(1.0 + 12.0 + 0.75 + 1.0)


def test_the_on_policy_bound_leaves_out_the_steps_that_fill_the_pipeline() -> None:
    costs = StageCosts(
        completion_s=(*[9.0] * 12, *[1.0] * 4),
        reward_s=(0.5,),
        train_group_s=0.75,
        optimizer_s=0.5,
        publish_s=0.25,
        update_s=0.25,
        pause_s=0.0,
    )
    assert on_policy_bound_s(costs, SHAPE, 4) == pytest.approx(2.0 + 0.5 + 0.75 + 1.0)


def test_the_synchronous_order_overlaps_nothing() -> None:
    config = make_config("synchronous", SHAPE, 4)
    assert not config.acceleration.stream_steps and not config.acceleration.async_rewards.enabled
    assert config.acceleration.max_staleness == 0
    config = make_config("asynchronous", SHAPE, 4)
    assert config.acceleration.stream_steps and config.acceleration.max_staleness == 1


def test_figures_stand_where_they_belong() -> None:
    times = {"own_s": {"generation": 1.0, "training": 3.0, "rewards": 1.0}, "longest_s": 1.0}
    rows = [
        {"slowest": "training", "order": "synchronous", "step_s": 6.0, "ratio": 2.0, **times},
        {
            "slowest": "training",
            "order": "on-policy overlap",
            "step_s": 4.5,
            "ratio": 1.5,
            "over_bound": 1.25,
            **times,
        },
    ]
    lines = table({"rows": rows}).splitlines()
    assert lines[2] == "| training | synchronous | 6.00 s | 2.00 |  |  |"
    assert lines[3] == "| training | on-policy overlap | 4.50 s | 1.50 | 1.25 |  |"


def mean_of_the_last_four(steps: Steps) -> float:
    return sum(step["step/seconds"] or 0.0 for step in steps[2:]) / 4


@pytest.mark.slow
def test_real_loops_over_sleeping_stages_overlap() -> None:
    costs = StageCosts(
        completion_s=(0.2, 0.4),
        reward_s=(0.1,),
        train_group_s=0.3,
        optimizer_s=0.0,
        publish_s=0.02,
        update_s=0.02,
        pause_s=0.02,
    )
    with running_ray():
        pool = start_rewards(make_config("asynchronous", SHAPE, 6))
        try:
            orders: tuple[Order, ...] = ("synchronous", "on-policy overlap", "asynchronous")
            synchronous, overlapped, asynchronous = (
                mean_of_the_last_four(asyncio.run(run(order, costs, SHAPE, pool, 6))) for order in orders
            )
        finally:
            pool.close()
    assert asynchronous < overlapped < synchronous
    # Written in 0.6 s, scored in 0.2 s and trained in 0.6 s: what nothing overlaps takes 1.4 s and more.
    assert synchronous > 1.4
    assert asynchronous > 0.6


def test_a_record_holds_what_its_run_measured(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 5)
    with contextlib.closing(sqlite3.connect(folder / "run.db")) as database, database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        database.execute("CREATE TABLE events (event_id INTEGER, kind TEXT, text TEXT)")
        database.execute("CREATE TABLE rollouts (draw_id INTEGER, rollout_id TEXT, num_tokens INTEGER)")
        rows = [(2, "2/0", 70), (1, "1/0", 90), (1, "1/1", 0)]
        database.executemany("INSERT INTO rollouts VALUES (?, ?, ?)", rows)
    (folder / "summary.json").write_text(json.dumps({"seed": 1, "hardware": {"cpu": "some"}}))
    recording.main(["costs", str(folder), "--output", str(tmp_path / "record.json.gz")])
    origin = json.loads(gzip.decompress((tmp_path / "record.json.gz").read_bytes()))["origin"]
    assert origin == {"command": command_line(), "hardware": {"cpu": "some"}}
    recorded = read_costs(tmp_path / "record.json.gz")
    assert recorded == costs_of(folder)
    assert recorded.lengths == (90, 70)
    assert set(recorded.own_s) == set(STAGES)
    assert (recorded.update_s, recorded.pause_s, recorded.step_s) == pytest.approx((0.3, 0.1, 4.5))
