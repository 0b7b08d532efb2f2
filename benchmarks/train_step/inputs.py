"""Model, settings and samples of a training-step job: recorded ones, or random ones of a given geometry."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from benchmarks.recording import load_recording
from benchmarks.train_step.job import BatchSpec, StepJob, Variant
from configs.schema import Config, ModelConfig
from pipeline.host.device import for_device
from pipeline.messages import TrainBatch, TrainingSample
from pipeline.models.find import resolve_model
from pipeline.rollouts.batch import group_advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """``base`` are the settings that the batch was sampled with."""

    model_path: Path
    batch: TrainBatch
    base: dict[str, Any]


def make_inputs(job: StepJob) -> StepInputs:
    """The job's model and samples. Raises ValueError for a model that cannot be had, or lacks tokens."""
    path = resolve_model(ModelConfig(name=job.model))
    vocabulary = int(AutoConfig.from_pretrained(path, local_files_only=True).vocab_size)
    if job.batch.name == "random":
        return StepInputs(
            model_path=path, batch=random_batch(job.batch, vocabulary), base=random_base(job.batch)
        )
    recording = load_recording(job.batch.name)
    largest = max(max(sample.token_ids) for sample in recording.batch.samples)
    if largest >= vocabulary:
        raise ValueError(
            f"--model: value {job.model!r}: it has {vocabulary} tokens and the recording "
            f"{job.batch.name!r} uses token {largest}; give --batch random, or a recording of this model"
        )
    base = recording.config.model_dump(exclude_unset=True)
    return StepInputs(model_path=path, batch=recording.batch, base=base)


def job_config(job: StepJob, variant: Variant, inputs: StepInputs) -> Config:
    """The configuration of ``variant``: one optimiser step takes the whole batch.

    Raises ValueError for sizes that do not fit each other.
    """
    base, num_sequences = inputs.base, len(inputs.batch.samples)
    training = {**base.get("training", {}), **variant.settings["training"]}
    if variant.trl_weights is not None:
        if num_sequences % job.trl_micro_batch:
            raise ValueError(
                f"--trl-micro-batch: value {job.trl_micro_batch}: a divisor of {num_sequences} samples"
            )
        training["per_device_train_batch_size"] = job.trl_micro_batch
        training["gradient_accumulation_steps"] = num_sequences // job.trl_micro_batch
    # The completions are there: TRL starts no engine for them.
    generation = {**base.get("generation", {}), "baseline_engine": "transformers"}
    # The step is what is measured, not a schedule: every one of them has the same learning rate.
    training |= {"max_steps": job.num_steps + 1, "warmup_steps": 0, "lr_scheduler_type": "constant"}
    settings = {
        **base,
        "training": training,
        "generation": generation,
        "acceleration": variant.settings["acceleration"],
        "lora": variant.settings.get("lora", {}),
        # No recording has the reference's log-probabilities, which TRL's step asks for.
        "grpo": {**base.get("grpo", {}), "beta": 0.0},
    }
    config = for_device(Config.model_validate(settings), job.device)
    assert config.completions_per_step == num_sequences
    return config


def random_batch(spec: BatchSpec, vocabulary: int) -> TrainBatch:
    """Samples of random lengths, token ids and rewards.

    The old policy is uniform, which random weights nearly are: ratios stay near 1.
    """
    rng = random.Random(0)
    samples: list[TrainingSample] = []
    for group in range(spec.groups):
        prompt = _ids(rng, vocabulary, _length(rng, spec.prompt_tokens, 2, is_full=spec.is_full))
        is_flat = group < spec.flat_groups
        rewards = [0.0 if is_flat else rng.random() for _ in range(spec.generations)]
        for advantage in group_advantages([rewards], scale_rewards="group")[0]:
            length = _length(rng, spec.completion_tokens, 4, is_full=spec.is_full)
            samples.append(
                TrainingSample(
                    token_ids=(*prompt, *_ids(rng, vocabulary, length)),
                    num_prompt_tokens=len(prompt),
                    loss_mask=(0,) * len(prompt) + (1,) * length,
                    old_logprobs=(0.0,) * len(prompt) + (-math.log(vocabulary),) * length,
                    advantage=advantage,
                    policy_version=0,
                )
            )
    return TrainBatch(step=1, samples=tuple(samples))


def random_base(spec: BatchSpec) -> dict[str, Any]:
    """The settings that such a batch would have been sampled with, one optimiser step for all of it."""
    return {
        "training": {
            "per_device_train_batch_size": spec.generations,
            "gradient_accumulation_steps": spec.groups,
        },
        "grpo": {"num_generations": spec.generations},
        "generation": {
            "max_prompt_length": spec.prompt_tokens,
            "max_completion_length": spec.completion_tokens,
        },
    }


def _length(rng: random.Random, longest: int, share: int, *, is_full: bool) -> int:
    return longest if is_full else rng.randint(-(-longest // share), longest)


def _ids(rng: random.Random, vocabulary: int, length: int) -> Sequence[int]:
    # The first few ids are often special ones.
    return [rng.randrange(min(3, vocabulary - 1), vocabulary) for _ in range(length)]
