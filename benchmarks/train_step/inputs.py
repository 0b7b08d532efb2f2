"""The model and the samples of a training-step job: recorded ones, or random ones of a given geometry.

Random models have the shapes of Qwen2.5's 0.5B and 1.5B and are built here, nothing is fetched: their weights
do not matter to what a step costs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from benchmarks.recording import load_recording
from benchmarks.train_step.job import BatchSpec, StepJob
from configs.schema import ModelConfig
from pipeline.messages import TrainBatch, TrainingSample
from pipeline.models.find import resolve_model
from pipeline.rollouts.batch import group_advantages

# hidden size, intermediate size, layers, heads; 2 key and value heads, tied embeddings.
Geometry = tuple[int, int, int, int]
GEOMETRIES: Final[dict[str, Geometry]] = {
    "random-0.5b": (896, 4864, 24, 14),
    "random-1.5b": (1536, 8960, 28, 12),
}
_VOCABULARY: Final = 151_936


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """``base`` are the settings that the batch was sampled with."""

    model_path: Path
    batch: TrainBatch
    base: dict[str, Any]


def open_model(job: StepJob) -> AbstractContextManager[str]:
    """The folder of the job's model; that of a random one is gone when the context ends.

    Raises ValueError for a model that cannot be had.
    """
    if job.model not in GEOMETRIES:
        return nullcontext(str(resolve_model(ModelConfig(name=job.model))))
    folder = TemporaryDirectory()
    save_random_model(GEOMETRIES[job.model], Path(folder.name), job.device)
    return folder


def make_inputs(job: StepJob, folder: str) -> StepInputs:
    """The samples for the model in ``folder``. Raises ValueError where it lacks tokens of a recording."""
    path = Path(folder)
    vocabulary = int(AutoConfig.from_pretrained(folder, local_files_only=True).vocab_size)
    if job.batch.name == "random":
        return StepInputs(
            model_path=path, batch=random_batch(job.batch, vocabulary), base=_random_base(job.batch)
        )
    recording = load_recording(job.batch.name)
    largest = max(max(sample.token_ids) for sample in recording.batch.samples)
    if largest >= vocabulary:
        raise ValueError(
            f"--model: value {job.model!r}: it has {vocabulary} tokens and the recording "
            f"{job.batch.name!r} uses token {largest}; give --batch random"
        )
    base = recording.config.model_dump(exclude_unset=True)
    return StepInputs(model_path=path, batch=recording.batch, base=base)


def random_batch(spec: BatchSpec, vocabulary: int, seed: int = 0) -> TrainBatch:
    """Samples of random lengths, token ids and rewards.

    The old policy is uniform, which random weights nearly are: ratios stay near 1.
    """
    rng = random.Random(seed)
    samples: list[TrainingSample] = []
    for group in range(spec.groups):
        prompt = _ids(rng, vocabulary, rng.randint(-(-spec.prompt_tokens // 2), spec.prompt_tokens))
        is_flat = group < spec.flat_groups
        rewards = [0.0 if is_flat else rng.random() for _ in range(spec.generations)]
        for advantage in group_advantages([rewards], scale_rewards="group")[0]:
            length = rng.randint(-(-spec.completion_tokens // 4), spec.completion_tokens)
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
    num_tokens = sum(sum(sample.loss_mask) for sample in samples)
    return TrainBatch(step=1, samples=tuple(samples), num_tokens=num_tokens)


def _random_base(spec: BatchSpec) -> dict[str, Any]:
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


def _ids(rng: random.Random, vocabulary: int, length: int) -> Sequence[int]:
    # The first few ids are often special ones.
    return [rng.randrange(min(3, vocabulary - 1), vocabulary) for _ in range(length)]


def random_model(geometry: Geometry, device: str) -> Qwen2ForCausalLM:
    """A model of that geometry with random weights; on "meta" it has none."""
    hidden, intermediate, layers, heads = geometry
    settings = Qwen2Config(
        vocab_size=_VOCABULARY,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return Qwen2ForCausalLM(settings)  # type: ignore[no-untyped-call]


def save_random_model(geometry: Geometry, folder: Path, device: str) -> None:
    """Write such a model into ``folder``, with a tokenizer that knows nothing but its end."""
    random_model(geometry, device).save_pretrained(str(folder))
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2}
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<unk>")),
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
    ).save_pretrained(str(folder))
