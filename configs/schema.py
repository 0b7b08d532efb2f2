"""Every setting of the project: one pydantic model a section, each field documented.

Unknown keys and wrong types are errors; combinations that cannot work are refused here, so that no
model is loaded for a run that cannot succeed. What depends on the machine (a GPU, a model's name) is not
checked here. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from configs.acceleration_schema import AccelerationConfig as AccelerationConfig
from configs.acceleration_schema import RewardCacheConfig as RewardCacheConfig
from configs.acceleration_schema import SpeculativeConfig as SpeculativeConfig
from configs.cluster_schema import ClusterConfig as ClusterConfig
from configs.curriculum_schema import CurriculumConfig as CurriculumConfig
from configs.errors import Problem, wrong_value
from configs.evaluation_schema import EvaluationConfig as EvaluationConfig
from configs.generation_schema import GenerationConfig as GenerationConfig
from configs.output_schema import OutputConfig as OutputConfig
from configs.rewards_schema import RewardsConfig as RewardsConfig
from configs.rewards_schema import RewardWeights as RewardWeights
from configs.rollouts_schema import MAX_FEEDBACK_LENGTH
from configs.rollouts_schema import RolloutsConfig as RolloutsConfig
from configs.section import (
    Fraction,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TaskSetName,
    Text,
    module_name_problems,
)
from configs.section import Section as Section
from configs.task_sets import BUILT_IN_DATASETS, EVALUATION_SETS, is_on_hub, training_set_problems
from configs.training_schema import GrpoConfig as GrpoConfig
from configs.training_schema import LoraConfig as LoraConfig
from configs.training_schema import TrainingConfig as TrainingConfig

_MAX_NAME_LENGTH = 200


class ModelConfig(Section):
    """Which policy to train."""

    name: Text = Field(default="smollm2-135m-instruct", description="built-in name, local folder, or hub id")
    revision: Text | None = Field(
        default=None, description="branch, tag or commit on the hub; default: its main branch"
    )
    trust_remote_code: bool = Field(default=False, description="run code that comes with the model")
    loader: Literal["transformers", "unsloth"] = Field(
        default="transformers", description="library that loads the policy for training; unsloth needs a GPU"
    )


class DatasetConfig(Section):
    """What to train on."""

    name: TaskSetName = Field(
        default="ladder",
        description=f"{', '.join(BUILT_IN_DATASETS)}, a .jsonl file, or a hub data set as OWNER/NAME",
    )
    split: Text = Field(
        default="train",
        description="split of ladder or word-problems (train, heldout, all), of mbpp or of a hub data set",
    )
    max_samples: PositiveInt | None = Field(default=None, description="use at most this many tasks")
    overlong_prompts: Literal["error", "skip"] = Field(
        default="error",
        description="where prompts are longer than generation.max_prompt_length: refuse to start, or leave "
        "their tasks out and say so; those of evaluation must fit",
    )
    shown_tests: Literal["first", "all"] = Field(
        default="first",
        description="of a prompt that shows all the tests that judge its answers: the first stays in it, the "
        "others are hidden, so that nobody learns to look them up; or all stay",
    )
    min_mutants_killed: Fraction | None = Field(
        default=None,
        description="leave out tasks whose tests fail a smaller share of the mutants of their reference (see "
        "docs/own_tasks.md)",
    )
    max_overlap: Fraction | None = Field(
        default=None,
        description="leave out tasks that have more in common with one of HumanEval or of MBPP's test part: "
        "Jaccard similarity of 8-grams",
    )
    columns: dict[str, str] = Field(
        default_factory=dict, description="for hub data sets: our field name -> their column name"
    )
    allow_evaluation_sets: list[str] = Field(
        default_factory=list,
        description=f"evaluation sets ({', '.join(EVALUATION_SETS)}) that may be trained on all the same",
    )

    def _problems(self) -> list[Problem]:
        problems = training_set_problems(self.name, self.split, self.allow_evaluation_sets)
        if self.columns and not is_on_hub(self.name):
            allowed = "nothing: only hub data sets have columns to map"
            problems.append(wrong_value("columns", self.columns, allowed, "name"))
        return problems


class ExecutionConfig(Section):
    """The sandbox, and the limits of one run in it."""

    enabled: bool = Field(default=True, description="run the tests (--no_execution turns it off)")
    timeout: PositiveFloat = Field(
        default=2.0,
        description="CPU seconds of a run: all tests of a function, or one test of a whole program",
    )
    max_memory: int = Field(default=512, ge=16, le=2**20, description="MiB per run beyond the interpreter's")
    allow_network: bool = Field(default=False, description="must stay false: the sandbox has no network")
    allow_unsafe: bool = Field(
        default=False,
        description="run model code even where the sandbox is weaker than level L2 (see SECURITY.md)",
    )
    modules: list[str] = Field(
        default_factory=list,
        description="installed packages that programs may import (numpy, say); preloaded in every sandbox",
    )

    def _problems(self) -> Iterator[Problem]:
        if self.allow_network:
            yield wrong_value("allow_network", True, "false (the sandbox has no network)")
        yield from module_name_problems("modules", self.modules)


class RuntimeConfig(Section):
    """Processes, devices and deadlines (seconds)."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="where the model lives; auto: a GPU if there is one"
    )
    placement: Literal["auto", "colocated", "split"] = Field(
        default="auto",
        description="split: generators and trainer have GPUs of their own (a CPU: half of the threads each); "
        "colocated: they share them; auto: split where there are GPUs enough, otherwise shared, at once or, "
        "from 20 steps on, in turn, as the first steps show to be faster",
    )
    weight_transport: Literal["auto", "file", "collective"] = Field(
        default="auto",
        description="how new weights reach the generators. file: through shared memory, and between nodes "
        "through Ray's object store; collective: the trainer sends them, over NCCL between GPUs, CUDA IPC on "
        "one card (gloo on CPUs); auto: collective where generators have GPUs of their own and all weights "
        "are trained",
    )
    trainer_ranks: PositiveInt = Field(
        default=1, description="trainer processes that share a step (FSDP2); on GPUs one each"
    )
    trainer_threads: PositiveInt | None = Field(
        default=None, description="of all trainer ranks together; default: all cores, half if split"
    )
    generator_threads: PositiveInt | None = Field(
        default=None, description="of all generators together; default: all cores, half if split"
    )
    progress: Literal["auto", "rich", "plain"] = Field(
        default="auto", description="live display or plain lines; auto: live on a terminal"
    )
    strict: bool = Field(
        default=False, description="end the run at the first alarm that says that it cannot learn as it is"
    )
    keep_alive: bool = Field(
        default=False, description="leave the generators running when the run ends, for a run with attach"
    )
    attach: bool = Field(
        default=False, description="use the generators that a run with keep_alive left, if theirs match"
    )
    startup_timeout_s: PositiveFloat = Field(
        default=600.0, description="for a process to be ready; an engine that is compiled takes minutes"
    )
    generation_timeout_s: PositiveFloat = Field(
        default=300.0,
        description="for the next completion of a request, and once more for each max_num_seqs sequences "
        "before it",
    )
    reward_timeout_s: PositiveFloat | None = Field(
        default=None, description="for one score; default: twice what the limits of execution allow, and more"
    )
    train_step_timeout_s: PositiveFloat = Field(default=900.0, description="for one optimiser step")
    weight_update_timeout_s: PositiveFloat = Field(
        default=120.0, description="for the engine to take new weights"
    )
    max_restarts: NonNegativeInt = Field(
        default=3,
        description="how often a generator or trainer may be started again within restart_window_s; one more "
        "death ends the run; starts with smaller micro-batches do not count",
    )
    restart_window_s: PositiveFloat = Field(
        default=600.0, description="in which max_restarts are counted, those without work between them always"
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
    rollouts: RolloutsConfig = Field(
        default_factory=RolloutsConfig, description="answers of one rollout, and what is told between them"
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
    cluster: ClusterConfig = Field(
        default_factory=ClusterConfig, description="a Ray cluster of several nodes"
    )

    @property
    def completions_per_step(self) -> int:
        """Completions of one optimiser step: all are generated and scored."""
        return self.training.per_device_train_batch_size * self.training.gradient_accumulation_steps

    @property
    def prompts_per_step(self) -> int:
        """Groups that one optimiser step trains on."""
        return self.completions_per_step // self.grpo.num_generations

    @property
    def max_trajectory_length(self) -> int:
        """Tokens after the prompt of a rollout at most: its answers, and the feedback between them."""
        later = self.rollouts.max_turns - 1
        return self.generation.max_completion_length * (1 + later) + MAX_FEEDBACK_LENGTH * later

    @property
    def max_sequence_length(self) -> int:
        """Tokens of one sequence at most, prompt included."""
        return self.generation.max_prompt_length + self.max_trajectory_length

    def _problems(self) -> Iterator[Problem]:
        yield from self._name_problems()
        yield from self._batch_problems()
        yield from self._rank_problems()
        yield from self._cluster_problems()
        yield from self._transport_problems()
        yield from self._reward_problems()
        yield from self._evaluation_problems()
        yield from self._turn_problems()
        yield from self._warm_start_problems()

    def _name_problems(self) -> Iterator[Problem]:
        name = self.output.name
        is_plain = name is None or (
            0 < len(name) <= _MAX_NAME_LENGTH and not name.startswith(".") and not set(name) & {"/", "\0"}
        )
        if not is_plain:
            allowed = f"the name of one folder: up to {_MAX_NAME_LENGTH} characters, no '/', no leading '.'"
            yield wrong_value("output.name", name, allowed)

    def _rank_problems(self) -> Iterator[Problem]:
        field, num_ranks = "runtime.trainer_ranks", self.runtime.trainer_ranks
        if num_ranks == 1:
            return
        if num_ranks > self.completions_per_step:
            allowed = f"at most the {self.completions_per_step} completions of an optimiser step"
            yield wrong_value(field, num_ranks, allowed)
        if self.lora.load_in_4bit:
            allowed = "1 where the frozen weights are in 4 bits"
            yield wrong_value(field, num_ranks, allowed, "lora.load_in_4bit")
        if self.model.loader != "transformers":
            yield wrong_value(field, num_ranks, "1 with this model.loader", "model.loader")

    def _cluster_problems(self) -> Iterator[Problem]:
        runtime, engine = self.runtime, self.generation.engine
        for field, value in (("keep_alive", runtime.keep_alive), ("attach", runtime.attach)):
            if value and engine != "vllm":
                allowed = f"false with generation.engine {engine}, which no process keeps"
                yield wrong_value(f"runtime.{field}", value, allowed, "generation.engine")
            elif value and self.cluster.is_joined:
                allowed = "false on a cluster: it is about engines of the driver's own node"
                yield wrong_value(f"runtime.{field}", value, allowed, "cluster.address")
        if self.cluster.is_joined and runtime.device == "auto":
            allowed = '"cuda" or "cpu" (the node of the driver cannot tell what the others have)'
            yield wrong_value("runtime.device", runtime.device, allowed, "cluster.address")

    def _transport_problems(self) -> Iterator[Problem]:
        field, value = "runtime.weight_transport", self.runtime.weight_transport
        if value != "collective":
            return
        if self.lora.enabled:
            allowed = "auto or file: adapters are small, and travel as files"
            yield wrong_value(field, value, allowed, "lora.enabled")
        if self.generation.engine != "vllm":
            yield wrong_value(field, value, "auto or file with this generation.engine", "generation.engine")

    def _evaluation_problems(self) -> Iterator[Problem]:
        mode = self.generation.weight_update_mode
        if self.evaluation.every_steps is not None and mode == "drain":
            allowed = "another with evaluation.every_steps (drain lets each step wait for its completions)"
            yield wrong_value("generation.weight_update_mode", mode, allowed, "evaluation.every_steps")

    def _turn_problems(self) -> Iterator[Problem]:
        max_turns, custom = self.rollouts.max_turns, self.rollouts.custom_feedback
        if max_turns == 1 and custom is not None:
            allowed = "null with one turn, after which nothing is told"
            yield wrong_value("rollouts.custom_feedback", custom, allowed, "rollouts.max_turns")
        if max_turns > 1 and not self.execution.enabled:
            allowed = "1 without execution, where no answer is known to fail"
            yield wrong_value("rollouts.max_turns", max_turns, allowed, "execution.enabled")

    def _warm_start_problems(self) -> Iterator[Problem]:
        if (steps := self.grpo.warm_start_steps) and not self.execution.enabled:
            allowed = "0 without execution, where no answer is known to pass"
            yield wrong_value("grpo.warm_start_steps", steps, allowed, "execution.enabled")

    def _batch_problems(self) -> Iterator[Problem]:
        if self.completions_per_step % self.grpo.num_generations:
            sizes = ("training.per_device_train_batch_size", "training.gradient_accumulation_steps")
            allowed = (
                f"a divisor of {' * '.join(sizes)} = {self.completions_per_step} "
                f"(an optimiser step trains on whole groups)"
            )
            yield wrong_value("grpo.num_generations", self.grpo.num_generations, allowed, *sizes)

    def _reward_problems(self) -> Iterator[Problem]:
        rewards, names = self.rewards, ("syntax", "lint", "complexity", "type_safety")
        if self.execution.enabled or any(rewards.custom_weights):
            return
        weights = {"rewards.weights": rewards.weights.model_dump()}
        for source, own in rewards.per_source.items():
            weights[f"rewards.per_source.{source}.weights"] = weights["rewards.weights"] | own.weights
        said = (
            "a weight > 0 for syntax, lint, complexity or type_safety, or a custom reward (without execution "
            "only these can tell completions apart)"
        )
        for field, values in weights.items():
            if not any(values[name] for name in names):
                yield wrong_value("execution.enabled", False, f"true, or in {field} {said}", field)
