"""Weights that the trainer's process sends: what arrives, who is told what, and that every wait ends."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from configs.errors import ConfigError
from configs.load import load_config
from configs.schema import Config
from pipeline.generation.settings import engine_environment
from pipeline.host.shares import sends_weights
from pipeline.messages import WeightUpdate
from pipeline.training.handle import _environment
from pipeline.weights import groups
from pipeline.weights.exchange import (
    CALLS,
    Call,
    WeightClient,
    WeightServer,
    store_at,
)
from pipeline.weights.files import remove_weights
from pipeline.weights.groups import WeightGroup

CPU = torch.device("cpu")
TIMEOUT_S = 20.0


def weights(version: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(version)
    # Sizes that leave the next tensor at a place that is no multiple of 16 bytes.
    shapes = {"embed": (50, 7), "norm": (7,), "empty": (0, 3), "scalar": (), "proj": (7, 33)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def server() -> Iterator[WeightServer]:
    server = WeightServer("127.0.0.1", CPU, TIMEOUT_S)
    yield server
    server.close()


def offered(server: WeightServer, version: int, dtype: torch.dtype = torch.bfloat16) -> WeightUpdate:
    return server.offer(weights(version).items(), version, dtype)


def client(receiver: str = "one") -> WeightClient:
    return WeightClient(receiver, index=0, num_processes=1, device=CPU)


def test_what_arrives_is_what_was_offered(server: WeightServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # Several buffers, and a tensor larger than one.
    monkeypatch.setattr(groups, "_BUFFER_BYTES", 300)
    receiver = client()
    for version in (1, 2):
        update = offered(server, version)
        assert update.kind == "offer" and update.policy_version == version
        arrived = dict(receiver.fetch(update.path, version, TIMEOUT_S))
        expected = {name: weight.bfloat16() for name, weight in weights(version).items()}
        assert list(arrived) == list(expected)
        for name, weight in expected.items():
            assert arrived[name].dtype is torch.bfloat16 and torch.equal(arrived[name], weight)


def test_later_training_does_not_reach_an_offer(server: WeightServer) -> None:
    weight = torch.nn.Parameter(torch.ones(4, 3))
    update = server.offer([("embed", weight)], 1, torch.float32)
    with torch.no_grad():
        weight.mul_(5)
    arrived = dict(client().fetch(update.path, 1, TIMEOUT_S))
    assert torch.equal(arrived["embed"], torch.ones(4, 3))


def test_a_generator_that_comes_later_gets_the_same(server: WeightServer) -> None:
    update = offered(server, 1)
    first = dict(client("first").fetch(update.path, 1, TIMEOUT_S))
    again = dict(client("started again").fetch(update.path, 1, TIMEOUT_S))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_an_answer_stays_until_its_receiver_asks_again(server: WeightServer) -> None:
    receivers = {"one": client("one"), "other": client("other")}

    def fetch(receiver: str, version: int) -> str:
        update = offered(server, version)
        assert len(dict(receivers[receiver].fetch(update.path, version, TIMEOUT_S))) == 5
        return update.path

    def kept() -> list[tuple[str, int]]:
        named = [(receiver, version) for receiver in receivers for version in (1, 2, 3)]
        return [
            (receiver, version)
            for receiver, version in named
            if store.check([Call(policy_version=version, receiver=receiver, num_processes=1).answer_key])
        ]

    store = store_at(fetch("other", 1), TIMEOUT_S)
    for version in (1, 2, 3):
        fetch("one", version)
        assert kept() == [("one", version), ("other", 1)]


def test_of_an_engine_that_was_replaced_nothing_is_kept(server: WeightServer) -> None:
    update = offered(server, 1)
    for receiver in ("0/first", "1/other", "0/second"):
        assert len(dict(client(receiver).fetch(update.path, 1, TIMEOUT_S))) == 5
    assert sorted(server._groups) == sorted(server._answers) == ["0/second", "1/other"]
    left = Call(policy_version=1, receiver="0/first", num_processes=1).answer_key
    assert not store_at(update.path, TIMEOUT_S).check([left])


def test_another_version_is_refused_by_number(server: WeightServer) -> None:
    update = offered(server, 2)
    with pytest.raises(RuntimeError, match=r"policy version 1 .* holds policy version 2, not 1"):
        list(client().fetch(update.path, 1, TIMEOUT_S))


def test_a_trainer_that_is_gone_ends_by_name_within_the_time() -> None:
    server = WeightServer("127.0.0.1", CPU, TIMEOUT_S)
    update = offered(server, 1)
    receiver = client()
    list(receiver.fetch(update.path, 1, TIMEOUT_S))
    # Nobody listens any more, while the store is still there: as a trainer that is stopped.
    server.close()
    started_s = time.monotonic()
    with pytest.raises(RuntimeError, match=r"policy version 2 from the trainer: the trainer did not answer"):
        list(receiver.fetch(update.path, 2, 0.3))
    assert time.monotonic() - started_s < 10


def test_a_receiver_that_dies_keeps_nobody_else_from_theirs() -> None:
    patience_s = 6.0
    server = WeightServer("127.0.0.1", CPU, patience_s)
    update = offered(server, 1)
    store = store_at(update.path, TIMEOUT_S)
    call = Call(policy_version=1, receiver="dead", num_processes=1)
    store.queue_push(CALLS, json.dumps(asdict(call)))
    store.wait([call.answer_key])
    # It has its answer and never comes to the transfer.
    started_s = time.monotonic()
    assert len(dict(client("alive").fetch(update.path, 1, TIMEOUT_S))) == 5
    assert time.monotonic() - started_s < patience_s
    server.close()


def receive(index: int, num_processes: int, device: str, path: str, pipe: Connection) -> None:
    """Process ``index`` of a generator."""
    torch.set_num_threads(1)
    process = WeightClient("split", index=index, num_processes=num_processes, device=torch.device(device))
    pipe.send({name: weight.float().tolist() for name, weight in process.fetch(path, 1, TIMEOUT_S)})


def assert_arrives(
    update: WeightUpdate,
    device: str = "cpu",
    num_processes: int = 1,
    process: Callable[..., None] = receive,
    given: tuple[object, ...] = (),
) -> None:
    """A generator of ``num_processes`` fresh processes receives ``weights(1)``."""
    # Never a fork: the threads that earlier tests left in this process hold locks, which a child would
    # find locked for ever.
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(num_processes)]
    processes = [
        context.Process(target=process, args=(index, num_processes, device, update.path, end[1], *given))
        for index, end in enumerate(ends)
    ]
    for one, (_, theirs) in zip(processes, ends, strict=True):
        one.start()
        # So that its death is the end of the pipe.
        theirs.close()
    try:
        expected = {name: weight.tolist() for name, weight in weights(1).items()}
        for end, _ in ends:
            assert end.poll(6 * TIMEOUT_S), "a process received nothing"
            assert end.recv() == expected
    finally:
        for one in processes:
            one.kill()
            one.join()


def test_all_processes_of_a_generator_receive_together(server: WeightServer) -> None:
    assert_arrives(offered(server, 1, torch.float32), num_processes=2)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_weights_go_from_gpu_to_gpu() -> None:
    server = WeightServer("127.0.0.1", torch.device("cuda", 0), TIMEOUT_S)
    on_gpu = ((name, weight.cuda(0)) for name, weight in weights(1).items())
    update = server.offer(on_gpu, 1, torch.float32)
    try:
        assert_arrives(update, "cuda:1")
    finally:
        server.close()


def test_an_offer_has_no_files_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    update = WeightUpdate(policy_version=1, path="tcp://127.0.0.1:1", kind="offer")
    # What stands there by chance is nobody's weights.
    Path(update.path).parent.mkdir(parents=True)
    Path(update.path).touch()
    remove_weights(update)
    assert Path(update.path).exists()


def config_of(transport: str, placement: str = "auto", **sections: object) -> Config:
    runtime = {"weight_transport": transport, "placement": placement}
    return Config.model_validate({"runtime": runtime, **sections})


def test_weights_are_sent_where_generators_have_gpus_of_their_own_and_where_that_is_asked_for() -> None:
    assert sends_weights(config_of("auto"), "cuda", num_gpus=2)
    assert not sends_weights(config_of("file"), "cuda", num_gpus=2)
    assert not sends_weights(config_of("auto"), "cuda", num_gpus=1)
    assert not sends_weights(config_of("auto", "colocated"), "cuda", num_gpus=2)
    assert not sends_weights(config_of("auto", lora={"enabled": True}), "cuda", num_gpus=2)
    assert not sends_weights(config_of("auto"), "cpu", num_gpus=0)
    assert sends_weights(config_of("collective"), "cpu", num_gpus=0)
    assert sends_weights(config_of("collective"), "cuda", num_gpus=1)


def test_two_processes_on_one_of_several_gpus_are_refused_before_nccl_hangs() -> None:
    with pytest.raises(ValueError, match=r"runtime.weight_transport: value collective: .* split"):
        sends_weights(config_of("collective", "colocated"), "cuda", num_gpus=2)


@pytest.mark.parametrize(
    ("setting", "named"),
    [("lora.enabled=true", "adapters are small"), ("generation.engine=transformers", "generation.engine")],
)
def test_what_cannot_be_sent_is_refused(setting: str, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"runtime.weight_transport(.|\n)*{named}"):
        load_config(overrides=["runtime.weight_transport=collective", setting])


class FakeNccl:
    """Stands for torch's process group of a GPU."""

    made: ClassVar[list[FakeNccl]] = []

    class Options:
        """Takes any field."""

    def __init__(self, store: object, rank: int, size: int, options: Any) -> None:
        self.timeout_s = options._timeout.total_seconds()
        self.is_aborted = False
        self.made.append(self)

    def abort(self) -> None:
        self.is_aborted = True

    def broadcast(self, buffer: torch.Tensor, root: int) -> FakeNccl:
        return self

    def wait(self) -> None:
        """On a GPU this only orders the streams."""


class FakeEvent:
    """Of a stream that never gets there."""

    def record(self) -> None: ...

    def query(self) -> bool:
        return False


def test_a_transfer_over_nccl_ends_by_our_own_deadline_and_is_given_up(
    server: WeightServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's watchdog would otherwise end the process, the trainer's as well."""
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", FakeNccl, raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(FakeNccl, "made", [])
    store = store_at(offered(server, 1).path, TIMEOUT_S)
    group = WeightGroup(store, rank=0, size=2, device=torch.device("cuda", 0), timeout_s=7.0)
    (made,) = FakeNccl.made
    assert made.timeout_s > 7.0
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    with pytest.raises(TimeoutError, match="weights were not through after 7 s"):
        group._broadcast(torch.empty(1), time.monotonic() + 0.1)
    group.abort()
    assert made.is_aborted


def test_no_process_of_a_gpu_is_ended_by_a_transfer_that_fails() -> None:
    config = load_config(overrides=["generation.dtype=bfloat16"])
    for environment in (engine_environment(config, "cuda"), _environment("cuda", 4)):
        assert environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert not {"TORCH_NCCL_ASYNC_ERROR_HANDLING"} & set(_environment("cpu", 4))
