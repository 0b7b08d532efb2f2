from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM, PreTrainedModel

from configs.schema import Config, GenerationConfig, RuntimeConfig
from pipeline.generation.generator import GeneratorError
from pipeline.generation.transformers_engine import TransformersEngine
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.models.loading import fill_model
from pipeline.weights.files import write_weights
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.generation.asking import ask, collect, forward_logprobs
from tests.pipeline.tiny_model import VOCABULARY, make_model, make_tokenizer, save_byte_model

T = TypeVar("T")
PROMPT = (3, 4, 5)
END = 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tiny model with a misleading generation config."""
    model = make_model(0)
    model.generation_config.repetition_penalty = 5.0
    model.save_pretrained(str(tmp_path / "model"))
    make_tokenizer().save_pretrained(str(tmp_path / "model"))
    return tmp_path / "model"


def make_engine(folder: Path, *, max_num_seqs: int = 64, timeout_s: float = 60.0) -> TransformersEngine:
    config = Config(
        generation=GenerationConfig(engine="transformers", dtype="float32", max_num_seqs=max_num_seqs),
        runtime=RuntimeConfig(generation_timeout_s=timeout_s),
    )
    return TransformersEngine(config, str(folder), "cpu")


def request(num_generations: int = 4, seed: int | None = 1, **sampling: Any) -> GenerationRequest:
    return ask("r", num_generations, seed=seed, **{"max_completion_length": 12, **sampling})


def run(coroutine: Coroutine[object, object, T]) -> T:
    return asyncio.run(coroutine)


def assert_written_by(
    model: PreTrainedModel, completions: list[Completion], temperature: float = 1.0
) -> None:
    for completion in completions:
        expected = forward_logprobs(model, PROMPT, completion, temperature)
        assert completion.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def save(path: Path, model: LlamaForCausalLM, *, head: bool = False) -> None:
    tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    if head:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, str(path))


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_logprobs_equal_a_forward_pass_whatever_the_models_own_generation_config(
    folder: Path, temperature: float
) -> None:
    completions = run(collect(make_engine(folder), request(temperature=temperature)))
    model = LlamaForCausalLM.from_pretrained(folder)
    assert [completion.index for completion in completions] == [0, 1, 2, 3]
    for completion in completions:
        assert len(completion.logprobs) == len(completion.token_ids) > 0
    assert_written_by(model, completions, temperature)


def test_samples_follow_the_distribution_and_top_k_renormalises_it(folder: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        probabilities = torch.softmax(model(torch.tensor([PROMPT])).logits[0, -1] / 2.0, -1)
    asked = request(num_generations=3000, max_completion_length=1, temperature=2.0)
    counts = torch.zeros(VOCABULARY)
    for completion in run(collect(make_engine(folder, max_num_seqs=1000), asked)):
        counts[completion.token_ids[0]] += 1
    expected = probabilities * 3000
    kept = expected > 5
    chi_square = ((counts - expected)[kept] ** 2 / expected[kept]).sum().item()
    # Mean of a chi-square is its degrees of freedom, its standard deviation sqrt(2 x that).
    assert chi_square < kept.sum().item() + 5 * math.sqrt(2 * kept.sum().item())

    top = probabilities.topk(3)
    for completion in run(
        collect(make_engine(folder), request(50, temperature=2.0, top_k=3, max_completion_length=1))
    ):
        place = top.indices.tolist().index(completion.token_ids[0])
        assert completion.logprobs[0] == pytest.approx(
            (top.values[place] / top.values.sum()).log().item(), abs=1e-4
        )


def test_a_seed_repeats_a_request_and_leaves_the_global_generator_alone(folder: Path) -> None:
    engine = make_engine(folder)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = run(collect(engine, request(seed=5)))
    assert torch.equal(before, torch.get_rng_state())
    assert first == run(collect(engine, request(seed=5))) != run(collect(engine, request(seed=6)))
    assert len({completion.token_ids for completion in first}) > 1


def test_a_stop_string_ends_the_completion_and_stays_in_its_text(folder: Path) -> None:
    engine = make_engine(folder)
    free = run(collect(engine, request(num_generations=8)))
    texts = [completion.text.split() for completion in free]
    stop = next(" ".join(words[3:5]) for words in texts if len(words) == 12)
    stopped = run(collect(engine, request(num_generations=8, stop=(stop,))))
    assert any(stop in completion.text for completion in stopped)
    for whole, cut in zip(free, stopped, strict=True):
        if stop in whole.text:
            assert cut.text == whole.text[: whole.text.index(stop) + len(stop)]
            assert cut.finish_reason == "stop"
            assert len(cut.token_ids) == len(cut.logprobs) == len(cut.text.split())
        else:
            assert cut == whole


def test_the_end_token_is_in_the_ids_and_not_in_the_text_and_no_end_is_length(folder: Path) -> None:
    completions = run(collect(make_engine(folder), request(num_generations=64, max_completion_length=20)))
    ended = [completion for completion in completions if completion.finish_reason == "stop"]
    cut = [completion for completion in completions if completion.finish_reason == "length"]
    assert ended and cut
    for completion in ended:
        assert completion.token_ids.index(END) == len(completion.token_ids) - 1
        assert "<eos>" not in completion.text
    for completion in cut:
        assert len(completion.token_ids) == 20 and END not in completion.token_ids


@pytest.mark.parametrize("head", [False, True])
def test_after_an_update_the_new_weights_write_and_are_stamped(
    folder: Path, tmp_path: Path, head: bool
) -> None:
    async def body() -> tuple[list[Completion], list[Completion], WeightsLoaded]:
        engine = make_engine(folder)
        before = await collect(engine, request())
        path = tmp_path / "new.safetensors"
        save(path, make_model(1), head=head)
        loaded = await engine.update_weights(WeightUpdate(policy_version=7, path=str(path)))
        return before, await collect(engine, request()), loaded

    before, after, loaded = run(body())
    assert {(c.min_policy_version, c.max_policy_version) for c in before} == {(0, 0)}
    assert {(c.min_policy_version, c.max_policy_version) for c in after} == {(7, 7)}
    assert loaded.policy_version == 7 and loaded.pause_s > 0
    assert_written_by(make_model(1), after)


def test_an_update_that_drains_waits_for_a_batch_and_those_after_it_are_of_the_new_weights(
    folder: Path, tmp_path: Path
) -> None:
    async def body() -> list[Completion]:
        engine = make_engine(folder, max_num_seqs=1)
        path = tmp_path / "new.safetensors"
        save(path, make_model(1))
        writing = asyncio.create_task(collect(engine, request(4, max_completion_length=60)))
        await asyncio.sleep(0.01)
        await engine.update_weights(WeightUpdate(policy_version=7, path=str(path), mode="drain"))
        assert not writing.done()
        return await writing

    versions = [(one.min_policy_version, one.max_policy_version) for one in run(body())]
    assert versions[0] == (0, 0) and versions[-1] == (7, 7) and versions == sorted(versions)
    assert set(versions) == {(0, 0), (7, 7)}


def test_who_waits_has_the_time_of_every_batch_ahead(folder: Path) -> None:
    async def body() -> list[str]:
        engine = make_engine(folder, max_num_seqs=2, timeout_s=0.2)
        await engine._lock.acquire()
        waiting = [collect(engine, request(number)) for number in (5, 4)]
        return [str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)]

    assert run(body()) == [
        "r: waited 0.2 s for 0 batches ahead of it",
        "r: waited 0.8 s for 3 batches ahead of it",
    ]


def test_after_an_adapter_update_the_adapted_model_writes(folder: Path, tmp_path: Path) -> None:
    """The second adapter replaces the first: it is added to the base, not to what was there."""

    async def body() -> tuple[list[Completion], list[PreTrainedModel]]:
        engine = make_engine(folder)
        adapted = []
        for version in (1, 2):
            model, update = publish_random_adapter(folder, tmp_path / f"{version}", version, seed=version)
            await engine.update_weights(update)
            adapted.append(model)
        return await collect(engine, request()), adapted

    after, (first, second) = run(body())
    assert_written_by(second, after)
    for completion in after:
        assert (completion.min_policy_version, completion.max_policy_version) == (2, 2)
        by_first = forward_logprobs(first, PROMPT, completion).tolist()
        assert completion.logprobs != pytest.approx(by_first, abs=1e-2)


def test_an_adapter_of_another_model_is_refused_and_changes_nothing(folder: Path, tmp_path: Path) -> None:
    async def body() -> None:
        engine = make_engine(folder)
        before = await collect(engine, request())
        _, update = publish_random_adapter(save_byte_model(tmp_path / "other"), tmp_path / "adapter", 1)
        with pytest.raises(ValueError, match="adapter"):
            await engine.update_weights(update)
        assert await collect(engine, request()) == before

    run(body())


def test_a_bad_weight_file_is_refused_and_changes_nothing(folder: Path, tmp_path: Path) -> None:
    async def body() -> None:
        engine = make_engine(folder)
        before = await collect(engine, request())
        path = tmp_path / "bad.safetensors"

        async def update() -> None:
            await engine.update_weights(WeightUpdate(policy_version=1, path=str(path)))

        tensors = {name: p.detach().clone() for name, p in make_model(1).named_parameters()}
        save_file({**tensors, "other": torch.zeros(1)}, str(path))
        with pytest.raises(ValueError, match=r"unknown \['other'\]"):
            await update()
        save_file({name: t for name, t in tensors.items() if "norm" not in name}, str(path))
        with pytest.raises(ValueError, match="missing"):
            await update()
        save_file({**tensors, "model.norm.weight": torch.zeros(3)}, str(path))
        with pytest.raises(ValueError, match=r"model\.norm\.weight has shape \[3\]"):
            await update()
        save_file(tensors, str(path))
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(SafetensorError):
            await update()
        assert await collect(engine, request()) == before
        assert engine.policy_version == 0

    run(body())


def test_weights_that_are_not_what_was_published_are_an_error(folder: Path, tmp_path: Path) -> None:
    weights = dict(make_model(1).named_parameters())
    update = write_weights(weights.items(), str(tmp_path / "w"), 1, torch.float32)
    receipt = {**update.receipt, "model.norm.weight": update.receipt["model.norm.weight"] ^ 1}

    async def body() -> None:
        with pytest.raises(GeneratorError, match=r"in 1 of \d+ tensors: model\.norm\.weight differs"):
            await make_engine(folder).update_weights(replace(update, receipt=receipt))
        assert (await make_engine(folder).update_weights(update)).receipt == update.receipt

    run(body())


def test_a_cancelled_request_frees_the_engine_and_a_closed_engine_refuses(folder: Path) -> None:
    async def body() -> None:
        engine = make_engine(folder)
        long = asyncio.create_task(collect(engine, request(max_completion_length=100)))
        await asyncio.sleep(0.01)
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        assert len(await collect(engine, request())) == 4
        await engine.close()
        with pytest.raises(RuntimeError, match="closed"):
            await collect(engine, request())

    run(body())


def test_a_request_that_takes_too_long_is_ended_and_says_so(folder: Path) -> None:
    with pytest.raises(TimeoutError, match="did not end in time"):
        run(collect(make_engine(folder, timeout_s=1e-9), request()))


def test_an_empty_prompt_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="needs a prompt"):
        run(collect(make_engine(folder), ask(prompt_ids=())))


def test_the_base_comes_back_whole_or_not_at_all(folder: Path) -> None:
    base, trained = make_model(0), make_model(1)
    file = folder / "model.safetensors"
    stored = load_file(file)
    metadata = {"format": "pt"}
    save_file({**stored, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}, file, metadata)
    fill_model(trained, folder, lambda whole, _: whole)
    assert all(map(torch.equal, trained.parameters(), base.parameters()))
    save_file(
        {name.replace("model.norm", "model.last_norm"): stored[name] for name in stored}, file, metadata
    )
    with pytest.raises(ValueError, match=r"lack 1 weight\(s\) of the model .*: model\.norm\.weight"):
        fill_model(trained, folder, lambda whole, _: whole)
    file.unlink()
    torch.save(base.state_dict(), folder / "pytorch_model.bin")
    trained = make_model(1)
    fill_model(trained, folder, lambda whole, _: whole)
    assert all(map(torch.equal, trained.parameters(), base.parameters()))
