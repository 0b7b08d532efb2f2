"""The drafter inside vLLM's engine process: history and n-gram drafts behind vLLM's proposer interface.

vLLM makes a ``HistoryProposer`` for ``method="custom_class"``, which pipeline.generation.vllm.engine names;
pipeline.generation.vllm.worker starts it. Drafts come from pipeline.generation.vllm.history, and
pipeline.generation.vllm.samplers verifies them.

How many tokens to draft follows from the sequences in flight, measured costs and measured acceptance
(``DraftPlanner``: pure, times come in as numbers). A draft token pays when the tokens it is expected to add
are worth the time that the longer forward takes; when none pays, nothing is drafted. Source of the limit:
FastGRPO (arXiv:2509.21792), whose rule for the depth of its draft trees is here that for the length of a
chain; what is drafted within the limit is chosen by expected throughput.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.config import VllmConfig

from pipeline.generation.vllm.history import Draft, HistoryIndex, HistorySequence

# Prompt tokens that a completion's row starts with, so that its first tokens can be found.
_CONTEXT = 12
# A batch must promise this much more throughput before it is drafted for: estimates are noisy, and the best
# of many is too good. With 1.03 the first pass of 16 sequences lost 6 % (benchmarks.generation).
MIN_GAIN = 1.1
# Decisions for nothing after which a batch size is not drafted for, and for how many steps.
_PATIENCE = 8
_REST_STEPS = 24
# One step in so many is plain although drafts would pay, so that the plain time stays known.
_PLAIN_EVERY = 48
_RATIO_WEIGHT = 0.1
_NEARLY_BEST = 0.9
# Of what earlier drafts say about acceptance, at each new one.
_DECAY = 0.999


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
            length, state = int(lengths[row]), self._runner.requests[name]
            left = int(state.sampling_params.max_tokens) - len(state.output_token_ids)
            # One token comes of itself, behind whatever is accepted.
            room = min(left, self._max_model_len - length) - 1
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


def draft_limit(capacity: int, num_sequences: int, most: int) -> int:
    """FastGRPO's rule (with its alpha of 1): min(floor(log2(capacity / num_sequences)), most), at least 0."""
    share = capacity / num_sequences
    return max(0, min(most, math.floor(math.log2(share)))) if share >= 1 else 0


def peak_capacity(forward_s: Mapping[int, float]) -> int:
    """The fewest tokens a forward with nearly the best throughput: from there on verifying is not free.

    ``forward_s`` maps the number of tokens of a forward to its seconds.
    """
    best = max(tokens / seconds for tokens, seconds in forward_s.items())
    return min(tokens for tokens, seconds in forward_s.items() if tokens / seconds >= _NEARLY_BEST * best)


class StepCosts:
    """Seconds of a decoding step by sequences and drafted tokens, from forwards measured at start.

    What a step costs beyond its forward (sampling, scheduling, attention over long contexts) is learnt as
    a ratio to the forward: one overall, and one for each class of sequences and drafts that was seen.
    """

    def __init__(self, forward_s: Mapping[int, float]) -> None:
        assert forward_s
        knots = sorted(forward_s)
        # A longer forward is never the cheaper one: what looks so is noise.
        seconds = list(accumulate((max(forward_s[tokens], 1e-9) for tokens in knots), max))
        self._seconds: list[float] = np.interp(range(knots[-1] + 1), knots, seconds).tolist()  # by tokens
        self._ratio = 1.5
        self._ratios: dict[tuple[int, int], tuple[float, int]] = {}

    def forward(self, num_tokens: int) -> float:
        """Seconds of a forward of ``num_tokens``, interpolated; beyond the longest measured in proportion."""
        longest = len(self._seconds) - 1
        return self._seconds[min(num_tokens, longest)] * max(1.0, num_tokens / longest)

    def predict(self, num_sequences: int, num_drafted: int) -> float:
        """Seconds of a step."""
        ratio, seen = self._seen(num_sequences, num_drafted)
        trust = seen / (seen + 4)
        return self.forward(num_sequences + num_drafted) * (trust * ratio + (1 - trust) * self._ratio)

    def record(self, num_sequences: int, num_drafted: int, seconds: float) -> None:
        """Learn from a step that took ``seconds``; a hiccup counts as twice the expected at most."""
        expected = self.predict(num_sequences, num_drafted)
        forward = self.forward(num_sequences + num_drafted)
        old, seen = self._seen(num_sequences, num_drafted)
        # The first steps may be off by any factor: the forwards were measured without all the rest.
        most = 2.0 if seen >= 4 else 20.0
        ratio = min(max(seconds, expected / most), expected * most) / forward
        # The first time it is 1: nothing of the overall ratio is left.
        weight = max(_RATIO_WEIGHT, 1 / (seen + 1))
        self._ratios[_class(num_sequences, num_drafted)] = (old + weight * (ratio - old), seen + 1)
        self._ratio += _RATIO_WEIGHT * (ratio - self._ratio)

    def _seen(self, num_sequences: int, num_drafted: int) -> tuple[float, int]:
        """The ratio of this class, or the overall one, and how many steps have shown it."""
        return self._ratios.get(_class(num_sequences, num_drafted), (self._ratio, 0))


def _class(num_sequences: int, num_drafted: int) -> tuple[int, int]:
    return num_sequences.bit_length(), num_drafted.bit_length()


class Acceptance:
    """How often a drafted token is accepted, by the length of the match and the share that agreed."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], tuple[float, float]] = {}

    def chance(self, match_length: int, share: float) -> float:
        """Estimated probability that the token is accepted, given that those before it were."""
        accepted, tested = self._counts.get(self._bin(match_length, share), (0.0, 0.0))
        return (accepted + 6 * share) / (tested + 6)

    def record(self, match_length: int, shares: Sequence[float], num_accepted: int) -> None:
        """Learn from a verified draft; tokens behind the first refusal say nothing."""
        for place, share in enumerate(shares[: num_accepted + 1]):
            key = self._bin(match_length, share)
            accepted, tested = self._counts.get(key, (0.0, 0.0))
            self._counts[key] = (_DECAY * accepted + (place < num_accepted), _DECAY * tested + 1)

    @staticmethod
    def _bin(match_length: int, share: float) -> tuple[int, int]:
        return min(match_length, 12).bit_length(), min(int(share * 10), 9)


class DraftPlanner:
    """Divides the drafting of a step among its sequences; see the module's text."""

    def __init__(self, costs: StepCosts, capacity: int, most: int) -> None:
        self.costs = costs
        self.acceptance = Acceptance()
        self._capacity = capacity
        self._most = most
        # By size of the batch; beyond _PATIENCE it counts the steps of rest.
        self._num_declined: dict[int, int] = {}
        self._decisions = 0

    def limit(self, num_sequences: int) -> int:
        """Tokens to look for in each sequence; 0: do not even look."""
        most = draft_limit(self._capacity, num_sequences, self._most)
        size = num_sequences.bit_length()
        num_declined = self._num_declined.get(size, 0)
        if most and num_declined >= _PATIENCE:
            self._num_declined[size] = num_declined + 1 if num_declined < _PATIENCE + _REST_STEPS else 0
            return 0
        return most

    def choose(self, chances: Sequence[Sequence[float]]) -> list[int]:
        """How many tokens of each sequence's draft to verify, for the highest expected tokens a second.

        ``chances[i][j]`` is the chance of token j of sequence i, given the tokens before it.
        """
        num_sequences = len(chances)
        lengths = [0] * num_sequences
        survivals = sorted(
            ((chance, row) for row, of_row in enumerate(chances) for chance in accumulate(of_row, mul)),
            key=lambda candidate: -candidate[0],
        )
        self._decisions += 1
        if not survivals:
            return lengths
        best = MIN_GAIN * num_sequences / self.costs.predict(num_sequences, 0)
        expected, chosen = float(num_sequences), 0
        for count, (survival, _) in enumerate(survivals, start=1):
            expected += survival
            speed = expected / self.costs.predict(num_sequences, count)
            if speed > best:
                best, chosen = speed, count
        size = num_sequences.bit_length()
        self._num_declined[size] = 0 if chosen else self._num_declined.get(size, 0) + 1
        if self._decisions % _PLAIN_EVERY:
            for _, row in survivals[:chosen]:
                lengths[row] += 1
        return lengths
