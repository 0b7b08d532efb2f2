"""Sampling settings from the configuration; training, evaluation and the baseline share them."""

from __future__ import annotations

import hashlib

from configs.schema import Config, GenerationConfig
from pipeline.messages import SamplingSettings

# Three backticks at the start of a line end the code block that the answer opened.
CLOSING_FENCE = "\n```"


def stop_strings(generation: GenerationConfig) -> tuple[str, ...]:
    """What ends a completion besides the end-of-text token.

    An answer that opens with a fenced block (``assistant_prefill``) ends at the closing fence; without
    that prefill the first fence met would be the opening one, so nothing is stopped at.
    """
    if generation.stop_at_code_fence and generation.assistant_prefill.startswith("```"):
        return (CLOSING_FENCE,)
    return ()


def request_seed(seed: int, draw_id: int) -> int:
    """The seed of a draw's request, below 2**31: the same in every process, whenever the draw is made."""
    # Far apart for neighbouring draws: engines seed sample i of a request with seed + i.
    return int.from_bytes(hashlib.sha256(f"{seed}/draw/{draw_id}".encode()).digest()[:4]) >> 1


def refuse_useless_seeds(config: Config, device: str) -> None:
    """Raise ValueError where generation.seed_requests would do nothing on ``device``."""
    if config.generation.seed_requests and config.generation.engine == "vllm" and device == "cpu":
        raise ValueError(
            "generation.seed_requests: value True: vLLM on a CPU takes no seed for a request; set it to "
            "false, or generation.engine to transformers"
        )


def training_sampling(config: Config) -> SamplingSettings:
    """How rollouts are sampled."""
    generation = config.generation
    return SamplingSettings(
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        max_completion_length=generation.max_completion_length,
        stop=stop_strings(generation),
    )


def evaluation_sampling(config: Config) -> SamplingSettings:
    """How the held-out measurement is sampled."""
    evaluation = config.evaluation
    return SamplingSettings(
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        max_completion_length=evaluation.max_completion_length,
        stop=stop_strings(config.generation),
    )
