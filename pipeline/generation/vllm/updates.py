"""New weights for a running AsyncLLM, and which version wrote which tokens of what it is writing.

What becomes of completions in flight is the update's ``mode``:

- keep: the engine stops between two tokens, computes all that stands before anew, so that each token has the
  probability that its version gives it, and goes on. Peers that abort and send prompt and partial answer
  again (AReaL, verl, SkyRL) do the same in more steps.
- keep_cache: likewise, but over the old KV cache (PipelineRL, arXiv:2509.19128). What has written nothing yet
  begins again, so that no answer is of one version over a prompt that another one has read.
- drain: what runs ends first, what waits begins under the new weights.
- abort: what runs begins again from its prompt. No completion has two versions, and none is older than the
  swap; but an answer that was short enough to end before it stays, and a long one is drawn again, so that
  short answers get more than their share.

On a GPU an adapter goes to vLLM's own LoRA (``base_adapter``), whose kernels cost little there, and an
update moves nothing else. On a CPU vLLM copies the factors once a token, so adapters are merged
(pipeline.generation.vllm.transfer).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import torch
from vllm.config.lora import MaxLoRARanks
from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest
from vllm.lora.request import LoRARequest
from vllm.v1.engine import PauseMode
from vllm.v1.engine.async_llm import AsyncLLM

from pipeline.generation.generator import VersionMarks
from pipeline.generation.vllm.held_weights import Part, whole
from pipeline.messages import WeightsLoaded, WeightUpdate
from pipeline.models.files import A_END, B_END, PEFT_PREFIX, base_weights
from pipeline.models.merging import adapter_rank, write_adapter_files
from pipeline.weights.receipts import code_of, differing

# Turns of the event loop from vLLM's queue of outputs to the requests, and some more.
_SETTLING_TURNS = 20
_ADAPTER_NAME, _ADAPTER_ID = "policy", 1
# vLLM's words for ours.
_PAUSES: Mapping[str, PauseMode] = {
    "keep": "keep",
    "keep_cache": "keep",
    "drain": "wait",
    "abort": "abort",
}


class WeightUpdates:
    """The weights of ``engine``, of which ``base`` is the folder; ``policy_version`` is theirs, 0 the base's.

    With an ``adapter``, a ``base_adapter``, every request asks for that one, and adapters take its place.
    A trainer that sends weights has to answer within ``weight_timeout_s``, and is told the engine's number in
    the run, ``index``. ``num_begun`` counts updates and
    resets, ``num_resets`` the latter.
    """

    def __init__(
        self,
        engine: AsyncLLM,
        base: str,
        adapter: LoRARequest | None,
        *,
        weight_timeout_s: float,
        index: int = 0,
    ) -> None:
        self.policy_version = 0
        self.adapter = adapter
        self.num_begun = 0
        self.num_resets = 0
        self._engine = engine
        self._base = base
        # Names the engine to a trainer that sends weights, and tells it from the one whose place it took.
        self._receiver = f"{index}/{uuid.uuid4().hex}"
        self._weight_timeout_s = weight_timeout_s
        self._lock = asyncio.Lock()
        self._marks: dict[str, VersionMarks] = {}  # by request id
        self._codes: dict[int, str] = {}  # of the receipts, by policy version

    async def settled(self) -> None:
        """Wait while an update or a reset is under way: what begins then has the salt of its weights."""
        while self._lock.locked():
            async with self._lock:
                pass

    @property
    def cache_salt(self) -> str:
        """What keeps the cached prompts of one version from the next, where an update leaves the cache."""
        return f"policy {self.policy_version}"

    def receipt_of(self, policy_version: int) -> str:
        """The code of what was held of that version; empty for the base's."""
        return self._codes.get(policy_version, "")

    @contextmanager
    def writing(self, name: str) -> Iterator[VersionMarks]:
        """Around everything that is done for the request ``name``, which no other one has."""
        marks = self._marks[name] = VersionMarks(self.policy_version)
        try:
            yield marks
        finally:
            del self._marks[name]

    async def update(self, update: WeightUpdate) -> WeightsLoaded:
        """Stop, load, go on; the answer is what the engine says that it holds.

        Raises:
            ValueError: the update is not newer than what the engine holds.
        """
        async with self._lock:
            if update.policy_version <= self.policy_version:
                raise ValueError(
                    f"weight update {update.policy_version} is not newer than {self.policy_version}"
                )
            self.num_begun += 1
            started_s = time.perf_counter()
            await self._engine.pause_generation(
                mode=_PAUSES[update.mode], clear_cache=update.mode != "keep_cache"
            )
            try:
                num_written = await self._count_written()
                if update.mode == "drain":
                    # What waits half written, for lack of memory, would have two versions.
                    await self._engine.abort([name for name, tokens in num_written.items() if tokens > 0])
                if update.kind == "adapter" and self.adapter is not None:
                    await self._serve_adapter(update.path)
                    await self._engine.update_weight_version(str(update.policy_version))
                else:
                    await self._load(update)
                self._note_version(num_written, update.policy_version)
                if update.mode == "keep_cache":
                    # With the salt that it has, it would take the prompt as the old weights have read it.
                    await self._engine.abort([n for n, tokens in self._num_written().items() if tokens == 0])
                version = int(await self._engine.get_weight_version())
                receipt, unread = await self._receipt(update)
            finally:
                await self._engine.resume_generation()
            self._codes[version] = code_of(update.receipt, receipt)
            return WeightsLoaded(
                policy_version=version,
                pause_s=time.perf_counter() - started_s,
                receipt=receipt,
                unread=unread,
            )

    async def reset(self) -> None:
        """Be as after the start, for the next run: base weights, policy version 0, no cache, same seed."""
        async with self._lock:
            self.num_begun += 1
            self.num_resets += 1
            await self._engine.pause_generation(mode="abort", clear_cache=True)
            try:
                if self.adapter is not None:
                    await self._serve_adapter(self.adapter.lora_path)
                await self._load(WeightUpdate(policy_version=0, path=self._base, kind="base"))
                self._note_version({}, 0)
                # The next run draws what it would draw from a fresh engine.
                await self._engine.collective_rpc("restore_random_state")
            finally:
                await self._engine.resume_generation()

    async def _receipt(self, update: WeightUpdate) -> tuple[dict[str, int], tuple[str, ...]]:
        """The digests of what all processes hold, and what they cannot read.

        Quantised layers hold roundings of what was published: theirs are those of what the engine was given.
        An adapter's are those of its factors: what it makes of the base is compared here. Raises RuntimeError
        where that is not what is held, and where the processes were given different weights.
        """
        if not update.receipt:
            return {}, ()
        is_served = update.kind == "adapter" and self.adapter is not None
        arguments = (update.policy_version, adapter_rank(update.path) if is_served else 0)
        answers = await self._engine.collective_rpc("weight_receipt", args=arguments)
        given = answers[0]["given"]
        if any(answer["given"] != given for answer in answers):
            raise RuntimeError("the processes of the engine were given different weights")
        held = whole([Part(*part) for part in answer["parts"]] for answer in answers)
        unread = tuple(answers[0]["unread"])
        if is_served:
            # Layers without an adapter have factors of zero. It comes another way than what was given last.
            return {name: value for name, value in held.items() if value or name in update.receipt}, unread
        held = {**given, **held}
        if update.kind != "adapter":
            return held, unread
        # What early files of Llama have besides weights; vLLM computes it.
        merged = {n: value for n, value in answers[0]["merged"].items() if not n.endswith(".inv_freq")}
        if faults := differing(merged, held, unread):
            raise RuntimeError(f"the adapter is not in the weights that generate: {'; '.join(faults[:3])}")
        return answers[0]["adapter"], unread

    def _note_version(self, num_written: dict[str, int], version: int) -> None:
        """What is written from here on is of ``version``; what has not begun has written nothing."""
        self.policy_version = version
        for name, marks in self._marks.items():
            # Without a count and changed before: it has ended, and is about to be handed over.
            if name in num_written or not marks.has_changed:
                marks.changed(num_written.get(name, 0), version)

    async def _count_written(self) -> dict[str, int]:
        """The tokens of each request that has begun and not ended, by its id; the engine is paused.

        vLLM's answer to the pause comes behind the last outputs; those may still lie in its queue.
        """
        queue = self._engine.engine_core.outputs_queue
        while not queue.empty():
            await asyncio.sleep(0)
        for _ in range(_SETTLING_TURNS):
            await asyncio.sleep(0)
        return self._num_written()

    def _num_written(self) -> dict[str, int]:
        states = self._engine.output_processor.request_states.values()
        return {state.external_req_id: state.detokenizer.num_output_tokens() for state in states}

    async def _load(self, update: WeightUpdate) -> None:
        await self._engine.start_weight_update()
        info = {
            "path": update.path,
            "kind": update.kind,
            "policy_version": update.policy_version,
            "is_quantised": update.is_quantised,
            "receiver": self._receiver,
            "timeout_s": self._weight_timeout_s,
        }
        await self._engine.update_weights(WeightTransferUpdateRequest(update_info=info))
        await self._engine.finish_weight_update(str(update.policy_version))

    async def _serve_adapter(self, folder: str) -> None:
        """Load the adapter in ``folder`` in place of the last, while generation is paused."""
        await self._engine.add_lora(LoRARequest(_ADAPTER_NAME, _ADAPTER_ID, folder, load_inplace=True))


def base_adapter(model: str, rank: int) -> LoRARequest:
    """An adapter of zeros for one layer: the base model in the folder ``model``.

    Requests name it by a number that stays the same, so those that are running when it is replaced go on
    under the new one. Its files go with the engine's temporary folder.
    """
    folder = Path(tempfile.mkdtemp(prefix="code-grpo-adapter-"))
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": [], "bias": "none"}
    write_adapter_files(folder, config, _zeros(model, rank))
    return LoRARequest(_ADAPTER_NAME, _ADAPTER_ID, str(folder))


def max_lora_rank(rank: int) -> int:
    """The smallest rank that vLLM can be started with and that ``rank`` fits into."""
    ranks: tuple[int, ...] = get_args(MaxLoRARanks)
    return next(size for size in ranks if size >= rank)


def _zeros(model: str, rank: int) -> dict[str, torch.Tensor]:
    """Factors of zero for the first matrix that is part of a numbered layer; vLLM refuses to load none."""
    for name, weight in base_weights(model):
        if weight.dim() == 2 and any(part.isdigit() for part in name.split(".")):
            layer = f"{PEFT_PREFIX}{name.removesuffix('.weight')}"
            return {
                f"{layer}{A_END}": torch.zeros(rank, weight.shape[1]),
                f"{layer}{B_END}": torch.zeros(weight.shape[0], rank),
            }
    raise ValueError(f"adapter: the base model {model} has no layer that could get one")
