"""The drafter inside vLLM's engine process: history and n-gram drafts behind vLLM's proposer interface.

vLLM makes a ``HistoryProposer`` for ``method="custom_class"``, which pipeline.generation.vllm.engine names;
pipeline.generation.vllm.worker starts it. Drafts come from pipeline.generation.vllm.history, their length
from pipeline.generation.vllm.draft_length, and pipeline.generation.vllm.samplers verifies them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.config import VllmConfig

from pipeline.generation.vllm.draft_length import DraftPlanner
from pipeline.generation.vllm.history import Draft, HistoryIndex, HistorySequence

# Prompt tokens that a completion's row starts with, so that its first tokens can be found.
_CONTEXT = 12


@dataclass(slots=True)
class _Running:
    """A request in flight: the sequence that it writes and how many of its tokens are in it."""

    sequence: HistorySequence
    num_indexed: int
    draft: Draft


class HistoryProposer:
    """Drafts from earlier completions of the same prompt, or from the sequence alone (``ngram``).

    Idle until ``begin``. Requests are told apart by their ids, tasks by their prompt's tokens.
    """

    def __init__(self, vllm_config: VllmConfig) -> None:
        self._max_model_len = vllm_config.model_config.max_model_len
        self._runner: Any = None
        self._requests: dict[str, _Running] = {}
        self._planner: DraftPlanner | None = None
        self._last_s = 0.0

    def load_model(self, model: torch.nn.Module) -> None:
        """There is none to load."""

    def begin(
        self,
        runner: Any,
        planner: DraftPlanner | None,
        *,
        num_tokens: int,
        history_bytes: int,
        shares_tasks: bool,
    ) -> None:
        """Start drafting for the requests of ``runner``; without ``planner`` always ``num_tokens``."""
        self._runner = runner
        self._planner = planner
        self._num_tokens = num_tokens
        self._shares_tasks = shares_tasks
        self._index = HistoryIndex(history_bytes)

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: NDArray[np.int32],
        token_ids_cpu: NDArray[np.int32],
        slot_mappings: object = None,
    ) -> list[list[int]]:
        """Drafts for the next step, one list a row of the batch; vLLM calls it after every step.

        ``sampled_token_ids`` holds what the step added to each row (nothing while a prompt is read), and
        the first ``num_tokens_no_spec[row]`` of ``token_ids_cpu[row]`` are the row's prompt and answer.
        """
        if self._runner is None:
            return [[] for _ in sampled_token_ids]
        names: list[str] = self._runner.input_batch.req_ids
        if self._planner is not None:
            self._learn(self._planner, names, sampled_token_ids)
        self._index_tokens(names, sampled_token_ids, num_tokens_no_spec, token_ids_cpu)
        drafts = self._draft(names, sampled_token_ids, num_tokens_no_spec, token_ids_cpu)
        self._last_s = time.perf_counter()
        return [list(draft.token_ids) for draft in drafts]

    def _learn(self, planner: DraftPlanner, names: Sequence[str], sampled_token_ids: list[list[int]]) -> None:
        """What the step cost, and which drafted tokens it accepted."""
        num_drafted, is_decoding = 0, True
        for name, sampled in zip(names, sampled_token_ids, strict=True):
            running = self._requests.get(name)
            if running is None or not sampled:
                is_decoding = False
                continue
            draft = running.draft
            if draft.token_ids:
                num_drafted += len(draft.token_ids)
                num_accepted = min(len(sampled) - 1, len(draft.token_ids))
                planner.acceptance.record(draft.match_length, draft.shares, num_accepted)
                running.draft = Draft()
        if is_decoding and names:
            planner.costs.record(len(names), num_drafted, time.perf_counter() - self._last_s)

    def _index_tokens(
        self,
        names: Sequence[str],
        sampled_token_ids: list[list[int]],
        lengths: NDArray[np.int32],
        token_ids: NDArray[np.int32],
    ) -> None:
        gone = self._requests.keys() - self._runner.requests.keys()
        for name in gone:
            finished = self._requests.pop(name)
            if not self._shares_tasks:
                self._index.drop(finished.sequence.task_key)
        for row, name in enumerate(names):
            if not sampled_token_ids[row]:
                continue
            running = self._requests.get(name)
            if running is None:
                running = self._requests[name] = self._open(name, row, token_ids)
            length = int(lengths[row])
            self._index.extend(running.sequence, token_ids[row, running.num_indexed : length].tolist())
            running.num_indexed = length

    def _open(self, name: str, row: int, token_ids: NDArray[np.int32]) -> _Running:
        num_prompt = int(self._runner.input_batch.num_prompt_tokens[row])
        prompt = token_ids[row, :num_prompt]
        if self._shares_tasks:
            task_key = prompt.tobytes()
            context = prompt[-_CONTEXT:].tolist()
        else:
            task_key = name.encode()
            context = prompt.tolist()
        sequence = self._index.open(task_key, context)
        return _Running(sequence=sequence, num_indexed=num_prompt, draft=Draft())

    def _draft(
        self,
        names: Sequence[str],
        sampled_token_ids: list[list[int]],
        lengths: NDArray[np.int32],
        token_ids: NDArray[np.int32],
    ) -> list[Draft]:
        drafts = [Draft()] * len(names)
        limit = self._num_tokens if self._planner is None else self._planner.limit(len(names))
        if not limit:
            return drafts
        for row, name in enumerate(names):
            if not sampled_token_ids[row]:
                continue
            length = int(lengths[row])
            # One token comes of itself, behind whatever is accepted.
            room = min(self._room(name), self._max_model_len - length) - 1
            drafts[row] = self._index.propose(
                self._requests[name].sequence.task_key,
                token_ids[row, max(0, length - _CONTEXT) : length].tolist(),
                min(limit, room),
            )
        if self._planner is None:
            return drafts
        acceptance = self._planner.acceptance
        chosen = self._planner.choose(
            [[acceptance.chance(draft.match_length, share) for share in draft.shares] for draft in drafts]
        )
        drafts = [draft.cut(length) for draft, length in zip(drafts, chosen, strict=True)]
        for name, draft in zip(names, drafts, strict=True):
            if draft.token_ids:
                self._requests[name].draft = draft
        return drafts

    def _room(self, name: str) -> int:
        """Tokens that the request may still write."""
        state = self._runner.requests[name]
        return int(state.sampling_params.max_tokens) - len(state.output_token_ids)
