"""Which generator a group goes to, what happens when one of them fails, and that versions agree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from configs.schema import Config
from pipeline.generation.generator import GeneratorError, GeneratorLostError
from pipeline.generation.start import running_generator
from pipeline.generation.supervised import Dispatcher, SupervisedGenerator
from pipeline.host.restarts import RestartLimit
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.weights.files import write_weights
from tests.pipeline.generation.asking import ask, collect
from tests.pipeline.rollouts.groups import completion
from tests.pipeline.tiny_model import make_config, make_model, save_model

UPDATE = WeightUpdate(policy_version=3, path="unused")


class FakeEngine:
    """Hands out one completion for each ``permit``; takes weights after ``update_s``."""

    def __init__(
        self,
        *,
        update_s: float = 0.0,
        fault: Exception | None = None,
        meets: asyncio.Barrier | None = None,
    ) -> None:
        self.asked: list[str] = []
        self.permits = asyncio.Semaphore(0)
        self.is_closed = False
        self.num_abandoned = 0
        self.version = 0
        self.is_asleep = False
        self._update_s = update_s
        self._fault = fault
        self._meets = meets

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.asked.append(request.request_id)
        try:
            for index in range(request.num_generations):
                await self.permits.acquire()
                if self._fault is not None:
                    raise self._fault
                yield completion(index)
        except (asyncio.CancelledError, GeneratorExit):
            self.num_abandoned += 1
            raise

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        await asyncio.sleep(self._update_s)
        if self._meets is not None:
            await self._meets.wait()
        if self._fault is not None:
            raise self._fault
        self.version = update.policy_version
        return WeightsLoaded(policy_version=self.version, pause_s=self._update_s, receipt=update.receipt)

    async def stats(self) -> dict[str, float]:
        return {}

    async def sleep(self) -> None:
        self.is_asleep = True

    async def wake(self) -> None:
        self.is_asleep = False

    async def reset(self) -> None:
        self.version = 0

    async def kill(self) -> None:
        self.is_closed = True

    async def close(self) -> None:
        self.is_closed = True
        if self._fault is not None:
            raise self._fault


def begin(dispatcher: Dispatcher, name: str, task: int) -> asyncio.Task[list[Completion]]:
    return asyncio.create_task(collect(dispatcher, ask(name, prompt_ids=(task, task))))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_groups_go_to_the_least_busy_and_stay_whole() -> None:
    async def body() -> None:
        engines = [FakeEngine() for _ in range(3)]
        dispatcher = Dispatcher(engines, update_timeout_s=5)
        running = []
        for number in range(6):
            running.append(begin(dispatcher, f"r{number}", number))
            await turn()
        assert [engine.asked for engine in engines] == [["r0", "r3"], ["r1", "r4"], ["r2", "r5"]]
        assert dispatcher._loads == [8, 8, 8]
        for _ in range(3):
            engines[1].permits.release()
        await turn()
        assert dispatcher._loads == [8, 5, 8], "what has come is no load"
        running.append(begin(dispatcher, "r6", 6))
        await turn()
        assert engines[1].asked[-1] == "r6"
        for engine in engines:
            for _ in range(20):
                engine.permits.release()
        groups = await asyncio.gather(*running)
        assert [[one.index for one in group] for group in groups] == [[0, 1, 2, 3]] * 7
        assert dispatcher._loads == [0, 0, 0]

    asyncio.run(asyncio.wait_for(body(), 20))


def test_a_task_goes_back_to_its_generator_while_that_is_not_busier_by_more_than_a_group() -> None:
    async def body() -> None:
        engines = [FakeEngine(), FakeEngine()]
        dispatcher = Dispatcher(engines, update_timeout_s=5)
        running = []
        # The same task again and again: at 4 and 8 owed it stays, with 8 owed and another idle it moves.
        for number in range(3):
            running.append(begin(dispatcher, f"r{number}", task=7))
            await turn()
        assert [engine.asked for engine in engines] == [["r0", "r1"], ["r2"]]
        # It belongs to the second from now on.
        running.append(begin(dispatcher, "r3", task=7))
        await turn()
        assert engines[1].asked == ["r2", "r3"]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert dispatcher._loads == [0, 0], "what was given up is no load"
        assert [engine.num_abandoned for engine in engines] == [2, 2]

    asyncio.run(asyncio.wait_for(body(), 20))


def test_later_turns_go_to_the_generator_that_had_the_first() -> None:
    async def body() -> None:
        engines = [FakeEngine() for _ in range(3)]
        dispatcher = Dispatcher(engines, update_timeout_s=5)
        running = []
        for number in range(3):
            running.append(begin(dispatcher, f"r{number}", number))
            await turn()

        async def ask_again(name: str) -> None:
            asked = ask(name, 1, prompt_ids=(7, 7, len(running)))
            running.append(asyncio.create_task(collect(dispatcher, asked)))
            await turn()

        async def finish(number: int, num_owed: int) -> None:
            for _ in range(num_owed):
                engines[number].permits.release()
                await turn()

        await finish(0, 4)
        # The first is idle, and the second busier by a group; after this turn by more.
        await ask_again("r1/3/turn 2")
        await ask_again("r1/0/turn 2")
        await finish(0, 1)
        await finish(1, 5)
        assert dispatcher._loads == [0, 0, 4]
        await ask_again("r1/3/turn 3")
        assert [engine.asked for engine in engines] == [
            ["r0", "r1/0/turn 2"],
            ["r1", "r1/3/turn 2", "r1/3/turn 3"],
            ["r2"],
        ]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(body(), 20))


def test_later_turns_push_no_request_out_of_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two requests, each with its prompt.
    monkeypatch.setattr("pipeline.generation.supervised._MAX_REMEMBERED", 4)

    async def body() -> None:
        engines = [FakeEngine(), FakeEngine()]
        dispatcher = Dispatcher(engines, update_timeout_s=5)
        running = [begin(dispatcher, "r0", 0)]
        await turn()
        for _ in range(4 + 20):
            engines[1].permits.release()
        await begin(dispatcher, "r1", 1)
        running[0].cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert dispatcher._loads == [0, 0], "who is not remembered goes to the first"
        later = [f"r1/0/turn {number}" for number in range(2, 22)]
        for number, name in enumerate(later):
            await collect(dispatcher, ask(name, 1, prompt_ids=(1, 1, number)))
        assert [engine.asked for engine in engines] == [["r0"], ["r1", *later]]
        assert list(dispatcher._last_of) == [(0, 0), "r0", (1, 1), "r1"]

    asyncio.run(asyncio.wait_for(body(), 20))


def test_a_generator_that_fails_is_named() -> None:
    async def body() -> None:
        engines = [FakeEngine(), FakeEngine(fault=GeneratorError("it is gone"))]
        dispatcher = Dispatcher(engines, update_timeout_s=5)
        engines[1].permits.release()
        first = begin(dispatcher, "r0", 0)
        await turn()
        with pytest.raises(GeneratorError, match="generator 1 of 2: it is gone"):
            await begin(dispatcher, "r1", 1)
        assert dispatcher._loads == [4, 0]
        first.cancel()

    asyncio.run(asyncio.wait_for(body(), 20))


def test_new_weights_go_to_all_at_once() -> None:
    async def body() -> None:
        all_of_them = asyncio.Barrier(4)
        engines = [FakeEngine(meets=all_of_them) for _ in range(4)]
        loaded = await Dispatcher(engines, update_timeout_s=10).update_weights(UPDATE)
        assert loaded == WeightsLoaded(policy_version=3, pause_s=0.0)
        assert [engine.version for engine in engines] == [3] * 4

    asyncio.run(asyncio.wait_for(body(), 20))


def test_all_sleep_and_all_wake() -> None:
    async def body() -> None:
        engines = [FakeEngine() for _ in range(3)]
        dispatcher = Dispatcher(engines, update_timeout_s=5)
        await dispatcher.sleep()
        assert all(engine.is_asleep for engine in engines)
        await dispatcher.wake()
        assert not any(engine.is_asleep for engine in engines)

    asyncio.run(asyncio.wait_for(body(), 20))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            {"update_s": 60.0},
            r"generator 1 did not load them within 0\.3 s \(runtime\.weight_update_timeout_s\)",
        ),
        ({"fault": GeneratorError("no memory left")}, "generator 1 failed: no memory left"),
    ],
)
def test_versions_that_do_not_agree_are_an_error_that_names_who(bad: dict[str, object], reason: str) -> None:
    async def body() -> None:
        engines = [FakeEngine(), FakeEngine(**bad), FakeEngine()]  # type: ignore[arg-type]
        dispatcher = Dispatcher(engines, update_timeout_s=0.3)
        with pytest.raises(GeneratorError, match=f"weights 3 are in 2 of 3 generators.*{reason}"):
            await dispatcher.update_weights(UPDATE)

    asyncio.run(asyncio.wait_for(body(), 20))


def test_an_engine_that_dies_at_an_update_is_started_again_beside_the_others() -> None:
    published = replace(UPDATE, receipt={"a": 1})

    async def body() -> None:
        dying, fresh = FakeEngine(fault=GeneratorLostError("process 7 died")), FakeEngine()

        async def start() -> FakeEngine:
            return fresh

        limit = RestartLimit(3, 600.0, lambda kind, text: None)
        first = SupervisedGenerator(dying, start, limit=limit, name="generator 0")
        dispatcher = Dispatcher([first, FakeEngine()], update_timeout_s=5)
        assert (await dispatcher.update_weights(published)).receipt == published.receipt
        fresh.permits.release()
        assert len(await collect(dispatcher, ask("r", 1))) == 1
        assert dying.is_closed and fresh.version == 3

    asyncio.run(asyncio.wait_for(body(), 20))


def test_all_are_closed_even_if_one_fails_to() -> None:
    async def body() -> None:
        engines = [FakeEngine(fault=GeneratorError("stuck")), FakeEngine()]
        with pytest.raises(GeneratorError, match="stuck"):
            await Dispatcher(engines, update_timeout_s=5).close()
        assert all(engine.is_closed for engine in engines)

    asyncio.run(asyncio.wait_for(body(), 20))


def test_two_real_engines_answer_together_and_take_the_same_weights(tmp_path: Path) -> None:
    path = save_model(tmp_path / "model")
    config = make_config(generation={"engine": "transformers", "dtype": "float32", "num_engines": 2})
    other = make_model(1)
    update = write_weights(other.named_parameters(), str(tmp_path / "new.safetensors"), 1, torch.float32)

    async def body() -> tuple[list[list[Completion]], list[list[Completion]]]:
        async with running_generator(config, str(path), "cpu") as generator:
            assert isinstance(generator, Dispatcher)

            asked = [ask(f"r{n}", prompt_ids=(3 + n, 4), seed=5, max_completion_length=8) for n in range(4)]
            before = await asyncio.gather(*(collect(generator, one) for one in asked))
            await generator.update_weights(update)
            return before, await asyncio.gather(*(collect(generator, one) for one in asked))

    num_threads = torch.get_num_threads()
    try:
        before, after = asyncio.run(asyncio.wait_for(body(), 100))
    finally:
        # Each engine takes its share of them.
        torch.set_num_threads(num_threads)
    for groups, version in ((before, 0), (after, 1)):
        completions = [one for group in groups for one in group]
        assert len(completions) == 16
        assert {(c.min_policy_version, c.max_policy_version) for c in completions} == {(version, version)}
    assert before != after


@pytest.mark.parametrize(
    ("generation", "device", "complaint"),
    [
        ({"tensor_parallel_size": 2}, "cpu", "generation.tensor_parallel_size: value 2.*1.*CPU"),
        (
            {"tensor_parallel_size": 2, "engine": "transformers"},
            "cuda",
            "generation.tensor_parallel_size: value 2.*generation.engine",
        ),
        ({"tensor_parallel_size": 4096}, "cuda", "generation.tensor_parallel_size: value 4096.*GPUs"),
    ],
)
def test_a_tensor_parallel_size_that_cannot_be_is_refused_before_anything_starts(
    generation: dict[str, object], device: str, complaint: str
) -> None:
    async def body() -> None:
        config = Config.model_validate({"generation": generation})
        async with running_generator(config, "/nowhere", device):
            pass

    with pytest.raises(ValueError, match=complaint):
        asyncio.run(body())
