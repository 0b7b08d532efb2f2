"""Weights between processes of one card: real processes, and files where a card would have memory."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.host.shares import ALLOCATOR
from pipeline.weights import groups
from pipeline.weights.exchange import WeightClient, WeightServer
from pipeline.weights.groups import CardMemory
from tests.pipeline.weights.test_weight_transport import (
    CPU,
    TIMEOUT_S,
    assert_arrives,
    offered,
    receive,
    weights,
)


class FileMemory:
    """Stands for a card's memory: a buffer is a file that other processes map."""

    folder = Path()

    def __init__(self, device: torch.device) -> None:
        assert device == CPU
        self._num_made = 0

    def new(self, num_bytes: int) -> Tensor:
        self._num_made += 1
        path = self.folder / f"{os.getpid()}-{id(self)}-{self._num_made}"
        path.write_bytes(bytes(max(1, num_bytes)))
        buffer = torch.from_file(str(path), shared=True, size=num_bytes, dtype=torch.uint8)
        self._last = path
        return buffer

    def handle(self, buffer: Tensor) -> list[Any]:
        return [str(self._last), buffer.numel()]

    def opened(self, handle: list[Any]) -> Tensor:
        path, size = handle
        return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)

    def settle(self) -> None: ...


def use_files(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileMemory, "folder", folder)
    patch.setattr(groups, "CardMemory", FileMemory)
    # Several buffers, and a tensor larger than one.
    patch.setattr(groups, "_BUFFER_BYTES", 300)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WeightServer]:
    use_files(tmp_path, monkeypatch)
    server = WeightServer("127.0.0.1", CPU, TIMEOUT_S, is_one_card=True)
    yield server
    server.close()


def test_what_arrives_is_what_was_offered_version_after_version(server: WeightServer, tmp_path: Path) -> None:
    receiver = WeightClient("one", index=0, num_processes=1, device=CPU)
    for version in (1, 2):
        update = offered(server, version)
        arrived = dict(receiver.fetch(update.path, version, TIMEOUT_S))
        assert list(arrived) == list(weights(version))
        for name, weight in weights(version).items():
            assert torch.equal(arrived[name], weight.bfloat16())
    assert len(list(tmp_path.iterdir())) > 4, "they went by the files, in several buffers"
    # What has arrived is the receiver's own.
    for path in tmp_path.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(arrived["norm"], weights(2)["norm"].bfloat16())


def receive_by_files(
    index: int, num_processes: int, device: str, path: str, pipe: Connection, folder: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        use_files(folder, patch)
        receive(index, num_processes, device, path, pipe)


def test_all_processes_of_a_generator_take_each_buffer(server: WeightServer, tmp_path: Path) -> None:
    update = offered(server, 1, torch.float32)
    assert_arrives(update, num_processes=2, process=receive_by_files, given=(tmp_path,))


def test_who_never_takes_a_buffer_is_named_within_the_time_and_another_gets_all(
    server: WeightServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_timeout_s", 3.0)
    update = offered(server, 1, torch.float32)
    # Of two processes only the first comes.
    first = WeightClient("half", index=0, num_processes=2, device=CPU)
    with pytest.raises(RuntimeError, match=r"policy version 1 from the trainer: the trainer sent no buffer"):
        list(first.fetch(update.path, 1, 6.0))
    deadline_s = time.monotonic() + TIMEOUT_S
    said = ""
    while not re.search(r"process 2 of the generator did not take a buffer within \d s", said):
        assert time.monotonic() < deadline_s, said
        time.sleep(0.05)
        said += capfd.readouterr().err
    monkeypatch.setattr(server, "_timeout_s", TIMEOUT_S)
    other = WeightClient("whole", index=0, num_processes=1, device=CPU)
    assert len(dict(other.fetch(update.path, 1, TIMEOUT_S))) == 5


def test_a_handle_is_plain_values_and_names_the_receivers_own_number_of_the_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = (3, b"\x00handle\xff", 64, 128, b"counter", 0, b"event", True)
    seen: list[Any] = []

    class Storage:
        def _share_cuda_(self) -> tuple[Any, ...]:
            return fields

    class Buffer:
        def untyped_storage(self) -> Storage:
            return Storage()

    class Opened(Exception): ...

    def opened(*given: Any) -> None:
        seen.extend(given)
        raise Opened

    memory = CardMemory(torch.device("cuda", 0))
    handle = memory.handle(Buffer())  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", opened)
    with pytest.raises(Opened):
        memory.opened(json.loads(json.dumps(handle)))
    assert tuple(seen) == (0, *fields[1:])


@pytest.mark.parametrize(("set_to", "changes"), [("expandable_segments:True", 2), ("", 0)])
def test_a_buffer_that_is_shared_lies_in_no_expandable_segment(
    set_to: str, changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setenv(ALLOCATOR[0], set_to)
    monkeypatch.delenv(ALLOCATOR[1], raising=False)
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: told.append("made"))
    CardMemory(torch.device("cuda", 0)).new(8)
    around = ["expandable_segments:False", "expandable_segments:True"][:changes]
    assert told == [*around[:1], "made", *around[1:]]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
def test_weights_go_to_another_process_on_the_same_card() -> None:
    server = WeightServer("127.0.0.1", torch.device("cuda", 0), TIMEOUT_S, is_one_card=True)
    update = offered(server, 1, torch.float32)
    try:
        assert_arrives(update, "cuda:0")
    finally:
        server.close()
