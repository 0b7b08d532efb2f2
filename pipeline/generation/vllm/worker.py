"""Methods that vLLM adds to its worker, in the engine's process; called through ``collective_rpc``.

They put our samplers in place, measure forwards for the drafter, keep the random numbers of sampling, and
bind the OpenMP threads to cores of their own.

A sampler is tested before it is used, on made-up logits, without a model: does what it writes follow the
distribution? That catches what a new version of vLLM or a kernel broke; the whole engine is tested in
benchmarks.speculation_exactness.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from pipeline.generation.settings import bind_threads
from pipeline.generation.vllm.held_weights import held_adapter, held_parts
from pipeline.generation.vllm.proposer import DraftPlanner, StepCosts, peak_capacity
from pipeline.generation.vllm.samplers import CpuSampler, DeterministicDraftSampler
from pipeline.host.limits import return_freed_memory

_MAX_MEASURED_TOKENS = 256
_REPEATS = 3
_LONG_S = 0.15  # a forward of a large model: its first call costs little more than the next
_LOGITS = (2.0, 1.0, 0.5, 0.0, -0.5, -1.0, 1.5, 0.2)
_NUM_SEQUENCES = 8192
_NUM_DRAWN = 4 * 1024
_MIN_EXPECTED = 5
# Standard deviations of a chi-square statistic beyond which the sampler is refused: a sound one gets
# there next to never.
_LIMIT = 6.0


class WorkerMethods:
    """A part of vLLM's worker: ``self.model_runner`` is its model runner."""

    def bind_threads(self, cores: tuple[int, ...]) -> str:
        """See pipeline.generation.settings.bind_threads."""
        return bind_threads(cores)

    def use_cpu_sampler(self) -> str:
        """On a CPU draw tokens with our own sampler; returns why not, or an empty string."""
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        if runner.device.type != "cpu":
            return ""
        sampler = CpuSampler()
        fault = token_sampler_fault(sampler.topk_topp_sampler)
        if not fault:
            runner.sampler = sampler
        return fault

    def keep_random_state(self) -> None:
        """Remember where the random numbers of sampling stand: what a fresh engine begins with."""
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        # vLLM's runner of GPUs draws the seeds of its requests from numpy.
        self._random_state = torch.get_rng_state(), devices, np.random.get_state()

    def restore_random_state(self) -> None:
        """Go back to there."""
        host, devices, numpy_state = self._random_state
        np.random.set_state(numpy_state)
        torch.set_rng_state(host)
        torch.cuda.set_rng_state_all(devices)

    def begin_speculation(self, method: str, num_tokens: int, dynamic: bool, history_bytes: int) -> str:
        """Put in the exact sampler, test it, measure forwards, let the drafter begin.

        Returns why speculation stays off, or an empty string. Raises RuntimeError where it has to stay off
        and cannot.
        """
        runner: Any = self.model_runner  # type: ignore[attr-defined]

        def sampler() -> DeterministicDraftSampler:
            return DeterministicDraftSampler(runner.sampler, runner.speculative_config, runner.device)

        fault = draft_sampler_fault(sampler(), runner.device)
        if fault and method == "draft_model":
            # Our own drafter stays idle; vLLM's goes on, and vLLM's own sampler would verify.
            raise RuntimeError(
                f"acceleration.speculative.method: draft_model cannot be used, and vLLM cannot stop it: the "
                f"sampler that verifies drafts has failed its self-test: {fault}"
            )
        if fault:
            return fault
        # Another one: what is drafted for the test is not to be counted.
        runner.rejection_sampler = sampler()
        if method == "draft_model":
            return ""
        planner = None
        if dynamic:
            forward_s = _measured_forwards(runner)
            planner = DraftPlanner(StepCosts(forward_s), peak_capacity(forward_s), num_tokens)
        # The drafter knows how long a sequence may get; vLLM would draft zeros near the end.
        runner.effective_drafter_max_model_len = runner.max_model_len + num_tokens + 1
        runner.drafter.begin(
            runner,
            planner,
            num_tokens=num_tokens,
            history_bytes=history_bytes,
            shares_tasks=method == "history",
        )
        return ""

    def weight_receipt(self, policy_version: int, adapter_rank: int) -> dict[str, Any]:
        """The digests of what this process holds of that version, as plain values, in ``parts``.

        With an ``adapter_rank``, of the adapter that is served beside the base. Of one that was merged
        ``merged`` has the digests of what was to be held, and ``adapter`` those of its factors; ``given``
        has those of all tensors that came, where they are quantised.
        """
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        unread: list[str] = []
        if adapter_rank:
            parts = held_adapter(runner.lora_manager._adapter_manager, adapter_rank, policy_version)
        else:
            parts, unread = held_parts(runner.get_model(), policy_version)
        transfer: Any = self.weight_transfer_engine  # type: ignore[attr-defined]
        # The update and the digests leave gaps in the heap, which glibc keeps.
        return_freed_memory()
        return {
            "parts": [tuple(part) for part in parts],
            "unread": unread,
            "merged": transfer.merged,
            "adapter": transfer.adapter,
            "given": transfer.given,
        }

    def speculation_counts(self) -> dict[str, float]:
        """See DeterministicDraftSampler.counts."""
        counts: dict[str, float] = self.model_runner.rejection_sampler.counts()  # type: ignore[attr-defined]
        return counts


def _measured_forwards(runner: Any) -> dict[int, float]:
    """Seconds of forwards of 1, 2, 4, ... tokens, the best of a few each; of long ones fewer."""
    measured: dict[int, float] = {}
    # The processes of a split engine have clocks of their own, and compute each forward together.
    is_whole = runner.parallel_config.tensor_parallel_size == 1
    num_tokens = 1
    while num_tokens <= min(_MAX_MEASURED_TOKENS, runner.max_num_tokens):
        best = float("inf")
        for _ in range(_REPEATS):
            started = time.perf_counter()
            hidden, _ = runner._dummy_run(num_tokens)
            runner.model.compute_logits(hidden[:num_tokens])
            if runner.device.type == "cuda":
                torch.cuda.synchronize(runner.device)
            best = min(best, time.perf_counter() - started)
            if is_whole and best > _LONG_S:
                break
        measured[num_tokens] = best
        num_tokens *= 2
    return measured


def draft_metadata(drafts: Sequence[Sequence[int]], device: torch.device) -> SpecDecodeMetadata:
    """What vLLM's runner says about a batch: for each sequence its draft, then one place behind it."""
    counts = torch.tensor([len(draft) for draft in drafts])
    ends = (counts + 1).cumsum(0)
    is_last = torch.zeros(int(ends[-1]), dtype=torch.bool)
    is_last[ends - 1] = True
    places = torch.arange(len(is_last))
    return SpecDecodeMetadata(
        draft_token_ids=torch.tensor([token for draft in drafts for token in draft]).int().to(device),
        num_draft_tokens=counts.tolist(),
        cu_num_draft_tokens=counts.cumsum(0).int().to(device),
        cu_num_sampled_tokens=ends.int().to(device),
        target_logits_indices=places[~is_last].int().to(device),
        bonus_logits_indices=places[is_last].int().to(device),
        logits_indices=places.int().to(device),
    )


def sampling_metadata(
    num_sequences: int, device: torch.device, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> SamplingMetadata:
    """The same sampling for all sequences; temperature 0 is greedy."""
    ones = torch.ones(num_sequences, device=device)
    return SamplingMetadata(
        temperature=ones * temperature,
        all_greedy=temperature == 0,
        all_random=temperature > 0,
        top_p=ones * top_p if top_p < 1 else None,
        top_k=(ones * top_k).int() if top_k else None,
        generators={},
        max_num_logprobs=0,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=ones * 0,
        presence_penalties=ones * 0,
        repetition_penalties=ones,
        output_token_ids=[],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


def draft_sampler_fault(sampler: Callable[..., SamplerOutput], device: torch.device) -> str:
    """An empty string, or in what ``sampler``, called as vLLM's rejection sampler is, is wrong.

    Drafts are of different length and quality in the same batch, the temperature is not 1. The tokens of
    each place are compared with the distribution by a chi-square test, their log-probabilities exactly.
    """
    drafts = [((0, 3), (6,), (), (7, 7))[row % 4] for row in range(_NUM_SEQUENCES)]
    temperature = 0.7
    num_rows = sum(len(draft) + 1 for draft in drafts)
    logits = torch.tensor(_LOGITS, device=device).repeat(num_rows, 1)
    expected = torch.softmax(torch.tensor(_LOGITS, dtype=torch.float64) / temperature, dim=0)
    output = sampler(
        draft_metadata(drafts, device),
        None,
        logits,
        sampling_metadata(_NUM_SEQUENCES, device, temperature),
    )
    tokens = output.sampled_token_ids.cpu().long()
    logprobs = output.logprobs_tensors.logprobs.cpu().reshape(tokens.shape)
    # Every token that was written, wherever it stands, is a draw from the same distribution; apart by
    # kind of draft, because two wrong kinds could make up for each other.
    for kind in range(4):
        written = tokens[kind::4]
        for place in range(written.shape[1]):
            drawn = written[:, place][written[:, place] >= 0]
            if len(drawn) * float(expected.min()) < _MIN_EXPECTED:
                continue
            if chi_square_z(torch.bincount(drawn, minlength=len(_LOGITS)), expected) > _LIMIT:
                return f"tokens at place {place} of draft kind {kind} do not follow the distribution"
    is_written = tokens >= 0
    if not torch.allclose(logprobs[is_written].double(), expected.log()[tokens[is_written]], atol=1e-4):
        return "the log-probabilities of sampled tokens are wrong"
    return ""


def token_sampler_fault(sampler: Callable[..., tuple[torch.Tensor, torch.Tensor | None]]) -> str:
    """An empty string, or in what ``sampler``, called as vLLM's TopKTopPSampler is, is wrong.

    The vocabulary is larger than a block of the sampler's, its last token is likely and some are impossible.
    """
    logits = torch.linspace(-4.0, 1.0, 700)
    logits[5] = float("-inf")
    logits[300:600] = float("-inf")
    logits[601:640] = 2.0
    expected = torch.softmax(logits.double(), dim=0)
    is_common = expected * _NUM_DRAWN >= _MIN_EXPECTED
    counts = torch.zeros(len(logits), dtype=torch.int64)
    for _ in range(_NUM_DRAWN // 1024):
        tokens = sampler(logits.repeat(1024, 1), {}, None, None)[0]
        counts += torch.bincount(tokens, minlength=len(logits))
    if counts[expected == 0].any():
        return "it draws tokens that have no probability"
    pooled_expected = torch.cat([expected[is_common], expected[~is_common].sum()[None]])
    pooled_counts = torch.cat([counts[is_common], counts[~is_common].sum()[None]])
    if chi_square_z(pooled_counts, pooled_expected) > _LIMIT:
        return "its tokens do not follow the distribution"
    return ""


def chi_square_z(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """How many standard deviations Pearson's chi-square of ``counts`` lies above its mean.

    By Wilson and Hilferty's cube root, which makes it nearly normal. Expected shares must be positive.
    """
    means = expected * counts.sum()
    degrees = len(expected) - 1
    statistic = float(((counts - means) ** 2 / means).sum())
    spread = 2 / (9 * degrees)
    return float(((statistic / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))
