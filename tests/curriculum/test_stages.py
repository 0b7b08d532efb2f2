from __future__ import annotations

import re

import pytest

from configs.curriculum_schema import CurriculumConfig
from curriculum.sampler import Sampler
from curriculum.stages import open_tasks, refuse_empty_stages
from curriculum.task import Task

TASKS = tuple(
    Task(
        task_id=f"t{index}",
        prompt="x" * (index + 1),
        entry_point="f",
        check_source="def check(f): pass",
        difficulty=1 + index % 3,
    )
    for index in range(9)
)


def schedule(*stages: dict[str, int | None], **others: object) -> CurriculumConfig:
    return CurriculumConfig.model_validate({"enabled": True, "stages": list(stages), **others})


def levels_at(curriculum: CurriculumConfig, step: int) -> set[int]:
    return {task.difficulty for task in open_tasks(TASKS, curriculum, step)}


def test_a_stage_lasts_up_to_and_with_its_last_step() -> None:
    curriculum = schedule({"until_step": 2, "max_difficulty": 1}, {"until_step": 5, "max_difficulty": 2})
    # Optimiser steps count from 1 for users, from 0 here.
    assert [levels_at(curriculum, step) for step in range(7)] == [
        {1}, {1}, {1, 2}, {1, 2}, {1, 2}, {1, 2, 3}, {1, 2, 3},
    ]  # fmt: skip


def test_the_last_stage_may_go_on_to_the_end() -> None:
    curriculum = schedule({"until_step": 3, "max_difficulty": 1}, {"min_difficulty": 2, "max_difficulty": 2})
    assert levels_at(curriculum, 2) == {1}
    assert levels_at(curriculum, 3) == levels_at(curriculum, 10_000) == {2}


@pytest.mark.parametrize("strategy", ["length", "complexity", "success_rate"])
def test_a_sampler_draws_what_its_stage_has_open(strategy: str) -> None:
    sampler = Sampler(TASKS, schedule({"until_step": 4, "max_difficulty": 2}, strategy=strategy), 0)
    early = {sampler.draw(step).difficulty for step in range(4) for _ in range(6)}
    late = {sampler.draw(step).difficulty for step in range(4, 30) for _ in range(6)}
    assert early == {1, 2}
    assert late == {1, 2, 3}


def test_a_stage_that_no_task_fits_is_refused_with_the_levels_that_there_are() -> None:
    curriculum = schedule({"until_step": 3, "max_difficulty": 2}, {"min_difficulty": 4})
    expected = (
        "acceleration.curriculum.stages.1: levels 4 to 5 are not allowed, for none of the 9 tasks of "
        "dataset.name is of them; allowed: levels that tasks have (1, 2, 3)"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        refuse_empty_stages(TASKS, curriculum)
    refuse_empty_stages(TASKS, schedule({"until_step": 3, "max_difficulty": 2}))
    refuse_empty_stages(TASKS, CurriculumConfig())


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            {"stages": [{"until_step": 5}, {"until_step": 5}]},
            "stages.1.until_step: 5 is not allowed; allowed: a whole number > 5, where the stage before",
        ),
        (
            {"stages": [{"max_difficulty": 2}, {"until_step": 5}]},
            "stages.0.until_step: null is not allowed; allowed: a whole number: only the last stage",
        ),
        (
            {"stages": [{"min_difficulty": 3, "max_difficulty": 2}]},
            "max_difficulty: 2 is not allowed; allowed: at least min_difficulty, which is 3",
        ),
        (
            {"stages": [{"until_step": 5}], "warmup_steps": 3},
            "warmup_steps: 3 is not allowed; allowed: 0 with stages",
        ),
        ({"stages": [{"until_step": 5}], "enabled": False}, "allowed: [] where enabled is false"),
        (
            {"skip_ahead": {"base": 0.1, "floor": 0.2}},
            "floor: 0.2 is not allowed; allowed: at most base, which is 0.1",
        ),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        CurriculumConfig.model_validate({"enabled": True, **values})
