"""A random Llama and a word tokenizer, small enough for a unit test; nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.gpu.stage import make_byte_tokenizer as make_byte_tokenizer
from configs.schema import Config
from pipeline.messages import TrainBatch, TrainingSample

VOCABULARY = 53


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = {word: index for index, word in enumerate(["<pad>", "<eos>", "<unk>"])}
    words |= {f"w{index}": index for index in range(3, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def make_model(seed: int = 0, *, is_tied: bool = True) -> LlamaForCausalLM:
    return _llama(
        seed,
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=is_tied,
        # Large enough that probabilities differ from uniform ones.
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
    )


def _llama(seed: int, **settings: Any) -> LlamaForCausalLM:
    """A random model of 2 layers."""
    torch.manual_seed(seed)
    config = LlamaConfig(num_hidden_layers=2, max_position_embeddings=4096, bos_token_id=None, **settings)
    model: LlamaForCausalLM = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.train(False)
    return model


def save_model(folder: Path, seed: int = 0, *, is_tied: bool = True) -> Path:
    make_model(seed, is_tied=is_tied).save_pretrained(str(folder))
    make_tokenizer().save_pretrained(str(folder))
    return folder


def make_byte_model(
    seed: int,
    *,
    hidden_size: int = 64,
    intermediate_size: int = 96,
    num_key_value_heads: int = 2,
    initializer_range: float,
    has_end: bool = True,
) -> LlamaForCausalLM:
    """A random Llama of 2 layers over the byte tokenizer's tokens; without an end it writes to the limit."""
    tokenizer = make_byte_tokenizer()
    return _llama(
        seed,
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_attention_heads=2,
        num_key_value_heads=num_key_value_heads,
        initializer_range=initializer_range,
        eos_token_id=tokenizer.eos_token_id if has_end else None,
        pad_token_id=tokenizer.pad_token_id if has_end else None,
        tie_word_embeddings=True,
    )


def save_byte_model(folder: Path, seed: int = 0) -> Path:
    """A random Llama of 2 layers, hidden size 32, that writes bytes."""
    model = make_byte_model(seed, hidden_size=32, intermediate_size=64, initializer_range=0.02)
    model.save_pretrained(str(folder))
    make_byte_tokenizer().save_pretrained(str(folder))
    return folder


def make_samples(lengths: list[tuple[int, int]], advantages: list[float], seed: int = 1) -> TrainBatch:
    """Samples of the given (prompt, completion) lengths with arbitrary behaviour log-probabilities."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for (num_prompt, num_completion), advantage in zip(lengths, advantages, strict=True):
        ids = torch.randint(3, VOCABULARY, (num_prompt + num_completion,), generator=generator)
        old = -4.0 + torch.randn(num_completion, generator=generator)
        samples.append(
            TrainingSample(
                token_ids=tuple(ids.tolist()),
                num_prompt_tokens=num_prompt,
                loss_mask=(0,) * num_prompt + (1,) * num_completion,
                old_logprobs=(0.0,) * num_prompt + tuple(old.tolist()),
                advantage=advantage,
                policy_version=0,
            )
        )
    return TrainBatch(step=1, samples=tuple(samples))


def make_groups(prompt_lengths: tuple[int, ...], completion_lengths: list[list[int]]) -> TrainBatch:
    """Groups whose samples begin with the same prompt, as rollouts of one task do."""
    samples = []
    for group, (num_prompt, lengths) in enumerate(zip(prompt_lengths, completion_lengths, strict=True)):
        advantages = [0.7 - 0.4 * index for index in range(len(lengths))]
        batch = make_samples([(num_prompt, length) for length in lengths], advantages, seed=group + 1)
        prompt = batch.samples[0].token_ids[:num_prompt]
        samples += [
            replace(sample, token_ids=prompt + sample.token_ids[num_prompt:]) for sample in batch.samples
        ]
    return TrainBatch(step=1, samples=tuple(samples))


def parts_of(batch: TrainBatch, sizes: Sequence[int]) -> list[TrainBatch]:
    """``batch`` cut into parts of so many samples."""
    assert sum(sizes) == len(batch.samples)
    parts = []
    for number, size in enumerate(sizes):
        start = sum(sizes[:number])
        parts.append(TrainBatch(step=batch.step, samples=batch.samples[start : start + size], part=number))
    return parts


def make_config(**sections: Mapping[str, object]) -> Config:
    """A configuration for the tiny model: fp32, micro-batches of 4, and what ``sections`` change."""
    merged: dict[str, Mapping[str, object]] = {
        "training": {
            "bf16": False,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 2,
            "learning_rate": 1e-3,
            "warmup_steps": 0,
        },
        "grpo": {"num_generations": 4},
        "generation": {"max_completion_length": 16, "dtype": "float32"},
    }
    for name, values in sections.items():
        merged[name] = {**merged.get(name, {}), **values}
    return Config.model_validate(merged)
