"""Engine processes that die or are stopped under a supervised generator; real processes, no model."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Literal

import pytest

from configs.schema import Config
from pipeline.generation.client import EngineClient, launch
from pipeline.generation.generator import GeneratorLostError
from pipeline.generation.supervised import SupervisedGenerator
from pipeline.generation.vllm_generator import VllmGenerator
from pipeline.host.restarts import RestartLimit
from pipeline.messages import Completion, WeightUpdate
from tests.pipeline.fake_host import COMMAND
from tests.pipeline.fake_stages import let_others_run
from tests.pipeline.generation.asking import ask, collect
from tests.pipeline.generation.fake_end import FakeEnd
from tests.pipeline.generation.test_host import ROOT, start_message
from tests.pipeline.rollouts.groups import completion
from tests.processes import none_runs


def waiting(seconds: float) -> Config:
    runtime = {"generation_timeout_s": seconds, "weight_update_timeout_s": seconds}
    return Config.model_validate({"runtime": {**runtime, "startup_timeout_s": 30.0}})


CONFIG = waiting(1.0)
REQUEST = ask("r", 60)


class Fleet:
    """Starts engine hosts; knows their processes."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.pids: list[int] = []
        self.children: list[int] = []
        self.notes: list[str] = []

    async def start(self) -> VllmGenerator:
        host = launch({}, COMMAND)
        client = await EngineClient.start(host, start_message())
        self.pids.append(client.pid)
        self.children.append((await client.call("state"))[2])
        return VllmGenerator(client, self._config)

    async def supervised(self) -> SupervisedGenerator:
        limit = RestartLimit(3, 600.0, lambda kind, text: self.notes.append(text))
        return SupervisedGenerator(await self.start(), self.start, limit=limit, name="generator 0")


def stop_host(fleet: Fleet) -> None:
    os.kill(fleet.pids[0], signal.SIGSTOP)


def kill_host(fleet: Fleet) -> None:
    os.kill(fleet.pids[0], signal.SIGKILL)


def kill_child(fleet: Fleet) -> None:
    os.kill(fleet.children[0], signal.SIGKILL)


@pytest.mark.parametrize(
    ("harm", "seconds", "words"),
    [
        (stop_host, 3.0, "and then nothing for 3 s (runtime.generation_timeout_s)"),
        (kill_host, 30.0, "was killed by SIGKILL"),
        (kill_child, 30.0, "the engine is gone: its child died"),
    ],
)
def test_a_generator_that_is_stopped_or_killed_is_replaced_and_the_request_completed(
    harm: Callable[[Fleet], None], seconds: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    fleet = Fleet(waiting(seconds))

    async def scenario() -> None:
        generator = await fleet.supervised()
        await generator.update_weights(WeightUpdate(policy_version=3, path="/w"))
        indices = []
        async for one in generator.generate(REQUEST):
            assert one.token_ids == (3,), "the new engine writes with the weights of the old one"
            indices.append(one.index)
            if len(indices) == 5:
                harm(fleet)
        assert sorted(indices) == list(range(60))
        assert len(fleet.pids) == 2
        assert len(fleet.notes) == 1 and words in fleet.notes[0]
        await generator.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert none_runs([*fleet.pids, *fleet.children])


def test_an_update_that_a_stopped_generator_never_answers_ends_in_a_new_one_with_these_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    fleet = Fleet(waiting(3.0))

    async def scenario() -> None:
        generator = await fleet.supervised()
        stop_host(fleet)
        await generator.update_weights(WeightUpdate(policy_version=2, path="/w"))
        written = await collect(generator, REQUEST)
        assert [one.token_ids for one in written] == [(2,)] * 60
        assert "did not load weights 2 within 3 s" in fleet.notes[0]
        await generator.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert none_runs([*fleet.pids, *fleet.children])


class OneAtATime(FakeEnd):
    """The end of an engine that writes one sequence at a time, in order, each in ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._turn = asyncio.Lock()

    async def stream(self, method: str, *arguments: Any) -> AsyncIterator[Completion]:
        (request,) = arguments
        for index in range(request.num_generations):
            async with self._turn:
                await asyncio.sleep(self._seconds)
            yield replace(completion(index), text=f"{request.request_id}{index}")


def test_a_request_waits_for_those_before_it_and_no_longer() -> None:
    config = CONFIG.model_copy(
        update={"generation": CONFIG.generation.model_copy(update={"max_num_seqs": 1})}
    )

    async def scenario() -> None:
        generator = VllmGenerator(OneAtATime(0.4), config)
        written = await asyncio.gather(*(collect(generator, ask(name, 2)) for name in "abc"))
        assert [[one.text for one in answers] for answers in written] == [
            [f"{name}{index}" for index in range(2)] for name in "abc"
        ]
        silent = VllmGenerator(OneAtATime(60.0), config)
        first = asyncio.create_task(collect(silent, ask("a", 2)))
        await asyncio.sleep(0)
        said = r"nothing for 4 s \(runtime.generation_timeout_s, 4 times: others were before it\)"
        with pytest.raises(GeneratorLostError, match=said):
            await collect(silent, ask("b", 2))
        with pytest.raises(GeneratorLostError, match=r"nothing for 2 s"):
            await first

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_requests_that_run_one_after_the_other_have_a_time_each() -> None:
    runtime = {"generation_timeout_s": 0.1}
    config = Config.model_validate({"generation": {"engine": "transformers"}, "runtime": runtime})

    async def scenario() -> None:
        generator = VllmGenerator(FakeEnd(), config)
        first, second = (asyncio.create_task(collect(generator, ask(name, 2))) for name in "ab")
        said = r"nothing for 0 s \(runtime.generation_timeout_s, 2 times: others were before it\)"
        with pytest.raises(GeneratorLostError, match=said):
            await second
        with pytest.raises(GeneratorLostError, match=r"nothing for 0 s \(runtime.generation_timeout_s\)"):
            await first
        await generator.sleep()

    asyncio.run(asyncio.wait_for(scenario(), 60))


_FOR_AN_UPDATE = r"nothing for 1 s \(runtime\.generation_timeout_s; 1 s of it for an update\)"
_FOR_NONE = r"nothing for 0 s \(runtime\.generation_timeout_s\)"


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("drain", _FOR_AN_UPDATE),
        ("abort", _FOR_AN_UPDATE),
        ("keep", _FOR_NONE),
        ("keep_cache", _FOR_NONE),
    ],
)
def test_a_request_has_the_time_of_an_update_where_that_holds_it_up(mode: str, said: str) -> None:
    runtime = {"generation_timeout_s": 0.1, "weight_update_timeout_s": 0.7}
    config = Config.model_validate({"generation": {"weight_update_mode": mode}, "runtime": runtime})
    with pytest.raises(GeneratorLostError, match=said):
        asyncio.run(asyncio.wait_for(collect(VllmGenerator(FakeEnd(), config), ask("r", 2)), 20))


@pytest.mark.parametrize("num_turns", range(6))
def test_a_cancellation_that_comes_beside_a_completion_is_not_lost(num_turns: int) -> None:
    async def scenario() -> None:
        end = FakeEnd()
        collecting = asyncio.create_task(collect(VllmGenerator(end, waiting(60.0)), ask("r", 2)))
        await let_others_run()
        end.permits.release()
        await let_others_run(num_turns)
        collecting.cancel()
        await asyncio.wait({collecting}, timeout=10)
        assert collecting.cancelled()

    asyncio.run(asyncio.wait_for(scenario(), 60))


class LateEnd(FakeEnd):
    """The end of an engine that has new weights once it has written what it was asked for."""

    async def call(self, method: str, *arguments: object) -> Any:
        await asyncio.sleep(0.4)
        return await super().call(method, *arguments)


@pytest.mark.parametrize(
    ("mode", "num_asked", "is_in_time"), [("drain", 2, True), ("drain", 0, False), ("keep", 2, False)]
)
def test_an_update_has_the_time_of_what_is_drained_besides_its_own(
    mode: Literal["drain", "keep"], num_asked: int, is_in_time: bool
) -> None:
    runtime = {"generation_timeout_s": 15.0, "weight_update_timeout_s": 0.1}
    update = WeightUpdate(policy_version=1, path="/w", mode=mode)

    async def scenario() -> None:
        end = LateEnd()
        generator = VllmGenerator(end, Config.model_validate({"runtime": runtime}))
        running = asyncio.create_task(collect(generator, ask("r", num_asked)))
        await asyncio.sleep(0.01)
        if is_in_time:
            assert (await generator.update_weights(update)).policy_version == 1
        else:
            with pytest.raises(GeneratorLostError, match=r"weights 1 within 0 s \(runtime\.weight_upd"):
                await generator.update_weights(update)
        for _ in range(num_asked):
            end.permits.release()
        assert len(await running) == num_asked

    asyncio.run(asyncio.wait_for(scenario(), 20))
