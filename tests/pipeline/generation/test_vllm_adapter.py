"""vLLM's own LoRA: an adapter beside the weights, replaced in place, also under running requests.

It is for GPUs; here it runs on the CPU, where it is slow but exact, with a small random model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from configs.schema import Config
from pipeline.cluster import start_ray
from pipeline.generation import vllm_generator as vllm_actor
from pipeline.generation.generator import GeneratorError
from pipeline.generation.vllm_generator import VllmGenerator, engine_settings, start_vllm_generator
from pipeline.messages import Completion, GenerationRequest, SamplingSettings
from pipeline.models.loading import load_model
from pipeline.weights.receipts import code_of
from tests.pipeline.adapter_files import RANK, publish_random_adapter
from tests.pipeline.generation.test_vllm_engine import forward_logprobs
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer

pytestmark = pytest.mark.slow

PROMPT = tuple(range(40, 60))
Running = tuple[asyncio.AbstractEventLoop, VllmGenerator]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = make_byte_model(0, num_key_value_heads=1, initializer_range=0.2, has_end=False)
    model.save_pretrained(str(tmp_path / "base"))
    make_byte_tokenizer().save_pretrained(str(tmp_path / "base"))
    return tmp_path / "base"


@pytest.fixture
def generator(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    config = Config.model_validate(
        {
            "lora": {"enabled": True, "r": RANK},
            "generation": {
                "dtype": "float32",
                "max_prompt_length": 32,
                "max_completion_length": 460,
                "kv_cache_gb": 0.1,
            },
        }
    )
    assert engine_settings(config, str(folder), "cpu").lora_rank is None
    assert engine_settings(config, str(folder), "cuda").lora_rank == RANK

    def served(*given: object) -> object:
        return replace(engine_settings(config, str(folder), "cpu"), lora_rank=RANK)

    monkeypatch.setattr(vllm_actor, "engine_settings", served)
    start_ray()
    loop = asyncio.new_event_loop()
    generator = loop.run_until_complete(start_vllm_generator(config, str(folder), "cpu"))
    yield loop, generator
    loop.run_until_complete(generator.close())
    loop.close()


def test_every_adapter_reaches_running_and_new_requests_exactly(
    generator: Running, folder: Path, tmp_path: Path
) -> None:
    loop, engine = generator

    async def collect(name: str, num: int, length: int) -> list[Completion]:
        sampling = SamplingSettings(max_completion_length=length)
        request = GenerationRequest(
            request_id=name, prompt_ids=PROMPT, num_generations=num, sampling=sampling
        )
        return [completion async for completion in engine.generate(request)]

    def worst(model: PreTrainedModel, completions: list[Completion], first: int = 0) -> float:
        errors = [forward_logprobs(model, PROMPT, c) - torch.tensor(c.logprobs) for c in completions]
        return max(float(error.abs()[first:].max()) for error in errors)

    async def scenario() -> None:
        models = [load_model(folder)]
        assert worst(models[0], await collect("base", 4, 16)) < 1e-3
        for version in (1, 2):
            model, update = publish_random_adapter(folder, tmp_path / f"{version}", version, seed=version)
            running = asyncio.create_task(collect(f"running {version}", 8, 460))
            await asyncio.sleep(0.15)
            loaded = await engine.update_weights(update)
            assert loaded.policy_version == version and loaded.pause_s > 0
            across = [c for c in await running if c.max_policy_version == version]
            assert across
            assert {c.min_policy_version for c in across} == {version - 1}
            # The last token is the new adapter's, over all that the earlier one had written before.
            begun = [
                replace(c, token_ids=c.token_ids[:1], logprobs=c.logprobs[:1], version_runs=())
                for c in across
            ]
            assert worst(models[-1], begun) < 1e-3
            assert worst(model, across, first=-1) < 1e-3
            after = await collect(f"after {version}", 4, 16)
            assert worst(model, after) < 1e-3
            assert worst(models[-1], after) > 0.01
            assert {c.receipt for c in after} == {code_of(update.receipt)}
            models.append(model)
        # One that was not swapped in.
        _, update = publish_random_adapter(folder, tmp_path / "3", 3, seed=3)
        words = r"not hold weights 3 .* 28 of 28 tensors: .*lora_A.weight differs"
        with pytest.raises(GeneratorError, match=words):
            await engine.update_weights(replace(update, path=str(tmp_path / "2")))

    loop.run_until_complete(scenario())
