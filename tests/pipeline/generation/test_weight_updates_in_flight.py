"""What becomes of completions that are being written when new weights come, in the Transformers engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar, get_args

import pytest
import torch
from transformers import LlamaForCausalLM

from configs.schema import Config
from pipeline.generation.generator import GeneratorError, VersionMarks
from pipeline.generation.transformers_batch import Batch
from pipeline.generation.transformers_engine import TransformersEngine
from pipeline.messages import Completion, GenerationRequest, VersionRun, WeightsLoaded, WeightUpdate
from pipeline.weights.files import write_weights
from tests.pipeline.generation.asking import ask, collect, forward_logprobs, logprobs_over_an_old_cache
from tests.pipeline.tiny_model import make_model, save_model

T = TypeVar("T")
Mode = Literal["keep", "keep_cache", "drain", "abort"]
PROMPT = (3, 4, 5)
LENGTH = 24
STOP_AT = 7


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


def request(name: str) -> GenerationRequest:
    return ask(name, 6, prompt_ids=PROMPT, seed=3, max_completion_length=LENGTH)


def update_to(model: LlamaForCausalLM, folder: Path, version: int, mode: Mode = "keep") -> WeightUpdate:
    path = str(folder / f"{version}.safetensors")
    update = write_weights(model.named_parameters(), path, version, torch.float32)
    return replace(update, mode=mode)


def run(coroutine: Coroutine[object, object, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def begin(engine: HeldEngine) -> asyncio.Task[list[Completion]]:
    """A request that is held after its first tokens."""
    running = asyncio.create_task(collect(engine, request("running")))
    await asyncio.to_thread(engine.is_there.wait, 20)
    return running


async def generate_across_an_update(
    engine: HeldEngine, update: WeightUpdate
) -> tuple[list[Completion], list[Completion], WeightsLoaded]:
    """The completions that the update found, and those of a request that waited meanwhile."""
    running = await begin(engine)
    waiting = asyncio.create_task(collect(engine, request("waiting")))
    updating = asyncio.create_task(engine.update_weights(update))
    await asyncio.sleep(0.01)
    engine.may_go.set()
    loaded = await updating
    return await running, await waiting, loaded


@pytest.mark.parametrize("mode", get_args(Mode))
def test_each_token_has_the_version_and_the_probability_of_the_weights_that_wrote_it(
    folder: Path, tmp_path: Path, mode: Mode
) -> None:
    old, new = make_model(0), make_model(1)
    engine = make_engine(folder)
    update = update_to(new, tmp_path, 4, mode)
    goes_on = mode in ("keep", "keep_cache")
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
        by_old, by_new = (forward_logprobs(model, PROMPT, completion) for model in (old, new))
        if goes_on:
            expected = (VersionRun(policy_version=0, num_tokens=STOP_AT),) + (
                (VersionRun(policy_version=4, num_tokens=length - STOP_AT),) if length > STOP_AT else ()
            )
            assert completion.version_runs == expected
            assert (completion.min_policy_version, completion.max_policy_version) == (0, 4)
            if mode == "keep_cache":
                by_new[STOP_AT:] = logprobs_over_an_old_cache(old, new, PROMPT, completion, STOP_AT)
        assert len(completion.version_runs) == (2 if goes_on else 1)
        is_new = torch.tensor(completion.token_versions) == 4
        expected_logprobs = torch.where(is_new, by_new, by_old).tolist()
        assert completion.logprobs == pytest.approx(expected_logprobs, abs=3e-4)
    versions = {version for completion in running for version in completion.token_versions}
    assert versions == {"keep": {0, 4}, "keep_cache": {0, 4}, "drain": {0}}.get(mode, versions)
    if mode == "abort":
        assert 4 in versions


def test_the_old_cache_gives_other_probabilities_than_a_new_one(folder: Path, tmp_path: Path) -> None:
    """What the test above tells apart is there to be told apart."""
    new = make_model(1)
    engine = make_engine(folder)
    update = update_to(new, tmp_path, 1, "keep_cache")
    running, _, _ = run(generate_across_an_update(engine, update))
    longest = max(running, key=lambda completion: len(completion.token_ids))
    behind = forward_logprobs(new, PROMPT, longest)[STOP_AT:].tolist()
    assert len(behind) > 5
    assert list(longest.logprobs[STOP_AT:]) != pytest.approx(behind, abs=1e-2)


def test_an_update_without_a_running_request_is_loaded_at_once(folder: Path, tmp_path: Path) -> None:
    async def body() -> WeightsLoaded:
        engine = make_engine(folder)
        return await engine.update_weights(update_to(make_model(1), tmp_path, 2, "drain"))

    loaded = run(body())
    assert loaded.policy_version == 2
    assert loaded.pause_s < 5


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_bad_update_leaves_running_completions_as_they_were(
    folder: Path, tmp_path: Path, mode: Mode
) -> None:
    path = str(tmp_path / "none.safetensors")
    bad = WeightUpdate(policy_version=1, path=path, mode=mode)

    async def body() -> tuple[int, list[Completion]]:
        engine = make_engine(folder)
        running = await begin(engine)
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
        expected = forward_logprobs(make_model(0), PROMPT, completion).tolist()
        assert completion.logprobs == pytest.approx(expected, abs=3e-4)


def test_an_update_that_gets_no_answer_ends_by_name_and_is_not_loaded_later(
    folder: Path, tmp_path: Path
) -> None:
    async def body() -> None:
        engine = make_engine(folder, weight_update_timeout_s=0.1)
        running = await begin(engine)
        with pytest.raises(
            GeneratorError, match=r"weights 3 within 0\.1 s \(runtime.weight_update_timeout_s"
        ):
            await engine.update_weights(update_to(make_model(1), tmp_path, 3))
        engine.may_go.set()
        await running
        assert {c.max_policy_version for c in await collect(engine, request("after"))} == {0}

    run(body())


def test_what_is_drained_has_its_own_time_before_an_update(folder: Path, tmp_path: Path) -> None:
    async def body() -> tuple[WeightsLoaded, list[Completion]]:
        engine = make_engine(folder, weight_update_timeout_s=0.2, generation_timeout_s=30.0)
        running = await begin(engine)
        updating = asyncio.create_task(engine.update_weights(update_to(make_model(1), tmp_path, 3, "drain")))
        await asyncio.sleep(0.5)
        engine.may_go.set()
        return await updating, await running

    loaded, written = run(body())
    assert loaded.policy_version == 3 and {c.max_policy_version for c in written} == {0}


def test_an_update_that_is_not_newer_is_refused(folder: Path) -> None:
    async def body() -> None:
        engine = make_engine(folder)
        with pytest.raises(ValueError, match="weight update 0 is not newer than 0"):
            await engine.update_weights(WeightUpdate(policy_version=0, path="unused"))

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
