"""The training side of a run: take groups, train a step, publish the weights, account for it.

    buffer.take ─► make_batch ─► trainer.step ─► trainer.publish ─► generator.update_weights
                                                        └─► ledger.commit_step, metrics, checkpoint

Consumes scored groups, which the producer delivers; produces policy versions, which free the
producer's slots. Called by pipeline.orchestrator.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from configs.schema import Config
from curriculum.sampler import Sampler
from pipeline.batch_builder import make_batch
from pipeline.checkpoint import prune_checkpoints
from pipeline.generator import Generator
from pipeline.ledger import Ledger
from pipeline.messages import RolloutGroup, StepResult
from pipeline.metrics import MetricsWriter, StepRate
from pipeline.progress import Progress
from pipeline.rollout_buffer import RolloutBuffer, Taken
from pipeline.rollouts import RolloutProducer
from pipeline.run_folder import RunFolder
from pipeline.sample_log import log_samples
from pipeline.trainer_group import TrainerHandle
from pipeline.weight_folder import remove_weights
from rewards.pool import RewardPool
from rewards.workers import scoring_deadline_s

# What the reward pool counts up from the start, and what it has at a moment.
_REWARD_COUNTS = (
    "rewards/cache_hits",
    "rewards/cache_misses",
    "rewards/cache_joins",
    "rewards/cache_evictions",
    "rewards/cache_saved_s",
    "rewards/infra_errors",
    "rewards/worker_restarts",
)
_REWARD_LEVELS = ("rewards/in_flight", "rewards/waiting")


class TrainingLoop:
    """Optimiser steps until ``training.max_steps``."""

    def __init__(
        self,
        *,
        config: Config,
        folder: RunFolder,
        trainer: TrainerHandle,
        generator: Generator,
        scorer: RewardPool,
        buffer: RolloutBuffer,
        sampler: Sampler,
        ledger: Ledger,
        metrics: MetricsWriter,
        progress: Progress,
        producer: RolloutProducer,
        weights_folder: Path,
    ) -> None:
        self._config = config
        self._folder = folder
        self._trainer = trainer
        self._generator = generator
        self._scorer = scorer
        self._buffer = buffer
        self._sampler = sampler
        self._ledger = ledger
        self._metrics = metrics
        self._progress = progress
        self._producer = producer
        self._weights_folder = weights_folder
        self._last_scores = scorer.metrics()

    async def run(self, done_steps: int) -> None:
        """Train from ``done_steps`` to the end, and leave a checkpoint of the last step.

        Raises:
            TimeoutError: rollouts or a step took too long; the message says whose.
            RuntimeError: the producer failed; the message says why.
        """
        output, max_steps = self._config.output, self._config.training.max_steps
        rate = StepRate()
        for step in range(done_steps + 1, max_steps + 1):
            await self._step(step, rate)
            if step % output.save_steps == 0 or step == max_steps:
                self._progress.activity(f"saving checkpoint {step}")
                await self._trainer.save(self._folder.checkpoint(step), step)
                prune_checkpoints(self._folder.path, output.save_total_limit)

    async def publish(self, version: int) -> tuple[float, float]:
        """Bring the trainer's weights to the generator; returns the seconds in all and of its pause."""
        started = time.perf_counter()
        update = await self._trainer.publish(str(self._weights_folder))
        assert update.policy_version == version, (
            f"the trainer published {update.policy_version}, not {version}"
        )
        pause_s = await self._generator.update_weights(update)
        remove_weights(update)
        return time.perf_counter() - started, pause_s

    async def _step(self, step: int, rate: StepRate) -> None:
        """One optimiser step and everything that follows from it."""
        started = time.perf_counter()
        taken = await self._take(step)
        groups = taken.groups
        waited_s = time.perf_counter() - started
        self._progress.activity(f"step {step}: training")
        batch, report = make_batch(step, groups, self._config.grpo, policy_version=step - 1)
        result = await self._trainer.step(batch)
        self._buffer.trained(step)
        update_s, pause_s = await self.publish(step)
        self._buffer.weights_loaded(step)
        elapsed_s = time.perf_counter() - started
        metrics = {
            **report.metrics,
            **self._stage_metrics(result),
            **result.metrics,
            "rollout/dropped_groups": float(len(taken.dropped)),
            "rollout/cancelled_groups": float(len(taken.cancelled) + len(taken.surplus)),
            "rollout/wait_s": waited_s,
            "weights/update_s": update_s,
            "weights/pause_s": pause_s,
            "step/seconds": elapsed_s,
            "step/samples_per_s": report.num_samples / elapsed_s,
            **rate.step(),
        }
        self._account(replace(result, metrics=metrics), groups)
        log_samples(self._folder.samples, step, groups[0])

    async def _take(self, step: int) -> Taken:
        """Wait for the step's groups; the ones found too old are dropped, the ones in excess withdrawn."""
        runtime = self._config.runtime
        self._progress.activity(f"step {step}: waiting for rollouts")
        scoring_s = scoring_deadline_s(runtime.reward_timeout_s, self._config.rewards, self._config.execution)
        taken = await self._buffer.take(
            self._config.prompts_per_step, step - 1, runtime.generation_timeout_s + scoring_s
        )
        for group in taken.dropped:
            self._ledger.drop_draw(group.draw_id, f"older than max_staleness when step {step} began")
        self._producer.replace(len(taken.dropped))
        self._producer.withdraw(taken.cancelled, taken.surplus, f"over-issued: step {step} had its groups")
        if step == self._config.training.max_steps:
            self._producer.finish()
        return taken

    def _account(self, result: StepResult, groups: Sequence[RolloutGroup]) -> None:
        """Commit the step; no await between taking the sampler's state and the commit."""
        state = {"sampler": self._sampler.state_dict()}
        self._ledger.commit_step(result, [group.draw_id for group in groups], state)
        if result.step % self._config.output.logging_steps == 0:
            self._metrics.log(result.step, result.metrics)
        self._progress.step(result.step, result.metrics)

    def _stage_metrics(self, result: StepResult) -> dict[str, float]:
        """What each stage did since the last step."""
        generation, aborts = self._producer.generation_timer.drain(), self._producer.aborts.drain()
        now, last = self._scorer.metrics(), self._last_scores
        self._last_scores = now
        grown = {name: now[name] - last[name] for name in now}
        num_found = grown["rewards/cache_hits"] + grown["rewards/cache_joins"]
        return {
            "generation/seconds": generation.seconds,
            "generation/tokens": float(generation.num_tokens),
            "generation/tokens_per_s": generation.tokens_per_s,
            "generation/aborted": float(aborts.num_aborted),
            "generation/tokens_saved": aborts.num_tokens_saved,
            "rewards/seconds": grown["rewards/busy_s"],
            "rewards/seconds_mean": grown["rewards/busy_s"] / max(1.0, grown["rewards/scored"]),
            "rewards/cache_hit_rate": num_found / max(1.0, num_found + grown["rewards/cache_misses"]),
            **{name: grown[name] for name in _REWARD_COUNTS},
            **{name: now[name] for name in _REWARD_LEVELS},
            "train/seconds": result.seconds,
            "train/tokens": float(result.num_tokens),
            "train/tokens_per_s": result.num_tokens / result.seconds,
        }
