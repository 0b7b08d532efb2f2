"""The sections that say which samples are drawn: curriculum and refill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from configs.errors import Problem, wrong_value
from configs.section import NonNegativeInt, PositiveFraction, PositiveInt, Section

Level = Annotated[int, Field(ge=1, le=5)]


class CurriculumStageConfig(Section):
    """One stage of a schedule: tasks of these levels only, up to its last step."""

    until_step: PositiveInt | None = Field(
        default=None, description="its last optimiser step; null, for the last stage only: to the end"
    )
    min_difficulty: Level = Field(default=1, description="easiest level, 1 to 5")
    max_difficulty: Level = Field(default=5, description="hardest level, 1 to 5")

    def _problems(self) -> Iterator[Problem]:
        if self.min_difficulty > self.max_difficulty:
            allowed = f"at least min_difficulty, which is {self.min_difficulty}"
            yield wrong_value("max_difficulty", self.max_difficulty, allowed, "min_difficulty")


class SkipAheadConfig(Section):
    """Passing over tasks whose last groups taught nothing: solved or hopeless."""

    enabled: bool = Field(
        default=False,
        description="with the curriculum: ask a task less often the more of its last groups had no signal, "
        "one after the other",
    )
    base: PositiveFraction = Field(
        default=0.5,
        description="chance that it is asked after one group without signal; each further one multiplies it",
    )
    floor: PositiveFraction = Field(
        default=0.05, description="smallest such chance, so that every task is asked again"
    )

    def _problems(self) -> Iterator[Problem]:
        if self.floor > self.base:
            allowed = f"at most base, which is {self.base:g}"
            yield wrong_value("floor", self.floor, allowed, "base")


class CurriculumConfig(Section):
    """Which task is drawn next."""

    enabled: bool = Field(default=False, description="draw by the strategy; otherwise uniformly")
    strategy: Literal["length", "complexity", "success_rate"] = Field(
        default="success_rate",
        description="success_rate: draw by the measured pass rate p, with a weight of p(1 - p); length, "
        "complexity: draw uniformly, and warmup_steps opens the tasks from the shortest prompt or the "
        "simplest reference on (without warmup_steps, or with stages, they change nothing)",
    )
    warmup_steps: NonNegativeInt = Field(
        default=0, description="optimiser steps over which the whole difficulty range is opened"
    )
    stages: list[CurriculumStageConfig] = Field(
        default_factory=list,
        description="which levels are open when, such as [{until_step: 12, max_difficulty: 2}, {until_step: "
        "24, max_difficulty: 3}]; after the last one all are",
    )
    skip_ahead: SkipAheadConfig = Field(
        default_factory=SkipAheadConfig, description="passing over what is solved or hopeless"
    )

    def _problems(self) -> Iterator[Problem]:
        if not self.stages:
            return
        if not self.enabled:
            shown = [stage.model_dump() for stage in self.stages]
            yield wrong_value("stages", shown, "[] where enabled is false", "enabled")
        if self.warmup_steps:
            allowed = "0 with stages: both say which tasks are open"
            yield wrong_value("warmup_steps", self.warmup_steps, allowed, "stages")
        before = 0
        for number, stage in enumerate(self.stages):
            field = f"stages.{number}.until_step"
            if stage.until_step is None:
                if number < len(self.stages) - 1:
                    allowed = "a whole number: only the last stage goes on to the end"
                    yield wrong_value(field, None, allowed, "stages")
            elif stage.until_step <= before:
                allowed = f"a whole number > {before}, where the stage before it ends"
                yield wrong_value(field, stage.until_step, allowed, "stages")
            before = stage.until_step or before


class RefillConfig(Section):
    """Drawing anew for groups without signal (dynamic sampling, DAPO, arXiv:2503.14476)."""

    enabled: bool = Field(
        default=False,
        description="replace a group whose rewards are all equal by another draw (not exact: with loss_type "
        "grpo or dr_grpo the expected gradient keeps its direction and becomes longer, next to the KL term "
        "of grpo.beta as well; dapo, cispo and bnpo divide by the tokens of other groups, too)",
    )
    max_draws: Annotated[float, Field(gt=1)] = Field(
        default=3.0,
        description="most draws of a step, as a multiple of its groups; from there on the step trains on "
        "groups without signal as well",
    )
