"""One run of the real loops, buffer, ledger and queues over stages that sleep."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any, cast

from benchmarks.async_overlap.sleeping_stages import (
    MAX_STALENESS,
    REWARD,
    Order,
    Shape,
    SleepersTokenizer,
    SleepingGenerator,
    SleepingTrainer,
    StageCosts,
    SynchronousScorer,
)
from configs.schema import ClusterConfig, Config, OutputConfig
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.evaluation.scorers import reward_worker_starter
from pipeline.generation.generator import Generator
from pipeline.generation.supervised import Dispatcher
from pipeline.models.prompts import PromptTokenizer
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import read_metrics
from pipeline.record.progress import make_progress
from pipeline.record.run_folder import Context, RunFolder
from pipeline.run.attempt import Attempt
from pipeline.run.job import Job
from pipeline.run.resume import terms_of
from pipeline.run.stages import Stages
from pipeline.training.handle import TrainerHandle
from rewards.pool import RewardPool

Steps = list[dict[str, float | None]]
_TASKS = tuple(
    Task(task_id=f"t{index}", prompt="p", entry_point="f", check_source="def check(f): pass")
    for index in range(64)
)
_NO_WEIGHTS = dict.fromkeys(("tests", "execution", "syntax", "lint", "complexity"), 0.0)


def make_config(order: Order, shape: Shape, num_steps: int) -> Config:
    """What a run of ``shape`` in ``order`` is told; nothing of it depends on the costs."""
    is_overlapped = order != "synchronous"
    return Config.model_validate(
        {
            "training": {
                "per_device_train_batch_size": shape.num_generations,
                "gradient_accumulation_steps": shape.groups_per_step,
                "max_steps": num_steps,
            },
            "grpo": {"num_generations": shape.num_generations},
            "generation": {"assistant_prefill": ""},
            "acceleration": {
                "max_staleness": MAX_STALENESS.get(order, 0),
                "stream_steps": is_overlapped,
                "async_rewards": {"enabled": is_overlapped, "workers": shape.num_reward_workers},
                # Every completion is scored, and in the order of its draw: that is what the costs stand for.
                "reward_cache": {"enabled": False},
            },
            "rewards": {"weights": _NO_WEIGHTS, "custom": [REWARD], "custom_timeout_s": 600.0},
            "execution": {"enabled": False},
        }
    )


def start_rewards(config: Config) -> RewardPool:
    """The real pool with its workers in Ray actors. Needs a running Ray."""
    return RewardPool(
        config.rewards,
        config.execution,
        config.acceleration.reward_cache,
        config.acceleration.async_rewards.workers,
        start_worker=reward_worker_starter(ClusterConfig(address="local")),
        timeout_s=600.0,
    )


async def run(order: Order, costs: StageCosts, shape: Shape, pool: RewardPool, num_steps: int) -> Steps:
    """The metrics of ``num_steps`` steps of sleep; every wait has the deadline that a run's has."""
    config = make_config(order, shape, num_steps)
    scorer: Any = SynchronousScorer(pool, shape.num_completions) if order == "synchronous" else pool
    generators = [SleepingGenerator(costs, shape.num_generating) for _ in range(shape.num_generators)]
    trainer = SleepingTrainer(costs, shape.num_generations)
    with tempfile.TemporaryDirectory(prefix="async-overlap-") as path:
        try:
            for one in generators:
                await one.warm_up()
            await trainer.warm_up()
            generator = Dispatcher(generators, update_timeout_s=config.runtime.weight_update_timeout_s)
            await _train(config, Path(path), generator, trainer, scorer)
            return read_metrics(Path(path) / "run" / "metrics.jsonl")
        finally:
            trainer.close()
            for one in generators:
                await one.close()


async def _train(
    config: Config, path: Path, generator: Generator, trainer: SleepingTrainer, scorer: Any
) -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(RunFolder.create(OutputConfig(dir=str(path), name="run"), "{}"))
        ledger = Ledger(folder.db, terms_of(config))
        stack.callback(ledger.close)
        progress = make_progress("plain", title="run", stream=io.StringIO())
        stages = Stages(
            model_path="",
            tasks=_TASKS,
            tokenizer=cast(PromptTokenizer, SleepersTokenizer()),
            generator=generator,
            scorer=scorer,
            trainer=cast(Any, None),
        )
        attempt = Attempt(
            Context(config=config, folder=folder, ledger=ledger, progress=progress),
            Job(config=config, tasks=_TASKS, heldout=(), device="cpu"),
            stages,
            cast(TrainerHandle, trainer),
            Sampler(_TASKS, config.acceleration.curriculum, 0),
            step=0,
            weights_folder=path,
        )
        await attempt.run()
