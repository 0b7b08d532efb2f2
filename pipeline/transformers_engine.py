"""The portable generator: Hugging Face ``generate`` where vLLM cannot run.

It speaks the Generator protocol and keeps its promises (log-probabilities, versions, stop strings),
not vLLM's speed: one request at a time, completions handed over when the longest has ended, no
paging, no prefix cache. It owns its model. Called by the orchestrator when generation.engine is
"transformers", and by tests that need a real, small generator.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from configs.schema import Config
from pipeline.early_abort import AnswerWatch
from pipeline.messages import Completion, GenerationRequest, SamplingSettings, WeightUpdate
from pipeline.models import load_model, load_tokenizer
from pipeline.transformers_weights import load_adapter, load_weights

T = TypeVar("T")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TransformersEngine:
    """A generator with the model of ``model_path`` on ``device``.

    ``generation.max_num_seqs`` sequences run at once. ``runtime.generation_timeout_s`` bounds one
    request; a queued request waits at most that long for each one ahead of it.
    """

    def __init__(self, config: Config, model_path: str, device: str) -> None:
        trust = config.model.trust_remote_code
        dtype = _DTYPES[config.generation.dtype]
        model = load_model(model_path, dtype=dtype, device=device, trust_remote_code=trust)
        self._model = model
        self._model_path = model_path
        self._tokenizer = load_tokenizer(model_path, trust_remote_code=trust)
        self._max_num_seqs = config.generation.max_num_seqs
        self._timeout_s = config.runtime.generation_timeout_s
        self._policy_version = 0
        self._end_ids = _end_ids(model, self._tokenizer)
        # A model's own generation_config.json (a repetition penalty, say) would change the
        # distribution behind the back of the log-probabilities.
        model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        self._lock = asyncio.Lock()
        self._num_queued = 0
        self._closed = False
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="transformers-engine")

    @property
    def policy_version(self) -> int:
        """The version of the weights in place."""
        return self._policy_version

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield the request's ``num_generations`` completions, all at the end of the batch.

        A log-probability is that of the sampled token under the distribution it was drawn from:
        log-softmax(logits / temperature), over what top_k and top_p left. The end-of-sequence token
        belongs to ``token_ids`` and not to ``text``; a stop string ends ``text`` and stays in it.
        With a seed a request gives the same completions each time. Raises ValueError for an empty
        prompt, TimeoutError after ``timeout_s``, RuntimeError when the engine is closed.
        """
        if not request.prompt_ids or request.num_generations < 1:
            raise ValueError(f"request {request.request_id}: needs a prompt and at least one generation")
        await self._acquire(request.request_id)
        try:
            completions = await self._in_thread(lambda: self._generate(request))
        finally:
            self._lock.release()
        for completion in completions:
            yield completion

    async def update_weights(self, update: WeightUpdate) -> float:
        """Load new weights, or merge an adapter, after the running request; all of it or nothing.

        Returns the seconds for which generation stood still. A tied head may be in the file or not.
        Raises ValueError when names or shapes are not the model's, OSError or SafetensorError when the
        file cannot be read: the old weights and their version stay then.
        """
        await self._acquire(f"weight update {update.policy_version}")
        try:
            started_s = time.perf_counter()
            if update.kind == "adapter":
                await self._in_thread(lambda: load_adapter(self._model, self._model_path, update.path))
            else:
                await self._in_thread(lambda: load_weights(self._model, update.path))
            self._policy_version = update.policy_version
            return time.perf_counter() - started_s
        finally:
            self._lock.release()

    async def close(self) -> None:
        """End the running request at its next token and refuse new ones."""
        self._closed = True
        self._stop.set()
        await asyncio.to_thread(self._thread.shutdown, wait=True)

    async def _acquire(self, who: str) -> None:
        """Take the lock, in order of arrival."""
        num_ahead = self._num_queued + int(self._lock.locked())
        self._num_queued += 1
        wait_s = self._timeout_s * (num_ahead + 1)
        try:
            async with asyncio.timeout(wait_s):
                await self._lock.acquire()
        except TimeoutError:
            raise TimeoutError(f"{who}: waited {wait_s:g} s for {num_ahead} requests ahead of it") from None
        finally:
            self._num_queued -= 1
        if self._closed:
            self._lock.release()
            raise RuntimeError(f"{who}: the engine is closed")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run ``work`` in the engine's thread; when cancelled, stop it and wait for its end."""
        self._stop.clear()
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # The lock must not go on to the next while the thread still uses the model.
            self._stop.set()
            await asyncio.wait([future], timeout=self._timeout_s)
            raise

    def _generate(self, request: GenerationRequest) -> list[Completion]:
        random = torch.Generator(device=self._model.device)
        if request.seed is None:
            random.seed()
        else:
            random.manual_seed(request.seed)
        deadline_s = time.monotonic() + self._timeout_s
        completions: list[Completion] = []
        while len(completions) < request.num_generations:
            completions += self._generate_batch(request, len(completions), random, deadline_s)
        return completions

    @torch.inference_mode()
    def _generate_batch(
        self, request: GenerationRequest, first: int, random: torch.Generator, deadline_s: float
    ) -> list[Completion]:
        """Completions ``first`` and on: as many as run at once (n)."""
        num_prompt_tokens = len(request.prompt_ids)
        n = min(self._max_num_seqs, request.num_generations - first)
        input_ids = torch.tensor([request.prompt_ids] * n, device=self._model.device)  # [n, P]
        sampler = _Sampler(request.sampling, random)
        ends = _Ends(
            self._tokenizer,
            num_prompt_tokens=num_prompt_tokens,
            end_ids=self._end_ids,
            stop=request.sampling.stop,
            watches=[AnswerWatch(request.abort_prefill) for _ in range(n)]
            if request.abort_prefill is not None
            else [],
            interrupt=self._stop,
            deadline_s=deadline_s,
        )
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=request.sampling.max_completion_length,
            pad_token_id=min(self._end_ids, default=0),
        )
        output = self._model.generate(  # type: ignore[operator]
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            generation_config=config,
            logits_processor=LogitsProcessorList([sampler]),
            stopping_criteria=StoppingCriteriaList([ends]),
        )
        assert isinstance(output, torch.Tensor)  # [n, P + C], C of the longest
        if ends.reason is not None:
            raise ends.reason
        sampler.score_last(output)
        token_ids = output[:, num_prompt_tokens:].tolist()
        logprobs = torch.stack(sampler.logprobs, dim=1).tolist()  # [n, C]
        return [
            Completion(
                index=first + row,
                token_ids=tuple(token_ids[row][:length]),
                logprobs=tuple(logprobs[row][:length]),
                text=_cut(_decode(self._tokenizer, token_ids[row][:length]), request.sampling.stop),
                finish_reason=ends.finish_reason(row),
                min_policy_version=self._policy_version,
                max_policy_version=self._policy_version,
            )
            for row in range(n)
            for length in [ends.lengths.get(row, len(token_ids[row]))]
        ]


class _Sampler(LogitsProcessor):
    """Draws the next token and keeps its log-probability, without keeping every step's logits.

    Temperature 0 takes the most probable token; its log-probability is then that at temperature 1.

    It adds Gumbel noise to the log-probabilities, whose argmax is an exact sample; ``generate`` then
    only takes the argmax. That gives each request its own random numbers and leaves torch's global
    generator, which the trainer may share, alone.
    """

    def __init__(self, sampling: SamplingSettings, random: torch.Generator) -> None:
        self.logprobs: list[torch.Tensor] = []  # one [n] a token
        self._temperature = sampling.temperature
        self._filters: list[LogitsProcessor] = []
        if sampling.top_k > 0:
            self._filters.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            self._filters.append(TopPLogitsWarper(sampling.top_p))
        self._random = random
        self._last: torch.Tensor | None = None  # [n, V]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``input_ids`` [n, t], ``scores`` [n, V] (raw logits) -> [n, V] whose argmax is the sample."""
        if self._last is not None:
            self.score_last(input_ids)
        if self._temperature == 0:
            self._last = torch.log_softmax(scores.float(), dim=-1)
            return self._last
        kept = scores.float() / self._temperature
        for keep in self._filters:
            kept = keep(input_ids, kept)
        self._last = torch.log_softmax(kept, dim=-1)
        noise = torch.empty_like(self._last).exponential_(generator=self._random)
        return self._last - noise.clamp_min_(torch.finfo(noise.dtype).tiny).log_()

    def score_last(self, input_ids: torch.Tensor) -> None:
        """Note the log-probability of the last token of each row of ``input_ids`` [n, t]."""
        assert self._last is not None
        self.logprobs.append(self._last.gather(1, input_ids[:, -1:]).squeeze(1))
        self._last = None


class _Ends(StoppingCriteria):
    """Finds where each row ends: at an end token, at a stop string, where its watch (pipeline.early_abort)
    gives it up; or all of them, at an interrupt.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        num_prompt_tokens: int,
        end_ids: frozenset[int],
        stop: tuple[str, ...],
        watches: Sequence[AnswerWatch],
        interrupt: threading.Event,
        deadline_s: float,
    ) -> None:
        self.lengths: dict[int, int] = {}  # row -> completion tokens, of the rows that ended
        self.reason: Exception | None = None
        self._tokenizer = tokenizer
        self._num_prompt_tokens = num_prompt_tokens
        self._end_ids = end_ids
        self._stop = stop
        self._watches = watches
        self._num_watched = [0] * len(watches)  # characters that each has been fed
        # A stop string is searched in a tail; a token may carry less than one character.
        self._tail = 8 + 4 * max((len(text) for text in stop), default=0)
        self._interrupt = interrupt
        self._deadline_s = deadline_s

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        """``input_ids`` [n, P + t] -> [n], True for rows that have ended."""
        rows = input_ids[:, self._num_prompt_tokens :]
        for row, tail in enumerate(rows[:, -self._tail :].tolist()):
            if row in self.lengths:
                continue
            if tail[-1] in self._end_ids or self._has_stop(tail) or self._is_hopeless(row, rows):
                self.lengths[row] = rows.shape[1]
        if self._interrupt.is_set():
            self.reason = RuntimeError("generation was interrupted")
        elif time.monotonic() > self._deadline_s:
            self.reason = TimeoutError(f"generation did not end in time; {rows.shape[1]} tokens were made")
        num_rows = input_ids.shape[0]
        ended = [self.reason is not None or row in self.lengths for row in range(num_rows)]
        return torch.tensor(ended, device=input_ids.device)

    def finish_reason(self, row: int) -> str:
        """As in pipeline.messages.Completion."""
        if row not in self.lengths:
            return "length"
        return "abort" if self._watches and self._watches[row].is_hopeless else "stop"

    def _is_hopeless(self, row: int, rows: torch.Tensor) -> bool:
        """Feed the row's watch at the end of a line; ``rows`` [n, t]."""
        if not self._watches or "\n" not in _decode(self._tokenizer, [int(rows[row, -1])]):
            return False
        # Behind the last line end half a character may stand.
        text, _, _ = _decode(self._tokenizer, rows[row].tolist()).rpartition("\n")
        piece = (text + "\n")[self._num_watched[row] :]
        self._num_watched[row] += len(piece)
        return self._watches[row].feed(piece)

    def _has_stop(self, tail: list[int]) -> bool:
        return bool(self._stop) and any(text in _decode(self._tokenizer, tail) for text in self._stop)


def _decode(tokenizer: PreTrainedTokenizerBase, token_ids: list[int]) -> str:
    text = tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


def _cut(text: str, stop: tuple[str, ...]) -> str:
    """``text`` up to the end of the stop string that is complete first."""
    ends = [text.index(string) + len(string) for string in stop if string in text]
    return text[: min(ends)] if ends else text


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    ids: set[int] = set()
    for source in (model.generation_config.eos_token_id, model.config.eos_token_id, tokenizer.eos_token_id):
        ids.update(source if isinstance(source, list) else [] if source is None else [source])
    return frozenset(ids)
