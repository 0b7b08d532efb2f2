"""The account of a step: its metrics, its place in the ledger, and what is told of it.

    what the stages counted ─► StepAccount.commit ┬─► run.db, in one transaction
                                                  └─► metrics.jsonl, trackers, progress

``StageMetrics`` takes what the stages count, and keeps what they said last. ``MismatchWatch`` says so when
generator and trainer give one policy's tokens different probabilities: two engines round differently, and the
importance ratio corrects for that, but what is far beyond rounding is a fault (weights that did not arrive,
another temperature, a kernel). Measured on a CPU with the built-in model (vLLM against the trainer, 1,400
tokens), ``train/mismatch_kl`` is 0.001 where both compute in bf16 and 0 to eight digits in fp32; it is 0.008
and more where one divides by a temperature of 0.9 instead of 1. The default threshold lies between.

Trains, loads and saves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from configs.acceleration_schema import SpeculativeConfig
from curriculum.sampler import Sampler
from pipeline.evaluation.heldout import InLoopEvaluation
from pipeline.generation.generator import Generator
from pipeline.messages import StepResult
from pipeline.record.context import Context
from pipeline.record.ledger import GUARD
from pipeline.record.metrics import MetricsWriter, StepRate, log_samples
from pipeline.rollouts.gate import SignalGate
from pipeline.rollouts.producer import RolloutProducer
from pipeline.run.step_feed import FedStep
from rewards.pool import RewardPool

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
_DRAFTS = ("drafted", "accepted")


class StageMetrics:
    """Differences between steps of what the stages count."""

    def __init__(
        self,
        producer: RolloutProducer,
        scorer: RewardPool,
        generator: Generator,
        speculative: SpeculativeConfig,
    ) -> None:
        self._producer = producer
        self._scorer = scorer
        self._generator = generator
        self._drafts = speculative.enabled
        self._last_scores = scorer.metrics()
        self._last_drafts: dict[str, float] = {}

    async def since_last(self, result: StepResult) -> dict[str, float]:
        """The metrics of the step that ``result`` ended, since the last call or the beginning."""
        return {
            **self._generation(),
            **self._rewards(),
            "train/seconds": result.seconds,
            "train/tokens": float(result.num_tokens),
            "train/tokens_per_s": result.num_tokens / result.seconds,
            **await self._drafting(),
        }

    def _generation(self) -> dict[str, float]:
        generation, aborts = self._producer.generation_timer.drain(), self._producer.aborts.drain()
        return {
            "generation/seconds": generation.seconds,
            "generation/tokens": float(generation.num_tokens),
            "generation/tokens_per_s": generation.tokens_per_s,
            "generation/aborted": float(aborts.num_aborted),
            "generation/tokens_saved": aborts.num_tokens_saved,
        }

    def _rewards(self) -> dict[str, float]:
        now, last = self._scorer.metrics(), self._last_scores
        self._last_scores = now
        grown = {name: now[name] - last[name] for name in now}
        num_found = grown["rewards/cache_hits"] + grown["rewards/cache_joins"]
        return {
            "rewards/seconds": grown["rewards/busy_s"],
            "rewards/seconds_mean": grown["rewards/busy_s"] / max(1.0, grown["rewards/scored"]),
            "rewards/cache_hit_rate": num_found / max(1.0, num_found + grown["rewards/cache_misses"]),
            **{name: grown[name] for name in _REWARD_COUNTS},
            **{name: now[name] for name in _REWARD_LEVELS},
        }

    async def _drafting(self) -> dict[str, float]:
        """What became of the tokens that were drafted since the last step, where any are."""
        if not self._drafts:
            return {}
        now, last = await self._generator.stats(), self._last_drafts
        self._last_drafts = now
        # An engine that was started again counts from zero.
        drafted, accepted = (max(0.0, now.get(name, 0.0) - last.get(name, 0.0)) for name in _DRAFTS)
        return {
            "generation/drafted_tokens": drafted,
            "generation/draft_acceptance": min(1.0, accepted / max(1.0, drafted)),
        }


_METRIC = "train/mismatch_kl"


class MismatchWatch:
    """Looks at every step's metrics; ``threshold`` is ``grpo.mismatch_kl_warning``."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._has_warned = False

    def warning(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """What to tell the user after this step, once in a run; None where there is nothing to tell."""
        value = metrics.get(_METRIC)
        if self._has_warned or value is None or value <= self._threshold:
            return None
        self._has_warned = True
        return (
            f"warning: step {step}: {_METRIC} is {value:.3g}, above grpo.mismatch_kl_warning "
            f"{self._threshold:g}: generator and trainer give the same tokens of the same weights different "
            "probabilities. Look at generation.dtype, training.bf16 and generation.recompute_kv_cache; what "
            "grpo.importance_sampling_mode corrects for are small differences"
        )


class StepAccount:
    """Accounts for one step after the other, and adds what ``evaluation`` has found meanwhile."""

    def __init__(
        self,
        context: Context,
        *,
        stages: StageMetrics,
        sampler: Sampler,
        gate: SignalGate,
        evaluation: InLoopEvaluation,
    ) -> None:
        self._context = context
        self._output = context.config.output
        self._stages = stages
        self._sampler = sampler
        self._gate = gate
        self._evaluation = evaluation
        self._metrics = MetricsWriter(context.folder.path)
        self._mismatch = MismatchWatch(context.config.grpo.mismatch_kl_warning)
        self.begin()

    def begin(self) -> None:
        """What comes from now on is the first step's."""
        self._rate = StepRate()
        self._closed_s = time.perf_counter()  # when the last step was closed

    async def commit(self, fed: FedStep, weights: Mapping[str, float], checkpoint: str | None) -> float:
        """Commit a step that was trained as ``fed``; returns its seconds since the one before.

        ``weights`` are the metrics of loading what it made, ``checkpoint`` the name of what was saved of it.
        """
        step = fed.result.step
        step_s, self._closed_s = time.perf_counter() - self._closed_s, time.perf_counter()
        metrics = {
            **fed.report.metrics,
            **await self._stages.since_last(fed.result),
            **fed.result.metrics,
            "rollout/requeued_groups": float(fed.num_too_old),
            "rollout/wait_s": fed.waited_s,
            **self._gate.metrics(step),
            **self._sampler.counts_by_level(),
            **weights,
            "step/seconds": step_s,
            "step/samples_per_s": fed.report.num_samples / step_s,
            **self._rate.step(),
            **(self._evaluation.drain() if self._is_logged(step) else {}),
        }
        self._enter(replace(fed.result, metrics=metrics), [group.draw_id for group in fed.groups], checkpoint)
        for note in fed.result.notes:
            self._context.note(GUARD, note)
        log_samples(self._context.folder.samples, step, fed.groups[0])
        return step_s

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write ``metrics`` to metrics.jsonl and to the trackers."""
        self._metrics.log(step, metrics)
        self._context.tracking.log(step, metrics)

    def close(self) -> None:
        """Close metrics.jsonl."""
        self._metrics.close()

    def _is_logged(self, step: int) -> bool:
        return step % self._output.logging_steps == 0

    def _enter(self, result: StepResult, draw_ids: Sequence[int], checkpoint: str | None) -> None:
        """Commit the step; no await between taking the sampler's state and the commit."""
        context = self._context
        state = {"sampler": self._sampler.state_dict()}
        context.ledger.commit_step(result, draw_ids, state, checkpoint)
        if self._is_logged(result.step):
            self.log(result.step, result.metrics)
        context.ledger.note_spans(result.step, context.timeline.drain(), self._output.timeline_steps)
        context.progress.step(result.step, result.metrics)
        if (warning := self._mismatch.warning(result.step, result.metrics)) is not None:
            context.progress.message(warning)
