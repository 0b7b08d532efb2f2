"""Completions of one prompt that Hugging Face's ``generate`` writes side by side, also across new weights.

A batch can stop between two tokens and go on from there: with what it has written (``resume``) or, what is
not finished, from the prompt (``restart``). Knows no queue and loads nothing.

Shapes: n rows that are still writing, P prompt tokens, t tokens that each of them has written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

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

from pipeline.generation.early_abort import AnswerWatch
from pipeline.generation.generator import VersionMarks
from pipeline.messages import Completion, GenerationRequest, SamplingSettings
from pipeline.models.prompts import decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The model, and what ends its completions: ``end_ids``, or ``interrupt``, which ends all of them."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    end_ids: frozenset[int]
    interrupt: threading.Event


@dataclass(slots=True, kw_only=True)
class _Row:
    """One completion so far; ``finish_reason`` is empty while it is written."""

    index: int
    marks: VersionMarks
    watch: AnswerWatch | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    num_watched: int = 0  # characters that the watch has been fed
    finish_reason: str = ""


class Batch(StoppingCriteria):
    """Completions ``first`` to ``first + num`` of ``request``, begun under ``version``.

    It, and what is written anew of it, has ``timeout_s``. ``between_tokens`` is asked after every token
    whether to stop there; it may change the model itself.
    """

    def __init__(
        self,
        writer: Writer,
        request: GenerationRequest,
        *,
        first: int,
        num: int,
        random: torch.Generator,
        version: int,
        timeout_s: float,
        between_tokens: Callable[[Batch], bool],
    ) -> None:
        self._writer = writer
        self._request = request
        self._random = random
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._between_tokens = between_tokens
        self._fault: Exception | None = None
        self._num_tokens = 0
        self._rows = [self._new_row(index, version) for index in range(first, first + num)]
        self._writing = list(self._rows)

    @torch.inference_mode()
    def write(self) -> bool:
        """Write until all rows have ended, or until ``between_tokens`` stops them; returns whether all have.

        Raises RuntimeError when interrupted, TimeoutError after the deadline.
        """
        prompt, rows = list(self._request.prompt_ids), self._writing
        input_ids = torch.tensor(
            [prompt + row.token_ids for row in rows], device=self._writer.model.device
        )  # [n, P + t]
        limit = self._request.sampling.max_completion_length
        sampler = _Sampler(self._request.sampling, self._random)
        num_before = self._num_tokens
        self._writer.model.generate(  # type: ignore[operator]
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            generation_config=GenerationConfig(  # type: ignore[no-untyped-call]
                do_sample=False,
                max_new_tokens=limit - num_before,
                pad_token_id=min(self._writer.end_ids, default=0),
            ),
            logits_processor=LogitsProcessorList([sampler]),
            stopping_criteria=StoppingCriteriaList([self]),
        )
        if self._fault is not None:
            raise self._fault
        logprobs = torch.stack(sampler.logprobs, dim=1).tolist()
        for row, scores in zip(rows, logprobs, strict=True):
            row.logprobs += scores[: len(row.token_ids) - num_before]
            if not row.finish_reason and self._num_tokens == limit:
                row.finish_reason = "length"
        self._writing = [row for row in rows if not row.finish_reason]
        return not self._writing

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        """Asked by ``generate`` after each token: ``input_ids`` [n, P + t] -> [n], True for rows that end."""
        token_ids = input_ids[:, len(self._request.prompt_ids) :].tolist()
        for row, ids in zip(self._writing, token_ids, strict=True):
            if row.finish_reason:
                # It is written on beside the others, for nothing.
                continue
            row.token_ids = ids
            if self._has_ended(row):
                row.finish_reason = "abort" if row.watch is not None and row.watch.is_hopeless else "stop"
        self._fault = self._what_ends_all()
        self._num_tokens = len(token_ids[0])
        ended = [bool(row.finish_reason) for row in self._writing]
        if self._fault is not None or (not all(ended) and self._between_tokens(self)):
            ended = [True] * len(ended)
        return torch.tensor(ended, device=input_ids.device)

    def resume(self, version: int) -> None:
        """What follows is written by ``version``."""
        for row in self._writing:
            row.marks.changed(self._num_tokens, version)

    def restart(self, version: int) -> None:
        """Throw away what is not finished and write it anew, by ``version``."""
        again = {row.index: self._new_row(row.index, version) for row in self._writing}
        self._rows = [again.get(row.index, row) for row in self._rows]
        self._writing = list(again.values())
        self._num_tokens = 0
        self._deadline_s = time.monotonic() + self._timeout_s

    def completions(self) -> list[Completion]:
        """The finished completions, in order."""
        return [self._completion(row) for row in self._rows]

    def _completion(self, row: _Row) -> Completion:
        runs = row.marks.runs(len(row.token_ids))
        versions = [run.policy_version for run in runs]
        text = decoded(self._writer.tokenizer, row.token_ids)
        return Completion(
            index=row.index,
            token_ids=tuple(row.token_ids),
            logprobs=tuple(row.logprobs),
            text=_cut(text, self._request.sampling.stop),
            finish_reason=row.finish_reason,
            min_policy_version=min(versions),
            max_policy_version=max(versions),
            version_runs=runs,
        )

    def _new_row(self, index: int, version: int) -> _Row:
        prefill = self._request.abort_prefill
        watch = None if prefill is None else AnswerWatch(prefill)
        return _Row(index=index, marks=VersionMarks(version), watch=watch)

    def _has_ended(self, row: _Row) -> bool:
        """Whether the row ends with its last token: at an end token, a stop string, or where its watch
        (pipeline.generation.early_abort) gives it up.
        """
        if row.token_ids[-1] in self._writer.end_ids:
            return True
        stop = self._request.sampling.stop
        if stop:
            # A stop string is searched in a tail; a token may carry less than one character.
            tail = decoded(self._writer.tokenizer, row.token_ids[-8 - 4 * max(map(len, stop)) :])
            if any(text in tail for text in stop):
                return True
        return row.watch is not None and self._is_hopeless(row, row.watch)

    def _is_hopeless(self, row: _Row, watch: AnswerWatch) -> bool:
        """Feed the row's watch at the end of a line."""
        if "\n" not in decoded(self._writer.tokenizer, row.token_ids[-1:]):
            return False
        # Behind the last line end half a character may stand.
        text, _, _ = decoded(self._writer.tokenizer, row.token_ids).rpartition("\n")
        piece = (text + "\n")[row.num_watched :]
        row.num_watched += len(piece)
        return watch.feed(piece)

    def _what_ends_all(self) -> Exception | None:
        if self._writer.interrupt.is_set():
            return RuntimeError("generation was interrupted")
        if time.monotonic() > self._deadline_s:
            return TimeoutError(
                "generation did not end in time (runtime.generation_timeout_s); "
                f"{self._num_tokens} tokens were made"
            )
        return None


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

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``input_ids`` [n, P + t], ``scores`` [n, V] (raw logits) -> [n, V] whose argmax is the sample."""
        if self._temperature == 0:
            noisy = logprobs = torch.log_softmax(scores.float(), dim=-1)
        else:
            kept = scores.float() / self._temperature
            for keep in self._filters:
                kept = keep(input_ids, kept)
            logprobs = torch.log_softmax(kept, dim=-1)
            noise = torch.empty_like(logprobs).exponential_(generator=self._random)
            noisy = logprobs - noise.clamp_min_(torch.finfo(noise.dtype).tiny).log_()
        self.logprobs.append(logprobs.gather(1, noisy.argmax(dim=-1, keepdim=True)).squeeze(1))
        return noisy


def _cut(text: str, stop: tuple[str, ...]) -> str:
    """``text`` up to the end of the stop string that is complete first."""
    ends = [text.index(string) + len(string) for string in stop if string in text]
    return text[: min(ends)] if ends else text
