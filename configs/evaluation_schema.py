"""The evaluation section: what a run measures on held-out tasks, and when."""

from __future__ import annotations

from pydantic import Field

from configs.errors import Problem, wrong_value
from configs.section import PositiveFloat, PositiveFraction, PositiveInt, Section, TaskSetName
from configs.task_sets import BUILT_IN_DATASETS, task_set_problems


class EvaluationConfig(Section):
    """The held-out measurement before and after training, and on the way."""

    enabled: bool = Field(default=True, description="measure before and after training")
    tasks: TaskSetName = Field(
        default="ladder-heldout",
        description=f"{', '.join(BUILT_IN_DATASETS)}, a .jsonl file, or a hub data set as OWNER/NAME",
    )
    max_tasks: PositiveInt | None = Field(default=None, description="use at most this many of the tasks")
    num_samples: PositiveInt = Field(default=4, description="completions per task")
    temperature: PositiveFloat = Field(default=1.0, description="sampling temperature")
    top_p: PositiveFraction = Field(default=1.0, description="nucleus sampling")
    max_completion_length: PositiveInt = Field(default=128, description="tokens per completion")
    every_steps: PositiveInt | None = Field(
        default=None,
        description="also measure during training, every so many optimiser steps; default: never",
    )
    inloop_tasks: PositiveInt = Field(
        default=32, description="how many of the tasks such a measurement takes, spread evenly over them"
    )
    inloop_samples: PositiveInt = Field(default=1, description="completions per task of such a measurement")
    inloop_requests: PositiveInt = Field(
        default=4, description="tasks it asks for at once: what it may take of the generators from training"
    )

    def _problems(self) -> list[Problem]:
        problems = task_set_problems("tasks", self.tasks)
        if self.every_steps is not None and not self.enabled:
            problems.append(wrong_value("every_steps", self.every_steps, "null with this", "enabled"))
        return problems
