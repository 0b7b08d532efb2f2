"""Every setting of the project: one pydantic model a section, each field documented.

Unknown keys and wrong types are errors; combinations that cannot work are refused here, so that no
model is loaded for a run that cannot succeed. What depends on the machine (a GPU, a model's name) is not
checked here. Imports nothing heavy. Called by configs.load; read by every stage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from configs.errors import ConfigError, Problem, wrong_value
from configs.rewards_schema import RewardsConfig as RewardsConfig
from configs.rewards_schema import RewardWeights as RewardWeights
from configs.section import (
    Fraction,
    FractionBelowOne,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Text,
    module_name_problems,
)
from configs.section import Section as Section
from configs.task_sets import is_on_hub, task_set_problems, training_set_problems

_MAX_NAME_LENGTH = 200


def _stays_false(why: str) -> Callable[[bool], bool]:
    """A check that refuses true; ``why`` tells the user the reason."""

    def check(value: bool) -> bool:
        if value:
            raise ConfigError([wrong_value("", value, f"false ({why})")])
        return value

    return check


class ModelConfig(Section):
    """Which policy to train."""

    name: Text = Field(default="smollm2-135m-instruct", description="built-in name, local folder, or hub id")
    revision: Text | None = Field(
        default=None, description="branch, tag or commit on the hub; default: its main branch"
    )
    trust_remote_code: bool = Field(default=False, description="run code that comes with the model")


class LoraConfig(Section):
    """Low-rank adapters."""

    enabled: Annotated[
        bool, AfterValidator(_stays_false("training adapters comes with the training-step work; set false"))
    ] = Field(
        default=False, description="train adapters instead of all weights; not built yet: true is refused"
    )
    r: PositiveInt = Field(default=16, description="rank")
    alpha: PositiveFloat = Field(default=32.0, description="scale")
    dropout: FractionBelowOne = Field(default=0.0, description="dropout in the adapter")


class DatasetConfig(Section):
    """What to train on."""

    name: Text = Field(
        default="ladder",
        description="ladder, codeio, humaneval, mbpp, a .jsonl file, or a hub data set as OWNER/NAME",
    )
    split: Text = Field(
        default="train", description="split of the ladder (train, heldout, all), of mbpp or of a hub data set"
    )
    max_samples: PositiveInt | None = Field(default=None, description="use at most this many tasks")
    columns: dict[str, str] = Field(
        default_factory=dict, description="for hub data sets: our field name -> their column name"
    )
    allow_evaluation_sets: list[str] = Field(
        default_factory=list,
        description="evaluation sets (humaneval, mbpp, ladder-heldout) that may be trained on all the same",
    )

    @model_validator(mode="after")
    def _check_source(self) -> DatasetConfig:
        problems = training_set_problems(self.name, self.split, self.allow_evaluation_sets)
        if self.columns and not is_on_hub(self.name):
            allowed = "nothing: only hub data sets have columns to map"
            problems.append(wrong_value("columns", self.columns, allowed, "name"))
        if problems:
            raise ConfigError(problems)
        return self


class OutputConfig(Section):
    """Where results go."""

    dir: Text = Field(default="runs", description="folder of run folders")
    name: str | None = Field(default=None, description="run name; default: date and time")
    save_steps: PositiveInt = Field(default=10, description="optimiser steps between checkpoints")
    save_total_limit: PositiveInt = Field(default=2, description="checkpoints kept")
    logging_steps: PositiveInt = Field(default=1, description="optimiser steps between metric lines")


class TrainingConfig(Section):
    """The optimiser and its schedule, in TRL's names.

    One optimiser step trains on ``per_device_train_batch_size * gradient_accumulation_steps``
    completions.
    """

    learning_rate: PositiveFloat = Field(
        default=3e-5,
        description="peak; the default suits the built-in 135M model, larger ones want 1e-6 to 5e-6",
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
    per_device_train_batch_size: PositiveInt = Field(default=8, description="completions per micro-batch")
    gradient_accumulation_steps: PositiveInt = Field(
        default=4, description="micro-batches per optimiser step"
    )
    bf16: bool = Field(
        default=True, description="forward and backward in bf16; the weights and the optimiser stay fp32"
    )
    gradient_checkpointing: bool = Field(default=False, description="recompute activations in the backward")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        default=0, description="seed of sampling, order and evaluation"
    )


class GrpoConfig(Section):
    """Group relative policy optimisation (arXiv:2402.03300), in TRL's names and defaults."""

    num_generations: Annotated[int, Field(ge=2)] = Field(
        default=8, description="completions per prompt; at least 2"
    )
    beta: NonNegativeFloat = Field(default=0.0, description="weight of the KL to the reference")
    epsilon: PositiveFloat = Field(default=0.2, description="lower clipping range of the ratio")
    epsilon_high: PositiveFloat | None = Field(
        default=None, description="upper clipping range; default: epsilon"
    )
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo"] = Field(
        default="dapo", description="how tokens are averaged"
    )
    scale_rewards: Literal["group", "batch", "none"] = Field(
        default="group", description="divide advantages by the group's or the batch's standard deviation"
    )
    mask_truncated_completions: bool = Field(
        default=False, description="leave completions that hit the length limit out of the loss"
    )


class GenerationConfig(Section):
    """Sampling and the engine."""

    engine: Literal["vllm", "transformers"] = Field(default="vllm", description="which generator runs")
    temperature: PositiveFloat = Field(default=1.0, description="sampling temperature")
    top_p: PositiveFraction = Field(default=1.0, description="nucleus sampling")
    top_k: NonNegativeInt = Field(default=0, description="top-k sampling; 0 turns it off")
    max_prompt_length: PositiveInt = Field(default=512, description="longer prompts are refused")
    max_completion_length: PositiveInt = Field(default=128, description="tokens per completion")
    assistant_prefill: str = Field(
        default="```python\n",
        description="text that opens the answer, as if the model had written it; may be empty",
    )
    stop_at_code_fence: bool = Field(default=True, description="end a completion at its closing code fence")
    max_num_seqs: PositiveInt = Field(default=64, description="sequences the engine runs at once")
    enforce_eager: bool = Field(default=True, description="vLLM without torch.compile")
    kv_cache_gb: PositiveFloat = Field(default=1.0, description="KV cache on CPU, in GiB")
    gpu_memory_utilization: PositiveFraction = Field(default=0.4, description="share of the GPU for vLLM")
    dtype: Literal["bfloat16", "float32", "float16"] = Field(default="bfloat16", description="engine weights")
    enable_prefix_caching: bool = Field(default=True, description="share the prompt of a group")


class ExecutionConfig(Section):
    """The sandbox, and the limits of one run in it."""

    enabled: bool = Field(
        default=True, description="run the tests (the baseline's --no_execution turns it off)"
    )
    timeout: PositiveFloat = Field(default=2.0, description="CPU seconds per run")
    max_memory: PositiveInt = Field(default=512, description="MiB per run")
    allow_network: Annotated[bool, AfterValidator(_stays_false("the sandbox has no network"))] = Field(
        default=False, description="must stay false: the sandbox has no network"
    )
    allow_unsafe: bool = Field(
        default=False,
        description="run model code even where the sandbox is weaker than level L2 (see SECURITY.md)",
    )
    modules: list[str] = Field(
        default_factory=list,
        description="installed packages that programs may import (numpy, say); preloaded in every sandbox",
    )

    @model_validator(mode="after")
    def _check_modules(self) -> ExecutionConfig:
        problems = module_name_problems("modules", self.modules)
        if problems:
            raise ConfigError(problems)
        return self


class AsyncRewardsConfig(Section):
    """Scoring beside generation."""

    enabled: bool = Field(
        default=True, description="score each completion as it finishes, not when its batch is done"
    )
    workers: PositiveInt = Field(default=1, description="reward worker processes")


class RewardCacheConfig(Section):
    """Cached verdicts."""

    enabled: bool = Field(default=True, description="reuse verdicts of identical programs")
    max_size: PositiveInt = Field(default=50_000, description="entries")
    max_mb: PositiveFloat = Field(default=200.0, description="megabytes that the entries may take")
    persist: bool = Field(
        default=True, description="keep the verdicts in the run folder, so that a resumed run starts warm"
    )


class CurriculumConfig(Section):
    """Which task is drawn next."""

    enabled: bool = Field(default=False, description="draw by the strategy; otherwise uniformly")
    strategy: Literal["length", "complexity", "success_rate"] = Field(
        default="success_rate",
        description="prefer tasks by measured pass rate p as p(1 - p), by complexity, or by length",
    )
    warmup_steps: NonNegativeInt = Field(
        default=0, description="optimiser steps over which the whole difficulty range is opened"
    )


class SpeculativeConfig(Section):
    """Speculative decoding."""

    enabled: Annotated[
        bool, AfterValidator(_stays_false("speculative decoding comes with the generation work; set false"))
    ] = Field(default=False, description="draft tokens ahead and verify them; not built yet: true is refused")
    num_tokens: PositiveInt = Field(default=4, description="tokens drafted ahead")
    dynamic: bool = Field(default=True, description="fit the number of drafted tokens to the load")
    draft_model: Text | None = Field(default=None, description="model that drafts; default: no model")


class TokenPackingConfig(Section):
    """Packing without padding."""

    enabled: Annotated[
        bool, AfterValidator(_stays_false("token packing comes with the training-step work; set false"))
    ] = Field(default=False, description="several sequences in one row; not built yet: true is refused")
    min_pack_ratio: Fraction = Field(
        default=0.5, description="pack only if at least this share of a row is filled"
    )


class AccelerationConfig(Section):
    """What makes it fast. A mode (configs/modes/*.yaml) sets these."""

    mode: Literal["conservative", "balanced", "aggressive"] = Field(
        default="balanced", description="the file of configs/modes whose values are the defaults of this run"
    )
    max_staleness: Annotated[int, Field(ge=0, le=1)] = Field(
        default=1, description="optimiser steps that the oldest trained token may lag behind"
    )
    skip_zero_advantages: bool = Field(
        default=True,
        description="leave groups without signal out of the forward; acts only when grpo.beta is 0, "
        "where it is exact",
    )
    shared_prompt: bool = Field(
        default=True,
        description="compute the prompt of a group once in training (exact; not with gradient_checkpointing)",
    )
    async_rewards: AsyncRewardsConfig = Field(
        default_factory=AsyncRewardsConfig, description="scoring beside generation"
    )
    reward_cache: RewardCacheConfig = Field(default_factory=RewardCacheConfig, description="cached verdicts")
    curriculum: CurriculumConfig = Field(
        default_factory=CurriculumConfig, description="which task is drawn next"
    )
    speculative: SpeculativeConfig = Field(
        default_factory=SpeculativeConfig, description="speculative decoding"
    )
    token_packing: TokenPackingConfig = Field(
        default_factory=TokenPackingConfig, description="packing without padding"
    )


class EvaluationConfig(Section):
    """The held-out measurement before and after training."""

    enabled: bool = Field(default=True, description="measure before and after training")
    tasks: Text = Field(
        default="ladder-heldout", description="ladder-heldout, ladder, humaneval, mbpp, or a .jsonl file"
    )
    max_tasks: PositiveInt | None = Field(default=None, description="use at most this many of the tasks")
    num_samples: PositiveInt = Field(default=4, description="completions per task")
    temperature: PositiveFloat = Field(default=1.0, description="sampling temperature")
    top_p: PositiveFraction = Field(default=1.0, description="nucleus sampling")
    max_completion_length: PositiveInt = Field(default=128, description="tokens per completion")

    @model_validator(mode="after")
    def _check_tasks(self) -> EvaluationConfig:
        problems = task_set_problems("tasks", self.tasks)
        if problems:
            raise ConfigError(problems)
        return self


class RuntimeConfig(Section):
    """Processes, devices and deadlines (seconds)."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="where the model lives; auto: a GPU if there is one"
    )
    trainer_threads: PositiveInt | None = Field(default=None, description="default: all cores")
    generator_threads: PositiveInt | None = Field(default=None, description="default: all cores")
    progress: Literal["auto", "rich", "plain"] = Field(
        default="auto", description="live display or plain lines; auto: live on a terminal"
    )
    startup_timeout_s: PositiveFloat = Field(default=300.0, description="for a process to be ready")
    generation_timeout_s: PositiveFloat = Field(default=300.0, description="for one request to the generator")
    reward_timeout_s: PositiveFloat | None = Field(
        default=None, description="for one score; default: the longest that the limits of execution allow"
    )
    train_step_timeout_s: PositiveFloat = Field(default=900.0, description="for one optimiser step")
    weight_update_timeout_s: PositiveFloat = Field(
        default=120.0, description="for the engine to take new weights"
    )


class Config(Section):
    """A whole run."""

    model: ModelConfig = Field(default_factory=ModelConfig, description="which policy to train")
    lora: LoraConfig = Field(default_factory=LoraConfig, description="low-rank adapters")
    dataset: DatasetConfig = Field(default_factory=DatasetConfig, description="what to train on")
    output: OutputConfig = Field(default_factory=OutputConfig, description="where results go")
    training: TrainingConfig = Field(
        default_factory=TrainingConfig, description="the optimiser and its schedule"
    )
    grpo: GrpoConfig = Field(default_factory=GrpoConfig, description="the objective")
    generation: GenerationConfig = Field(
        default_factory=GenerationConfig, description="sampling and the engine"
    )
    rewards: RewardsConfig = Field(default_factory=RewardsConfig, description="how completions are scored")
    execution: ExecutionConfig = Field(
        default_factory=ExecutionConfig, description="the sandbox, and the limits of one run in it"
    )
    acceleration: AccelerationConfig = Field(
        default_factory=AccelerationConfig, description="what makes it fast"
    )
    evaluation: EvaluationConfig = Field(
        default_factory=EvaluationConfig, description="the measurement before and after training"
    )
    runtime: RuntimeConfig = Field(
        default_factory=RuntimeConfig, description="processes, devices and deadlines"
    )

    @property
    def completions_per_step(self) -> int:
        """Completions that one optimiser step trains on."""
        return self.training.per_device_train_batch_size * self.training.gradient_accumulation_steps

    @property
    def prompts_per_step(self) -> int:
        """Groups that one optimiser step trains on."""
        return self.completions_per_step // self.grpo.num_generations

    @model_validator(mode="after")
    def _refuse_impossible(self) -> Config:
        problems = [*self._name_problems(), *self._batch_problems(), *self._reward_problems()]
        if problems:
            raise ConfigError(problems)
        return self

    def _name_problems(self) -> list[Problem]:
        name = self.output.name
        if name is None:
            return []
        is_plain = (
            0 < len(name) <= _MAX_NAME_LENGTH and not name.startswith(".") and not set(name) & {"/", "\0"}
        )
        allowed = f"the name of one folder: up to {_MAX_NAME_LENGTH} characters, no '/', no leading '.'"
        return [] if is_plain else [wrong_value("output.name", name, allowed)]

    def _batch_problems(self) -> list[Problem]:
        if self.completions_per_step % self.grpo.num_generations == 0:
            return []
        sizes = ("training.per_device_train_batch_size", "training.gradient_accumulation_steps")
        allowed = (
            f"a divisor of {' * '.join(sizes)} = {self.completions_per_step} "
            f"(an optimiser step trains on whole groups)"
        )
        return [wrong_value("grpo.num_generations", self.grpo.num_generations, allowed, *sizes)]

    def _reward_problems(self) -> list[Problem]:
        weights = self.rewards.weights
        static = (weights.syntax, weights.lint, weights.complexity, weights.type_safety)
        if self.execution.enabled or any(static) or any(self.rewards.custom_weights):
            return []
        allowed = (
            "true, or a weight > 0 in rewards.weights for syntax, lint, complexity or type_safety, or a "
            "custom reward (without execution only these can tell completions apart)"
        )
        return [wrong_value("execution.enabled", False, allowed, "rewards.weights")]
