"""What a mean step of a run took of each stage, read from the run's folder.

Where stages shared cores or a GPU, each one's seconds contain its waiting for the others. Predicts nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.finished import load_finished
from pipeline.host.files import read_object
from pipeline.record.metrics import read_metrics

# The first steps wait for the first compilations and an empty pipeline.
_NUM_SKIPPED = 1

Rows = Sequence[Mapping[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run in numbers: means of the ``num_steps`` steps that tell what stages cost.

    ``rewards_s`` are seconds of all ``num_reward_workers`` together, the other stages' those in which they
    were at work. ``num_devices`` are the GPUs of the run, 1 on a CPU and where its stages shared one.
    """

    origin: str
    device: str
    is_gpu: bool
    num_devices: int
    num_generator_gpus: int
    num_ranks: int
    num_reward_workers: int
    num_completions: int
    max_staleness: int
    generation_s: float
    rewards_s: float
    training_s: float
    update_s: float
    pause_s: float
    step_s: float
    num_steps: int

    @property
    def is_shared(self) -> bool:
        """Whether the stages were on one device, or on the cores of one machine."""
        return self.num_devices == 1

    @property
    def own_s(self) -> dict[str, float]:
        """Seconds of a step that each stage takes by itself; a generator stands still for a pause."""
        return {
            "generation": self.generation_s + self.pause_s,
            "training": self.training_s,
            "rewards": self.rewards_s / self.num_reward_workers,
        }


def read_run(folder: Path) -> MeasuredRun:
    """The run in ``folder``. Raises ValueError where it holds none, or one with too few steps."""
    file, summary = folder / "config.yaml", folder / "summary.json"
    if not file.is_file():
        raise ValueError(f"{folder} holds no config.yaml; allowed: the folder of an earlier run")
    config, rows = load_finished(file), steady_rows(folder)
    # A run that did not end has none.
    hardware = read_object(summary).get("hardware", {}) if summary.is_file() else {}
    if not isinstance(hardware, dict):
        raise ValueError(f"{summary}: field 'hardware': value {hardware!r}: must be an object")
    is_gpu = hardware.get("device", config.runtime.device) == "cuda"
    num_generator_gpus = config.generation.num_engines * config.generation.tensor_parallel_size
    num_ranks = config.runtime.trainer_ranks
    # A single trainer rank is on the GPU of a single whole generator.
    is_shared = not is_gpu or num_generator_gpus == num_ranks == 1
    return MeasuredRun(
        origin=f"run {folder}",
        device=str(hardware.get("cpu") or config.runtime.device),
        is_gpu=is_gpu,
        num_devices=1 if is_shared else num_generator_gpus + num_ranks,
        num_generator_gpus=num_generator_gpus,
        num_ranks=num_ranks,
        num_reward_workers=config.acceleration.async_rewards.workers,
        num_completions=config.completions_per_step,
        max_staleness=config.acceleration.max_staleness,
        generation_s=mean(rows, "generation/seconds") or 0.0,
        rewards_s=mean(rows, "rewards/seconds") or 0.0,
        training_s=mean(rows, "train/seconds") or 0.0,
        update_s=mean(rows, "weights/update_s") or 0.0,
        pause_s=mean(rows, "weights/pause_s") or 0.0,
        step_s=mean(rows, "step/seconds") or 0.0,
        num_steps=len(rows),
    )


def steady_rows(folder: Path) -> Rows:
    """The metrics of the steps that tell what stages cost: not the first, and none that generated nothing.

    Raises ValueError where there are none.
    """
    metrics = folder / "metrics.jsonl"
    rows = read_metrics(metrics) if metrics.is_file() else []
    # The last steps train what earlier ones generated: nothing shares their device any more.
    counted = ("train/seconds", "generation/tokens", "generation/seconds")
    rows = [row for row in rows if all(row.get(name) for name in counted)][_NUM_SKIPPED:]
    if not rows:
        wanted = f"let the run train {_NUM_SKIPPED + 1} steps or more"
        raise ValueError(f"{metrics}: has no metrics of a step after its first one; {wanted}")
    return rows


def mean(rows: Rows, name: str) -> float | None:
    """The mean over the steps that logged ``name``; None where none did."""
    values = [value for row in rows if (value := row.get(name)) is not None]
    return statistics.fmean(values) if values else None
