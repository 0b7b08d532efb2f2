"""vLLM's own LoRA: an adapter beside the weights, replaced in place, also under running requests.

It is for GPUs; here it runs on the CPU, where it is slow but exact, with a small random model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from configs.schema import Config
from pipeline.generation import vllm_generator as vllm_actor
from pipeline.generation.generator import GeneratorError
from pipeline.generation.settings import engine_settings
from pipeline.messages import Completion
from pipeline.models.loading import load_model
from pipeline.weights.receipts import code_of
from tests.pipeline.adapter_files import RANK, publish_random_adapter
from tests.pipeline.conftest import RunningEngine, running_engine
from tests.pipeline.generation.asking import ask, collect, save_endless_model, worst_error

pytestmark = pytest.mark.slow

PROMPT = tuple(range(40, 60))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningEngine]:
    folder = save_endless_model(tmp_path / "base")
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
    with running_engine(config, folder) as engine:
        yield engine


def test_every_adapter_reaches_running_and_new_requests_exactly(
    engine: RunningEngine, tmp_path: Path
) -> None:
    folder, generator = engine.model_path, engine.generator

    async def write(name: str, num: int, length: int) -> list[Completion]:
        return await collect(generator, ask(name, num, prompt_ids=PROMPT, max_completion_length=length))

    def worst(model: PreTrainedModel, completions: list[Completion], first: int = 0) -> float:
        return worst_error(model, PROMPT, completions, first)

    async def scenario() -> None:
        models = [load_model(folder)]
        assert worst(models[0], await write("base", 4, 16)) < 1e-3
        for version in (1, 2):
            model, update = publish_random_adapter(folder, tmp_path / f"{version}", version, seed=version)
            running = asyncio.create_task(write(f"running {version}", 8, 460))
            # Written beside them token by token: when it has ended, they have as many.
            await write(f"turn {version}", 1, 1)
            await write(f"gauge {version}", 1, 8)
            loaded = await generator.update_weights(update)
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
            after = await write(f"after {version}", 4, 16)
            assert worst(model, after) < 1e-3
            assert worst(models[-1], after) > 0.01
            assert {c.receipt for c in after} == {code_of(update.receipt)}
            models.append(model)
        # One that was not swapped in.
        _, update = publish_random_adapter(folder, tmp_path / "3", 3, seed=3)
        words = r"not hold weights 3 .* 28 of 28 tensors: .*lora_A.weight differs"
        with pytest.raises(GeneratorError, match=words):
            await generator.update_weights(replace(update, path=str(tmp_path / "2")))

    engine.loop.run_until_complete(scenario())
