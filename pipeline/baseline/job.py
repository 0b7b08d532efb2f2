"""What a baseline run's training is given, and what it gives back; it has a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from configs.schema import Config
from curriculum.task import Task
from pipeline.record.run_folder import RunPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """Train ``model`` on ``tasks`` as ``config`` says; ``is_verbose`` also prints what TRL logs."""

    config: Config
    folder: RunPaths
    model: Path
    tasks: tuple[Task, ...]
    device: str
    is_verbose: bool

    @property
    def final(self) -> Path:
        """Where the trained model will lie."""
        return self.folder.checkpoints / "final"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The sandbox's level, and seconds by name."""

    level: str
    seconds: dict[str, float]
