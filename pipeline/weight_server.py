"""The trainer's weights, for generators that fetch them: nothing is written anywhere on the way.

    offer(weights) ─► copy on the host ◄── call ── pipeline.weight_client, in each generator
                             └── WeightGroup: NCCL or gloo ──►

A generator asks when it has stopped for its update, so the trainer goes on with its next step meanwhile, and
one that was started again asks like any other. What it gets is the copy, never weights in the middle of a
step. Used by the first rank, in pipeline.trainer_actor.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from pipeline.messages import WeightUpdate
from pipeline.sharding import find_store, open_store
from pipeline.weight_call import Answer, Call, address_of, answer_key, call_key
from pipeline.weight_group import Spec, WeightGroup, spec_of
from pipeline.weights import untied

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
