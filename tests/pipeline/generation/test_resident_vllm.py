"""A real vLLM that outlives its run: the next run gets the base weights, exactly, and no process is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from configs.schema import Config
from pipeline.evaluation.resident_engine import evaluation_generator
from pipeline.generation import resident
from pipeline.generation.vllm_generator import VllmGenerator, start_vllm_generator
from pipeline.messages import Completion, WeightUpdate
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.weights.files import write_weights
from tests.pipeline.generation.asking import ask, collect, save_endless_model, worst_error
from tests.pipeline.generation.test_vllm_engine import shaken
from tests.processes import none_runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

REQUEST = ask("r", 4, prompt_ids=tuple(range(40, 80)), max_completion_length=12)


def config_of(**runtime: bool) -> Config:
    generation = {"dtype": "float32", "max_completion_length": 16, "max_num_seqs": 8, "kv_cache_gb": 0.25}
    evaluation = {"max_completion_length": 16}
    return Config.model_validate({"generation": generation, "evaluation": evaluation, "runtime": runtime})


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    return save_endless_model(tmp_path / "model")


def test_the_next_run_draws_from_the_base_weights(
    model_path: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    update = write_weights(
        shaken(load_model(model_path), seed=1).named_parameters(),
        str(tmp_path / "new.safetensors"),
        policy_version=3,
        dtype=torch.float32,
    )

    async def run(config: Config, update: WeightUpdate | None) -> tuple[int, list[Completion]]:
        generator = await start_vllm_generator(config, str(model_path), "cpu")
        alone = replace(REQUEST, request_id="alone", num_generations=1)
        completions = await collect(generator, alone) + await collect(generator, REQUEST)
        if update is not None:
            await generator.update_weights(update)
            assert {one.min_policy_version for one in await collect(generator, REQUEST)} == {3}
        await generator.close()
        return generator.pid, completions

    first_pid, first = asyncio.run(run(config_of(keep_alive=True), update))
    second_pid, second = asyncio.run(run(config_of(attach=True), None))
    assert first_pid == second_pid
    # Of several at once the numbers that each gets hang on which comes first.
    assert second[0].token_ids == first[0].token_ids
    assert {completion.min_policy_version for completion in second} == {0}
    base, trained = load_model(model_path), shaken(load_model(model_path), seed=1)
    for completions in (first, second):
        assert worst_error(base, REQUEST.prompt_ids, completions) < 1e-3
        assert worst_error(trained, REQUEST.prompt_ids, completions) > 0.01
    third_pid, third = asyncio.run(evaluate(saved(trained, model_path, tmp_path / "trained")))
    assert third_pid == first_pid
    assert worst_error(trained, REQUEST.prompt_ids, third) < 1e-3
    assert worst_error(base, REQUEST.prompt_ids, third) > 0.01
    assert asyncio.run(resident.stop(0)) is None
    assert none_runs([first_pid])
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if _holds(path, str(cache))]
    assert left == [], f"processes of the engine are left: {left}"
    assert "--stop-resident" in capsys.readouterr().err


def saved(model: PreTrainedModel, tokenizer_of: Path, folder: Path) -> Path:
    model.save_pretrained(folder)
    load_tokenizer(tokenizer_of).save_pretrained(folder)
    return folder


async def evaluate(model: Path) -> tuple[int, list[Completion]]:
    """As evaluate_humaneval --attach does, with fewer tokens than the engine has room for."""
    config = config_of(attach=True)
    generation = config.generation.model_copy(update={"max_prompt_length": 64})
    config = config.model_copy(update={"generation": generation})
    async with evaluation_generator(config, str(model)) as generator:
        assert isinstance(generator, VllmGenerator)
        return generator.pid, await collect(generator, REQUEST)


def _holds(environ: Path, text: str) -> bool:
    """Whether a process other than this one was started with ``text`` in its environment."""
    try:
        return text.encode() in environ.read_bytes()
    except OSError:
        return False
