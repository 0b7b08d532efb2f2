"""How many wrong inputs there are: at least 400, each by data."""

from __future__ import annotations

from tests.bad_input import test_models, test_runs, test_samples, test_targets, test_tasks
from tests.configs.test_wrong_configurations import (
    WRONG_ARGUMENTS,
    WRONG_EVALUATIONS,
    WRONG_FILES,
    WRONG_VALUES,
)


def test_there_are_at_least_four_hundred() -> None:
    inputs = {
        "tasks": len(test_tasks.CASES),
        "data sets": len(test_tasks.DATA_SETS),
        "samples": len(test_samples.CASES),
        "models": len(test_models.MODELS) + len(test_models.ADAPTERS),
        "runs and checkpoints, by command": len(test_runs.CASES),
    }
    inputs |= {
        "targets": 2 * len(test_targets.COMMANDS),
        "configurations": sum(map(len, (WRONG_VALUES, WRONG_FILES, WRONG_ARGUMENTS, WRONG_EVALUATIONS))),
    }
    assert sum(inputs.values()) >= 400, inputs
    assert all(inputs.values())
