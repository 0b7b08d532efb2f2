"""What each stage did since the last step, for the step's metrics.

Takes what the producer, the reward pool and the generator count, and keeps what they said last.

Say so when generator and trainer give one policy's tokens different probabilities.

Two engines round differently, and the importance ratio corrects for that. What is far beyond rounding is a
fault: weights that did not arrive, another temperature, a kernel. Measured on a CPU with the built-in model
(vLLM against the trainer, 1,400 tokens), ``train/mismatch_kl`` is 0.001 where both compute in bf16 and 0 to
eight digits in fp32; it is 0.008 and more where one divides by a temperature of 0.9 instead of 1. The default
threshold lies between.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.generation.generator import Generator
from pipeline.messages import StepResult
from pipeline.rollouts.producer import RolloutProducer
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
        self, *, producer: RolloutProducer, scorer: RewardPool, generator: Generator, drafts: bool
    ) -> None:
        """With ``drafts`` the generator is asked for its drafted and accepted tokens as well."""
        self._producer = producer
        self._scorer = scorer
        self._generator = generator
        self._drafts = drafts
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
