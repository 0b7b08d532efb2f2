from __future__ import annotations

import statistics
from typing import Any

import pytest

from benchmarks.curriculum import (
    ARMS,
    above_uniform,
    contender,
    mean_over_curve,
    table,
)
from benchmarks.whole_runs.contest import reached
from configs.curriculum_schema import CurriculumConfig
from configs.load import load_config
from tests.references.simulated_learner import simulate

SEEDS = range(4)
TARGET = 0.5


def curve(*rates: float) -> list[dict[str, float]]:
    return [{"step": 6.0 * place, "mean": rate} for place, rate in enumerate(rates)]


def run(arm: str, seed: int, *rates: float) -> dict[str, Any]:
    return {
        "arm": arm,
        "seed": seed,
        "curve": curve(*rates),
        "num_completions": 384,
        "means": {"rollout/zero_signal_share": 0.25},
    }


def test_steps_to_a_rate_lie_on_straight_lines_and_may_not_be_reached() -> None:
    assert reached(curve(0.08, 0.10, 0.14), 0.12, "step") == pytest.approx(9.0)
    assert reached(curve(0.08, 0.13, 0.11, 0.2), 0.12, "step") == pytest.approx(4.8), "the first time counts"
    assert reached(curve(0.12, 0.1), 0.12, "step") == 0.0
    assert reached(curve(0.08, 0.1, 0.11), 0.12, "step") is None
    assert mean_over_curve(curve(0.0, 0.2, 0.4)) == pytest.approx(0.2)


def test_the_table_pairs_arms_by_seed_and_says_what_was_not_reached() -> None:
    runs = [
        run("uniform", 0, 0.08, 0.10, 0.11),
        run("success_rate", 0, 0.08, 0.12, 0.16),
        run("uniform", 1, 0.08, 0.14, 0.14),
        run("success_rate", 1, 0.08, 0.10, 0.14),
        run("success_rate", 2, 0.08, 0.10, 0.14),
    ]
    settings = {
        "model": "m", "mode": "balanced", "steps": 12, "tasks": "t", "samples": 4, "target": 0.12,
    }  # fmt: skip
    result: dict[str, Any] = {
        "settings": settings,
        "runs": {f"{one['arm']}/{one['seed']}": one for one in runs},
    }
    assert above_uniform(result["runs"]) == pytest.approx([0.0225, -0.02]), "seed 2 has no partner"
    text = table(result)
    assert "| `uniform` | not reached, 4.0 |" in text
    assert "success_rate minus uniform, mean over the curve: +0.1 points (+2.2, -2.0)." in text


def test_arms_differ_in_their_curriculum_only() -> None:
    configs = {arm: load_config(None, "balanced", contender(arm, "balanced").arguments[3::2]) for arm in ARMS}
    assert not configs["uniform"].acceleration.curriculum.enabled
    assert configs["success_rate"].acceleration.curriculum.enabled
    assert not configs["success_rate"].acceleration.refill.enabled
    assert not configs["success_rate"].acceleration.curriculum.skip_ahead.enabled
    uniform, by_rate = (
        config.model_dump(exclude={"acceleration": {"curriculum": {"enabled"}}})
        for config in configs.values()
    )
    assert uniform == by_rate


def test_drawing_by_pass_rate_brings_a_simulated_learner_there_in_fewer_steps_than_uniform_draws() -> None:
    """At equal samples; a learner that learns from groups of mixed outcome only."""
    uniform, by_rate = (
        [simulate(CurriculumConfig(enabled=is_on), seed=seed) for seed in SEEDS] for is_on in (False, True)
    )
    assert {one.num_drawn for one in (*uniform, *by_rate)} == {240}
    for plain, drawn in zip(uniform, by_rate, strict=True):
        ours, theirs = drawn.steps_to(TARGET), plain.steps_to(TARGET)
        assert ours is not None and theirs is not None and ours < theirs


def test_refills_save_a_simulated_learner_steps_and_cost_it_draws() -> None:
    curriculum = CurriculumConfig(enabled=True)
    plain = [simulate(curriculum, seed=seed) for seed in SEEDS]
    refilled = [simulate(curriculum, seed=seed, max_gated=8) for seed in SEEDS]
    steps = [[one.steps_to(TARGET) or 999 for one in runs] for runs in (plain, refilled)]
    assert statistics.fmean(steps[1]) < 0.9 * statistics.fmean(steps[0])
    assert all(one.num_drawn > 240 for one in refilled)
