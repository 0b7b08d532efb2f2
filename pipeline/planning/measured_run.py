"""What the stages of a run cost, read from its folder or from a record of one.

A record is gzipped JSON with the fields of MeasuredRun; benchmarks/data/stage_costs.json.gz is one. Costs are
per completion, so that they hold for other batches. Where stages shared cores or a GPU, each one's seconds
contain its waiting for the others.
"""

from __future__ import annotations

import gzip
import sqlite3
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from configs.conditions import why_not_streamed
from configs.finished import load_finished
from configs.schema import Config
from pipeline.host.files import read_object
from pipeline.planning.pipeline_model import PipelineShape, StageCosts
from pipeline.record.checkpoints import latest_checkpoint
from pipeline.record.metrics import read_metrics

RECORD: Final = Path(__file__).parents[2] / "benchmarks" / "data" / "stage_costs.json.gz"
# The first steps wait for the first compilations and an empty pipeline.
_NUM_SKIPPED = 1
_MAX_LENGTHS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run in numbers.

    ``lengths``: tokens of completions, in the order of their draws. ``num_generating``: completions that the
    engines wrote at once, taken to be those of one step (what max_staleness adds is with the trainer).
    ``token_s``: seconds of one token in one of those places, such that all places together write what the
    run measured. ``reward_s``, ``train_s``: seconds of a reward worker and of the trainer for one completion.
    ``num_devices`` are the GPUs of the run, 1 on a CPU; ``is_shared`` where its stages were on one device.
    ``weights_bytes`` are of the bf16 weights that travel, 0 where no checkpoint says so.
    """

    origin: str
    device: str
    num_devices: int
    num_engines: int
    groups_per_step: int
    num_generations: int
    max_staleness: int
    num_generating: int
    num_reward_workers: int
    is_streamed: bool
    is_gpu: bool
    is_shared: bool
    lengths: tuple[int, ...]
    token_s: float
    reward_s: float
    train_s: float
    update_s: float
    pause_s: float
    step_s: float
    num_steps: int
    weights_bytes: int

    def costs(self, spare_speed: float) -> StageCosts:
        """The costs as the model of the pipeline takes them; ``spare_speed`` as in engine_model."""
        return StageCosts(
            completion_s=tuple(self.token_s * length for length in self.lengths),
            reward_s=(self.reward_s,),
            train_group_s=self.train_s * self.num_generations,
            update_s=self.update_s,
            pause_s=min(self.pause_s, self.update_s),
            spare_speed=spare_speed,
        )

    def shape(self) -> PipelineShape:
        """The run's own shape."""
        return PipelineShape(
            groups_per_step=self.groups_per_step,
            num_generations=self.num_generations,
            max_staleness=self.max_staleness,
            num_generating=self.num_generating,
            num_reward_workers=self.num_reward_workers,
            is_streamed=self.is_streamed,
            is_update_beside=True,
        )


def read_run(folder: Path) -> MeasuredRun:
    """The costs of the run in ``folder``.

    Raises ValueError where the folder holds no run, or one with too few steps to say anything.
    """
    config = config_of(folder)
    rows = steady_rows(folder)
    lengths = _lengths_of(folder / "run.db")
    hardware = _hardware_of(folder)
    is_gpu = hardware.get("device", config.runtime.device) == "cuda"
    generation, per_step = config.generation, config.completions_per_step
    num_generating = min(generation.max_num_seqs * generation.num_engines, per_step)
    num_tokens = _sum(rows, "generation/tokens")
    num_completions = num_tokens / statistics.fmean(lengths)
    num_devices = _num_gpus(config) if is_gpu else 1
    return MeasuredRun(
        origin=f"run {folder}",
        device=str(hardware.get("cpu") or config.runtime.device),
        num_devices=num_devices,
        num_engines=generation.num_engines,
        groups_per_step=config.prompts_per_step,
        num_generations=config.grpo.num_generations,
        max_staleness=config.acceleration.max_staleness,
        num_generating=num_generating,
        num_reward_workers=config.acceleration.async_rewards.workers,
        is_streamed=is_streamed(config),
        is_gpu=is_gpu,
        is_shared=num_devices == 1,
        lengths=lengths,
        token_s=_sum(rows, "generation/seconds") / num_tokens * num_generating,
        reward_s=_sum(rows, "rewards/seconds") / num_completions,
        train_s=_mean(rows, "train/seconds") / per_step,
        update_s=_mean(rows, "weights/update_s"),
        pause_s=_mean(rows, "weights/pause_s"),
        step_s=_mean(rows, "step/seconds"),
        num_steps=len(rows),
        weights_bytes=_weights_bytes(folder),
    )


def steady_rows(folder: Path) -> list[dict[str, float | None]]:
    """The metrics of the steps that tell what stages cost: not the first, and none that generated nothing.

    Raises ValueError where there are none.
    """
    metrics = folder / "metrics.jsonl"
    rows = read_metrics(metrics) if metrics.is_file() else []
    # The last steps train what earlier ones generated: nothing shares their device any more.
    counted = ("train/seconds", "generation/tokens", "generation/seconds")
    rows = [row for row in rows if all(row.get(name) for name in counted)][_NUM_SKIPPED:]
    if not rows:
        raise ValueError(
            f"{metrics}: has no metrics of a step after its first one; let the run train "
            f"{_NUM_SKIPPED + 1} steps or more"
        )
    return rows


def read_record(path: Path = RECORD) -> MeasuredRun:
    """The run that was recorded in ``path``. Raises ValueError where there is no such record."""
    try:
        text = gzip.decompress(path.read_bytes())
    except OSError as error:
        raise ValueError(f"--plan: no recorded costs at {path} ({error}); give a run's folder") from error
    return TypeAdapter(MeasuredRun).validate_json(text)


def write_record(run: MeasuredRun, path: Path = RECORD) -> None:
    """Write ``run`` to ``path``, the same bytes for the same run."""
    text = TypeAdapter(MeasuredRun).dump_json(run, indent=1)
    path.write_bytes(gzip.compress(text, mtime=0))


def is_streamed(config: Config) -> bool:
    """Whether runs of ``config`` train on groups as they come."""
    return config.acceleration.stream_steps and why_not_streamed(config) is None


def config_of(folder: Path) -> Config:
    """The configuration of the run in ``folder``. Raises ValueError where it holds none."""
    file = folder / "config.yaml"
    if not file.is_file():
        raise ValueError(f"{folder} holds no config.yaml; allowed: the folder of an earlier run")
    return load_finished(file)


def _hardware_of(folder: Path) -> Mapping[str, Any]:
    """What the summary says of the machine; nothing for a run that did not end."""
    summary = folder / "summary.json"
    if not summary.is_file():
        return {}
    found = read_object(summary).get("hardware", {})
    if not isinstance(found, dict):
        raise ValueError(f"{summary}: field 'hardware': value {found!r}: must be an object")
    return found


def _lengths_of(database: Path) -> tuple[int, ...]:
    """Tokens of the first completions of the run, in the order of draws."""
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            rows = connection.execute(
                "SELECT num_tokens FROM rollouts WHERE num_tokens > 0 ORDER BY draw_id, rollout_id LIMIT ?",
                (_MAX_LENGTHS,),
            ).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise ValueError(f"{database} cannot be read: {error}") from error
    if not rows:
        raise ValueError(f"{database} holds no completion; let the run train a step")
    return tuple(int(num_tokens) for (num_tokens,) in rows)


def _weights_bytes(folder: Path) -> int:
    """Bytes of the weights in bf16: checkpoints are fp32."""
    checkpoint = latest_checkpoint(folder)
    if checkpoint is None:
        return 0
    return sum(file.stat().st_size for file in checkpoint.glob("*.safetensors")) // 2


def _num_gpus(config: Config) -> int:
    """GPUs that the run used: a single trainer rank shares the one of a single whole generator."""
    generation = config.generation
    num_generator_gpus = generation.num_engines * generation.tensor_parallel_size
    if num_generator_gpus == 1 and config.runtime.trainer_ranks == 1:
        return 1
    return num_generator_gpus + config.runtime.trainer_ranks


def _sum(rows: list[dict[str, float | None]], name: str) -> float:
    return sum(value for row in rows if (value := row.get(name)) is not None)


def _mean(rows: list[dict[str, float | None]], name: str) -> float:
    return _sum(rows, name) / len(rows)
