"""Two raylets on one machine: driver, trainer and rewards are on one node, the generator is on the other."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from configs.schema import Config
from pipeline.cluster import (
    CardPlaces,
    ObjectStoreWeights,
    _init,
    read_files,
    reserve,
    running_ray,
    start_ray,
    wanted_bundles,
    write_files,
)
from pipeline.errors import StageError
from pipeline.generation.generator import GeneratorError, GeneratorLostError
from pipeline.generation.node_actor import Arrival, NodeEnd
from pipeline.host.shares import check_tensor_parallel, uses_ray
from pipeline.messages import WeightUpdate
from pipeline.processes.connection import CallFailedError, ProcessGoneError
from pipeline.processes.ray_remote import RayProcess
from tests.pipeline.fake_stages import rows
from tests.pipeline.tiny_model import save_byte_model

NODE = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
STARTUP_TIMEOUT_S = 60
SETTINGS = (
    "cluster.generator_resource=writes",
    "cluster.reward_resource=scores",
    "runtime.device=cpu",
    "runtime.progress=plain",
    "runtime.generation_timeout_s=60",
    "generation.engine=transformers",
    "generation.max_completion_length=32",
    "grpo.num_generations=4",
    "training.per_device_train_batch_size=4",
    "training.gradient_accumulation_steps=2",
    "evaluation.enabled=false",
    "output.save_steps=1000",
)


def config_of(**sections: Any) -> Config:
    return Config.model_validate(
        {"cluster": {"address": "auto"}, "runtime": {"device": "cuda", "trainer_ranks": 2}, **sections}
    )


def test_a_place_is_reserved_for_every_rank_and_every_generator() -> None:
    config = config_of(generation={"num_engines": 2, "tensor_parallel_size": 4})
    assert wanted_bundles(config, "cuda") == [
        {"GPU": 1},
        {"GPU": 1},
        {"GPU": 4, "CPU": 1},
        {"GPU": 4, "CPU": 1},
    ]
    cluster = {"address": "auto", "generator_resource": "writes"}
    assert wanted_bundles(config_of(cluster=cluster), "cpu")[2:] == [{"CPU": 1, "writes": 1}]


class Groups:
    """The placement groups of a cluster in which the places of ``first`` and ``others`` are free, or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *free: bool) -> None:
        self.wanted: list[list[dict[str, float]]] = []
        self.selectors: list[object] = []
        self.log: list[str] = []
        self.held = 0
        self._free = free
        monkeypatch.setattr("pipeline.cluster.placement_group", self._make)
        monkeypatch.setattr("pipeline.cluster.remove_placement_group", self._remove)
        monkeypatch.setattr("pipeline.cluster.ray.available_resources", lambda: {"GPU": 4.0 - self.held})
        monkeypatch.setattr("pipeline.cluster.ray.get_runtime_context", lambda: self)
        monkeypatch.setattr("pipeline.cluster._LOOK_S", 0.01)
        monkeypatch.setattr("pipeline.cluster._PATIENCE_S", 0.05)

    def get_node_id(self) -> str:
        return "here"

    def _make(self, bundles: list[dict[str, float]], **terms: object) -> Groups:
        self.wanted.append(bundles)
        self.selectors.append(terms.get("bundle_label_selector"))
        self.log.append("make")
        self.held += 1
        return self

    def _remove(self, group: object) -> None:
        self.held -= 1

    def wait(self, timeout_s: float) -> bool:
        self.log.append("wait")
        # What waits longer would hold up an exit.
        assert timeout_s <= 0.01
        time.sleep(timeout_s / 2)
        return self._free[self.held - 1]


def test_the_first_rank_has_its_place_before_the_others_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups(monkeypatch, True, True)
    places = asyncio.run(reserve(config_of(), "cuda"))
    assert groups.wanted == [[{"GPU": 1}], [{"GPU": 1}, {"GPU": 1, "CPU": 1}]] and groups.held == 2
    assert groups.log == ["make", "wait"] * 2
    assert groups.selectors == [[{"ray.io/node-id": "here"}], None]
    places.release()
    assert groups.held == 0


def test_a_run_that_has_not_all_its_places_holds_none_of_them_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups(monkeypatch, True, False)
    config = config_of(runtime={"device": "cuda", "trainer_ranks": 2, "startup_timeout_s": 3.0})
    with pytest.raises(StageError, match=r"waited 3 s .* GPU 3; free are CPU 0, GPU 4"):
        asyncio.run(reserve(config, "cuda"))
    assert groups.held == 0 and len(groups.wanted) > 4


def test_an_interrupt_does_not_wait_for_places(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups(monkeypatch, False)

    async def interrupt() -> None:
        waiting = asyncio.create_task(reserve(config_of(), "cuda"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    asyncio.run(interrupt())
    assert groups.held == 0


def test_a_ray_of_the_runs_own_does_not_end_processes_for_their_memory_and_another_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "RAY_memory_monitor_refresh_ms"
    # What is set below goes with the test.
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)
    # As in a Ray job, whose drivers are to see all cards.
    of_job = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
    monkeypatch.setenv(of_job, "1")
    seen: dict[str, tuple[str | None, ...]] = {}

    def init(address: str, **_: object) -> None:
        seen[address] = (os.environ.get(name), os.environ.get(of_job))

    monkeypatch.setattr(ray, "init", init)
    for address in ("auto", "local"):
        _init(address, 1)
    assert seen == {"auto": (None, "1"), "local": ("0", None)}


def test_what_a_cluster_has_is_not_measured_by_the_drivers_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.host.shares.num_gpus", lambda device: 4)
    generation = {"num_engines": 4, "tensor_parallel_size": 2}
    check_tensor_parallel(config_of(generation=generation), "cuda")
    with pytest.raises(ValueError, match="this machine has 4 GPUs for 4 engines"):
        check_tensor_parallel(Config.model_validate({"generation": generation}), "cuda")


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"runtime": {"device": "auto"}}, "runtime.device"),
        ({"runtime": {"device": "cpu", "keep_alive": True}}, "runtime.keep_alive"),
    ],
)
def test_what_is_of_one_machine_only_is_refused_on_a_cluster(
    sections: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        config_of(**sections)


def test_resources_of_nodes_are_refused_without_a_cluster() -> None:
    with pytest.raises(ValueError, match=r"reward_resource.*nothing without cluster.address"):
        Config.model_validate({"cluster": {"reward_resource": "scores"}})


def test_a_ray_that_the_run_starts_itself_is_no_cluster() -> None:
    runtime = {"keep_alive": True, "attach": True}
    config = Config.model_validate({"cluster": {"address": "local"}, "runtime": runtime})
    assert not config.cluster.is_joined and uses_ray(config, "cpu")
    assert not uses_ray(Config(), "cpu")
    with pytest.raises(ValueError, match=r"reward_resource.*nothing without cluster.address"):
        Config.model_validate({"cluster": {"address": "local", "reward_resource": "scores"}})


@pytest.fixture
def two_cards() -> Iterator[None]:
    """Ray on a machine with two GPUs, as it believes."""
    ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_no_two_ranks_share_a_card_and_engines_are_spread_over_all(
    two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.cluster.num_gpus", lambda device: 2)
    config = Config.model_validate(
        {"runtime": {"trainer_ranks": 2}, "generation": {"num_engines": 2, "gpu_memory_utilization": 0.4}}
    )

    def tenants(kind: str) -> list[RayProcess]:
        # The second time as after a restart.
        places = CardPlaces(config, "cuda")
        options = [getattr(places, f"{kind}_options")(number) for number in range(2)]
        return [RayProcess("tests.pipeline.processes.subject:Tenant", options=one) for one in options]

    # Left to itself Ray puts both engines on one card, and then has no place for the last rank.
    engines = tenants("generator")
    ranks = tenants("rank")
    held = [tuple(one.call("cards").result(60)) for one in [*engines, *ranks]]
    assert sorted(held[:2]) == sorted(held[2:]) == [(0,), (1,)]
    for rank in ranks:
        rank.kill()
    assert [tuple(one.call("cards").result(60)) for one in tenants("rank")] == held[2:]


class Lost:
    """A generator of a node's, whose engine has died."""

    async def reset(self) -> None:
        raise GeneratorLostError("the vLLM generator (process 7) failed: it was killed by SIGSEGV")

    async def sleep(self) -> None:
        raise GeneratorError("no memory")

    async def generate(self, request: object) -> AsyncIterator[int]:
        yield 1
        raise GeneratorLostError("process 7 is silent")


@pytest.fixture
def own_ray() -> Iterator[None]:
    """A Ray for a block, which ends the Ray that it started and no other."""
    with running_ray():
        with running_ray():
            pass
        assert ray.is_initialized()
        yield
    assert not ray.is_initialized()


@pytest.mark.usefixtures("own_ray")
def test_why_an_engine_in_an_actor_is_lost_is_said_where_it_is_asked() -> None:
    async def body() -> None:
        actor = RayProcess(f"{__name__}:{Lost.__name__}")
        end = NodeEnd(actor, Arrival(7, "here", "127.0.0.1"), ObjectStoreWeights())
        with pytest.raises(ProcessGoneError, match=r"^the vLLM generator .* killed by SIGSEGV$"):
            await end.call("reset")
        with pytest.raises(CallFailedError, match="GeneratorError: no memory"):
            await end.call("sleep")
        stream = end.stream("generate", None)
        assert await anext(stream) == 1
        with pytest.raises(ProcessGoneError, match=r"^process 7 is silent$"):
            await anext(stream)

    asyncio.run(body())


def test_a_module_beside_the_run_that_rays_workers_would_take_for_ours_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").touch()
    with pytest.raises(StageError, match=r"has a Python module 'rewards'.*rename it"):
        start_ray("local")


def test_a_cluster_that_does_not_answer_is_named_at_once() -> None:
    # Bound and not listened to: it refuses, and no Ray of another test can have it.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(StageError, match=rf"no Ray cluster answers at {address} \(cluster.address\)"):
            start_ray(address)


def test_a_cluster_that_cannot_be_joined_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with: Ray: 2.49.0")

    monkeypatch.setattr("pipeline.cluster._init", refuse)
    with pytest.raises(StageError, match=r"the Ray at auto \(cluster.address\): Version mismatch"):
        start_ray("auto")


def test_another_update_of_the_same_version_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "put", lambda files: files[""].tobytes())
    store, path = ObjectStoreWeights(), tmp_path / "1.safetensors"
    update = WeightUpdate(policy_version=1, path=str(path), receipt={"a": 1})
    path.write_bytes(b"old")
    assert store.reference(update) == b"old"
    path.write_bytes(b"new")
    assert store.reference(update) == b"old", "it is read once"
    assert store.reference(replace(update, receipt={"a": 2})) == b"new"


def test_the_files_of_an_update_arrive_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    contents = {"adapter_config.json": b"{}", "adapter_model.safetensors": bytes(range(256))}
    for name, content in contents.items():
        (tmp_path / "adapter" / name).write_bytes(content)
    (tmp_path / "policy-000002.safetensors").write_bytes(b"weights")
    there = tmp_path / "there"
    there.mkdir()
    sent = WeightUpdate(policy_version=1, path=str(tmp_path / "adapter"), kind="adapter")
    copy = write_files(read_files(Path(sent.path)), sent, there)
    assert (copy.policy_version, copy.kind) == (1, "adapter")
    assert {file.name: file.read_bytes() for file in Path(copy.path).iterdir()} == contents
    sent = WeightUpdate(policy_version=2, path=str(tmp_path / "policy-000002.safetensors"))
    copy = write_files(read_files(Path(sent.path)), sent, there)
    assert Path(copy.path) == there / "policy-000002.safetensors"
    assert Path(copy.path).read_bytes() == b"weights"
    with pytest.raises(OSError):
        write_files(read_files(Path(sent.path)), sent, tmp_path / "nowhere")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head for the driver, the trainer and the rewards, and nothing else yet."""
    head = {**NODE, "resources": {"scores": 4}, "include_dashboard": False}
    # A node that is killed shall be missed in seconds.
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}
    cluster = Cluster(
        initialize_head=True, head_node_args={**head, "_system_config": {**health}}, shutdown_at_exit=False
    )
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def start_run(cluster: Cluster, folder: Path, *more: str) -> subprocess.Popen[str]:
    """``train_accelerated`` on ``cluster``, in the run folder runs/spread of ``folder``."""
    settings = (*SETTINGS, f"cluster.address={cluster.address}", *more)
    program = "import sys; from pipeline.cli import train_accelerated; sys.exit(train_accelerated())"
    flags = ["--run-name", "spread", "--model", str(save_byte_model(folder / "model"))]
    return subprocess.Popen(
        [sys.executable, "-c", program, *flags, *(part for one in settings for part in ("--set", one))],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def wait_for_step(run: subprocess.Popen[str], folder: Path, step: int, deadline_s: float = 240) -> None:
    until_s = time.monotonic() + deadline_s
    while num_steps(folder) < step:
        assert run.poll() is None, run.communicate()[0][-3000:]
        assert time.monotonic() < until_s, f"step {step} was not reached"
        time.sleep(0.2)


def num_steps(folder: Path) -> int:
    spread = folder / "runs" / "spread"
    if not (spread / "run.db").exists():
        return 0
    try:
        ((count,),) = rows(spread, "SELECT COUNT(*) FROM steps WHERE status = 'committed'")
    except sqlite3.OperationalError:
        return 0
    return int(count)


def events(folder: Path) -> list[str]:
    return [" ".join(map(str, row)) for row in rows(folder / "runs" / "spread", "SELECT * FROM events")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_outlives_the_node_of_its_generator(cluster: Cluster, tmp_path: Path) -> None:
    """The first node dies and another one joins: the run goes on, with the newest weights there."""
    first = cluster.add_node(**NODE, resources={"writes": 1})
    run = start_run(cluster, tmp_path, "training.max_steps=1000", "runtime.max_restarts=3")
    try:
        wait_for_step(run, tmp_path, 2)
        cluster.remove_node(first, allow_graceful=False)
        cluster.add_node(**NODE, resources={"writes": 1})
        wait_for_step(run, tmp_path, num_steps(tmp_path) + 4)
        assert any("restart" in event and "generator 0" in event for event in events(tmp_path))
        # What the second generator wrote is of the newest weights: they reached its node.
        spread = tmp_path / "runs" / "spread"
        ((version, receipt),) = rows(
            spread, "SELECT max_policy_version, receipt FROM rollouts ORDER BY rowid DESC LIMIT 1"
        )
        ((held,),) = rows(spread, f"SELECT held FROM weights WHERE policy_version = {version}")
        assert version > 0 and receipt == held != ""
        run.terminate()
        output = run.communicate(timeout=120)[0]
    finally:
        run.kill()
    assert run.returncode == 128 + signal.SIGTERM, own_words(output)
    # The run's folder was given as a relative one, which on a node is another than here.
    assert "is saved; go on with" in output, own_words(output)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_without_a_node_for_its_generator_a_run_ends_and_says_why(cluster: Cluster, tmp_path: Path) -> None:
    only = cluster.add_node(**NODE, resources={"writes": 1})
    more = ("runtime.max_restarts=1", f"runtime.startup_timeout_s={STARTUP_TIMEOUT_S}")
    run = start_run(cluster, tmp_path, "training.max_steps=1000", *more)
    try:
        wait_for_step(run, tmp_path, 2)
        cluster.remove_node(only, allow_graceful=False)
        began_s = time.monotonic()
        output = run.communicate(timeout=300)[0]
    finally:
        run.kill()
    assert run.returncode == 1, own_words(output)
    assert time.monotonic() - began_s < 2 * STARTUP_TIMEOUT_S + 60
    assert "generator 0: not started again" in output, own_words(output)


def own_words(output: str) -> str:
    """The last of it, without the logs of nodes that died."""
    lines = [line for line in output.splitlines() if "state-dump" not in line and "(raylet)" not in line]
    return "\n".join(lines)[-4000:]
