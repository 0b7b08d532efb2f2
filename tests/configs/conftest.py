"""The commands without what they start."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType

import pytest


class Stages:
    """Stands for the three entry modules: keeps what they are called with, and raises on request."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.fault: BaseException | None = None

    def __call__(self, *arguments: object) -> int:
        self.calls.append(arguments)
        if self.fault is not None:
            raise self.fault
        return 0


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    stages = Stages()
    # First: what it imports is the real one.
    monkeypatch.setattr("pipeline.run.early_start.launched", nullcontext)
    for module, function in (
        ("run.orchestrator", "run_training"),
        ("run.startup", "run_profile"),
        ("generation.resident", "stop_all"),
        ("baseline.baseline", "run_baseline"),
        ("evaluation.command", "run_evaluation"),
    ):
        name = f"pipeline.{module}"
        stub = ModuleType(name)
        setattr(stub, function, stages)
        monkeypatch.setitem(sys.modules, name, stub)
    return stages
