"""Trainer and generators hold one version, or the run ends by name; a lost update is no hang."""

from __future__ import annotations

import asyncio
import time

import pytest

from configs.schema import Config
from pipeline.generation.generator import GeneratorError, GeneratorLostError
from pipeline.generation.supervised import Dispatcher
from pipeline.generation.vllm_generator import VllmGenerator
from pipeline.messages import WeightsLoaded, WeightUpdate
from tests.pipeline.generation.fake_end import FakeEnd

CONFIG = Config.model_validate({"runtime": {"weight_update_timeout_s": 0.3}})
UPDATE = WeightUpdate(policy_version=3, path="unused")


def generator_of(end: FakeEnd) -> VllmGenerator:
    return VllmGenerator(end, CONFIG)


def test_an_engine_that_answers_with_another_version_is_named() -> None:
    generator = generator_of(FakeEnd(77, holds=2))
    with pytest.raises(
        GeneratorError, match=r"process 77\) holds weights 2 after the update to 3.*must agree"
    ):
        asyncio.run(generator.update_weights(UPDATE))


def test_an_update_without_an_answer_ends_at_its_deadline_and_is_called_off() -> None:
    end = FakeEnd(78, holds=None)
    started_s = time.monotonic()
    with pytest.raises(
        GeneratorLostError,
        match=r"process 78\) did not load weights 3 within 0 s .runtime.weight_update_timeout_s",
    ):
        asyncio.run(generator_of(end).update_weights(UPDATE))
    assert time.monotonic() - started_s < 10
    assert end.num_given_up == 1


def test_all_engines_agree_or_the_ones_that_do_not_are_named() -> None:
    async def update(*holds: int | None) -> WeightsLoaded:
        generators = [generator_of(FakeEnd(80 + n, version)) for n, version in enumerate(holds)]
        return await Dispatcher(generators, update_timeout_s=5).update_weights(UPDATE)

    assert asyncio.run(update(3, 3, 3)) == WeightsLoaded(policy_version=3, pause_s=0.01)
    with pytest.raises(GeneratorError) as caught:
        asyncio.run(update(3, 2, None))
    message = str(caught.value)
    assert "weights 3 are in 1 of 3 generators" in message
    assert "generator 1 failed" in message and "process 81) holds weights 2" in message
    assert "generator 2 failed" in message and "process 82) did not load weights 3" in message
