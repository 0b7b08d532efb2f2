"""The trainer and the processes of one generator: how a list of tensors gets from the first to all others.

    tensors ─► buffers of many tensors ─► NCCL | gloo | a buffer on their card (CUDA IPC) ─►

Buffers, because a broadcast of each tensor would cost more for its start than for its bytes. Knows no
versions and answers no calls: pipeline.weights.exchange does.

On one card the others open the sender's buffer:

    sender: copy into a buffer ─► its handle ─► wait until all have taken it ─► free it
    others:                        wait for the handle ─► open ─► copy ─► "taken"

vLLM's IPC engine does the same for a whole model of its own; here it is one more way of a group, with its
versions, deadlines and receipts. Handles travel as plain values: vLLM pickles them, and who can write a
pickle runs code. Has not been run on a card yet.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.distributed import Store  # type: ignore[attr-defined]

from pipeline.host.shares import ALLOCATOR

_EXPANDABLE, _FIXED = "expandable_segments:True", "expandable_segments:False"
_SETTINGS = threading.Lock()
_POLL_S = 0.001
# As in vLLM's packed transfer, small enough to be no burden beside a model.
_BUFFER_BYTES = 256 * 2**20
# Kernels of bf16 weights read 16 bytes at a time, so that a view into a buffer has to begin at such a place.
_ALIGNMENT = 16


class OneCard:
    """The processes of a group on one card; rank 0 sends."""

    def __init__(self, store: Store, *, rank: int, size: int, memory: CardMemory) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._memory = memory
        self._num_sent = 0

    def broadcast(self, buffer: Tensor, deadline_s: float) -> None:
        """Copy rank 0's ``buffer`` [bytes] into that of all others.

        Raises RuntimeError when the others are not there by ``deadline_s``, of the monotonic clock.
        """
        self._num_sent += 1
        key = f"buffer/{self._num_sent}"
        if self._rank == 0:
            self._send(key, buffer, deadline_s)
        else:
            self._receive(key, buffer, deadline_s)

    def _send(self, key: str, buffer: Tensor, deadline_s: float) -> None:
        shared = self._memory.new(buffer.numel())
        shared.copy_(buffer)
        self._memory.settle()
        self._store.set(key, json.dumps(self._memory.handle(shared)))
        taken = [self._taken(key, rank) for rank in range(1, self._size)]
        for rank, name in enumerate(taken, 1):
            wait_for(self._store, name, deadline_s, f"process {rank} of the generator did not take a buffer")
        for name in (key, *taken):
            self._store.delete_key(name)

    def _receive(self, key: str, buffer: Tensor, deadline_s: float) -> None:
        wait_for(self._store, key, deadline_s, "the trainer sent no buffer")
        shared = self._memory.opened(json.loads(self._store.get(key)))
        buffer.copy_(shared)
        self._memory.settle()
        # Closed before the other side may free it.
        del shared
        self._store.set(self._taken(key, self._rank), "")

    @staticmethod
    def _taken(key: str, rank: int) -> str:
        return f"{key}/taken/{rank}"


def wait_for(store: Store, key: str, deadline_s: float, otherwise: str) -> None:
    """Wait until ``key`` is set. Raises RuntimeError, with ``otherwise``, past ``deadline_s`` (monotonic)."""
    started_s = time.monotonic()
    try:
        store.wait([key], timedelta(seconds=max(_POLL_S, deadline_s - started_s)))
    except RuntimeError as error:
        raise RuntimeError(f"{otherwise} within {time.monotonic() - started_s:.0f} s") from error


class CardMemory:
    """Memory of the card ``device`` that processes share, by CUDA IPC."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def new(self, num_bytes: int) -> Tensor:
        """A buffer [num_bytes] of bytes that can be shared."""
        # A handle of an expandable segment opens only where a process may trace the other.
        settings = [os.environ.get(name, "") for name in ALLOCATOR]
        expandable = next((value for value in settings if _EXPANDABLE in value), None)
        if expandable is None:
            return self._empty(num_bytes)
        # The settings are the process's; what is not named goes back to its default.
        with _SETTINGS:
            torch._C._accelerator_setAllocatorSettings(expandable.replace(_EXPANDABLE, _FIXED))
            try:
                return self._empty(num_bytes)
            finally:
                torch._C._accelerator_setAllocatorSettings(expandable)

    def _empty(self, num_bytes: int) -> Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, device=self._device)

    def handle(self, buffer: Tensor) -> list[Any]:
        """What another process opens ``buffer`` with, in values that JSON knows."""
        storage: Any = buffer.untyped_storage()
        fields: tuple[Any, ...] = storage._share_cuda_()
        # A list tells bytes from texts.
        return [[base64.b64encode(field).decode()] if isinstance(field, bytes) else field for field in fields]

    def opened(self, handle: list[Any]) -> Tensor:
        """The buffer of another process; it is that process's memory."""
        torch.cuda.set_device(self._device)
        fields = [base64.b64decode(field[0]) if isinstance(field, list) else field for field in handle]
        # The sender's number of the card is not ours: each process counts those that it sees.
        fields[0] = self._device.index or 0
        make: Any = torch.UntypedStorage._new_shared_cuda
        storage = make(*fields)
        return torch.empty(0, dtype=torch.uint8, device=self._device).set_(storage)

    def settle(self) -> None:
        """Wait until what was copied is there."""
        torch.cuda.current_stream(self._device).synchronize()


class Spec(NamedTuple):
    """A tensor that travels: its name, its shape, and its dtype without the "torch."."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def room(self) -> int:
        """Its bytes in a buffer, with those that align the next one."""
        num_bytes = torch.Size(self.shape).numel() * self.torch_dtype.itemsize
        return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT

    @property
    def torch_dtype(self) -> torch.dtype:
        """Its dtype."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


class WeightGroup:
    """The trainer and the processes of one generator; rank 0 sends. What takes over ``timeout_s`` fails."""

    def __init__(
        self,
        meeting: Store,
        *,
        rank: int,
        size: int,
        device: torch.device,
        timeout_s: float,
        is_one_card: bool = False,
    ) -> None:
        """Meet the others at ``meeting``, which nobody else uses. Raises RuntimeError when they do not come.

        On one card NCCL cannot have two processes.
        """
        self._device = device
        self._timeout_s = timeout_s
        limit = timedelta(seconds=timeout_s)
        if is_one_card:
            self._group: Any = OneCard(meeting, rank=rank, size=size, memory=CardMemory(device))
        elif device.type == "cuda":
            torch.cuda.set_device(device.index or 0)
            nccl: Any = distributed.ProcessGroupNCCL
            options = nccl.Options()
            # Its watchdog is not to be faster than our own deadline, which names who is late.
            options._timeout = 2 * limit
            self._group = nccl(meeting, rank, size, options)
        else:
            self._group = distributed.ProcessGroupGloo(meeting, rank, size, timeout=limit)

    def abort(self) -> None:
        """Give up what is under way; nothing can be sent any more."""
        if self._device.type == "cuda" and not isinstance(self._group, OneCard):
            # A transfer that the other side never joins would keep its kernel on the card.
            self._group.abort()

    def send(self, tensors: Mapping[Spec, Tensor]) -> None:
        """Send all of them, in order. Raises RuntimeError or TimeoutError when a receiver is gone."""
        deadline_s = time.monotonic() + self._timeout_s
        for buffer, views in _buffers(list(tensors), self._device):
            for spec, view in views.items():
                view.copy_(tensors[spec], non_blocking=True)
            self._broadcast(buffer, deadline_s)

    def receive(self, specs: Sequence[Spec]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of ``specs``, in order, as views of buffers that are theirs alone.

        Raises RuntimeError or TimeoutError when the sender is gone.
        """
        deadline_s = time.monotonic() + self._timeout_s
        for buffer, views in _buffers(specs, self._device):
            self._broadcast(buffer, deadline_s)
            yield from ((spec.name, view) for spec, view in views.items())

    def _broadcast(self, buffer: Tensor, deadline_s: float) -> None:
        if isinstance(self._group, OneCard):
            self._group.broadcast(buffer, deadline_s)
            return
        work = self._group.broadcast(buffer, 0)
        if self._device.type != "cuda":
            work.wait(timedelta(seconds=max(_POLL_S, deadline_s - time.monotonic())))
            return
        work.wait()
        # On a GPU that only orders the streams.
        done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        while not done.query():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"weights were not through after {self._timeout_s:g} s")
            time.sleep(_POLL_S)


def _buffers(specs: Sequence[Spec], device: torch.device) -> Iterator[tuple[Tensor, dict[Spec, Tensor]]]:
    """The buffers in which ``specs`` travel, each with its tensors; sender and receivers cut alike."""
    first = 0
    while first < len(specs):
        last, num_bytes = first + 1, specs[first].room
        while last < len(specs) and num_bytes + specs[last].room <= _BUFFER_BYTES:
            num_bytes += specs[last].room
            last += 1
        buffer, views = torch.empty(num_bytes, dtype=torch.uint8, device=device), {}
        begin = 0
        for spec in specs[first:last]:
            flat = buffer[begin : begin + spec.room].view(spec.torch_dtype)
            views[spec] = flat[: torch.Size(spec.shape).numel()].view(spec.shape)
            begin += spec.room
        yield buffer, views
        first = last
