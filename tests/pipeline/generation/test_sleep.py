"""An engine that sleeps: what is written ends first, what comes meanwhile waits, new weights wake it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from configs.schema import Config
from pipeline.generation import settings, start
from pipeline.generation.generator import GeneratorError, GeneratorLostError
from pipeline.generation.settings import engine_environment
from pipeline.generation.vllm_generator import VllmGenerator
from pipeline.messages import Completion, WeightUpdate
from pipeline.processes.connection import ProcessGoneError
from tests.pipeline.generation.asking import ask, collect, save_endless_model
from tests.pipeline.generation.fake_end import FakeEnd

_ROOT = Path(__file__).parents[3]
UPDATE = WeightUpdate(policy_version=1, path="unused")


def generator_of(end: FakeEnd, timeout_s: float = 5.0) -> VllmGenerator:
    return VllmGenerator(end, Config.model_validate({"runtime": {"generation_timeout_s": timeout_s}}))


def begin(generator: VllmGenerator, name: str) -> asyncio.Task[list[Completion]]:
    return asyncio.create_task(collect(generator, ask(name, 2)))


def test_what_is_written_ends_before_the_engine_sleeps_and_what_comes_meanwhile_waits() -> None:
    async def body() -> None:
        end = FakeEnd()
        generator = generator_of(end)
        running = begin(generator, "first")
        await asyncio.sleep(0.01)
        sleeping = asyncio.create_task(generator.sleep())
        await asyncio.sleep(0.01)
        later = begin(generator, "second")
        for _ in range(2):
            assert "sleep" not in end.log
            end.permits.release()
            await asyncio.sleep(0.01)
        await sleeping
        await asyncio.sleep(0.05)
        assert len(await running) == 2 and not later.done()
        assert end.log == ["generate first", "sleep"]
        await generator.wake()
        await generator.wake()
        for _ in range(2):
            end.permits.release()
        assert len(await later) == 2
        assert end.log.count("wake") == 1 and end.log.index("wake") < end.log.index("generate second")

    asyncio.run(asyncio.wait_for(body(), 20))


@pytest.mark.parametrize(
    ("change", "method"),
    [
        (lambda generator: generator.update_weights(UPDATE), "update_weights"),
        (lambda generator: generator.reset(), "reset"),
    ],
)
def test_new_weights_and_a_reset_wake_it_first(
    change: Callable[[VllmGenerator], Awaitable[Any]], method: str
) -> None:
    async def body() -> None:
        end = FakeEnd()
        generator = generator_of(end)
        await generator.sleep()
        await change(generator)
        assert end.log == ["sleep", "wake", method]
        end.permits.release()
        assert len(await collect(generator, ask("after", 1))) == 1

    asyncio.run(asyncio.wait_for(body(), 20))


def test_it_does_not_wait_for_ever_for_answers_that_nobody_takes() -> None:
    async def body() -> None:
        end = FakeEnd()
        generator = generator_of(end, timeout_s=0.1)
        end.permits.release()
        stream = generator.generate(ask("forgotten", 2))
        await anext(stream)
        with pytest.raises(
            GeneratorError,
            match=r"process 7.* 1 completions are being written.*runtime\.generation_timeout_s",
        ):
            await generator.sleep()
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(body(), 20))


class MortalEnd(FakeEnd):
    """Its process is gone once it was killed."""

    is_alive = True

    async def kill(self) -> None:
        self.is_alive = False

    async def stream(self, method: str, *arguments: Any) -> AsyncIterator[Completion]:
        if not self.is_alive:
            raise ProcessGoneError("process 7 was killed")
        async for one in super().stream(method, *arguments):
            yield one


def test_what_waits_for_an_engine_that_dies_asleep_learns_that_it_is_gone() -> None:
    async def body() -> None:
        generator = generator_of(MortalEnd())
        await generator.sleep()
        waiting = begin(generator, "waiting")
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await generator.kill()
        with pytest.raises(GeneratorLostError, match="process 7 was killed"):
            await waiting

    asyncio.run(asyncio.wait_for(body(), 20))


@pytest.mark.parametrize(
    ("num_there", "num_ranks", "num_engines", "is_shared"),
    [(2, 1, 1, False), (1, 1, 1, True), (2, 2, 2, True), (4, 1, 4, True), (4, 2, 2, False)],
)
def test_an_engine_that_sees_its_own_card_alone_knows_whether_a_trainer_is_there(
    num_there: int, num_ranks: int, num_engines: int, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "num_gpus", lambda device: num_there)
    generation = {"dtype": "bfloat16", "num_engines": num_engines}
    config = Config.model_validate({"generation": generation, "runtime": {"trainer_ranks": num_ranks}})
    placed = start._as_placed(config, "cuda")
    # As in an actor of Ray's.
    monkeypatch.setattr(settings, "num_gpus", lambda device: 1)
    made = settings.engine_settings(placed, "model", "cuda")
    assert (made.shares_gpu, made.sleeps) == (is_shared, is_shared)


# A CPU has nothing to give back; the rest of what vLLM does is the same there.
_PROGRAM = """
import asyncio, dataclasses, json, sys
from pipeline.generation.vllm.engine import VllmEngine
from tests.pipeline.fake_host import settings
from tests.pipeline.generation.asking import ask, collect

async def write(engine, name, length):
    asked = ask(name, 1, prompt_ids=tuple(range(40, 120)), max_completion_length=length)
    return (await collect(engine, asked))[0]

async def main():
    arguments = {"max_model_len": 2304, "max_num_seqs": 4, "enable_prefix_caching": True}
    made = settings(sys.argv[1], **arguments, kv_cache_memory_bytes=2**26)
    engine = VllmEngine(dataclasses.replace(made, on_cpu=True))
    await engine.prepare()
    await engine.sleep()
    free = await write(engine, "not started for it", 4)
    engine._sleeps = True
    # So long that a loaded machine sees it being written.
    running = asyncio.create_task(write(engine, "running", 2000))
    while not (any(engine._updates._num_written().values()) or running.done()):
        await asyncio.sleep(0.001)
    was_writing = not running.done()
    await engine.sleep()
    ended = await running
    waiting = asyncio.create_task(write(engine, "waiting", 4))
    done, _ = await asyncio.wait({waiting}, timeout=1.0)
    await engine.wake()
    after = await waiting
    again = await write(engine, "again", 4)
    await engine.sleep()
    await engine.reset()
    last = await write(engine, "after a reset", 4)
    print(json.dumps({
        "free": len(free.token_ids),
        "ended": [was_writing, ended.finish_reason != "abort"],
        "early": len(done),
        "after": [len(after.token_ids), len(last.token_ids)],
        "cached": [after.num_cached_tokens, again.num_cached_tokens],
        "asleep": engine._is_asleep,
    }))
    await engine.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.slow
def test_vllm_ends_what_it_writes_keeps_what_comes_and_forgets_its_cache(tmp_path: Path) -> None:
    folder = save_endless_model(tmp_path / "model")
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    environment = {**os.environ, **engine_environment(Config(), "cpu"), "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        [sys.executable, program, folder], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "free": 4,
        "ended": [True, True],
        "early": 0,
        "after": [4, 4],
        "cached": [0, 64],
        "asleep": False,
    }
