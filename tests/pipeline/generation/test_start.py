"""Several engines are started together: what they are given, and what becomes of those that are up.

And what a start in a place of Ray's raises.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.generation import node_actor, vllm_generator
from pipeline.generation.generator import GeneratorError, GeneratorLostError
from pipeline.generation.start import running_generator
from pipeline.generation.supervised import Dispatcher
from pipeline.generation.vllm_generator import VllmGenerator
from pipeline.processes.connection import CallFailedError, ProcessGoneError
from tests.pipeline.generation.test_dispatch import FakeEngine, turn
from tests.pipeline.tiny_model import save_model


def two_engines(**generation: str) -> Config:
    return Config.model_validate(
        {
            "generation": {"engine": "transformers", "num_engines": 2, **generation},
            "runtime": {"weight_update_timeout_s": 10.0, "generation_timeout_s": 100.0},
        }
    )


@pytest.mark.parametrize(("mode", "seconds"), [("keep", 30.0), ("drain", 330.0)])
def test_all_together_have_the_time_of_three_updates_and_of_what_these_drain(
    mode: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*_: object) -> FakeEngine:
        return FakeEngine()

    async def body() -> None:
        async with running_generator(two_engines(weight_update_mode=mode), "/nowhere", "cpu") as generator:
            assert isinstance(generator, Dispatcher) and generator._update_timeout_s == seconds

    monkeypatch.setattr("pipeline.generation.start._start_one", start)
    asyncio.run(asyncio.wait_for(body(), 20))


def test_engines_that_are_up_are_closed_where_the_start_of_another_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = FakeEngine()
    ended = []

    async def start(config: Config, model_path: str, device: str, index: int, *_: object) -> FakeEngine:
        if index == 0:
            return first
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(index)
        return FakeEngine()

    async def body() -> None:
        async with running_generator(two_engines(), "/nowhere", "cpu"):
            raise AssertionError("one of them is not up")

    async def cancelled() -> None:
        starting = asyncio.create_task(body())
        await turn()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    monkeypatch.setattr("pipeline.generation.start._start_one", start)
    asyncio.run(asyncio.wait_for(cancelled(), 20))
    assert first.is_closed and ended == [1]


_KILLED = "vLLM did not start: process 7 was killed by SIGKILL"
_WRONG = "GeneratorError: vLLM failed to start: no such model"


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (ProcessGoneError("its node died"), GeneratorLostError, "its node died"),
        (CallFailedError(f"GeneratorLostError: {_KILLED}", "there"), GeneratorLostError, _KILLED),
        (CallFailedError(_WRONG, "there"), GeneratorError, _WRONG),
        (StageError("no answer that can be read"), GeneratorError, "no answer that can be read"),
    ],
)
def test_a_place_that_dies_at_the_start_is_a_loss_and_a_start_that_fails_is_none(
    fault: StageError, kind: type[GeneratorError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    class Actor:
        def __init__(self, *_: object, **__: object) -> None: ...

        def call(self, method: str) -> Future[Any]:
            answer: Future[Any] = Future()
            answer.set_exception(fault)
            return answer

        def kill(self) -> None:
            ended.append(self)

    monkeypatch.setattr(node_actor, "RayProcess", Actor)
    with pytest.raises(GeneratorError) as caught:
        asyncio.run(start_on_a_node(Config()))
    assert type(caught.value) is kind and str(caught.value) == f"generator 3 failed to start: {said}"
    assert len(ended) == 1


async def start_on_a_node(config: Config) -> VllmGenerator:
    return await node_actor.start_node_generator(
        config, "model", "cuda", index=3, options={}, store=cast(Any, None)
    )


class Silent:
    """An actor, or an engine's client, that answers nothing."""

    is_kept = False

    def __init__(self, *_: object, **__: object) -> None:
        self.calls: list[str] = []
        self.ended: list[str] = []
        Silent.made = self

    made: Silent

    def call(self, method: str, *_: object) -> Future[Any]:
        self.calls.append(method)
        return Future()

    def kill(self) -> None:
        self.ended.append("killed")


def test_a_generator_on_a_node_that_is_not_up_in_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_actor, "RayProcess", Silent)
    config = Config.model_validate({"runtime": {"startup_timeout_s": 0.2}})
    with pytest.raises(GeneratorError, match=r"generator 3 was not up after 0\.2 s \(runtime\.startup_time"):
        asyncio.run(asyncio.wait_for(start_on_a_node(config), 20))
    assert (Silent.made.calls, Silent.made.ended) == (["start"], ["killed"])


def test_a_generator_on_a_node_that_does_not_close_in_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_actor, "_CLOSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr("ray.get_runtime_context", Mock())
    actor = Silent()
    end = node_actor.NodeEnd(cast(Any, actor), node_actor.Arrival(7, "there", "127.0.0.1"), cast(Any, None))
    asyncio.run(asyncio.wait_for(end.close(), 20))
    assert (actor.calls, actor.ended) == (["close"], ["killed"])


def test_an_engine_that_is_not_prepared_in_time_did_not_start_and_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Client:
        is_kept = False

        async def call(self, method: str) -> None:
            asked.append(method)
            await asyncio.sleep(3600)

        async def close(self) -> None:
            asked.append("close")

    async def started(*_: object) -> Client:
        return Client()

    monkeypatch.setattr(vllm_generator, "_started", started)
    config = Config.model_validate({"runtime": {"startup_timeout_s": 0.2}})
    start = vllm_generator.start_vllm_generator(config, str(save_model(tmp_path)), "cpu")
    with pytest.raises(GeneratorError, match=r"vLLM did not start within 0 s \(runtime\.startup_timeout_s\)"):
        asyncio.run(asyncio.wait_for(start, 20))
    assert asked == ["prepare", "close"]
