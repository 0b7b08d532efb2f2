"""The acceleration section: what makes a run fast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from configs.curriculum_schema import CurriculumConfig, RefillConfig
from configs.errors import Problem, wrong_value
from configs.section import (
    Fraction,
    PositiveFloat,
    PositiveInt,
    Section,
    Text,
)


class AsyncRewardsConfig(Section):
    """Scoring beside generation."""

    enabled: bool = Field(
        default=True, description="score each completion as it finishes, not when its batch is done"
    )
    workers: PositiveInt = Field(
        default=1, description="reward worker processes; rollouts.max_turns above 1 was measured with 2"
    )


class RewardCacheConfig(Section):
    """Cached verdicts."""

    enabled: bool = Field(default=True, description="reuse verdicts of identical programs")
    max_size: PositiveInt = Field(default=50_000, description="entries")
    max_mb: PositiveFloat = Field(default=200.0, description="megabytes that the entries may take")
    persist: bool = Field(
        default=True, description="keep the verdicts in the run folder, so that a resumed run starts warm"
    )


class SpeculativeConfig(Section):
    """Speculative decoding: draft tokens ahead and verify them all in one forward; exact for any draft."""

    enabled: bool = Field(default=False, description="draft tokens ahead and verify them")
    method: Literal["history", "ngram", "draft_model"] = Field(
        default="history",
        description="history: from earlier completions of the same task and group; ngram: from the sequence "
        "itself; draft_model: from a smaller model",
    )
    num_tokens: PositiveInt = Field(default=8, description="tokens drafted ahead at most")
    dynamic: bool = Field(
        default=True,
        description="fit the number of drafted tokens to the sequences in flight, down to none; history and "
        "ngram only",
    )
    draft_model: Text | None = Field(default=None, description="folder or hub id of the model that drafts")
    history_mb: PositiveFloat = Field(default=64.0, description="MiB that the history may take")

    def _problems(self) -> Iterator[Problem]:
        if self.enabled and (self.method == "draft_model") != (self.draft_model is not None):
            allowed = "a model with method draft_model, and none with other methods"
            yield wrong_value("draft_model", self.draft_model, allowed, "method")
        if self.enabled and self.method == "draft_model" and self.dynamic:
            allowed = "false with method draft_model, which drafts the same number in every step"
            yield wrong_value("dynamic", self.dynamic, allowed, "method")


class EarlyAbortConfig(Section):
    """End completions whose code can no longer compile; approximate (see SPEEDUP_GUIDE.md)."""

    enabled: bool = Field(default=False, description="end hopeless completions while they are written")


# Of a row, where nothing is set; pipeline.host.device knows the device.
ROW_TOKENS: Final = {"cpu": 4096, "cuda": 16384}


class TokenPackingConfig(Section):
    """Packing without padding: several sequences in one row, each blind to the others."""

    enabled: bool = Field(default=True, description="several sequences in one row (exact)")
    max_tokens: PositiveInt | None = Field(
        default=None, description="tokens of one row, the micro-batch; null: 4096 on a CPU, 16384 on a GPU"
    )
    min_pack_ratio: Fraction = Field(
        default=0.0,
        description="pack only if the rows would be filled to this share of max_tokens on average; otherwise "
        "a row has one prompt's answers, or padded ones; 0 always packs",
    )


class AccelerationConfig(Section):
    """What makes it fast. A mode (configs/modes/*.yaml) sets these."""

    mode: Literal["conservative", "balanced", "aggressive"] = Field(
        default="balanced", description="the file of configs/modes whose values are the defaults of this run"
    )
    max_staleness: Annotated[int, Field(ge=0, le=8)] = Field(
        default=1,
        description="optimiser steps that the oldest trained token may lag behind; 0 is on policy; above 1 "
        "consider grpo.importance_sampling_mode",
    )
    stream_steps: bool = Field(
        default=True,
        description="train on the groups of a step as they come (exact); off, where the stages run in turn, "
        "and with grpo.scale_rewards batch or grpo.loss_type bnpo, when all are there",
    )
    skip_zero_advantages: bool = Field(
        default=True,
        description="leave groups without signal out of the forward; acts only when grpo.beta is 0, "
        "where it is exact",
    )
    shared_prompt: bool = Field(
        default=True,
        description="compute the prompt of a group once in training (exact)",
    )
    shared_prefix: bool = Field(
        default=True,
        description="compute once in training what all completions of a group begin with, and completions "
        "that are the same (exact); acts only with shared_prompt",
    )
    async_rewards: AsyncRewardsConfig = Field(
        default_factory=AsyncRewardsConfig, description="scoring beside generation"
    )
    reward_cache: RewardCacheConfig = Field(default_factory=RewardCacheConfig, description="cached verdicts")
    curriculum: CurriculumConfig = Field(
        default_factory=CurriculumConfig, description="which task is drawn next"
    )
    refill: RefillConfig = Field(
        default_factory=RefillConfig, description="drawing anew for groups without signal"
    )
    early_abort: EarlyAbortConfig = Field(
        default_factory=EarlyAbortConfig, description="end hopeless completions while they are written"
    )
    speculative: SpeculativeConfig = Field(
        default_factory=SpeculativeConfig, description="speculative decoding"
    )
    token_packing: TokenPackingConfig = Field(
        default_factory=TokenPackingConfig, description="packing without padding"
    )
