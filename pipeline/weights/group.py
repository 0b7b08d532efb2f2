"""The trainer and the processes of one generator as a process group: weights go from rank 0 to the others.

gloo between CPUs, NCCL between GPUs. Weights travel in buffers of many tensors, because a broadcast of each
would cost more for its start than for its bytes. Does not decide when: pipeline.weights.exchange sends
and receives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

# As in vLLM's packed transfer, small enough to be no burden beside a model.
_BUFFER_BYTES = 256 * 2**20
_POLL_S = 0.001
# Kernels of bf16 weights read 16 bytes at a time, so that a view into a buffer has to begin at such a place.
_ALIGNMENT = 16


def open_store(host: str, timeout_s: float) -> TCPStore:
    """The meeting point of the ranks, on a free port of this host; its process keeps it open."""
    return TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))


def find_store(host: str, port: int, timeout_s: float) -> TCPStore:
    """The meeting point that another process opened. Raises RuntimeError when there is none in time."""
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))


class Spec(NamedTuple):
    """A tensor that travels: its name, its shape, and its dtype without the "torch."."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Its bytes, without what aligns the next one."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return torch.Size(self.shape).numel() * dtype.itemsize


def spec_of(name: str, tensor: Tensor) -> Spec:
    """What a receiver has to know of ``tensor``."""
    return Spec(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


class WeightGroup:
    """One process of such a group; rank 0 sends. Everything that takes longer than ``timeout_s`` fails."""

    def __init__(
        self, store: Store, name: str, *, rank: int, size: int, device: torch.device, timeout_s: float
    ) -> None:
        """Meet the others at ``store``, under ``name``. Raises RuntimeError when they do not come."""
        self._device = device
        self._timeout_s = timeout_s
        meeting, limit = PrefixStore(name, store), timedelta(seconds=timeout_s)
        if device.type == "cuda":
            torch.cuda.set_device(device.index or 0)
            nccl: Any = distributed.ProcessGroupNCCL
            options = nccl.Options()
            options._timeout = limit
            self._group: Any = nccl(meeting, rank, size, options)
        else:
            self._group = distributed.ProcessGroupGloo(meeting, rank, size, timeout=limit)

    def send(self, tensors: Mapping[Spec, Tensor]) -> None:
        """Send all of them, in order. Raises RuntimeError or TimeoutError when a receiver is gone."""
        deadline_s = time.monotonic() + self._timeout_s
        for part in _parts(list(tensors)):
            buffer = torch.empty(_num_bytes(part), dtype=torch.uint8, device=self._device)
            for spec, view in zip(part, _views(buffer, part), strict=True):
                view.copy_(tensors[spec], non_blocking=True)
            self._broadcast(buffer, deadline_s)

    def receive(self, specs: Sequence[Spec]) -> Iterator[tuple[str, Tensor]]:
        """The tensors of ``specs``, in order, as views of buffers that are theirs alone.

        Raises RuntimeError or TimeoutError when the sender is gone.
        """
        deadline_s = time.monotonic() + self._timeout_s
        for part in _parts(specs):
            buffer = torch.empty(_num_bytes(part), dtype=torch.uint8, device=self._device)
            self._broadcast(buffer, deadline_s)
            yield from ((spec.name, view) for spec, view in zip(part, _views(buffer, part), strict=True))

    def _broadcast(self, buffer: Tensor, deadline_s: float) -> None:
        left_s = max(_POLL_S, deadline_s - time.monotonic())
        work = self._group.broadcast(buffer, 0)
        if self._device.type != "cuda":
            work.wait(timedelta(seconds=left_s))
            return
        work.wait()
        # On a GPU that only orders the streams.
        done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        while not done.query():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"weights were not through after {self._timeout_s:g} s")
            time.sleep(_POLL_S)


def _parts(specs: Sequence[Spec]) -> Iterator[list[Spec]]:
    """``specs`` by the buffer in which they travel; sender and receivers cut alike."""
    part: list[Spec] = []
    num_bytes = 0
    for spec in specs:
        if part and num_bytes + spec.num_bytes > _BUFFER_BYTES:
            yield part
            part, num_bytes = [], 0
        part.append(spec)
        num_bytes += _aligned(spec.num_bytes)
    if part:
        yield part


def _views(buffer: Tensor, part: Sequence[Spec]) -> Iterator[Tensor]:
    begin = 0
    for spec in part:
        dtype: torch.dtype = getattr(torch, spec.dtype)
        yield buffer[begin : begin + spec.num_bytes].view(dtype).view(spec.shape)
        begin += _aligned(spec.num_bytes)


def _num_bytes(part: Sequence[Spec]) -> int:
    return sum(_aligned(spec.num_bytes) for spec in part)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
