"""Speculation in a real engine writes what the model would: distribution, log-probabilities, limits.

A small random model with a pointed distribution stands in for a real one, so that thousands of samples
take seconds; benchmarks.speculation_exactness does the same for every method and with the real model.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from configs.schema import Config
from pipeline.messages import Completion
from pipeline.weights.files import write_weights
from tests.pipeline.conftest import RunningEngine, running_engine
from tests.pipeline.generation.asking import ask, collect
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer
from tests.references.exactness import conditional_probabilities, smallest_p_value

pytestmark = pytest.mark.slow

PROMPT = tuple(range(40, 60))
TEMPERATURE = 0.8
NUM_SAMPLES = 2048
# Of the whole comparison, after Holm's correction: one false alarm in a thousand runs.
ALPHA = 1e-3


def write(engine: RunningEngine, name: str, num: int, length: int, **sampling: Any) -> list[Completion]:
    settings: dict[str, Any] = {"temperature": TEMPERATURE, "max_completion_length": length, **sampling}
    request = ask(name, num, prompt_ids=PROMPT, **settings)
    return engine.loop.run_until_complete(collect(engine.generator, request))


def pointed_model(seed: int) -> LlamaForCausalLM:
    return make_byte_model(seed, initializer_range=0.35)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    folder = tmp_path_factory.mktemp("pointed")
    pointed_model(0).save_pretrained(str(folder))
    make_byte_tokenizer().save_pretrained(str(folder))
    config = Config.model_validate(
        {
            "generation": {
                "dtype": "float32",
                "max_prompt_length": 32,
                "max_completion_length": 96,
                "kv_cache_gb": 0.1,
            },
            "evaluation": {"max_completion_length": 96},
            "acceleration": {"speculative": {"enabled": True, "method": "history", "dynamic": False}},
        }
    )
    with running_engine(config, folder) as engine:
        yield engine


def test_samples_follow_the_model_before_and_right_after_a_weight_update(
    engine: RunningEngine, tmp_path: Path
) -> None:
    for version, seed in enumerate((0, 1)):
        model = pointed_model(seed)
        if version:
            update = write_weights(
                model.named_parameters(), str(tmp_path / "new.safetensors"), version, torch.float32
            )
            engine.loop.run_until_complete(engine.generator.update_weights(update))
        before = engine.loop.run_until_complete(engine.generator.stats())
        completions = write(engine, f"samples-{version}", NUM_SAMPLES, 8)
        after = engine.loop.run_until_complete(engine.generator.stats())
        assert after["accepted"] - before["accepted"] > NUM_SAMPLES / 2, "drafts must matter here"
        assert after["drafted"] - before["drafted"] > after["accepted"] - before["accepted"]
        tokens = [completion.token_ids for completion in completions]
        expected = conditional_probabilities(model, PROMPT, tokens, TEMPERATURE)
        assert smallest_p_value(tokens, expected) > ALPHA
        # The test can fail: the other weights' probabilities are not the samples'.
        other = conditional_probabilities(pointed_model(1 - seed), PROMPT, tokens, TEMPERATURE)
        assert smallest_p_value(tokens, other) < 1e-9
        assert {completion.min_policy_version for completion in completions} == {version}
        for completion, rows in zip(completions, expected, strict=True):
            picked = rows.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0].log()
            assert torch.allclose(picked, torch.tensor(completion.logprobs), atol=1e-3)


def followers(completions: list[Completion]) -> dict[tuple[int, ...], dict[int, float]]:
    """By what was written before it, each token that came next, with its probability."""
    found: dict[tuple[int, ...], dict[int, float]] = {}
    for one in completions:
        for index, (token, logprob) in enumerate(zip(one.token_ids, one.logprobs, strict=True)):
            found.setdefault(one.token_ids[:index], {})[token] = math.exp(logprob)
    return found


def test_greedy_top_k_top_p_stops_and_lengths_hold_under_speculation(engine: RunningEngine) -> None:
    first = write(engine, "greedy", 8, 48, temperature=0.0)
    assert len({completion.token_ids for completion in first}) == 1
    for length in (1, 2, 7, 96):
        for completion in write(engine, f"length-{length}", 16, length):
            assert len(completion.token_ids) == len(completion.logprobs) <= length
            assert completion.finish_reason == "stop" or len(completion.token_ids) == length
    assert len(followers(write(engine, "wide", 64, 32))[()]) > 2, "what is cut off below is there without"
    narrow = followers(write(engine, "narrow", 64, 32, top_k=2, top_p=0.9))
    assert all(len(tokens) <= 2 for tokens in narrow.values())
    # Of the likeliest alone, or of the two that are left, renormalised.
    assert sum(narrow[()].values()) == pytest.approx(1.0, abs=1e-3)
    assert all(sum(tokens.values()) < 1.001 for tokens in narrow.values())
    likely = first[0].text[4:6]
    tokenizer = make_byte_tokenizer()
    for completion in write(engine, "stopped", 8, 48, temperature=0.0, stop=(likely,)):
        assert completion.text.endswith(likely)
        assert completion.finish_reason == "stop"
        # Nothing that was accepted behind it, and all of it.
        assert likely not in str(tokenizer.decode(list(completion.token_ids[:-1])))
        assert likely in str(tokenizer.decode(list(completion.token_ids)))
        assert len(completion.logprobs) == len(completion.token_ids)


def test_weights_that_change_under_running_drafts_leave_both_versions(
    engine: RunningEngine, tmp_path: Path
) -> None:
    model = pointed_model(2)
    # More than twice as many as run at once, and each of them is short.
    request = ask("in-flight", 130, prompt_ids=PROMPT, temperature=TEMPERATURE, max_completion_length=96)

    async def scenario() -> list[Completion]:
        running = asyncio.create_task(collect(engine.generator, request))
        update = write_weights(model.named_parameters(), str(tmp_path / "next.safetensors"), 7, torch.float32)
        await asyncio.sleep(0.05)
        await engine.generator.update_weights(update)
        return await running

    completions = engine.loop.run_until_complete(scenario())
    assert len(completions) == 130
    assert any(completion.max_policy_version == 7 for completion in completions)
    for completion in completions:
        assert len(completion.logprobs) == len(completion.token_ids)
