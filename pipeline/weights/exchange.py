"""The trainer's weights, for generators that fetch them: nothing is written anywhere on the way.

    offer(weights) ─► copy on the host ◄── call ── pipeline.weights.exchange, in each generator
                             └── WeightGroup: NCCL or gloo ──►

A generator asks when it has stopped for its update, so the trainer goes on with its next step meanwhile, and
one that was started again asks like any other. What it gets is the copy, never weights in the middle of a
step. Used by the first rank, in pipeline.training.rank.

What a generator and the trainer write into their common store to arrange for weights to be sent.

A generator's side of pipeline.weights.exchange: ask for a version, receive it.

Every process of a generator that is split over GPUs makes one, and they receive together.
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
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from pipeline.messages import WeightUpdate
from pipeline.weights.files import untied
from pipeline.weights.group import Spec, WeightGroup, find_store, open_store, spec_of

_POLL_S = 0.02
_MAX_RECEIVERS = 64


class WeightServer:
    """Hands out the weights that were offered last, until ``close``."""

    def __init__(self, host: str, device: torch.device, timeout_s: float) -> None:
        """Listen on a free port of ``host``. A transfer that takes longer than ``timeout_s`` is given up."""
        self._host = host
        self._device = device
        self._timeout_s = timeout_s
        self._store = open_store(host, timeout_s)
        self._version = -1
        self._weights: dict[Spec, Tensor] = {}
        self._groups: dict[str, WeightGroup] = {}  # by receiver
        self._is_closing = threading.Event()
        self._senders = ThreadPoolExecutor(_MAX_RECEIVERS, thread_name_prefix="weights")
        self._listener = threading.Thread(target=self._listen, name="weight server", daemon=True)
        self._listener.start()

    def offer(
        self, named_tensors: Iterable[tuple[str, Tensor]], policy_version: int, dtype: torch.dtype
    ) -> WeightUpdate:
        """Copy the tensors to the host in ``dtype``, for all who ask from here on; see write_weights."""
        weights: dict[Spec, Tensor] = {}
        for name, tensor in untied(named_tensors):
            copy = self._copy(tensor, dtype)
            weights[spec_of(name, copy)] = copy
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        # In this order: who finds the version finds its weights.
        self._weights, self._version = weights, policy_version
        return WeightUpdate(
            policy_version=policy_version,
            path=address_of(self._host, self._store.port),
            num_bytes=sum(spec.num_bytes for spec in weights),
            kind="offer",
        )

    def close(self) -> None:
        """Stop listening; what is being sent is given up when its time is over."""
        self._is_closing.set()
        self._listener.join()
        self._senders.shutdown(wait=False, cancel_futures=True)

    def _copy(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        is_gpu = self._device.type == "cuda"
        copy = torch.empty(tensor.shape, dtype=dtype, pin_memory=is_gpu)
        copy.copy_(tensor.detach(), non_blocking=is_gpu)
        return copy

    def _listen(self) -> None:
        num_calls = 0
        while not self._is_closing.wait(_POLL_S):
            while self._store.check([call_key(num_calls + 1)]):
                num_calls += 1
                call = Call(**json.loads(self._store.get(call_key(num_calls))))
                self._senders.submit(self._serve, call)

    def _serve(self, call: Call) -> None:
        """Answer ``call`` and send; the receiver learns of a failure when its own time is over."""
        try:
            # A store of its own: a wait in one holds up all who use it.
            store = find_store(self._host, self._store.port, self._timeout_s)
            version, weights = self._version, self._weights
            if version != call.policy_version:
                fault = f"the trainer holds policy version {version}, not {call.policy_version}"
                store.set(answer_key(call), Answer(fault=fault).to_json())
                return
            answer = Answer(specs=tuple(weights), timeout_s=self._timeout_s)
            store.set(answer_key(call), answer.to_json())
            with ExitStack() as stack:
                if self._device.type == "cuda":
                    # Not behind the step that is being computed.
                    own: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
                    stack.enter_context(torch.cuda.stream(own))
                self._group(call, store).send(weights)
        except Exception as error:
            self._groups.pop(call.receiver, None)
            print(f"weights {call.policy_version} for {call.receiver}: {error}", file=sys.stderr, flush=True)

    def _group(self, call: Call, store: Store) -> WeightGroup:
        group = self._groups.get(call.receiver)
        if group is None:
            group = self._groups[call.receiver] = WeightGroup(
                store,
                call.receiver,
                rank=0,
                size=1 + call.num_processes,
                device=self._device,
                timeout_s=self._timeout_s,
            )
        return group


_SCHEME = "tcp://"
# Counted up by every call.
NUM_CALLS = "num_calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A generator of ``num_processes`` processes, called ``receiver``, asks for a version."""

    policy_version: int
    receiver: str
    num_processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What will be sent, in order, and within which time; or why nothing will."""

    specs: tuple[Spec, ...] = ()
    timeout_s: float = 0.0
    fault: str | None = None

    def to_json(self) -> str:
        """For the store."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> Answer:
        """From the store."""
        fields = json.loads(text)
        specs = tuple(Spec(name, tuple(shape), dtype) for name, shape, dtype in fields.pop("specs"))
        return Answer(specs=specs, **fields)


def call_key(number: int) -> str:
    """Under which the call with ``number``, from 1, is found."""
    return f"call/{number}"


def answer_key(call: Call) -> str:
    """Under which its answer is found."""
    return f"answer/{call.receiver}/{call.policy_version}"


def address_of(host: str, port: int) -> str:
    """Where a store is, as WeightUpdate.path has it."""
    return f"{_SCHEME}{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """The inverse of ``address_of``."""
    host, _, port = address.removeprefix(_SCHEME).rpartition(":")
    return host, int(port)


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

        ``timeout_s`` is for the server to answer; the rest has the server's own time.

        Raises RuntimeError, with the reason, when it cannot be reached, has another version, or is lost.
        """
        try:
            store = self._connected(address, timeout_s)
            call = Call(
                policy_version=policy_version, receiver=self._receiver, num_processes=self._num_processes
            )
            if self._index == 0:
                store.set(call_key(store.add(NUM_CALLS, 1)), json.dumps(asdict(call)))
            answer = _wait(store, answer_key(call), timeout_s)
            if answer.fault is not None:
                raise RuntimeError(answer.fault)
            yield from self._met(store, answer.timeout_s).receive(answer.specs)
        except (RuntimeError, TimeoutError) as error:
            self._group = None
            raise RuntimeError(f"policy version {policy_version} from the trainer: {error}") from error

    def _connected(self, address: str, timeout_s: float) -> TCPStore:
        if self._store is None or address != self._address:
            # A trainer that was started again listens elsewhere.
            self._store = find_store(*host_and_port(address), timeout_s)
            self._address, self._group = address, None
        return self._store

    def _met(self, store: TCPStore, timeout_s: float) -> WeightGroup:
        if self._group is None:
            self._group = WeightGroup(
                store,
                self._receiver,
                rank=1 + self._index,
                size=1 + self._num_processes,
                device=self._device,
                timeout_s=timeout_s,
            )
        return self._group


def _wait(store: TCPStore, key: str, timeout_s: float) -> Answer:
    started_s = time.monotonic()
    try:
        store.wait([key], timedelta(seconds=timeout_s))
    except RuntimeError as error:
        waited_s = time.monotonic() - started_s
        raise RuntimeError(f"the trainer did not answer within {waited_s:.0f} s") from error
    return Answer.from_json(store.get(key))
