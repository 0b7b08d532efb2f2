"""What each stage did since the last step, for the step's metrics.

Takes what the producer, the reward pool and the generator count, and keeps what they said last. Called by
pipeline.training_loop.
"""

from __future__ import annotations

from pipeline.generator import Generator
from pipeline.messages import StepResult
from pipeline.rollouts import RolloutProducer
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
