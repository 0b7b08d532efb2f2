from __future__ import annotations

import pytest

from configs.schema import Config, GenerationConfig
from pipeline.models.prompts import CLOSING_FENCE, evaluation_sampling, stop_strings, training_sampling


@pytest.mark.parametrize(
    ("stop", "prefill", "expected"),
    [
        (True, "```python\n", (CLOSING_FENCE,)),
        (True, "```\n", (CLOSING_FENCE,)),
        (True, "", ()),
        (True, "Here is the code:\n", ()),
        (False, "```python\n", ()),
    ],
)
def test_only_an_answer_that_opens_with_a_fence_ends_at_one(
    stop: bool, prefill: str, expected: tuple[str, ...]
) -> None:
    generation = GenerationConfig(stop_at_code_fence=stop, assistant_prefill=prefill)
    assert stop_strings(generation) == expected


def test_a_fence_within_a_line_is_no_closing_fence() -> None:
    assert CLOSING_FENCE not in 'def f():\n    return "```"'
    assert CLOSING_FENCE in "def f():\n    return 1\n```\n"


def test_training_samples_as_generation_says_and_evaluation_as_evaluation_says() -> None:
    config = Config.model_validate(
        {
            "generation": {"temperature": 0.7, "top_p": 0.8, "top_k": 5, "max_completion_length": 33},
            "evaluation": {"temperature": 0.2, "top_p": 0.9, "max_completion_length": 44},
        }
    )
    training, evaluation = training_sampling(config), evaluation_sampling(config)
    assert (training.temperature, training.top_p, training.top_k) == (0.7, 0.8, 5)
    assert training.max_completion_length == 33
    assert (evaluation.temperature, evaluation.top_p, evaluation.top_k) == (0.2, 0.9, 0)
    assert evaluation.max_completion_length == 44
    assert training.stop == evaluation.stop == (CLOSING_FENCE,), "both answer in the same form"
