"""What a generator and the trainer write into their common store to arrange for weights to be sent.

Called by pipeline.weight_server and pipeline.weight_client.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pipeline.weight_group import Spec

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
