"""What the flags of evaluate_humaneval say. Called by pipeline.cli."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from configs.errors import ConfigError, Problem, wrong_value
from configs.evaluation_options import EvaluationOptions
from configs.yaml_text import parse_value
from pipeline.cli_flags import spelt

_SAMPLING_FLAGS = (
    "n",
    "temperature",
    "top_p",
    "max_completion_length",
    "prompt_form",
    "greedy",
    "engine",
    "seed",
    "attach",
    "keep_alive",
)


def evaluation_options(arguments: argparse.Namespace) -> EvaluationOptions:
    """What to evaluate, and how; raises ConfigError for flags that do not go together or are no numbers."""
    given: Mapping[str, Any] = {flag: value for flag, value in vars(arguments).items() if value is not None}
    useless = [spelt(flag) for flag in _SAMPLING_FLAGS if flag in given and "samples" in given]
    if useless:
        allowed = "leave it out, or leave out --samples"
        fault = "not used with --samples, where nothing is sampled"
        raise ConfigError(
            [Problem(where="command line", field=flag, fault=fault, allowed=allowed) for flag in useless]
        )

    greedy_conflicts = [spelt(flag) for flag in ("temperature", "n") if flag in given and "greedy" in given]
    if greedy_conflicts:
        fault, allowed = "--greedy says it already", "leave it out, or leave out --greedy"
        raise ConfigError(
            [
                Problem(where="command line", field=flag, fault=fault, allowed=allowed)
                for flag in greedy_conflicts
            ]
        )

    def number(flag: str, otherwise: Any) -> Any:
        if flag not in given:
            return otherwise
        value = parse_value(given[flag])
        if value is None:
            problem = wrong_value(spelt(flag), given[flag], "a number")
            raise ConfigError([replace(problem, where="command line")])
        return value

    num_samples = number("n", 1 if "greedy" in given else 10)
    ks: list[Any] = [parse_value(k) for k in arguments.k or ()]
    return EvaluationOptions(
        model=arguments.model,
        tasks=given.get("tasks", "humaneval"),
        num_samples=num_samples,
        ks=tuple(ks),
        samples=arguments.samples,
        against=arguments.against,
        prompt_form=given.get("prompt_form", "chat"),
        timeout=number("timeout", 2.0),
        per_task=arguments.per_task,
        output=arguments.output,
        temperature=number("temperature", 0.0 if "greedy" in given else 0.6),
        top_p=number("top_p", 1.0),
        max_completion_length=number("max_completion_length", 512),
        limit=number("limit", None),
        engine=given.get("engine", "vllm"),
        seed=number("seed", 0),
        allow_unsafe=arguments.allow_unsafe,
        modules=tuple(arguments.module),
        attach="attach" in given,
        keep_alive="keep_alive" in given,
    )
