"""The rubric: weights, presets and what differs by source. Scoring itself: tests/rewards/test_scorer.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from configs.rewards_schema import PRESETS, RewardsConfig, RewardWeights
from configs.task_sets import TASK_SOURCES
from rewards.rubric import Rubric, Rules

ORIGINAL_GUIDE = {
    "tests": 0.50,
    "execution": 0.20,
    "syntax": 0.15,
    "lint": 0.10,
    "complexity": 0.05,
    "type_safety": 0.0,
    "performance": 0.0,
}
FULL = {"tests": 1.0, "execution": 1.0, "syntax": 1.0, "lint": 1.0, "complexity": 1.0}
HALF_RIGHT = FULL | {"tests": 0.5}
COMPILES = FULL | {"tests": 0.0, "execution": 0.0}


def rubric(**values: Any) -> Rubric:
    return Rubric(RewardsConfig.model_validate(values))


def common(**values: Any) -> Rules:
    """What is in force for a source without an entry of its own."""
    return rubric(**values).rules("ladder")


def test_the_default_weights_are_those_of_the_original_guide() -> None:
    assert common() == Rules(weights=ORIGINAL_GUIDE, tests_mode="fraction", syntax_failure_reward=0.1)


@pytest.mark.parametrize(
    ("preset", "full", "half_right", "compiles", "syntax_failure", "mode"),
    [
        ("default", 1.0, 0.75, 0.30, 0.1, "fraction"),
        ("tests_only", 1.0, 0.5, 0.0, 0.0, "all"),
        ("shaped", 1.0, 0.6, 0.15, 0.0, "fraction"),
    ],
)
def test_presets_by_example(
    preset: str, full: float, half_right: float, compiles: float, syntax_failure: float, mode: str
) -> None:
    rules = common(preset=preset)
    for breakdown, expected in ((FULL, full), (HALF_RIGHT, half_right), (COMPILES, compiles)):
        assert rules.combine(breakdown) == pytest.approx(expected)
    assert (rules.syntax_failure_reward, rules.tests_mode) == (syntax_failure, mode)


@pytest.mark.parametrize("preset", PRESETS)
def test_under_every_preset_a_better_answer_earns_no_less(preset: str) -> None:
    rules = common(preset=preset)
    ladder = [
        rules.syntax_failure_reward,
        rules.combine(COMPILES),
        rules.combine(COMPILES | {"execution": 1.0}),
        rules.combine(HALF_RIGHT),
        rules.combine(FULL),
    ]
    assert ladder == sorted(ladder) and ladder[-1] == pytest.approx(1.0)


def test_what_is_given_wins_over_the_preset_and_the_rest_of_it_stays() -> None:
    rules = common(preset="tests_only", weights={"lint": 0.25}, tests="fraction", syntax_failure_reward=0.05)
    weights = dict.fromkeys(RewardWeights.model_fields, 0.0) | {"tests": 1.0, "lint": 0.25}
    assert rules == Rules(weights=weights, tests_mode="fraction", syntax_failure_reward=0.05)


def test_weights_given_as_an_object_are_laid_over_the_preset_too() -> None:
    weights = common(preset="shaped", weights=RewardWeights(lint=0.2)).weights
    assert (weights["lint"], weights["tests"]) == (0.2, 0.8)


def test_a_checked_configuration_reads_back_as_the_same_rules() -> None:
    first = RewardsConfig.model_validate(
        {"preset": "shaped", "custom": ["m:f"], "per_source": {"mbpp": {"weights": {"lint": 0}}}}
    )
    again = RewardsConfig.model_validate(first.model_dump())
    assert again == first
    assert again.custom_weights == [1.0]


def test_a_source_has_its_own_rules_and_all_others_keep_the_common_ones() -> None:
    rules = rubric(
        per_source={
            "humaneval": {"weights": {"tests": 1.0, "lint": 0}, "tests": "all"},
            "mbpp": {"syntax_failure_reward": 0.0},
        }
    )
    humaneval = ORIGINAL_GUIDE | {"tests": 1.0, "lint": 0.0}
    assert rules.rules("humaneval") == Rules(weights=humaneval, tests_mode="all", syntax_failure_reward=0.1)
    assert rules.rules("mbpp") == replace(common(), syntax_failure_reward=0.0)
    for source in ("ladder", "codeio", "jsonl", ""):
        assert rules.rules(source) == common()


def test_a_part_that_only_one_source_weighs_is_used_and_one_that_none_does_is_not() -> None:
    rules = rubric(per_source={"mbpp": {"weights": {"type_safety": 0.2}}}, custom=["m:f"], custom_weights=[0])
    assert rules.is_used("type_safety") and rules.is_used("tests")
    assert not rules.is_used("performance") and not rules.is_used("f")


def test_custom_rewards_weigh_one_unless_it_is_said_and_may_be_penalties() -> None:
    assert common(custom=["m:short"]).combine(FULL | {"short": 0.5}) == pytest.approx(1.5)
    rules = common(custom=["m:short", "n:loud"], custom_weights=[0.2, -0.1])
    assert rules.combine(FULL | {"short": 1.0, "loud": 3.0}) == pytest.approx(0.9)


def test_what_is_not_in_the_breakdown_counts_nothing() -> None:
    without_execution = {"syntax": 1.0, "lint": 1.0, "complexity": 1.0}
    assert common(custom=["m:short"]).combine(without_execution) == pytest.approx(0.30)


def test_a_part_that_the_rubric_does_not_know_is_a_fault_of_the_caller() -> None:
    with pytest.raises(KeyError):
        common().combine({"charm": 1.0})


# (values of the section, field, what the message must hold besides it)
WRONG: dict[str, tuple[dict[str, object], list[str]]] = {
    "preset that is a list": ({"preset": ["shaped"]}, ["preset"]),
    "nothing weighs": ({"preset": "tests_only", "weights": {"tests": 0}}, ["weights", "at least one weight"]),
    "unknown source": (
        {"per_source": {"humanevil": {"tests": "all"}}},
        ["per_source.humanevil", "did you mean humaneval", *TASK_SOURCES],
    ),
    "unknown weight of a source": (
        {"per_source": {"mbpp": {"weights": {"lynt": 0.1}}}},
        ["weights.lynt", "did you mean lint", "type_safety"],
    ),
    "nothing weighs for a source": (
        {"preset": "tests_only", "per_source": {"mbpp": {"weights": {"tests": 0}}}},
        ["per_source.mbpp.weights", "every reward of mbpp is 0"],
    ),
    "custom without a function": ({"custom": ["my_rewards"]}, ["custom", "my_rewards", "package.module"]),
    "custom that is a path": ({"custom": ["./my_rewards.py:f"]}, ["custom", "package.module:function"]),
    "two customs of one name": ({"custom": ["a:f", "b:f"]}, ["custom", '"f"', "different names"]),
    "custom named as a built-in": ({"custom": ["a:lint"]}, ["custom", '"lint"', "type_safety"]),
    "a weight too few": (
        {"custom": ["a:f", "a:g"], "custom_weights": [1.0]},
        ["custom_weights", "one weight for each of the 2 rewards"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_refused_by_field_and_with_what_would_be_right(name: str) -> None:
    values, expected = WRONG[name]
    with pytest.raises(ValueError) as caught:
        RewardsConfig.model_validate(values)
    for part in expected:
        assert part in str(caught.value)
