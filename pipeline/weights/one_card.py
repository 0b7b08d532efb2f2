"""Tensors between processes on one card: a buffer of the sender's that the others open by CUDA IPC.

    sender: copy into a buffer ─► its handle ─► wait until all have taken it ─► free it
    others:                        wait for the handle ─► open ─► copy ─► "taken"

vLLM's IPC engine does the same for a whole model of its own; here it is one more way of a group
(pipeline.weights.groups), with its versions, deadlines and receipts. Handles travel as plain values: vLLM
pickles them, and who can write a pickle runs code. Has not been run on a card yet.
"""

from __future__ import annotations

import base64
import json
import os
import time
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from pipeline.host.shares import ALLOCATOR

_EXPANDABLE = "expandable_segments:True"


class OneCard:
    """The processes of a group on one card; rank 0 sends."""

    def __init__(self, store: Store, *, rank: int, size: int, memory: CardMemory) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._memory = memory
        self._num_sent = 0

    def broadcast(self, buffer: Tensor, timeout_s: float) -> None:
        """Copy rank 0's ``buffer`` [bytes] into that of all others.

        Raises RuntimeError when the others are not there within ``timeout_s``.
        """
        deadline_s = time.monotonic() + timeout_s
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
            self._wait(name, deadline_s, f"process {rank} of the generator did not take a buffer")
        for name in (key, *taken):
            self._store.delete_key(name)

    def _receive(self, key: str, buffer: Tensor, deadline_s: float) -> None:
        self._wait(key, deadline_s, "the trainer sent no buffer")
        shared = self._memory.opened(json.loads(self._store.get(key)))
        buffer.copy_(shared)
        self._memory.settle()
        # Closed before the other side may free it.
        del shared
        self._store.set(self._taken(key, self._rank), "")

    @staticmethod
    def _taken(key: str, rank: int) -> str:
        return f"{key}/taken/{rank}"

    def _wait(self, key: str, deadline_s: float, otherwise: str) -> None:
        left_s = max(0.001, deadline_s - time.monotonic())
        try:
            self._store.wait([key], timedelta(seconds=left_s))
        except RuntimeError as error:
            raise RuntimeError(f"{otherwise} within {left_s:.0f} s") from error


class CardMemory:
    """Memory of the card ``device`` that processes share, by CUDA IPC."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def new(self, num_bytes: int) -> Tensor:
        """A buffer [num_bytes] of bytes that can be shared."""
        # A handle of an expandable segment opens only where a process may trace the other.
        is_expandable = any(_EXPANDABLE in os.environ.get(name, "") for name in ALLOCATOR)
        if is_expandable:
            torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
        try:
            return torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
        finally:
            if is_expandable:
                torch._C._accelerator_setAllocatorSettings(_EXPANDABLE)

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
