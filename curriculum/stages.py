"""Which tasks are open at a step: all, a schedule's levels, or a window that widens from the easiest.

Pure; chooses no task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from configs.curriculum_schema import CurriculumConfig, CurriculumStageConfig
from curriculum.task import Task

_FIRST_WINDOW = 0.25


def open_tasks(order: Sequence[Task], curriculum: CurriculumConfig, step: int) -> Sequence[Task]:
    """The tasks of ``order``, easiest first, that may be drawn for optimiser step ``step`` (from 0).

    With ``stages``, those of the levels of the first stage that has not ended; after the last stage all. With
    ``warmup_steps``, the easiest quarter at first and linearly more until all are open.
    """
    if not curriculum.enabled:
        return order
    for stage in curriculum.stages:
        # ``until_step`` is counted from 1, as users count steps.
        if stage.until_step is None or step < stage.until_step:
            return [task for task in order if _is_in(stage, task)]
    if step >= curriculum.warmup_steps:
        return order
    share = _FIRST_WINDOW + (1 - _FIRST_WINDOW) * step / curriculum.warmup_steps
    return order[: math.ceil(share * len(order))]


def refuse_empty_stages(tasks: Sequence[Task], curriculum: CurriculumConfig) -> None:
    """Raise ValueError for a stage whose levels no task has: nothing could be drawn in it."""
    if not curriculum.enabled:
        return
    for number, stage in enumerate(curriculum.stages):
        if not any(_is_in(stage, task) for task in tasks):
            levels = ", ".join(str(level) for level in sorted({task.difficulty for task in tasks}))
            raise ValueError(
                f"acceleration.curriculum.stages.{number}: levels {stage.min_difficulty} to "
                f"{stage.max_difficulty} are not allowed, for none of the {len(tasks)} tasks of dataset.name "
                f"is of them; allowed: levels that tasks have ({levels})"
            )


def _is_in(stage: CurriculumStageConfig, task: Task) -> bool:
    return stage.min_difficulty <= task.difficulty <= stage.max_difficulty
