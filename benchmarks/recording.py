"""Recorded rollouts of one optimiser step: real completions, with what the generator and the judge said.

A recording is a file of benchmarks/data: gzipped JSON, written by ``record_batch.py``. Tasks are kept by
id and looked up in the built-in ladder; samples and advantages are made when it is loaded, by the code that a
run uses. Generates and scores nothing. Called by ``record_batch.py``, ``train_step.py`` and the tests.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import TypeAdapter

from configs.schema import Config, GrpoConfig
from curriculum.ladder.index import ladder_tasks
from pipeline.messages import Completion, Rollout, RolloutGroup, TrainBatch
from pipeline.rollouts.batch import make_batch
from rewards.result import RewardResult

DATA: Final = Path(__file__).parent / "data"
RecordingName = Literal["short", "long"]
RECORDINGS: Final[tuple[RecordingName, ...]] = ("short", "long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The groups of one step, the settings that they were sampled with, and the batch made of them.

    ``origin`` says how and on what it was recorded.
    """

    config: Config
    groups: tuple[RolloutGroup, ...]
    batch: TrainBatch
    origin: dict[str, Any]

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts, a group's prompt counted with each of its completions."""
        return sum(sample.num_prompt_tokens for sample in self.batch.samples)

    @property
    def num_tokens(self) -> int:
        """Tokens of all sequences, prompts included."""
        return sum(len(sample.token_ids) for sample in self.batch.samples)


def load_recording(name: RecordingName = "short", grpo: GrpoConfig | None = None) -> Recording:
    """The recording ``name``: "short" is a step of the defaults, "long" has completions of up to 512 tokens.

    ``grpo`` decides how advantages are made of the recorded rewards; None takes the recording's own.
    Raises ValueError when a task is no longer in the ladder.
    """
    return read_recording(DATA / f"{name}.json.gz", grpo)


def read_recording(path: Path, grpo: GrpoConfig | None = None) -> Recording:
    """The recording in ``path``; see ``load_recording``."""
    record = json.loads(gzip.decompress(path.read_bytes()))
    config = Config.model_validate(record["config"])
    groups = tuple(_group(entry, path) for entry in record["groups"])
    batch, _ = make_batch(1, groups, grpo or config.grpo, policy_version=0)
    return Recording(config=config, groups=groups, batch=batch, origin=record["origin"])


def write_recording(
    path: Path, settings: dict[str, Any], groups: Sequence[RolloutGroup], origin: dict[str, Any]
) -> None:
    """Write ``groups``; ``settings`` are what differs from the default configuration."""
    record = {"origin": origin, "config": settings, "groups": [_entry(group) for group in groups]}
    text = json.dumps(record, separators=(",", ":")) + "\n"
    # No time stamp: the same recording is the same file.
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def _entry(group: RolloutGroup) -> dict[str, Any]:
    return {
        "task_id": group.task.task_id,
        "draw_id": group.draw_id,
        "prompt_ids": group.rollouts[0].prompt_ids,
        "rollouts": [_rollout_entry(rollout) for rollout in group.rollouts],
    }


def _rollout_entry(rollout: Rollout) -> dict[str, Any]:
    completion = dataclasses.asdict(rollout.completion)
    # The shortest decimals that give back the same fp32 number.
    completion["logprobs"] = [float(str(np.float32(value))) for value in rollout.completion.logprobs]
    return {"completion": completion, "result": dataclasses.asdict(rollout.result)}


def _group(entry: dict[str, Any], path: Path) -> RolloutGroup:
    tasks = {task.task_id: task for task in ladder_tasks("train")}
    if entry["task_id"] not in tasks:
        raise ValueError(
            f"{path}: the ladder has no task {entry['task_id']!r} any more: record again with "
            "python -m benchmarks.record_batch"
        )
    prompt_ids = tuple(entry["prompt_ids"])
    rollouts = tuple(
        Rollout(
            rollout_id=f"{entry['draw_id']}/{rollout['completion']['index']}",
            prompt_ids=prompt_ids,
            completion=TypeAdapter(Completion).validate_python(rollout["completion"]),
            result=TypeAdapter(RewardResult).validate_python(rollout["result"]),
        )
        for rollout in entry["rollouts"]
    )
    return RolloutGroup(
        group_id=f"draw-{entry['draw_id']}",
        draw_id=entry["draw_id"],
        task=tasks[entry["task_id"]],
        rollouts=rollouts,
    )
