"""The Generator: what the rest of the pipeline knows of an inference engine.

Two real ones exist: pipeline.generation.vllm_generator (vLLM in a process of its own) and
pipeline.generation.transformers_engine (the portable fallback). Both note with VersionMarks which policy
version wrote which tokens of a completion, while it is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from pipeline.errors import StageError
from pipeline.messages import Completion, GenerationRequest, VersionRun, WeightsLoaded, WeightUpdate
from pipeline.weights.receipts import differing

_MAX_FAULTS = 3
# Tokens among which a stop string lies with what can be drafted behind it.
_STOP_WINDOW = 256


class GeneratorError(StageError):
    """A generator failed or did not answer in time; the message names it."""


class GeneratorLostError(GeneratorError):
    """A generator's process is gone, or silent past its deadline: only a new one can go on."""


class Generator(Protocol):
    """Writes completions and takes new weights without a restart."""

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield ``request.num_generations`` completions, each as soon as it is finished."""
        ...

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """Load ``update``; completions in flight fare as its ``mode`` says. Returns what is held then.

        Raises GeneratorError when that is not this update, or when there is no answer in time.
        """
        ...

    async def sleep(self) -> None:
        """Give the memory of the device back, once what is being written has ended; weights are kept.

        What the caches hold is lost. Requests that come from then on wait for ``wake``, however long: who
        has the memory meanwhile has a deadline of its own. ``update_weights`` and ``reset`` wake the engine
        first. Raises GeneratorError as ``update_weights``.
        """
        ...

    async def wake(self) -> None:
        """Take the memory again, which must be free, and go on with what waits; raises as ``sleep``."""
        ...

    async def stats(self) -> dict[str, float]:
        """Counts since the start; with speculative decoding tokens ``drafted`` and ``accepted``."""
        ...

    async def reset(self) -> None:
        """Go back to the base weights and policy version 0; requests that run are ended."""
        ...

    async def close(self) -> None:
        """End the engine and every process it owns."""
        ...


def num_up_to_stop(token_ids: Sequence[int], stop: str, decode: Callable[[Sequence[int]], str]) -> int:
    """How many of ``token_ids`` there are up to the one that completes ``stop``, with which their text ends.

    Drafts that were verified with it may stand behind; one token after the other, none does. ``decode`` gives
    the text of some of them.
    """
    number = len(token_ids)
    while number > 1 and stop in decode(token_ids[max(0, number - 1 - _STOP_WINDOW) : number - 1]):
        number -= 1
    return number


def require_version(loaded: WeightsLoaded, update: WeightUpdate, who: str) -> WeightsLoaded:
    """``loaded``, if it is the answer to ``update``; else raises GeneratorError, naming ``who``.

    It is when the version is the same, and what is held is tensor by tensor what was published.
    """
    if loaded.policy_version != update.policy_version:
        raise GeneratorError(
            f"{who} holds weights {loaded.policy_version} after the update to {update.policy_version}: the "
            "versions of trainer and generators must agree"
        )
    if faults := differing(update.receipt, loaded.receipt, loaded.unread):
        raise GeneratorError(
            f"{who} does not hold weights {update.policy_version} as the trainer published them, in "
            f"{len(faults)} of {len(update.receipt)} tensors: {'; '.join(faults[:_MAX_FAULTS])}"
        )
    return loaded


class VersionMarks:
    """The versions of one completion that begins under ``version``."""

    def __init__(self, version: int) -> None:
        self._starts = [(0, version)]  # the first token of each version, in order

    @property
    def has_changed(self) -> bool:
        """Whether more than one version has been at it."""
        return len(self._starts) > 1

    def changed(self, num_tokens: int, version: int) -> None:
        """What follows the first ``num_tokens`` is written by ``version``."""
        first, present = self._starts[-1]
        assert num_tokens >= first
        if version != present:
            self._starts.append((num_tokens, version))

    def runs(self, num_tokens: int) -> tuple[VersionRun, ...]:
        """The runs of the first ``num_tokens``; of none, one empty run of the newest version."""
        ends = [start for start, _ in self._starts[1:]] + [num_tokens]
        runs = [
            VersionRun(policy_version=version, num_tokens=min(end, num_tokens) - start)
            for (start, version), end in zip(self._starts, ends, strict=True)
            if min(end, num_tokens) > start
        ]
        return tuple(runs) or (VersionRun(policy_version=self._starts[-1][1], num_tokens=0),)
