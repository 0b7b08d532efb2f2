"""The portable generator: Hugging Face ``generate`` where vLLM cannot run.

It speaks the Generator protocol and keeps its promises (log-probabilities, versions, stop strings), not
vLLM's speed: one request at a time, completions handed over when the longest has ended, no paging, no prefix
cache. It owns its model. Of a weight update, all weights from a file or an adapter on the base, everything is
loaded or nothing: names and shapes are looked at first.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from safetensors import safe_open
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from configs.schema import Config
from pipeline.generation.generator import GeneratorError, require_version
from pipeline.generation.settings import engine_threads
from pipeline.generation.transformers_batch import Batch, Writer
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.models.files import base_weights
from pipeline.models.loading import fill_model, load_model, load_tokenizer
from pipeline.models.merging import Adapter, read_adapter
from pipeline.weights.receipts import code_of, receipt_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _PendingUpdate:
    """A weight update on its way into the engine's thread, and what becomes of it."""

    update: WeightUpdate
    result: Future[WeightsLoaded] = field(default_factory=Future)


class TransformersEngine:
    """A generator with the model of ``model_path`` on ``device``.

    ``generation.max_num_seqs`` sequences of a request are a batch, and run at once.
    ``runtime.generation_timeout_s`` bounds one batch; who waits, waits that long for each one ahead of it.

    A weight update goes ahead of queued requests. What the running one does is the update's ``mode``: it
    stops between two tokens and goes on (keep), its unfinished completions are written anew (abort), or its
    batch ends first (drain). What stands before an update is computed anew under it, unless not wanted.
    """

    def __init__(self, config: Config, model_path: str, device: str) -> None:
        if device == "cpu":
            torch.set_num_threads(min(torch.get_num_threads(), engine_threads(config)))
        trust = config.model.trust_remote_code
        dtype = getattr(torch, config.generation.dtype)
        model = load_model(model_path, dtype=dtype, device=device, trust_remote_code=trust)
        self._model = model
        self._model_path, self._trust = model_path, trust
        tokenizer = load_tokenizer(model_path, trust_remote_code=trust)
        self._max_num_seqs = config.generation.max_num_seqs
        self._timeout_s = config.runtime.generation_timeout_s
        self._update_timeout_s = config.runtime.weight_update_timeout_s
        self.policy_version = 0  # of the weights in place
        self._codes: dict[int, str] = {}  # of the receipts, by policy version
        self._pending: _PendingUpdate | None = None
        self._updates = asyncio.Lock()
        self._stop = threading.Event()
        self._writer = Writer(
            model=model,
            tokenizer=tokenizer,
            end_ids=_end_ids(model, tokenizer),
            interrupt=self._stop,
        )
        # A model's own generation_config.json (a repetition penalty, say) would change the
        # distribution behind the back of the log-probabilities.
        model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        self._lock = asyncio.Lock()
        self._num_batches = 0  # of those who wait or run
        self._closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="transformers-engine")

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield the request's ``num_generations`` completions, all at the end of its last batch.

        A log-probability is that of the sampled token under the distribution it was drawn from:
        log-softmax(logits / temperature), over what top_k and top_p left. The end-of-sequence token
        belongs to ``token_ids`` and not to ``text``; a stop string ends ``text`` and stays in it.
        With a seed a request gives the same completions each time. Raises ValueError for an empty
        prompt, TimeoutError for a batch that is late, RuntimeError when the engine is closed.
        """
        if not request.prompt_ids or request.num_generations < 1:
            raise ValueError(f"request {request.request_id}: needs a prompt and at least one generation")
        num_batches = math.ceil(request.num_generations / self._max_num_seqs)
        completions = await self._in_turn(request.request_id, lambda: self._generate(request), num_batches)
        for completion in completions:
            yield replace(completion, receipt=self._codes.get(completion.max_policy_version, ""))

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """Load new weights, or merge an adapter; all of it or nothing. A tied head may be in the file or not.

        Raises ValueError when the update is not newer, or its names or shapes are not the model's, OSError or
        SafetensorError when the file cannot be read: the old weights and their version stay then. Raises
        GeneratorError when it is not done within ``runtime.weight_update_timeout_s``, or what is held then is
        not what was published.
        """
        async with self._updates:
            if self._closed:
                raise RuntimeError(f"weight update {update.policy_version}: the engine is closed")
            if update.policy_version <= self.policy_version:
                raise ValueError(
                    f"weight update {update.policy_version} is not newer than {self.policy_version}"
                )
            pending = self._pending = _PendingUpdate(update)
            # The batch that runs may come first, and does in mode drain, where it has its own time.
            timeout_s = self._update_timeout_s + (self._timeout_s if update.mode == "drain" else 0.0)
            self._thread.submit(self._apply)
            try:
                loaded = await asyncio.wait_for(asyncio.wrap_future(pending.result), timeout_s)
                return require_version(loaded, update, "the Transformers generator")
            except TimeoutError as error:
                raise GeneratorError(
                    f"the Transformers generator did not load weights {update.policy_version} within "
                    f"{timeout_s:g} s (runtime.weight_update_timeout_s)"
                ) from error
            finally:
                self._pending = None

    async def sleep(self) -> None:
        """Nothing: what a request takes is given back at its end anyway."""

    async def wake(self) -> None:
        """Nothing, see ``sleep``."""

    async def stats(self) -> dict[str, float]:
        """Nothing is drafted here."""
        return {}

    async def reset(self) -> None:
        """See pipeline.generation.generator.Generator."""
        self._stop.set()
        what = "the return to the base weights"
        await self._in_turn(what, self._fill)
        self.policy_version = 0

    def _fill(self) -> None:
        fill_model(self._model, self._model_path, lambda whole, _: whole, trust_remote_code=self._trust)

    async def close(self) -> None:
        """End the running request at its next token and refuse new ones."""
        self._closed = True
        self._stop.set()
        await asyncio.to_thread(self._thread.shutdown, wait=True)

    async def _acquire(self, who: str, num_ahead: int) -> None:
        """Take the lock, in order of arrival, with so many batches ahead."""
        wait_s = self._timeout_s * (num_ahead + 1)
        try:
            async with asyncio.timeout(wait_s):
                await self._lock.acquire()
        except TimeoutError:
            raise TimeoutError(f"{who}: waited {wait_s:g} s for {num_ahead} batches ahead of it") from None
        if self._closed:
            self._lock.release()
            raise RuntimeError(f"{who}: the engine is closed")

    async def _in_turn(self, who: str, work: Callable[[], T], num_batches: int = 1) -> T:
        """Run ``work`` in the engine's thread, after what came before; when cancelled, stop it and wait."""
        num_ahead = self._num_batches
        self._num_batches += num_batches
        try:
            await self._acquire(who, num_ahead)
            return await self._run(work)
        finally:
            self._num_batches -= num_batches

    async def _run(self, work: Callable[[], T]) -> T:
        self._stop.clear()
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        # That it was interrupted is news to nobody, also where nobody waits for it any more.
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # The lock must not go on to the next while the thread still uses the model.
            self._stop.set()
            await asyncio.wait([future], timeout=self._timeout_s)
            raise
        finally:
            self._lock.release()

    def _generate(self, request: GenerationRequest) -> list[Completion]:
        random = torch.Generator(device=self._model.device)
        if request.seed is None:
            random.seed()
        else:
            random.manual_seed(request.seed)
        completions: list[Completion] = []
        while len(completions) < request.num_generations:
            # One that is to wait for what runs waits for no more than a batch.
            self._apply()
            batch = Batch(
                self._writer,
                request,
                first=len(completions),
                num=min(self._max_num_seqs, request.num_generations - len(completions)),
                random=random,
                version=self.policy_version,
                timeout_s=self._timeout_s,
                between_tokens=self._stops_here,
            )
            while not batch.write():
                # It has stopped for new weights.
                if self._apply() == "abort":
                    batch.restart(self.policy_version)
                else:
                    batch.resume(self.policy_version)
            completions += batch.completions()
        return completions

    def _stops_here(self, batch: Batch) -> bool:
        """Whether a batch stops after this token for new weights; over an old KV cache it need not."""
        # One look: the caller's thread takes back what is late.
        pending = self._pending
        if pending is None or pending.update.mode == "drain":
            return False
        if pending.update.mode != "keep_cache":
            return True
        self._apply()
        batch.resume(self.policy_version)
        return False

    def _apply(self) -> str:
        """Load the update that waits, if any; in the engine's thread, between two tokens or two requests.

        Returns its mode, or an empty string where nothing was loaded.
        """
        pending, self._pending = self._pending, None
        if pending is None or not pending.result.set_running_or_notify_cancel():
            return ""
        started_s, update = time.perf_counter(), pending.update
        try:
            held = self._load(update)
        except Exception as error:
            pending.result.set_exception(error)
            return ""
        version = self.policy_version = update.policy_version
        # There is nothing to hold it against where none was published.
        receipt = held if update.receipt else {}
        self._codes[version] = code_of(update.receipt, receipt)
        pause_s = time.perf_counter() - started_s
        pending.result.set_result(WeightsLoaded(policy_version=version, pause_s=pause_s, receipt=receipt))
        return update.mode

    def _load(self, update: WeightUpdate) -> dict[str, int]:
        """Load it; returns the digests of what is held then, of an adapter those of its factors."""
        version = update.policy_version
        if update.kind == "adapter":
            adapter = read_adapter(update.path)
            load_adapter(self._model, self._model_path, adapter)
            return receipt_of(adapter.named_factors(), version, scale=adapter.scale)
        load_weights(self._model, update.path)
        return receipt_of(self._model.named_parameters(), version)


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    ids: set[int] = set()
    for source in (model.generation_config.eos_token_id, model.config.eos_token_id, tokenizer.eos_token_id):
        ids.update(source if isinstance(source, list) else [] if source is None else [source])
    return frozenset(ids)


@torch.no_grad()
def load_weights(model: PreTrainedModel, path: str) -> None:
    """Load a safetensors file of Hugging Face names; a tied head may be in it or not."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        unknown = sorted(names - set(parameters))
        # Tied parameters are one object under several names; one of them is enough.
        loaded = {id(parameters[name]) for name in names & set(parameters)}
        missing = sorted(name for name, parameter in parameters.items() if id(parameter) not in loaded)
        if unknown or missing:
            raise ValueError(f"{path}: not the model's weights; unknown {unknown[:3]}, missing {missing[:3]}")
        for name in names:
            shape = file.get_slice(name).get_shape()
            if list(shape) != list(parameters[name].shape):
                raise ValueError(
                    f"{path}: {name} has shape {shape}, the model {list(parameters[name].shape)}"
                )
        for name in names:
            parameters[name].copy_(file.get_tensor(name))


@torch.no_grad()
def load_adapter(model: PreTrainedModel, model_path: str, adapter: Adapter) -> None:
    """Set the adapted weights to those of the base in ``model_path`` with the ``adapter`` added."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    merged = {
        name: adapter.merged(name, weight, torch.float32)
        for name, weight in base_weights(model_path)
        if name in adapter.factors
    }
    missing = sorted(set(adapter.factors) - (set(merged) & set(parameters)))
    if missing:
        raise ValueError(f"not an adapter of this model; it has no {missing[:3]}")
    for name, weight in merged.items():
        parameters[name].copy_(weight)
