"""The real vLLM with the real model: what it writes, under which weights, and with which probabilities."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
import torch
from transformers import PreTrainedModel

from configs.schema import GenerationConfig
from curriculum.ladder.index import ladder_tasks
from pipeline.generation.generator import GeneratorError
from pipeline.messages import Completion, GenerationRequest, WeightUpdate
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.prompts import encode_prompt
from pipeline.weights.exchange import WeightServer
from pipeline.weights.files import write_weights
from pipeline.weights.receipts import code_of
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.conftest import RunningEngine
from tests.pipeline.generation import asking
from tests.pipeline.generation.asking import forward_logprobs, logprobs_over_an_old_cache, worst_error
from tests.pipeline.generation.test_early_abort_engines import check_aborted, compiles

pytestmark = pytest.mark.slow

PREFILL = "```python\n"
ASKED = GenerationConfig(assistant_prefill=PREFILL)
TASK = ladder_tasks("train")[0]
GAUGE = 8


@cache
def prompt_of(model_path: Path) -> tuple[int, ...]:
    """The task's, in the tokens of that model."""
    return encode_prompt(load_tokenizer(model_path), TASK, ASKED)


def ask(
    engine: RunningEngine, name: str, num: int, length: int = 64, stop: tuple[str, ...] = ("\n```",)
) -> GenerationRequest:
    prompt = prompt_of(engine.model_path)
    return asking.ask(name, num, prompt_ids=prompt, max_completion_length=length, stop=stop)


async def collect(engine: RunningEngine, request: GenerationRequest) -> list[Completion]:
    return await asking.collect(engine.generator, request)


def write(engine: RunningEngine, request: GenerationRequest) -> list[Completion]:
    return engine.loop.run_until_complete(collect(engine, request))


def shaken(model: PreTrainedModel, seed: int, scale: float = 0.05) -> PreTrainedModel:
    """``model`` with noise in every weight, ``scale`` times as large as they are."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * parameter.std() * scale)
    return model


def worst_difference(engine: RunningEngine, model: PreTrainedModel, completions: list[Completion]) -> float:
    return worst_error(model, prompt_of(engine.model_path), completions)


def test_completions_end_at_the_closing_fence_and_carry_their_text(vllm_engine: RunningEngine) -> None:
    tokenizer = load_tokenizer(vllm_engine.model_path)
    completions = write(vllm_engine, ask(vllm_engine, "fence", 8))
    assert sorted(completion.index for completion in completions) == list(range(8))
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert stopped
    for completion in completions:
        assert len(completion.token_ids) == len(completion.logprobs) <= 64
        assert all(logprob <= 0 for logprob in completion.logprobs)
        decoded = tokenizer.decode(list(completion.token_ids), skip_special_tokens=True)
        assert str(decoded).startswith(completion.text)
    assert any(completion.text.endswith("\n```") for completion in stopped)


def test_a_group_reads_its_prompt_once_but_for_the_end(vllm_engine: RunningEngine) -> None:
    # A task that no other test asks: nothing of it is there before.
    prompt = encode_prompt(load_tokenizer(vllm_engine.model_path), ladder_tasks("train")[7], ASKED)
    request = replace(ask(vllm_engine, "cached", 8, length=8), prompt_ids=prompt)
    completions = write(vllm_engine, request)
    cached = sorted(completion.num_cached_tokens or 0 for completion in completions)
    # Blocks of 32 tokens are shared; what is left of the prompt is less than one.
    assert cached[0] == 0 and len(prompt) - 32 <= cached[1] == cached[-1] < len(prompt)


@pytest.mark.parametrize("transport", ["file", "collective"])
def test_new_weights_reach_the_running_engine_exactly(
    vllm_engine: RunningEngine, policies: Policies, tmp_path: Path, transport: str
) -> None:
    loop, generator = vllm_engine.loop, vllm_engine.generator
    model = deepcopy(policies.base)
    loop.run_until_complete(generator.reset())
    before = write(vllm_engine, ask(vllm_engine, "before", 4))
    assert worst_difference(vllm_engine, model, before) < 1e-3
    version = before[0].max_policy_version
    shaken(model, seed=version + 1)
    server = WeightServer("127.0.0.1", torch.device("cpu"), timeout_s=60.0)
    if transport == "collective":
        update = server.offer(model.named_parameters(), version + 1, torch.float32)
    else:
        path = str(tmp_path / "new.safetensors")
        update = write_weights(model.named_parameters(), path, version + 1, torch.float32)
    loaded = loop.run_until_complete(generator.update_weights(update))
    server.close()
    assert loaded.policy_version == version + 1 and loaded.pause_s > 0
    after = write(vllm_engine, ask(vllm_engine, "after", 4))
    assert worst_difference(vllm_engine, model, after) < 1e-3
    # The test can fail: the old weights give other probabilities.
    assert worst_difference(vllm_engine, policies.base, after) > 0.01
    assert {(c.min_policy_version, c.max_policy_version) for c in before} == {(version, version)}
    assert {(c.min_policy_version, c.max_policy_version) for c in after} == {(version + 1, version + 1)}
    assert len(loaded.receipt) == 273 and {c.receipt for c in after} == {code_of(update.receipt)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The base and other weights, as models and as updates of the engine."""

    base: PreTrainedModel
    other: PreTrainedModel
    to_base: WeightUpdate
    to_other: WeightUpdate


@pytest.fixture(scope="module")
def policies(vllm_engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> Policies:
    other = shaken(load_model(vllm_engine.model_path), seed=11)
    path = str(tmp_path_factory.mktemp("other") / "other.safetensors")
    return Policies(
        base=load_model(vllm_engine.model_path),
        other=other,
        to_base=WeightUpdate(policy_version=1, path=str(vllm_engine.model_path), kind="base"),
        # Without a receipt, which is of one version: it is loaded as several.
        to_other=replace(write_weights(other.named_parameters(), path, 1, torch.float32), receipt={}),
    )


async def generate_across_an_update(
    engine: RunningEngine, update: WeightUpdate
) -> tuple[list[Completion], list[Completion]]:
    """Completions that the update found half written, and one of a request that came while it went on."""
    long = ask(engine, f"{update.policy_version} running", 3, length=80, stop=())
    late = ask(engine, f"{update.policy_version} waiting", 1, length=16)
    running = asyncio.create_task(collect(engine, long))
    # A task begins at the next turn of the loop, so the gauge would be sent before it.
    await collect(engine, ask(engine, f"{update.policy_version} turns", 1, length=1))
    # Written beside them token by token: when it has ended, they have as many.
    await collect(engine, ask(engine, f"{update.policy_version} gauge", 1, length=GAUGE, stop=()))
    updating = asyncio.create_task(engine.generator.update_weights(update))
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(collect(engine, late))
    loaded = await updating
    assert loaded.policy_version == update.policy_version
    return await running, await waiting


def assert_logprobs_are_those_of_the_writers(
    policies: Policies, prompt: tuple[int, ...], completion: Completion, version: int, mode: str
) -> None:
    of_version = {
        version: forward_logprobs(policies.base, prompt, completion),
        version + 1: forward_logprobs(policies.other, prompt, completion),
    }
    runs = completion.version_runs
    if mode == "keep_cache" and len(runs) == 2:
        of_version[version + 1][runs[0].num_tokens :] = logprobs_over_an_old_cache(
            policies.base, policies.other, prompt, completion, runs[0].num_tokens
        )
    expected = [float(of_version[v][n]) for n, v in enumerate(completion.token_versions)]
    assert completion.logprobs == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("mode", ["keep", "keep_cache", "drain", "abort"])
def test_each_token_has_the_version_and_the_probability_of_the_weights_that_wrote_it(
    vllm_engine: RunningEngine,
    policies: Policies,
    mode: Literal["keep", "keep_cache", "drain", "abort"],
) -> None:
    async def scenario() -> tuple[int, list[Completion], list[Completion]]:
        """Again where the machine was so slow that the update found nothing half written."""
        for _ in range(3):
            probe = await collect(vllm_engine, ask(vllm_engine, "probe", 1, length=1))
            version = probe[0].max_policy_version + 1
            await vllm_engine.generator.update_weights(replace(policies.to_base, policy_version=version))
            update = replace(policies.to_other, policy_version=version + 1, mode=mode)
            running, waiting = await generate_across_an_update(vllm_engine, update)
            if mode == "drain" or any(c.max_policy_version > version for c in running):
                return version, running, waiting
        raise AssertionError("three updates came too late")

    version, running, waiting = vllm_engine.loop.run_until_complete(scenario())
    prompt = ask(vllm_engine, "prompt", 1).prompt_ids
    goes_on = mode in ("keep", "keep_cache")
    for completion in running:
        versions = [run.policy_version for run in completion.version_runs]
        if goes_on and len(versions) == 2:
            assert versions == [version, version + 1]
            assert completion.version_runs[0].num_tokens >= GAUGE
        else:
            assert versions in ([version], [version + 1])
    crossed = [c for c in running if c.min_policy_version < c.max_policy_version]
    assert bool(crossed) == goes_on
    if mode == "drain":
        assert {c.max_policy_version for c in running} == {version}
    assert {c.min_policy_version for c in waiting} == {version + 1}
    for completion in (*(crossed or running)[:2], *waiting):
        assert_logprobs_are_those_of_the_writers(policies, prompt, completion, version, mode)


def test_what_an_update_finds_unbegun_reads_its_prompt_under_the_new_weights(
    vllm_engine: RunningEngine, policies: Policies
) -> None:
    prompt = ask(vllm_engine, "prompt", 1).prompt_ids

    async def scenario() -> tuple[int, list[Completion]]:
        version = (await collect(vllm_engine, ask(vllm_engine, "now", 1, length=1)))[0].max_policy_version + 1
        await vllm_engine.generator.update_weights(replace(policies.to_base, policy_version=version))
        # As many as the engine runs at once, so that the others wait in vLLM's own queue.
        long = ask(vllm_engine, "full", 16, length=32, stop=())
        queued = ask(vllm_engine, "queued", 2, length=16)
        # Of these weights, and left in the cache.
        await collect(vllm_engine, ask(vllm_engine, "cached", 1, length=1))
        running = asyncio.create_task(collect(vllm_engine, long))
        waiting = asyncio.create_task(collect(vllm_engine, queued))
        await asyncio.sleep(0.05)
        update = replace(policies.to_other, policy_version=version + 1, mode="keep_cache")
        await vllm_engine.generator.update_weights(update)
        return version + 1, [*await running, *await waiting]

    version, completions = vllm_engine.loop.run_until_complete(scenario())
    unbegun = [c for c in completions if c.min_policy_version == version]
    assert len(unbegun) >= 2
    for completion in unbegun:
        expected = forward_logprobs(policies.other, prompt, completion).tolist()
        assert completion.logprobs == pytest.approx(expected, abs=1e-3)


def test_an_adapter_is_merged_into_the_running_engine_exactly(
    vllm_engine: RunningEngine, policies: Policies, tmp_path: Path
) -> None:
    loop, generator, base = vllm_engine.loop, vllm_engine.generator, vllm_engine.model_path

    async def scenario() -> tuple[PreTrainedModel, list[Completion], list[Completion]]:
        version = (await collect(vllm_engine, ask(vllm_engine, "now", 1, length=1)))[0].max_policy_version
        model, update = publish_random_adapter(base, tmp_path / "adapter", version + 1, scale=0.05)
        long = ask(vllm_engine, "across", 4, length=128, stop=())
        running = asyncio.create_task(collect(vllm_engine, long))
        await collect(vllm_engine, ask(vllm_engine, "turns", 1, length=1))
        # Written beside them: when it has ended, they have as many tokens.
        await collect(vllm_engine, ask(vllm_engine, "gauge", 1, length=GAUGE, stop=()))
        await generator.update_weights(update)
        across = [c for c in await running if c.max_policy_version > version]
        after = await collect(vllm_engine, ask(vllm_engine, "adapted", 4))
        _, none = publish_random_adapter(base, tmp_path / "none", version + 2, scale=0.0)
        await generator.update_weights(none)
        return model, across, after

    model, across, after = loop.run_until_complete(scenario())
    assert worst_difference(vllm_engine, model, after) < 1e-3
    assert worst_difference(vllm_engine, policies.base, after) > 0.01
    # Completions that were running go on under the adapter, over all that they had written before.
    assert across
    prompt = ask(vllm_engine, "prompt", 1).prompt_ids
    for completion in across:
        assert forward_logprobs(model, prompt, completion)[-1].item() == pytest.approx(
            completion.logprobs[-1], abs=1e-3
        )
    # An adapter of zeros is the base again: nothing of the first one is left.
    again = write(vllm_engine, ask(vllm_engine, "base again", 4))
    assert worst_difference(vllm_engine, policies.base, again) < 1e-3


def test_an_update_that_is_not_newer_is_refused_by_name(vllm_engine: RunningEngine) -> None:
    update = WeightUpdate(policy_version=0, path="unused")
    with pytest.raises(GeneratorError, match="not newer"):
        vllm_engine.loop.run_until_complete(vllm_engine.generator.update_weights(update))


def test_vllm_ends_hopeless_completions_and_goes_on(vllm_engine: RunningEngine) -> None:
    tokenizer = load_tokenizer(vllm_engine.model_path)
    prompt_ids = encode_prompt(tokenizer, ladder_tasks("train")[0], ASKED)
    # So hot that most of it is no Python.
    hot = asking.ask(
        "hot", 12, prompt_ids=prompt_ids, temperature=1.6, max_completion_length=100, stop=("\n```",)
    )
    request = replace(hot, abort_prefill=PREFILL)
    completions = vllm_engine.loop.run_until_complete(collect(vllm_engine, request))
    assert sorted(completion.index for completion in completions) == list(range(12))
    check_aborted(completions)
    for completion in completions:
        decoded = str(tokenizer.decode(list(completion.token_ids), skip_special_tokens=True))
        assert decoded.startswith(completion.text)
        if completion.finish_reason == "length":
            assert len(completion.token_ids) == 100
    cool = replace(request, request_id="cool", sampling=replace(request.sampling, temperature=0.2))
    assert all(
        completion.finish_reason != "abort" or not compiles(completion)
        for completion in vllm_engine.loop.run_until_complete(collect(vllm_engine, cool))
    )
