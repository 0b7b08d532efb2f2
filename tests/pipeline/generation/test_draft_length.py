"""Draft lengths: FastGRPO's rule, what measured costs and acceptance make of it, and the switch."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.generation.vllm.proposer import (
    MIN_GAIN,
    Acceptance,
    DraftPlanner,
    StepCosts,
    draft_limit,
    peak_capacity,
)

# Verifying is free up to 32 tokens, then each costs the same.
FREE_UP_TO_32 = {n: max(32, n) / 1000 for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)}
# Every token costs the same from the first.
NEVER_FREE = {n: n / 1000 for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)}


def planner_for(forward_s: dict[int, float], most: int = 8) -> DraftPlanner:
    return DraftPlanner(StepCosts(forward_s), peak_capacity(forward_s), most)


@pytest.mark.parametrize(
    ("capacity", "num_sequences", "expected"),
    [(64, 1, 6), (64, 4, 4), (64, 16, 2), (64, 33, 0), (64, 64, 0), (64, 200, 0), (4096, 1, 8), (63, 1, 5)],
)
def test_the_limit_is_fastgrpos_rule(capacity: int, num_sequences: int, expected: int) -> None:
    assert draft_limit(capacity, num_sequences, most=8) == expected


def test_drafts_grow_as_the_batch_empties() -> None:
    limits = [draft_limit(128, num_sequences, most=8) for num_sequences in (128, 64, 32, 16, 8, 4, 2, 1)]
    assert limits == sorted(limits)
    assert limits[0] == 0 < limits[-1]


def test_the_capacity_is_where_a_forward_stops_gaining() -> None:
    assert peak_capacity(FREE_UP_TO_32) == 32
    assert peak_capacity(NEVER_FREE) == 1
    assert peak_capacity({1: 1.0, 2: 1.0, 4: 1.0}) == 4


def expected_speed(costs: StepCosts, chances: list[list[float]], lengths: list[int]) -> float:
    tokens = float(len(chances))
    for row, length in zip(chances, lengths, strict=True):
        survival = 1.0
        for chance in row[:length]:
            survival *= chance
            tokens += survival
    return tokens / costs.predict(len(chances), sum(lengths))


@given(
    st.lists(
        st.lists(st.floats(0.05, 1.0), max_size=3),
        min_size=1,
        max_size=3,
    )
)
def test_the_chosen_lengths_are_the_best_of_all(chances: list[list[float]]) -> None:
    forward_s = {1: 0.010, 2: 0.011, 4: 0.013, 8: 0.022, 16: 0.045}
    planner = planner_for(forward_s)
    chosen = planner.choose(chances)
    every = itertools.product(*(range(len(row) + 1) for row in chances))
    best = max(expected_speed(planner.costs, chances, list(lengths)) for lengths in every)
    nothing = expected_speed(planner.costs, chances, [0] * len(chances))
    if best <= MIN_GAIN * nothing * (1 - 1e-9):
        assert chosen == [0] * len(chances)
    elif best > MIN_GAIN * nothing * (1 + 1e-9):
        assert expected_speed(planner.costs, chances, chosen) == pytest.approx(best)


def test_nothing_is_drafted_where_verifying_costs_as_much_as_writing() -> None:
    planner = planner_for(NEVER_FREE)
    assert planner.limit(1) == 0
    assert planner.choose([[0.9] * 8]) == [0]


def test_likely_tokens_are_verified_where_it_is_free() -> None:
    planner = planner_for(FREE_UP_TO_32)
    assert planner.choose([[0.9, 0.9, 0.2], [0.5], []]) == [3, 1, 0]


def test_measured_steps_switch_speculation_off_and_on() -> None:
    planner = planner_for(FREE_UP_TO_32)
    draft = [[0.6, 0.6]]
    assert planner.choose(draft) == [2]
    for _ in range(60):
        planner.costs.record(1, 0, 0.040)
        planner.costs.record(1, 2, 0.120)
    assert planner.choose(draft) == [0]
    for _ in range(60):
        planner.costs.record(1, 2, 0.045)
    assert planner.choose(draft) == [2]


def test_a_batch_for_which_nothing_pays_is_left_in_peace_for_a_while() -> None:
    planner = planner_for(FREE_UP_TO_32)
    looks = 0
    for _ in range(320):
        if planner.limit(2):
            looks += 1
            planner.choose([[0.01], []])
    assert 0 < looks < 320 / 3
    assert planner.limit(16) > 0, "another number of sequences has its own count"


def test_now_and_then_a_step_is_plain_so_that_its_time_stays_known() -> None:
    planner = planner_for(FREE_UP_TO_32)
    chosen = [planner.choose([[0.9]])[0] for _ in range(200)]
    assert 0 < chosen.count(0) < 10


def test_one_hiccup_does_not_change_the_mind() -> None:
    costs = StepCosts(FREE_UP_TO_32)
    for _ in range(30):
        costs.record(2, 0, 0.05)
    before = costs.predict(2, 0)
    assert before == pytest.approx(0.05, rel=0.01)
    costs.record(2, 0, 60.0)
    assert costs.predict(2, 0) < 1.2 * before


def test_costs_between_the_measured_ones_are_interpolated_and_never_fall() -> None:
    costs = StepCosts({1: 0.02, 2: 0.01, 4: 0.04})
    assert costs.forward(2) == 0.02, "noise"
    assert costs.forward(3) == pytest.approx(0.03)
    assert costs.forward(8) == pytest.approx(0.08)


def test_acceptance_learns_from_tested_tokens_alone() -> None:
    acceptance = Acceptance()
    assert acceptance.chance(3, 0.55) == pytest.approx(0.55)
    for _ in range(200):
        # The first is accepted, the second refused, nobody knows about the third.
        acceptance.record(3, (0.95, 0.55, 0.25), 1)
    assert acceptance.chance(3, 0.95) > 0.95
    assert acceptance.chance(3, 0.55) < 0.1
    assert acceptance.chance(3, 0.25) == pytest.approx(0.25)
