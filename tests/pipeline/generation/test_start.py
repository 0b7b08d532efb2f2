"""Several engines are started together: what they are given, and what becomes of those that are up."""

from __future__ import annotations

import asyncio

import pytest

from configs.schema import Config
from pipeline.generation.start import running_generator
from pipeline.generation.supervised import Dispatcher
from tests.pipeline.generation.test_dispatch import FakeEngine, turn


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
