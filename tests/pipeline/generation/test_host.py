"""The engine's process and its client: calls, streams, failures, and that nothing outlives its owner."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import StageError
from pipeline.generation.client import EngineClient, Start, launch
from pipeline.processes.connection import ProcessGoneError
from pipeline.processes.local import ChildProcess
from tests.pipeline.fake_host import COMMAND, settings
from tests.processes import is_running, none_runs

ROOT = Path(__file__).parents[3]


def start_message(path: Path | None = None, model: str = "m", idle_s: float = 30.0) -> Start:
    return Start(
        settings=settings(model),
        identity={"model": model},
        socket_path=path,
        idle_s=idle_s,
    )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> ChildProcess:
    monkeypatch.chdir(ROOT)
    return launch({"FAKE": "1"}, COMMAND)


def test_calls_answer_and_streams_overlap(host: ChildProcess) -> None:
    async def scenario() -> None:
        client = await EngineClient.start(host, start_message())
        assert client.pid == host.pid

        async def numbers(delay_s: float) -> list[int]:
            return [item async for item in client.stream("count", 3, delay_s)]

        slow, fast = await asyncio.gather(numbers(0.05), numbers(0.0))
        assert slow == fast == [0, 1, 2]
        await client.call("update", 4)
        assert (await client.call("state"))[:2] == (4, 0)
        await client.close()

    asyncio.run(scenario())
    assert "ended (status 0)" in str(host.obituary())


def test_a_stream_that_is_left_is_cancelled_in_the_host(host: ChildProcess) -> None:
    async def scenario() -> None:
        client = await EngineClient.start(host, start_message())
        stream = client.stream("count", 1000, 0.01)
        assert await anext(stream) == 0
        assert (await client.call("state"))[1] == 1
        await stream.aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            while (await client.call("state"))[1]:
                await asyncio.sleep(0.01)
        await client.close()

    asyncio.run(scenario())


def test_a_method_that_raises_fails_its_call_only(host: ChildProcess) -> None:
    async def scenario() -> None:
        client = await EngineClient.start(host, start_message())
        with pytest.raises(StageError, match="KeyError: 'wrong'"):
            await client.call("fail")
        assert (await client.call("state"))[0] == 0
        await client.close()

    asyncio.run(scenario())


def test_a_call_that_fails_because_the_engine_has_ended_is_no_failure_of_its_own(host: ChildProcess) -> None:
    async def scenario() -> None:
        client = await EngineClient.start(host, start_message())
        with pytest.raises(ProcessGoneError):
            await client.call("fail_for_good")
        await client.close()

    asyncio.run(scenario())


def test_an_engine_that_does_not_load_says_why(host: ChildProcess) -> None:
    with pytest.raises(ProcessGoneError, match="no such weights"):
        asyncio.run(EngineClient.start(host, start_message(model="broken")))
    host.kill()


def test_a_host_that_dies_before_it_is_told_to_start_says_how(host: ChildProcess) -> None:
    os.kill(host.pid, signal.SIGKILL)
    assert none_runs([host.pid])
    with pytest.raises(ProcessGoneError, match=f"process {host.pid} was killed by SIGKILL"):
        asyncio.run(EngineClient.start(host, start_message()))


def test_a_host_that_is_killed_fails_every_call_at_once(host: ChildProcess) -> None:
    async def scenario() -> int:
        client = await EngineClient.start(host, start_message())
        child = (await client.call("state"))[2]
        waiting = asyncio.create_task(client.call("wait_for_ever"))
        stream = client.stream("count", 1000, 0.05)
        await anext(stream)
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(ProcessGoneError):
            await waiting
        killed = f"process {client.pid} was killed by SIGKILL: .* of memory available"
        with pytest.raises(ProcessGoneError, match=killed):
            async for _ in stream:
                pass
        with pytest.raises(ProcessGoneError):
            await client.call("state")
        await client.close()
        return int(child)

    child = asyncio.run(scenario())
    assert none_runs([host.pid, child])


OWNER = """
import asyncio, sys
from pipeline.generation.client import EngineClient, launch
from tests.pipeline.fake_host import COMMAND
from tests.pipeline.generation.test_host import start_message

async def main():
    host = launch({}, COMMAND)
    if sys.argv[1] == "early":
        print(host.pid, host.pid, flush=True)
    else:
        client = await EngineClient.start(host, start_message())
        print(client.pid, (await client.call("state"))[2], flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


@pytest.mark.parametrize("when", ["early", "running"])
def test_host_and_engine_die_with_a_run_that_is_killed(when: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, when], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert all(map(is_running, pids))
    owner.kill()
    owner.wait()
    assert none_runs(pids)
