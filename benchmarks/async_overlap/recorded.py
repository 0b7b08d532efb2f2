"""What async_overlap asks of a real run: how long its completions were, what its weight updates cost.

Reads the folder of a run that ``train_accelerated`` has made; trains nothing.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from benchmarks.report import rows_of
from configs.finished import load_finished
from pipeline.planning.measured_run import read_run

RECORD: Final = Path(__file__).parents[1] / "data" / "stage_costs.json.gz"
_MAX_LENGTHS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """``lengths``: tokens of the run's first completions, in the order of their draws. Seconds of a step."""

    groups_per_step: int
    num_generations: int
    lengths: tuple[int, ...]
    update_s: float
    pause_s: float
    step_s: float


def record_run(folder: Path) -> RecordedRun:
    """The run in ``folder``. Raises ValueError where it holds none, or one with too few steps."""
    run, config = read_run(folder), load_finished(folder / "config.yaml")
    return RecordedRun(
        groups_per_step=config.prompts_per_step,
        num_generations=config.grpo.num_generations,
        lengths=_lengths_of(folder),
        update_s=run.update_s,
        pause_s=run.pause_s,
        step_s=run.step_s,
    )


def read_record(path: Path = RECORD) -> RecordedRun:
    """The run that was recorded in ``path``."""
    return TypeAdapter(RecordedRun).validate_json(gzip.decompress(path.read_bytes()))


def write_record(run: RecordedRun, path: Path) -> None:
    """Write ``run`` to ``path``, the same bytes for the same run."""
    path.write_bytes(gzip.compress(TypeAdapter(RecordedRun).dump_json(run, indent=1), mtime=0))


def _lengths_of(run: Path) -> tuple[int, ...]:
    query = "SELECT num_tokens FROM rollouts WHERE num_tokens > 0 ORDER BY draw_id, rollout_id"
    rows = rows_of(run, f"{query} LIMIT {_MAX_LENGTHS}")
    if not rows:
        raise ValueError(f"{run / 'run.db'} holds no completion; let the run train a step")
    return tuple(int(num_tokens) for (num_tokens,) in rows)
