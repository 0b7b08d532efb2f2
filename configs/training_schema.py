"""The training sections: optimiser, objective, adapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from configs.errors import Problem, wrong_value
from configs.section import (
    FractionBelowOne,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
    Text,
)

LossType = Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"]
CorrectionMode = Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


class TrainingConfig(Section):
    """The optimiser and its schedule, in TRL's names.

    One optimiser step trains on ``per_device_train_batch_size * gradient_accumulation_steps``
    completions.
    """

    learning_rate: PositiveFloat = Field(
        default=3e-5,
        description="peak; the default suits the built-in 135M model, larger ones want 1e-6 to 5e-6, "
        "adapters 1e-5 to 1e-4",
    )
    max_steps: PositiveInt = Field(default=36, description="optimiser steps")
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = Field(
        default="linear", description="schedule after warm-up"
    )
    warmup_steps: NonNegativeInt = Field(default=2, description="linear warm-up, in steps")
    weight_decay: NonNegativeFloat = Field(default=0.0, description="AdamW weight decay")
    adam_beta1: FractionBelowOne = Field(default=0.9, description="AdamW beta1")
    adam_beta2: FractionBelowOne = Field(default=0.99, description="AdamW beta2")
    adam_epsilon: PositiveFloat = Field(default=1e-8, description="AdamW epsilon")
    max_grad_norm: PositiveFloat = Field(default=1.0, description="gradient clipping")
    per_device_train_batch_size: PositiveInt = Field(
        default=8,
        description="times gradient_accumulation_steps: the completions of an optimiser step; alone it is "
        "the size of a micro-batch where token packing is off, and of what bnpo averages over",
    )
    gradient_accumulation_steps: PositiveInt = Field(
        default=4, description="times per_device_train_batch_size: the completions of an optimiser step"
    )
    bf16: bool | None = Field(
        default=None,
        description="forward and backward in bf16; trained weights and optimiser stay fp32; null: where the "
        "processor or GPU has instructions for bf16, without which it is several times slower than fp32, and "
        "on a cluster",
    )
    optim: Literal["adamw_torch", "adamw_8bit"] = Field(
        default="adamw_torch",
        description="adamw_8bit keeps the moments in 8 bits, 2 bytes a weight in place of 8 (needs a GPU and "
        "bitsandbytes); the updates differ by that rounding",
    )
    gradient_checkpointing: bool = Field(default=False, description="recompute activations in the backward")
    activation_offloading: bool = Field(
        default=False,
        description="what checkpointed layers keep waits in the host's memory for the backward (exact; needs "
        "a GPU and gradient_checkpointing)",
    )
    use_liger_kernel: bool = Field(
        default=False,
        description="Liger's fused kernels for norms, rotary embeddings and SwiGLU (needs a GPU and "
        "liger-kernel); the loss stays ours",
    )
    torch_compile: bool = Field(
        default=False,
        description="compile the model's forward and backward (GPU of compute capability 7.0 or newer, or a "
        "CPU with a C++ compiler); without one, or where it fails with one trainer rank, the run says so and "
        "goes on uncompiled",
    )
    tf32: bool = Field(default=True, description="TF32 matrix products where fp32 is asked for on a GPU")
    memory: Literal["auto", "fixed"] = Field(
        default="auto",
        description="auto: before the first step rows are halved, then activations checkpointed, until a "
        "step fits into what is free, and once more after a process was ended for want of memory; an "
        "allocation that fails is tried again, smaller (several trainer ranks begin again from the last "
        "checkpoint); fixed: micro-batches stay as they are set",
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        default=0, description="seed of sampling, order and evaluation"
    )

    def _problems(self) -> Iterator[Problem]:
        if self.activation_offloading and not self.gradient_checkpointing:
            allowed = "false, or true with gradient_checkpointing: true"
            yield wrong_value("activation_offloading", True, allowed, "gradient_checkpointing")


class GrpoConfig(Section):
    """Group relative policy optimisation (arXiv:2402.03300), in TRL's names.

    Defaults are TRL's but for importance_sampling_mode.
    """

    num_generations: Annotated[int, Field(ge=2)] = Field(
        default=8, description="completions per prompt; at least 2"
    )
    beta: NonNegativeFloat = Field(default=0.0, description="weight of the KL to the reference")
    epsilon: PositiveFloat = Field(default=0.2, description="lower clipping range of the ratio")
    epsilon_high: PositiveFloat | None = Field(
        default=None,
        description="upper clipping range; default: epsilon; with cispo the largest weight itself (5.0, say)",
    )
    delta: PositiveFloat | None = Field(
        default=None,
        description="two-sided clipping: the unclipped ratio is cut at this value (above 1 + epsilon_high)",
    )
    loss_type: LossType = Field(
        default="dapo", description="how tokens are averaged; cispo clips the weight, not the gradient"
    )
    importance_sampling_level: Literal["token", "sequence"] = Field(
        default="token", description="one ratio a token, or one a sequence (sequence is GSPO)"
    )
    importance_sampling_mode: CorrectionMode = Field(
        default="none",
        description="none: the ratio to the generator's policy is clipped; otherwise the ratio to the policy "
        "at the start of the step is, and the loss is multiplied by that policy's ratio to the generator's, "
        "truncated or masked above importance_sampling_cap",
    )
    importance_sampling_cap: PositiveFloat = Field(
        default=3.0, description="largest importance weight; acts with importance_sampling_mode"
    )
    mismatch_kl_warning: PositiveFloat = Field(
        default=0.005,
        description="warn when train/mismatch_kl is above this in three measured steps in a row: generator "
        "and trainer then disagree on the same weights by more than rounding explains (bf16 gives 0.001)",
    )
    scale_rewards: Literal["group", "batch", "none"] = Field(
        default="group", description="divide advantages by the group's or the batch's standard deviation"
    )
    mask_truncated_completions: bool = Field(
        default=False, description="leave completions that hit the length limit out of the loss"
    )
    warm_start_steps: NonNegativeInt = Field(
        default=0,
        description="first steps that learn from passing completions alone, each of a group's once, as "
        "supervised training on them would (rejection sampling)",
    )

    def _problems(self) -> Iterator[Problem]:
        yield from self._clip_problems()
        yield from self._delta_problems()
        if self.importance_sampling_mode != "none" and self.importance_sampling_cap < 1:
            field, value = "importance_sampling_cap", self.importance_sampling_cap
            allowed = "a number >= 1 (below it tokens of an unchanged policy would be cut)"
            yield wrong_value(field, value, allowed, "importance_sampling_mode")

    def _clip_problems(self) -> Iterator[Problem]:
        if self.loss_type != "cispo":
            if self.epsilon_high is not None and self.epsilon_high < self.epsilon:
                allowed = f"a number >= epsilon = {self.epsilon:g}, or null"
                yield wrong_value("epsilon_high", self.epsilon_high, allowed, "epsilon")
            return
        if (level := self.importance_sampling_level) != "token":
            allowed = "token (cispo weighs the gradient of each token)"
            yield wrong_value("importance_sampling_level", level, allowed, "loss_type")
        if self.epsilon_high is None or self.epsilon_high < 1:
            allowed = "a number >= 1 (with cispo it is the largest weight itself; 5.0, say)"
            yield wrong_value("epsilon_high", self.epsilon_high, allowed, "loss_type")

    def _delta_problems(self) -> Iterator[Problem]:
        if self.delta is None:
            return
        field = "epsilon" if self.epsilon_high is None else "epsilon_high"
        bound = 1 + (self.epsilon if self.epsilon_high is None else self.epsilon_high)
        if self.loss_type == "cispo":
            yield wrong_value("delta", self.delta, "null (cispo has no second bound)", "loss_type")
        elif self.importance_sampling_mode != "none":
            allowed = "null (the ratio to the policy at the start of the step is 1; there is nothing to cut)"
            yield wrong_value("delta", self.delta, allowed, "importance_sampling_mode")
        elif self.delta <= bound:
            yield wrong_value("delta", self.delta, f"a number > 1 + {field} = {bound:g}, or null", field)


class LoraConfig(Section):
    """Low-rank adapters (arXiv:2106.09685), trained by PEFT."""

    enabled: bool = Field(default=False, description="train adapters instead of all weights")
    r: PositiveInt = Field(default=16, description="rank")
    alpha: PositiveFloat = Field(default=32.0, description="scale: adapters count alpha / r")
    dropout: Annotated[float, Field(ge=0, le=0)] = Field(
        default=0.0,
        description="must stay 0: the ratio compares this policy with the generator's, which drops nothing",
    )
    target_modules: Text | list[str] = Field(
        default="all-linear", description="names of the layers that get adapters, or all-linear"
    )
    load_in_4bit: bool = Field(
        default=False, description="frozen weights in 4 bits (QLoRA, arXiv:2305.14314); needs a GPU"
    )
