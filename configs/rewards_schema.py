"""The section ``rewards``: what a completion earns, its presets, and what differs by source of tasks.

A preset is data: its values stand where the user gave none, so that a checked configuration holds the
weights that are in force. Loads no custom reward (rewards.custom does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from configs.errors import Problem, unknown, wrong_value
from configs.section import Fraction, NonNegativeFloat, PositiveFloat, Section, is_module_name
from configs.task_sets import TASK_SOURCES

TestsMode = Literal["fraction", "all"]

# preset -> the values of the section that differ from the defaults below.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "tests_only": {
        "weights": {"tests": 1.0, "execution": 0.0, "syntax": 0.0, "lint": 0.0, "complexity": 0.0},
        "syntax_failure_reward": 0.0,
        "tests": "all",
    },
    # A program that passes nothing can earn .2 at most, so no polish is worth as much as half of the tests;
    # one that does not compile earns nothing, so that the first step, to compile, pays.
    "shaped": {
        "weights": {"tests": 0.8, "execution": 0.05, "syntax": 0.05, "lint": 0.05, "complexity": 0.05},
        "syntax_failure_reward": 0.0,
        "tests": "fraction",
    },
}


class RewardWeights(Section):
    """Weights of the rubric; a completion's reward is their weighted sum.

    Lint, type safety and performance are not computed where they weigh 0; tests are, unless execution is off.
    """

    tests: NonNegativeFloat = Field(default=0.50, description="share of tests passed")
    execution: NonNegativeFloat = Field(
        default=0.20, description="runs clean 1, writes to stderr .5, crashes 0"
    )
    syntax: NonNegativeFloat = Field(default=0.15, description="compiles")
    lint: NonNegativeFloat = Field(default=0.10, description="1 - ruff issues / 20")
    complexity: NonNegativeFloat = Field(default=0.05, description="nesting, branches, length")
    type_safety: NonNegativeFloat = Field(default=0.0, description="1 - mypy errors / 10")
    performance: NonNegativeFloat = Field(
        default=0.0, description="CPU time against that of the reference solution"
    )


class SourceRewards(Section):
    """What differs for the tasks of one source; what is not given stays as in the section ``rewards``."""

    weights: dict[str, NonNegativeFloat] = Field(
        default_factory=dict, description="weights that differ, by name; the others stay"
    )
    tests: TestsMode | None = Field(default=None, description="as rewards.tests")
    syntax_failure_reward: Fraction | None = Field(
        default=None, description="as rewards.syntax_failure_reward"
    )

    def _problems(self) -> list[Problem]:
        known = list(RewardWeights.model_fields)
        return [unknown(f"weights.{name}", name, known) for name in self.weights if name not in known]


class RewardsConfig(Section):
    """How completions are scored."""

    preset: Literal["default", "tests_only", "shaped"] = Field(
        default="default",
        description="sets weights, tests and syntax_failure_reward where they are not given. default: the "
        "weights below; tests_only: 1 for all tests, else 0; shaped: .80 share of tests, .05 each of "
        "execution, syntax, lint and complexity, 0 for a syntax failure",
    )
    weights: RewardWeights = Field(
        default_factory=RewardWeights, description="weight of each part of the reward"
    )
    syntax_failure_reward: Fraction = Field(
        default=0.1, description="the constant reward of code that does not compile"
    )
    tests: TestsMode = Field(default="fraction", description="partial credit, or all tests or nothing")
    per_source: dict[str, SourceRewards] = Field(
        default_factory=dict,
        description=f"what differs for tasks of one source ({', '.join(TASK_SOURCES)}): "
        "weights, tests, syntax_failure_reward",
    )
    custom: list[str] = Field(
        default_factory=list,
        description="your own reward functions in TRL's signature, each as package.module:function",
    )
    custom_weights: list[float] = Field(
        default_factory=list, description="one weight for each custom reward; default: 1.0 each"
    )
    custom_timeout_s: PositiveFloat = Field(
        default=30.0, description="for one call of a custom reward, or of custom feedback, in seconds"
    )

    @property
    def custom_names(self) -> tuple[str, ...]:
        """The custom rewards' names in the breakdown: those of their functions."""
        return tuple(spec.rpartition(":")[2] for spec in self.custom)

    @model_validator(mode="before")
    @classmethod
    def _lay_over_preset(cls, given: object) -> object:
        """Put the preset's values, and a weight of 1.0 for each custom reward, where none is given."""
        if not isinstance(given, dict):
            return given
        name = given.get("preset", "default")
        preset = PRESETS.get(name) if isinstance(name, str) else None
        if not preset:
            values = dict(given)
        else:
            values = {**preset, **given}
            weights = given.get("weights", {})
            if isinstance(weights, RewardWeights):
                weights = weights.model_dump(exclude_unset=True)
            if isinstance(weights, dict):
                values["weights"] = {**preset["weights"], **weights}
        if isinstance(values.get("custom"), list) and not values.get("custom_weights"):
            values["custom_weights"] = [1.0] * len(values["custom"])
        return values

    def _problems(self) -> Iterator[Problem]:
        weights = self.weights.model_dump()
        if not any(weights.values()) and not any(self.custom_weights):
            yield wrong_value("weights", weights, "at least one weight > 0 (else every reward is 0)")
        yield from self._source_problems()
        yield from self._custom_problems()

    def _source_problems(self) -> Iterator[Problem]:
        for source in self.per_source:
            if source not in TASK_SOURCES:
                yield unknown(f"per_source.{source}", source, TASK_SOURCES)
        for source, override in self.per_source.items():
            weights = self.weights.model_dump() | override.weights
            if override.weights and not any(weights.values()) and not any(self.custom_weights):
                allowed = f"at least one weight > 0 (else every reward of {source} is 0)"
                yield wrong_value(f"per_source.{source}.weights", override.weights, allowed)

    def _custom_problems(self) -> Iterator[Problem]:
        allowed = "package.module:function, such as my_rewards:short_code"
        yield from (wrong_value("custom", spec, allowed) for spec in self.custom if not _is_spec(spec))
        names = self.custom_names
        taken = [name for name in names if names.count(name) > 1 or name in RewardWeights.model_fields]
        for name in sorted(set(taken)):
            free = f"functions of different names, none of them {', '.join(RewardWeights.model_fields)}"
            yield wrong_value("custom", name, free)
        if len(self.custom_weights) != len(self.custom):
            count = f"one weight for each of the {len(self.custom)} rewards in rewards.custom"
            yield wrong_value("custom_weights", self.custom_weights, count, "custom")


def _is_spec(spec: str) -> bool:
    module, colon, name = spec.partition(":")
    return bool(colon) and is_module_name(module) and name.isidentifier()
