"""The trainer's weights, for generators that fetch them: nothing is written anywhere on the way.

    offer(weights) ─► copy on the host ◄── call ── WeightClient, in each process of each generator
                             └── WeightGroup: NCCL, gloo or CUDA IPC ──►

A generator asks when it has stopped for its update, so the trainer goes on with its next step meanwhile, and
one that was started again asks like any other. What it gets is the copy, never weights in the middle of a
step. Call and answer are JSON in a store of the trainer's; weights travel from rank 0 of a group
(pipeline.weights.groups) to all processes of the generator. Does not decide when.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from pipeline.messages import WeightUpdate
from pipeline.weights.groups import Spec, WeightGroup, wait_for
from pipeline.weights.receipts import noted

_LISTEN_S = 0.02
_MAX_RECEIVERS = 64
_SCHEME = "tcp://"
# The queue of the calls in the trainer's store.
CALLS = "calls"


def open_store(host: str, timeout_s: float) -> TCPStore:
    """The meeting point of processes, on a free port of this host; its process keeps it open."""
    return TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))


def find_store(host: str, port: int, timeout_s: float) -> TCPStore:
    """The meeting point that another process opened. Raises RuntimeError when there is none in time."""
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def store_at(address: str, timeout_s: float) -> TCPStore:
    """The store of the server at ``address``, a WeightUpdate's path. Raises as ``find_store``."""
    host, _, port = address.removeprefix(_SCHEME).rpartition(":")
    return find_store(host, int(port), timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A generator of ``num_processes`` processes, called ``receiver``, asks for a version.

    What stands before a "/" in that name is the generator's place, which one that takes it over has as well.
    The answer has the Specs of what will be sent, in order, or the "fault" why nothing will.
    """

    policy_version: int
    receiver: str
    num_processes: int

    def replaces(self, other: str) -> bool:
        """Whether the receiver ``other`` had this one's place."""
        return other != self.receiver and other.partition("/")[0] == self.receiver.partition("/")[0]

    @property
    def answer_key(self) -> str:
        """Under which its answer is found."""
        return f"answer/{self.receiver}/{self.policy_version}"

    def group(
        self, store: TCPStore, rank: int, device: torch.device, timeout_s: float, is_one_card: bool
    ) -> WeightGroup:
        """The trainer, rank 0, and the processes of the generator."""
        return WeightGroup(
            PrefixStore(self.receiver, store),
            rank=rank,
            size=1 + self.num_processes,
            device=device,
            timeout_s=timeout_s,
            is_one_card=is_one_card,
        )


class WeightServer:
    """Hands out the weights that were offered last, until ``close``."""

    def __init__(
        self, host: str, device: torch.device, timeout_s: float, *, is_one_card: bool = False
    ) -> None:
        """Listen on a free port of ``host``. A transfer that takes longer than ``timeout_s`` is given up.

        ``is_one_card``: the generators are on the trainer's own card.
        """
        self._device = device
        self._is_one_card = is_one_card
        self._timeout_s = timeout_s
        self._store = open_store(host, timeout_s)
        self._address = f"{_SCHEME}{host}:{self._store.port}"
        # One value: a version is never sent with the weights of another.
        self._offered: tuple[int, dict[Spec, Tensor]] = (-1, {})
        self._groups: dict[str, WeightGroup] = {}  # by receiver
        self._streams: dict[str, Any] = {}  # likewise, on a card
        self._answers: dict[str, str] = {}  # likewise: the key of the last answer
        self._is_closing = threading.Event()
        self._senders = ThreadPoolExecutor(_MAX_RECEIVERS, thread_name_prefix="weights")
        self._listener = threading.Thread(target=self._listen, name="weight server", daemon=True)
        self._listener.start()

    def offer(
        self,
        named_tensors: Iterable[tuple[str, Tensor]],
        policy_version: int,
        dtype: torch.dtype,
    ) -> WeightUpdate:
        """Copy the tensors to the host in ``dtype``, for all who ask from here on; see write_weights."""
        is_gpu = self._device.type == "cuda"
        receipt: dict[str, int] = {}
        weights: dict[Spec, Tensor] = {}
        rounded = ((name, tensor.detach().to(dtype)) for name, tensor in named_tensors)
        for name, tensor in noted(rounded, policy_version, receipt):
            spec = Spec(name, tuple(tensor.shape), str(dtype).removeprefix("torch."))
            weights[spec] = torch.empty(tensor.shape, dtype=dtype, pin_memory=is_gpu)
            weights[spec].copy_(tensor, non_blocking=is_gpu)
        if is_gpu:
            torch.cuda.synchronize(self._device)
        self._offered = policy_version, weights
        return WeightUpdate(
            policy_version=policy_version,
            path=self._address,
            kind="offer",
            receipt=receipt,
        )

    def close(self) -> None:
        """Stop listening; what is being sent is given up when its time is over."""
        self._is_closing.set()
        self._listener.join()
        self._senders.shutdown(wait=False, cancel_futures=True)

    def _listen(self) -> None:
        while not self._is_closing.wait(_LISTEN_S):
            while self._store.queue_len(CALLS):
                self._senders.submit(self._serve, Call(**json.loads(self._store.queue_pop(CALLS))))

    def _serve(self, call: Call) -> None:
        """Answer ``call`` and send; the receiver learns of a failure when its own time is over."""
        try:
            # A store of its own: a wait in one holds up all who use it.
            store = store_at(self._address, self._timeout_s)
            self._part_from_predecessors(call, store)
            last, self._answers[call.receiver] = self._answers.get(call.receiver), call.answer_key
            if last not in (None, call.answer_key):
                # All its processes have read it, or have given up.
                store.delete_key(last)
            version, weights = self._offered
            if version != call.policy_version:
                fault = f"the trainer holds policy version {version}, not {call.policy_version}"
                store.set(call.answer_key, json.dumps({"fault": fault}))
                return
            answer = {"specs": list(weights), "one_card": self._is_one_card}
            store.set(call.answer_key, json.dumps(answer))
            with ExitStack() as stack:
                if self._device.type == "cuda":
                    # Not behind the step that is being computed; buffers stay with their stream.
                    if call.receiver not in self._streams:
                        own: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
                        self._streams[call.receiver] = own
                    stack.enter_context(torch.cuda.stream(self._streams[call.receiver]))
                group = self._groups.get(call.receiver)
                if group is None:
                    group = call.group(store, 0, self._device, self._timeout_s, self._is_one_card)
                    self._groups[call.receiver] = group
                group.send(weights)
        except Exception as error:
            if (lost := self._groups.pop(call.receiver, None)) is not None:
                lost.abort()
            if not self._is_closing.is_set():
                print(
                    f"weights {call.policy_version} for {call.receiver}: {error}", file=sys.stderr, flush=True
                )

    def _part_from_predecessors(self, call: Call, store: TCPStore) -> None:
        """Give back what is held for engines that died: on a card a group has memory of its own there."""
        for receiver in filter(call.replaces, list(self._answers)):
            store.delete_key(self._answers.pop(receiver))
            self._streams.pop(receiver, None)
            if (group := self._groups.pop(receiver, None)) is not None:
                group.abort()


class WeightClient:
    """Process ``index`` of ``num_processes`` of a generator; no other one is called ``receiver``."""

    def __init__(self, receiver: str, *, index: int, num_processes: int, device: torch.device) -> None:
        self._receiver = receiver
        self._index = index
        self._num_processes = num_processes
        self._device = device
        self._address = ""
        self._store: TCPStore | None = None
        self._group: WeightGroup | None = None

    def fetch(self, address: str, policy_version: int, timeout_s: float) -> Iterator[tuple[str, Tensor]]:
        """The weights of ``policy_version`` from the server at ``address``, as they come.

        ``timeout_s`` is for the server to answer, and for the transfer. Raises RuntimeError, with the reason,
        when it cannot be reached, has another version, or is lost.
        """
        deadline_s = time.monotonic() + timeout_s
        try:
            store = self._connected(address, timeout_s)
            call = Call(
                policy_version=policy_version, receiver=self._receiver, num_processes=self._num_processes
            )
            if self._index == 0:
                store.queue_push(CALLS, json.dumps(asdict(call)))
            wait_for(store, call.answer_key, deadline_s, "the trainer did not answer")
            answer = json.loads(store.get(call.answer_key))
            if "fault" in answer:
                raise RuntimeError(answer["fault"])
            if self._group is None:
                is_one_card = answer["one_card"]
                self._group = call.group(store, 1 + self._index, self._device, timeout_s, is_one_card)
            specs = [Spec(name, tuple(shape), dtype) for name, shape, dtype in answer["specs"]]
            yield from self._group.receive(specs)
        except (RuntimeError, TimeoutError) as error:
            if self._group is not None:
                self._group.abort()
            self._group = None
            raise RuntimeError(f"policy version {policy_version} from the trainer: {error}") from error

    def _connected(self, address: str, timeout_s: float) -> TCPStore:
        if self._store is None or address != self._address:
            # A trainer that was started again listens elsewhere, and nobody is in the old one's group.
            if self._group is not None:
                self._group.abort()
            self._group = None
            self._store = store_at(address, timeout_s)
            self._address = address
        return self._store
