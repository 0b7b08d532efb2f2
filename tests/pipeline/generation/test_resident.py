"""Resident engines: found, leased to one run at a time, reset between runs, ended; no orphan is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema import Config
from pipeline.evaluation import resident_engine
from pipeline.evaluation.resident_engine import obstacles
from pipeline.generation import client as client_module
from pipeline.generation import resident
from pipeline.generation.client import EngineClient, launch
from pipeline.generation.generator import GeneratorError
from pipeline.generation.settings import engine_environment
from pipeline.generation.vllm_generator import start_vllm_generator
from pipeline.processes.connection import ProcessGoneError
from tests.pipeline.fake_host import COMMAND, settings
from tests.pipeline.generation.test_host import ROOT, start_message
from tests.processes import is_running, none_runs


@pytest.fixture(autouse=True)
def _at_the_root(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


async def keep_one(idle_s: float = 30.0) -> tuple[int, int]:
    """Start a resident host as a run with --keep-alive would, and leave it: its process, its child."""
    start = start_message(resident.socket_path(0), idle_s=idle_s)
    client = await EngineClient.start(launch({}, COMMAND), start)
    child = (await client.call("state"))[2]
    await client.call("update", 7)
    await client.close()
    return client.pid, child


def test_a_second_run_gets_the_same_process_with_its_base_weights() -> None:
    async def scenario() -> tuple[int, int]:
        pid, child = await keep_one()
        found = await resident.find(0)
        assert found is not None and found.pid == pid and found.identity == {"model": "m"}
        client = await EngineClient.connect(resident.socket_path(0))
        assert client.pid == pid
        assert (await client.call("state"))[0] == 0, "the first run's weights were still there"
        await client.close()
        assert is_running(pid)
        assert await resident.stop(0) is None
        return pid, child

    pids = asyncio.run(scenario())
    assert none_runs(pids)
    assert [path.suffix for path in resident.runtime_folder().iterdir()] == [".lock"], "a socket is left"


def test_of_two_hosts_that_start_at_once_the_first_is_kept_and_the_second_ends_with_its_run() -> None:
    async def scenario() -> int:
        start = start_message(resident.socket_path(0))
        first = await EngineClient.start(launch({}, COMMAND), start)
        second = await EngineClient.start(launch({}, COMMAND), start)
        assert (first.is_kept, second.is_kept) == (True, False)
        await first.close()
        await second.close()
        assert none_runs([second.pid])
        found = await resident.find(0)
        assert found is not None and found.pid == first.pid
        assert await resident.stop(0) is None
        return first.pid

    assert none_runs([asyncio.run(scenario())])


def test_a_host_that_is_too_busy_to_answer_is_found_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_CONNECT_TIMEOUT_S", 0.3)

    async def scenario() -> None:
        pid, _ = await keep_one()
        os.kill(pid, signal.SIGSTOP)
        assert await resident.find(0) is None
        monkeypatch.setattr(client_module, "_CONNECT_TIMEOUT_S", 30.0)
        os.kill(pid, signal.SIGCONT)
        found = await resident.find(0)
        assert found is not None and found.pid == pid
        assert await resident.stop(0) is None

    asyncio.run(scenario())


def test_an_engine_that_could_not_be_prepared_is_not_kept() -> None:
    config = Config.model_validate({"runtime": {"keep_alive": True}, "generation": {"dtype": "float32"}})
    host = launch(engine_environment(config, "cpu"), COMMAND)
    # The fake engine has nothing to prepare.
    with pytest.raises(GeneratorError, match=r"failed to start: .*prepare"):
        asyncio.run(start_vllm_generator(config, "m", "cpu", launched=host))
    assert none_runs([host.pid])
    assert asyncio.run(resident.find(0)) is None


def test_one_engine_is_never_leased_to_two_runs() -> None:
    async def scenario() -> None:
        await keep_one()
        first = await EngineClient.connect(resident.socket_path(0))
        with pytest.raises(ProcessGoneError, match=f"in use by process {os.getpid()}"):
            await EngineClient.connect(resident.socket_path(0))
        assert await resident.stop(0) == f"in use by process {os.getpid()}"
        await first.close()
        await asyncio.sleep(0.1)
        assert await resident.stop(0) is None

    asyncio.run(scenario())


USER = """
import asyncio
from pipeline.generation import resident
from pipeline.generation.client import EngineClient

async def main():
    client = await EngineClient.connect(resident.socket_path(0))
    stream = client.stream("count", 100000, 0.01)
    await anext(stream)
    print("leased", flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


def test_the_lease_and_what_runs_under_it_end_with_a_run_that_is_killed() -> None:
    async def scenario() -> None:
        await keep_one()
        user = subprocess.Popen([sys.executable, "-c", USER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert user.stdout is not None
        assert await asyncio.to_thread(user.stdout.readline) == "leased\n"
        with pytest.raises(ProcessGoneError, match=f"in use by process {user.pid}"):
            await EngineClient.connect(resident.socket_path(0))
        user.kill()
        user.wait()
        async with asyncio.timeout(5):
            while True:
                try:
                    client = await EngineClient.connect(resident.socket_path(0))
                    break
                except ProcessGoneError:
                    await asyncio.sleep(0.02)
        assert (await client.call("state"))[1] == 0, "the killed run's stream goes on"
        await client.close()
        await asyncio.sleep(0.1)
        assert await resident.stop(0) is None

    asyncio.run(scenario())


def test_a_host_without_a_run_ends_itself_after_its_idle_deadline() -> None:
    pids = asyncio.run(keep_one(idle_s=0.3))
    assert none_runs(pids)
    assert asyncio.run(resident.find(0)) is None


def test_a_host_with_a_run_stays_however_long_that_says_nothing() -> None:
    async def scenario() -> None:
        pid, _ = await keep_one(idle_s=2.0)
        client = await EngineClient.connect(resident.socket_path(0))
        await asyncio.sleep(2.5)
        assert is_running(pid) and (await client.call("state"))[1] == 0
        await client.close()
        assert await resident.stop(0) is None

    asyncio.run(scenario())


def test_a_crashed_host_is_found_to_be_none_and_its_socket_goes() -> None:
    pid, child = asyncio.run(keep_one())
    os.kill(pid, signal.SIGKILL)
    assert none_runs([pid, child])
    assert resident.socket_path(0).exists()
    assert asyncio.run(resident.find(0)) is None
    assert not resident.socket_path(0).exists()


def test_stop_resident_ends_the_idle_one_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    pid, child = asyncio.run(keep_one())
    assert resident.stop_all() == 0
    assert f"process {pid}) ended" in capsys.readouterr().out
    assert none_runs([pid, child])
    assert resident.stop_all() == 0
    assert capsys.readouterr().out == "there is no resident engine\n"


async def test_an_evaluation_waits_for_the_places_that_its_engine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identity = {
        "engine.max_num_seqs": "4",
        "engine.max_model_len": "640",
        "engine.model": "m",
        "model files": "f",
    }

    async def find(index: int) -> SimpleNamespace:
        return SimpleNamespace(pid=1, identity=identity)

    async def connect(path: Path) -> SimpleNamespace:
        return SimpleNamespace(pid=1)

    monkeypatch.setattr(resident, "find", find)
    monkeypatch.setattr(resident, "engine_identity", lambda *_: identity)
    monkeypatch.setattr(EngineClient, "connect", connect)
    monkeypatch.setattr(resident_engine, "engine_settings", lambda *_: None)
    generator = await resident_engine._attached(Config(), "m", "cpu")
    assert generator is not None and generator._max_num_seqs == 4


def test_the_identity_tells_settings_environment_and_model_files_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"one")
    mine = settings(str(model))
    before = resident.engine_identity(mine, {"OMP_NUM_THREADS": "2"})
    assert resident.differences(before, resident.engine_identity(mine, {"OMP_NUM_THREADS": "2"})) == []
    with monkeypatch.context() as other:
        other.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert resident.differences(resident.engine_identity(mine, {"OMP_NUM_THREADS": "2"}), before) == [
            "cards:  there, 1 here"
        ]
    longer = settings(str(model), max_model_len=2)
    assert resident.differences(resident.engine_identity(longer, {"OMP_NUM_THREADS": "2"}), before) == [
        "engine.max_model_len: 1 there, 2 here"
    ]
    assert resident.differences(resident.engine_identity(mine, {}), before) == [
        "environment.OMP_NUM_THREADS: 2 there, nothing here"
    ]
    (model / "model.safetensors").write_bytes(b"two!")
    (difference,) = resident.differences(resident.engine_identity(mine, {"OMP_NUM_THREADS": "2"}), before)
    assert difference.startswith("model files: ")


def test_an_evaluation_takes_any_engine_with_its_layers_and_enough_room(tmp_path: Path) -> None:
    for name, layers, temperature in (("one", 2, 0.5), ("two", 2, 0.7), ("three", 3, 0.5)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(name.encode())
        (folder / "tokenizer.json").write_text("{}")
        config = {"layers": layers, "dtype": str(temperature), "transformers_version": name}
        (folder / "config.json").write_text(json.dumps(config))

    def identity(name: str, **changes: Any) -> dict[str, str]:
        mine = settings(str(tmp_path / name), **{"max_model_len": 64, **changes})
        return resident.engine_identity(mine, {"OMP_NUM_THREADS": "2"})

    found = identity("one", max_num_seqs=9, seed=7)
    assert obstacles(identity("one"), found) == obstacles(identity("two"), found) == []
    assert resident.differences(identity("two"), found), "a training run must not take it"
    (reason,) = obstacles(identity("three"), found)
    assert reason.startswith("architecture: ")
    (reason,) = obstacles(identity("two", max_model_len=80), found)
    assert "64 tokens there, 80 needed: give 16 less of --max-completion-length" in reason
    (reason,) = obstacles(identity("two", dtype="bfloat16"), found)
    assert reason.startswith("engine.dtype: ")
    for ends, differ in (({"eos_token_id": [5, 6]}, True), ({"temperature": 0.7}, False)):
        (tmp_path / "two" / "generation_config.json").write_text(json.dumps(ends))
        assert [reason.partition(":")[0] for reason in obstacles(identity("two"), found)] == (
            ["end tokens"] * differ
        )
    (tmp_path / "two" / "tokenizer.json").write_text('{"other": 1}')
    (reason,) = obstacles(identity("two"), found)
    assert reason.startswith("tokenizer: ")


def test_nobody_else_can_enter_the_folder_of_the_sockets() -> None:
    assert resident.runtime_folder().stat().st_mode & 0o777 == 0o700


def test_a_cache_folder_too_long_for_a_socket_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("x" * 90)))
    with pytest.raises(ValueError, match=r"XDG_CACHE_HOME: .* too long for a socket"):
        resident.runtime_folder()
