"""What becomes of completions that are being written when new weights come, in the Transformers engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

import pytest
import torch
from transformers import LlamaForCausalLM

from configs.schema import Config
from pipeline.generation.generator import GeneratorError, VersionMarks
from pipeline.generation.transformers_batch import Batch
from pipeline.generation.transformers_engine import TransformersEngine
from pipeline.messages import (
    Completion,
    GenerationRequest,
    SamplingSettings,
    VersionRun,
    WeightsLoaded,
    WeightUpdate,
)
from pipeline.weights.files import write_weights
from tests.pipeline.tiny_model import make_model, save_model

T = TypeVar("T")
Mode = Literal["keep", "drain", "abort"]
PROMPT = (3, 4, 5)
LENGTH = 24
STOP_AT = 7
MODES: list[tuple[Mode, bool]] = [("keep", True), ("keep", False), ("drain", True), ("abort", True)]


class HeldEngine(TransformersEngine):
    """Waits after the token number STOP_AT of its first batch, until the test lets it go."""

    def __init__(self, config: Config, model_path: str) -> None:
        super().__init__(config, model_path, "cpu")
        self.is_there = threading.Event()
        self.may_go = threading.Event()
        self._num_asked = 0

    def _stops_here(self, batch: Batch) -> bool:
        self._num_asked += 1
        if self._num_asked == STOP_AT:
            self.is_there.set()
            assert self.may_go.wait(20)
        return super()._stops_here(batch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("policy"))


def make_engine(folder: Path, **runtime: float) -> HeldEngine:
    generation = {"engine": "transformers", "dtype": "float32"}
    return HeldEngine(Config.model_validate({"generation": generation, "runtime": runtime}), str(folder))


def ask(name: str, num_generations: int = 6) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_ids=PROMPT,
        num_generations=num_generations,
        sampling=SamplingSettings(max_completion_length=LENGTH),
        seed=3,
    )


async def collect(engine: TransformersEngine, request: GenerationRequest) -> list[Completion]:
    return [completion async for completion in engine.generate(request)]


def update_to(
    model: LlamaForCausalLM, folder: Path, version: int, mode: Mode = "keep", recomputes: bool = True
) -> WeightUpdate:
    path = str(folder / f"{version}.safetensors")
    update = write_weights(model.named_parameters(), path, version, torch.float32)
    return replace(update, mode=mode, recompute_kv_cache=recomputes)


def run(coroutine: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def generate_across_an_update(
    engine: HeldEngine, update: WeightUpdate
) -> tuple[list[Completion], list[Completion], WeightsLoaded]:
    """The completions that the update found, and those of a request that waited meanwhile."""
    running = asyncio.create_task(collect(engine, ask("running")))
    await asyncio.to_thread(engine.is_there.wait, 20)
    waiting = asyncio.create_task(collect(engine, ask("waiting")))
    updating = asyncio.create_task(engine.update_weights(update))
    await asyncio.sleep(0.01)
    engine.may_go.set()
    loaded = await updating
    return await running, await waiting, loaded


@torch.no_grad()
def forward_logprobs(model: LlamaForCausalLM, completion: Completion) -> list[float]:
    ids = torch.tensor([PROMPT + completion.token_ids])
    return picked(model(ids).logits[0, len(PROMPT) - 1 : -1], completion.token_ids)


@torch.no_grad()
def logprobs_over_an_old_cache(
    old: LlamaForCausalLM, new: LlamaForCausalLM, completion: Completion
) -> list[float]:
    """Those of the tokens behind the first STOP_AT: ``new`` over what ``old`` has computed."""
    ids = torch.tensor([PROMPT + completion.token_ids])
    cached = len(PROMPT) + STOP_AT - 1
    cache = old(ids[:, :cached], use_cache=True).past_key_values
    logits = new(ids[:, cached:], past_key_values=cache).logits[0, :-1]
    return picked(logits, completion.token_ids[STOP_AT:])


def picked(logits: torch.Tensor, token_ids: tuple[int, ...]) -> list[float]:
    logprobs = torch.log_softmax(logits, dim=-1)
    return [float(row[token]) for row, token in zip(logprobs, token_ids, strict=True)]


@pytest.mark.parametrize(("mode", "recomputes"), MODES)
def test_each_token_has_the_version_and_the_probability_of_the_weights_that_wrote_it(
    folder: Path, tmp_path: Path, mode: Mode, recomputes: bool
) -> None:
    old, new = make_model(0), make_model(1)
    engine = make_engine(folder)
    update = update_to(new, tmp_path, 4, mode, recomputes)
    running, waiting, loaded = run(generate_across_an_update(engine, update))
    assert loaded.policy_version == engine.policy_version == 4
    assert {completion.token_versions for completion in waiting} <= {
        (4,) * length for length in range(LENGTH + 1)
    }
    ended_before = [c for c in running if len(c.token_ids) <= STOP_AT and c.finish_reason == "stop"]
    late = [c for c in running if c not in ended_before] if mode != "abort" else running
    assert late
    for completion in late:
        length = len(completion.token_ids)
        by_old, by_new = forward_logprobs(old, completion), forward_logprobs(new, completion)
        if mode == "keep":
            expected = (VersionRun(policy_version=0, num_tokens=STOP_AT),) + (
                (VersionRun(policy_version=4, num_tokens=length - STOP_AT),) if length > STOP_AT else ()
            )
            assert completion.version_runs == expected
            assert (completion.min_policy_version, completion.max_policy_version) == (0, 4)
            by_new = (
                by_new if recomputes else [0.0] * STOP_AT + logprobs_over_an_old_cache(old, new, completion)
            )
        assert len(completion.version_runs) == (2 if mode == "keep" else 1)
        of_version = {0: by_old, 4: by_new}
        expected_logprobs = [
            of_version[version][position] for position, version in enumerate(completion.token_versions)
        ]
        assert completion.logprobs == pytest.approx(expected_logprobs, abs=3e-4)
    versions = {version for completion in running for version in completion.token_versions}
    assert versions == {"keep": {0, 4}, "drain": {0}}.get(mode, versions)
    if mode == "abort":
        assert 4 in versions


def test_the_old_cache_gives_other_probabilities_than_a_new_one(folder: Path, tmp_path: Path) -> None:
    """What the test above tells apart is there to be told apart."""
    new = make_model(1)
    engine = make_engine(folder)
    update = update_to(new, tmp_path, 1, "keep", recomputes=False)
    running, _, _ = run(generate_across_an_update(engine, update))
    longest = max(running, key=lambda completion: len(completion.token_ids))
    behind = forward_logprobs(new, longest)[STOP_AT:]
    assert len(behind) > 5
    assert list(longest.logprobs[STOP_AT:]) != pytest.approx(behind, abs=1e-2)


def test_an_update_without_a_running_request_is_loaded_at_once(folder: Path, tmp_path: Path) -> None:
    async def body() -> WeightsLoaded:
        engine = make_engine(folder)
        return await engine.update_weights(update_to(make_model(1), tmp_path, 2, "drain"))

    loaded = run(body())
    assert loaded.policy_version == 2
    assert loaded.pause_s < 5


@pytest.mark.parametrize(("mode", "recomputes"), MODES)
def test_a_bad_update_leaves_running_completions_as_they_were(
    folder: Path, tmp_path: Path, mode: Mode, recomputes: bool
) -> None:
    path = str(tmp_path / "none.safetensors")
    bad = WeightUpdate(policy_version=1, path=path, num_bytes=0, mode=mode, recompute_kv_cache=recomputes)

    async def body() -> tuple[int, list[Completion]]:
        engine = make_engine(folder)
        running = asyncio.create_task(collect(engine, ask("running")))
        await asyncio.to_thread(engine.is_there.wait, 20)
        updating = asyncio.create_task(engine.update_weights(bad))
        await asyncio.sleep(0.01)
        engine.may_go.set()
        with pytest.raises(OSError, match="none"):
            await updating
        return engine.policy_version, await running

    version, completions = run(body())
    assert version == 0
    for completion in completions:
        assert set(completion.token_versions) == {0}
        assert completion.logprobs == pytest.approx(forward_logprobs(make_model(0), completion), abs=3e-4)


def test_an_update_that_gets_no_answer_ends_by_name_and_is_not_loaded_later(
    folder: Path, tmp_path: Path
) -> None:
    async def body() -> None:
        engine = make_engine(folder, weight_update_timeout_s=0.1)
        running = asyncio.create_task(collect(engine, ask("running")))
        await asyncio.to_thread(engine.is_there.wait, 20)
        with pytest.raises(
            GeneratorError, match=r"weights 3 within 0\.1 s \(runtime.weight_update_timeout_s"
        ):
            await engine.update_weights(update_to(make_model(1), tmp_path, 3, "drain"))
        engine.may_go.set()
        await running
        assert {c.max_policy_version for c in await collect(engine, ask("after"))} == {0}

    run(body())


def test_an_update_that_is_not_newer_is_refused(folder: Path) -> None:
    async def body() -> None:
        engine = make_engine(folder)
        with pytest.raises(ValueError, match="weight update 0 is not newer than 0"):
            await engine.update_weights(WeightUpdate(policy_version=0, path="unused", num_bytes=0))

    run(body())


@pytest.mark.parametrize(
    ("changes", "num_tokens", "expected"),
    [
        ([], 5, [(0, 5)]),
        ([(2, 1)], 5, [(0, 2), (1, 3)]),
        ([(0, 1)], 5, [(1, 5)]),
        ([(2, 1), (2, 2)], 5, [(0, 2), (2, 3)]),
        ([(2, 1), (4, 2)], 3, [(0, 2), (1, 1)]),
        ([(2, 0)], 5, [(0, 5)]),
        ([(0, 1)], 0, [(1, 0)]),
        ([(4, 1)], 4, [(0, 4)]),
    ],
)
def test_marks_become_runs_without_gaps(
    changes: list[tuple[int, int]], num_tokens: int, expected: list[tuple[int, int]]
) -> None:
    marks = VersionMarks(0)
    for start, version in changes:
        marks.changed(start, version)
    assert [(run.policy_version, run.num_tokens) for run in marks.runs(num_tokens)] == expected


@pytest.mark.parametrize("mode", ["drain", "abort"])
def test_only_keep_can_go_on_over_an_old_cache(mode: str) -> None:
    with pytest.raises(ValueError, match="recompute_kv_cache: false is not allowed; allowed: true"):
        Config.model_validate({"generation": {"weight_update_mode": mode, "recompute_kv_cache": False}})
