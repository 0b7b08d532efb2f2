"""How many wrong inputs there are: at least 200 tasks, data sets, samples, models, runs and checkpoints."""

from __future__ import annotations

from tests.bad_input import test_models, test_runs, test_samples, test_tasks
from tests.configs.test_wrong_configurations import (
    WRONG_ARGUMENTS,
    WRONG_EVALUATIONS,
    WRONG_FILES,
    WRONG_VALUES,
)


def test_there_are_at_least_two_hundred_besides_the_configurations() -> None:
    inputs = {
        "tasks": len(test_tasks.CASES),
        "data sets": len(test_tasks.DATA_SETS),
        "samples": len(test_samples.CASES),
        "models": len(test_models.MODELS) + len(test_models.ADAPTERS),
        "runs": len(test_runs.RUNS) + len(test_runs.RESUMES) + len(test_runs.NO_RUNS),
        "checkpoints": len(test_runs.CHECKPOINTS),
    }
    assert sum(inputs.values()) >= 200, inputs
    assert all(inputs.values())
    assert sum(map(len, (WRONG_VALUES, WRONG_FILES, WRONG_ARGUMENTS, WRONG_EVALUATIONS))) >= 100
