"""What generators are asked, and what a model's own forward says of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from pipeline.generation.generator import Generator
from pipeline.messages import Completion, GenerationRequest, SamplingSettings
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer


def ask(
    name: str = "r",
    num_generations: int = 4,
    *,
    prompt_ids: tuple[int, ...] = (3, 4, 5),
    seed: int | None = None,
    **sampling: Any,
) -> GenerationRequest:
    """A request; ``sampling`` is what SamplingSettings has otherwise."""
    return GenerationRequest(
        request_id=name,
        prompt_ids=prompt_ids,
        num_generations=num_generations,
        sampling=SamplingSettings(**sampling),
        seed=seed,
    )


async def collect(generator: Generator, request: GenerationRequest) -> list[Completion]:
    """All that it answers, in the order in which it comes."""
    return [completion async for completion in generator.generate(request)]


@torch.no_grad()
def forward_logprobs(
    model: PreTrainedModel, prompt: tuple[int, ...], completion: Completion, temperature: float = 1.0
) -> torch.Tensor:
    """Of each token of ``completion`` (C,), in one forward."""
    return forward_logprobs_of(model, prompt, [completion], temperature)[0]


@torch.no_grad()
def forward_logprobs_of(
    model: PreTrainedModel,
    prompt: tuple[int, ...],
    completions: Sequence[Completion],
    temperature: float = 1.0,
) -> list[torch.Tensor]:
    """Of each token of each of ``completions`` (C,), in one forward of all."""
    length = max(len(one.token_ids) for one in completions)
    ids = torch.zeros(len(completions), len(prompt) + length, dtype=torch.int64)
    is_there = torch.zeros_like(ids)
    for row, one in enumerate(completions):
        whole = torch.tensor(prompt + one.token_ids)
        ids[row, : len(whole)] = whole
        is_there[row, : len(whole)] = 1
    found = model(ids, attention_mask=is_there, logits_to_keep=length + 1).logits[:, :-1]
    return [
        _picked(logits[: len(one.token_ids)] / temperature, one.token_ids)
        for logits, one in zip(found, completions, strict=True)
    ]


@torch.no_grad()
def logprobs_over_an_old_cache(
    old: PreTrainedModel, new: PreTrainedModel, prompt: tuple[int, ...], completion: Completion, start: int
) -> torch.Tensor:
    """Those of the tokens from ``start`` on: ``new`` over what ``old`` has computed."""
    ids = torch.tensor([prompt + completion.token_ids])
    cached = len(prompt) + start - 1
    cache = old(ids[:, :cached], use_cache=True).past_key_values
    return _picked(new(ids[:, cached:], past_key_values=cache).logits[0, :-1], completion.token_ids[start:])


def worst_error(
    model: PreTrainedModel, prompt: tuple[int, ...], completions: Sequence[Completion], first: int = 0
) -> float:
    """The largest difference of a log-probability, from each completion's token ``first`` on."""
    found = forward_logprobs_of(model, prompt, completions)
    pairs = zip(found, completions, strict=True)
    return max(float((logprobs - torch.tensor(one.logprobs)).abs()[first:].max()) for logprobs, one in pairs)


def save_endless_model(folder: Path) -> Path:
    """A random Llama over bytes that vLLM has kernels for: far from uniform, without an end token."""
    model = make_byte_model(0, num_key_value_heads=1, initializer_range=0.2, has_end=False)
    model.save_pretrained(str(folder))
    make_byte_tokenizer().save_pretrained(str(folder))
    return folder


def _picked(logits: torch.Tensor, token_ids: tuple[int, ...]) -> torch.Tensor:
    return torch.log_softmax(logits.float(), dim=-1).gather(1, torch.tensor(token_ids)[:, None])[:, 0]
