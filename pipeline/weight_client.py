"""A generator's side of pipeline.weight_server: ask for a version, receive it.

Every process of a generator that is split over GPUs makes one, and they receive together. Called by
pipeline.vllm_weights and pipeline.transformers_engine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta

import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from pipeline.sharding import find_store
from pipeline.weight_call import NUM_CALLS, Answer, Call, answer_key, call_key, host_and_port
from pipeline.weight_group import WeightGroup


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
