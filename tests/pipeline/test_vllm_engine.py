"""The real vLLM with the real model: what it writes, under which weights, and with which probabilities."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from curriculum.ladder.index import ladder_tasks
from pipeline.generator import GeneratorError
from pipeline.messages import Completion, GenerationRequest, SamplingSettings, WeightUpdate
from pipeline.models import load_model, load_tokenizer
from pipeline.prompts import encode_prompt
from pipeline.weights import write_weights
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.conftest import RunningEngine

pytestmark = pytest.mark.slow

PREFILL = "```python\n"
TASK = ladder_tasks("train")[0]


def ask(engine: RunningEngine, name: str, num_generations: int, length: int = 64) -> GenerationRequest:
    tokenizer = load_tokenizer(engine.model_path)
    return GenerationRequest(
        request_id=name,
        prompt_ids=encode_prompt(tokenizer, TASK, PREFILL),
        num_generations=num_generations,
        sampling=SamplingSettings(max_completion_length=length, stop=("\n```",)),
    )


async def collect(engine: RunningEngine, request: GenerationRequest) -> list[Completion]:
    return [completion async for completion in engine.generator.generate(request)]


def forward_logprobs(model: PreTrainedModel, prompt: tuple[int, ...], completion: Completion) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion.token_ids])).logits[0, len(prompt) - 1 : -1]
    picked = torch.tensor(completion.token_ids)[:, None]
    return torch.log_softmax(logits.float(), dim=-1).gather(1, picked)[:, 0]


def shaken(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * parameter.std() * 0.05)
    return model


def worst_difference(engine: RunningEngine, model: PreTrainedModel, completions: list[Completion]) -> float:
    prompt = ask(engine, "prompt", 1).prompt_ids
    return max(
        float((forward_logprobs(model, prompt, c) - torch.tensor(c.logprobs)).abs().max())
        for c in completions
    )


def test_completions_end_at_the_closing_fence_and_carry_their_text(vllm_engine: RunningEngine) -> None:
    tokenizer = load_tokenizer(vllm_engine.model_path)
    completions = vllm_engine.loop.run_until_complete(collect(vllm_engine, ask(vllm_engine, "fence", 8)))
    assert sorted(completion.index for completion in completions) == list(range(8))
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert stopped
    for completion in completions:
        assert len(completion.token_ids) == len(completion.logprobs) <= 64
        assert all(logprob <= 0 for logprob in completion.logprobs)
        decoded = tokenizer.decode(completion.token_ids, skip_special_tokens=True)
        assert decoded.startswith(completion.text)
    assert any(completion.text.endswith("\n```") for completion in stopped)


def test_new_weights_reach_the_running_engine_exactly(vllm_engine: RunningEngine, tmp_path: Path) -> None:
    loop, generator = vllm_engine.loop, vllm_engine.generator
    model = load_model(vllm_engine.model_path)
    before = loop.run_until_complete(collect(vllm_engine, ask(vllm_engine, "before", 4)))
    assert worst_difference(vllm_engine, model, before) < 1e-3
    version = before[0].max_policy_version
    shaken(model, seed=version + 1)
    update = write_weights(
        model.named_parameters(), str(tmp_path / "new.safetensors"), version + 1, torch.float32
    )
    pause_s = loop.run_until_complete(generator.update_weights(update))
    assert pause_s > 0
    after = loop.run_until_complete(collect(vllm_engine, ask(vllm_engine, "after", 4)))
    assert worst_difference(vllm_engine, model, after) < 1e-3
    # The test can fail: the old weights give other probabilities.
    assert worst_difference(vllm_engine, load_model(vllm_engine.model_path), after) > 0.01
    assert {(c.min_policy_version, c.max_policy_version) for c in before} == {(version, version)}
    assert {(c.min_policy_version, c.max_policy_version) for c in after} == {(version + 1, version + 1)}


def test_a_completion_in_flight_carries_both_versions(vllm_engine: RunningEngine, tmp_path: Path) -> None:
    model = load_model(vllm_engine.model_path)

    async def scenario() -> tuple[int, list[Completion]]:
        version = (await collect(vllm_engine, ask(vllm_engine, "probe", 1, length=1)))[0].max_policy_version
        update = write_weights(
            model.named_parameters(), str(tmp_path / "next.safetensors"), version + 1, torch.float32
        )
        request = GenerationRequest(
            request_id="in-flight",
            prompt_ids=ask(vllm_engine, "prompt", 1).prompt_ids,
            num_generations=4,
            sampling=SamplingSettings(max_completion_length=128),
        )
        running = asyncio.create_task(collect(vllm_engine, request))
        await asyncio.sleep(0.3)
        await vllm_engine.generator.update_weights(update)
        return version, await running

    version, completions = vllm_engine.loop.run_until_complete(scenario())
    assert all(completion.min_policy_version == version for completion in completions)
    assert any(completion.max_policy_version == version + 1 for completion in completions)


def test_an_adapter_is_merged_into_the_running_engine_exactly(
    vllm_engine: RunningEngine, tmp_path: Path
) -> None:
    loop, generator, base = vllm_engine.loop, vllm_engine.generator, vllm_engine.model_path

    async def scenario() -> tuple[PreTrainedModel, list[Completion], list[Completion]]:
        version = (await collect(vllm_engine, ask(vllm_engine, "now", 1, length=1)))[0].max_policy_version
        model, update = publish_random_adapter(base, tmp_path / "adapter", version + 1, scale=0.05)
        running = asyncio.create_task(collect(vllm_engine, ask(vllm_engine, "across", 4, length=128)))
        await asyncio.sleep(0.3)
        await generator.update_weights(update)
        across = [c for c in await running if c.max_policy_version > version]
        after = await collect(vllm_engine, ask(vllm_engine, "adapted", 4))
        _, none = publish_random_adapter(base, tmp_path / "none", version + 2, scale=0.0)
        await generator.update_weights(none)
        return model, across, after

    model, across, after = loop.run_until_complete(scenario())
    assert worst_difference(vllm_engine, model, after) < 1e-3
    assert worst_difference(vllm_engine, load_model(base), after) > 0.01
    # Completions that were running go on under the adapter, over all that they had written before.
    assert across
    prompt = ask(vllm_engine, "prompt", 1).prompt_ids
    for completion in across:
        assert forward_logprobs(model, prompt, completion)[-1].item() == pytest.approx(
            completion.logprobs[-1], abs=1e-3
        )
    # An adapter of zeros is the base again: nothing of the first one is left.
    again = loop.run_until_complete(collect(vllm_engine, ask(vllm_engine, "base again", 4)))
    assert worst_difference(vllm_engine, load_model(base), again) < 1e-3


def test_an_update_that_is_not_newer_is_refused_by_name(vllm_engine: RunningEngine) -> None:
    update = WeightUpdate(policy_version=0, path="unused", num_bytes=0)
    with pytest.raises(GeneratorError, match="not newer"):
        vllm_engine.loop.run_until_complete(vllm_engine.generator.update_weights(update))
