"""Settings of what a run leaves behind, and whom it tells of its metrics.

Imports nothing heavy.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from configs.errors import Problem, wrong_value
from configs.section import NonNegativeInt, PositiveFloat, PositiveInt, Section, Text

TRACKERS = ("trackio", "wandb", "tensorboard")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class OutputConfig(Section):
    """Where results go."""

    dir: Text = Field(default="runs", description="folder of run folders")
    name: str | None = Field(default=None, description="run name; default: date and time")
    save_steps: PositiveInt = Field(default=10, description="optimiser steps between checkpoints")
    save_minutes: PositiveFloat = Field(
        default=10.0,
        description="minutes between checkpoints at most, to within a step: what the end of a run may cost",
    )
    save_total_limit: PositiveInt = Field(default=2, description="checkpoints kept")
    logging_steps: PositiveInt = Field(default=1, description="optimiser steps between metric lines")
    report_to: Annotated[
        list[Literal["auto", "none", "trackio", "wandb", "tensorboard"]], BeforeValidator(_as_list)
    ] = Field(
        default=["auto"],
        min_length=1,
        description="trackio, wandb, tensorboard, or several of them: where metrics go as well while the "
        "run trains; none: nowhere; auto: trackio, kept on this machine, where it is installed",
    )
    project: Text = Field(default="code-grpo", description="the project that those file the run under")
    timeline_steps: NonNegativeInt = Field(
        default=1000,
        description="steps of which run.db keeps what each stage did when (about 3 kB a step); 0: none",
    )
    text_steps: PositiveInt | None = Field(
        default=None,
        description="steps of which run.db keeps the completions; of older ones it keeps score and verdict "
        "only; default: all",
    )
    push_to_hub: Text | None = Field(
        default=None,
        description="hub id, as OWNER/NAME, that the trained model is uploaded to; default: none",
    )
    hub_private: bool = Field(default=True, description="a repository that push_to_hub makes is private")

    def _problems(self) -> list[Problem]:
        names = self.report_to
        if len(names) == len(set(names)) and (len(names) == 1 or not {"auto", "none"} & set(names)):
            return []
        allowed = f"auto, none, or some of {', '.join(TRACKERS)}, each once"
        return [wrong_value("report_to", names, allowed)]
