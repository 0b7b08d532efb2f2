"""The section rollouts: the lengths that turns make, and what they cannot go with."""

from __future__ import annotations

import pytest

from configs.rollouts_schema import MAX_FEEDBACK_LENGTH
from configs.schema import Config

LENGTHS = {"max_prompt_length": 100, "max_completion_length": 30}


@pytest.mark.parametrize(("max_turns", "longest"), [(1, 30), (2, 60 + MAX_FEEDBACK_LENGTH)])
def test_a_conversation_may_have_all_its_answers_and_the_feedback_between(
    max_turns: int, longest: int
) -> None:
    config = Config.model_validate({"generation": LENGTHS, "rollouts": {"max_turns": max_turns}})
    assert config.max_trajectory_length == longest
    assert config.max_sequence_length == 100 + longest


@pytest.mark.parametrize(
    ("rollouts", "field"),
    [
        ({"max_turns": 0}, "rollouts.max_turns"),
        ({"turn_discount": 0.0}, "rollouts.turn_discount"),
        ({"turn_discount": 1.5}, "rollouts.turn_discount"),
        ({"feedback": "hints"}, "rollouts.feedback"),
    ],
)
def test_a_wrong_value_is_named(rollouts: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=field.replace(".", r"\W+")):
        Config.model_validate({"rollouts": rollouts})


def test_without_execution_there_is_no_second_turn() -> None:
    with pytest.raises(ValueError, match=r"rollouts.max_turns: 2 is not allowed.*1 without execution"):
        Config.model_validate({"rollouts": {"max_turns": 2}, "execution": {"enabled": False}})
    with pytest.raises(ValueError, match=r"grpo.warm_start_steps: 3 is not allowed.*0 without execution"):
        Config.model_validate({"grpo": {"warm_start_steps": 3}, "execution": {"enabled": False}})


def test_feedback_that_nothing_would_be_told_by_is_refused() -> None:
    with pytest.raises(ValueError, match=r'rollouts.custom_feedback: "m:f" is not allowed.*one turn'):
        Config.model_validate({"rollouts": {"custom_feedback": "m:f"}})
