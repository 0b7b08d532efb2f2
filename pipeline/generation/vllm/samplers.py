"""The samplers that we put into vLLM: one that verifies drafted tokens, and a faster one for CPUs.

``DeterministicDraftSampler`` accepts a drafted token d with probability p(d); at the first rejection the
token is drawn from p without d, and after the last acceptance from p. Whatever d was and however it was
chosen, the tokens follow p: speculative sampling (arXiv:2211.17192, arXiv:2302.01318) for a drafter that puts
all its probability on d. vLLM's rejection sampler follows another distribution on CPU (vLLM 0.31.0 leaves the
temperatures of drafted rows uninitialised) and draws two vocabularies of random numbers a sequence. Plain
torch without host synchronisation, for CPU and GPU.

``CpuTokenSampler`` draws with one random number a row. vLLM's own divides every probability by an exponential
number; making those is a third of a decoding step of 64 small-model sequences. Here the cumulated
probabilities are searched (inverse transform sampling), in two levels, so that only one block of a row is
cumulated token by token. ``CpuSampler`` is vLLM's sampler around it, in memory that stays.

pipeline.generation.vllm.worker puts them in place and tests them first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from vllm.config import SpeculativeConfig
from vllm.config.model import LogprobsMode
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.logprobs import batched_count_greater_than
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p
from vllm.v1.sample.rejection_sampler import PLACEHOLDER_TOKEN_ID, RejectionSampler, generate_uniform_probs
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

# What the engine is started with.
_MODE: LogprobsMode = "processed_logprobs"
# Tokens whose probabilities are cumulated one by one.
_BLOCK = 128
# Keeps a search inside the mass when the last additions round differently.
_BELOW_ONE = 1 - 2.0**-50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """For D drafted tokens of B sequences, L = ``max_drafted`` at most of one; all tensors are on the device.

    ``sequence`` and ``place`` (D,) say where a drafted token stands; ``num_accepted`` (B,) how many were
    accepted; ``rejected`` (B,) whether one was not; ``rejected_row`` (B,) which row of D that is.
    """

    sequence: torch.Tensor
    place: torch.Tensor
    num_accepted: torch.Tensor
    rejected: torch.Tensor
    rejected_row: torch.Tensor
    max_drafted: int

    def spread(self, drafted: torch.Tensor, final: torch.Tensor, fill: float) -> torch.Tensor:
        """Values of the drafted places (D,) and of the tokens behind the accepted (B,), as (B, L + 1)."""
        grid = torch.full(
            (len(final), self.max_drafted + 1), fill, dtype=drafted.dtype, device=drafted.device
        )
        grid[self.sequence, self.place] = drafted
        grid.scatter_(1, self.num_accepted[:, None], final[:, None])
        return grid


class DeterministicDraftSampler(RejectionSampler):  # type: ignore[misc]
    """vLLM's model runner asks for every step in which a sequence has a draft."""

    def __init__(self, sampler: Sampler, spec_config: SpeculativeConfig | None, device: torch.device) -> None:
        super().__init__(sampler, spec_config, device)
        self._num_drafts = 0
        self._num_drafted = 0
        self._num_accepted = torch.zeros((), dtype=torch.int64, device=device)

    def counts(self) -> dict[str, float]:
        """Drafts (one a sequence and step), tokens drafted, tokens accepted."""
        return {
            "drafts": float(self._num_drafts),
            "drafted": float(self._num_drafted),
            "accepted": float(self._num_accepted),
        }

    def forward(
        self,
        metadata: SpecDecodeMetadata,
        draft_probs: torch.Tensor | None,
        logits: torch.Tensor,
        sampling_metadata: SamplingMetadata,
    ) -> SamplerOutput:
        """``logits`` (D + B, V): of each sequence its drafted places, then the place behind them.

        Returns the tokens, (B, L + 1) with -1 behind the last, and their log-probabilities under the
        distribution that they follow.
        """
        assert draft_probs is None, "drafts are deterministic here"
        assert sampling_metadata.max_num_logprobs == 0, "only the sampled token's log-probability"
        assert self.is_processed_logprobs_mode
        drafted_logits, last_logits = self._processed(metadata, logits, sampling_metadata)
        draft_ids = metadata.draft_token_ids.long()
        # A place that the scheduler only reserved holds -1: never accepted, and nothing to mask.
        is_real = draft_ids >= 0
        draft_ids = draft_ids.clamp(min=0)
        draft_values = drafted_logits.gather(1, draft_ids[:, None])
        drafted_norm = drafted_logits.logsumexp(dim=-1)
        draft_logprobs = draft_values[:, 0] - drafted_norm
        is_accepted = self._accept(metadata, drafted_logits, draft_logprobs, draft_ids, sampling_metadata)
        verdict = _judge(metadata, is_real & is_accepted)
        self._count(metadata, verdict)

        row = verdict.rejected_row
        final_norm = torch.where(verdict.rejected, drafted_norm[row], last_logits.logsumexp(dim=-1))
        final_logits = torch.where(verdict.rejected[:, None], drafted_logits[row], last_logits)
        is_masked = verdict.rejected & is_real[row]
        _mask(final_logits, draft_ids[row], is_masked)
        final_ids = self._draw(final_logits, sampling_metadata)
        is_kept = verdict.place < verdict.num_accepted[verdict.sequence]
        kept_ids = torch.where(is_kept, draft_ids, PLACEHOLDER_TOKEN_ID)
        tokens = verdict.spread(kept_ids.int(), final_ids.int(), PLACEHOLDER_TOKEN_ID)
        final_values = final_logits.gather(1, final_ids[:, None])
        logprobs = verdict.spread(draft_logprobs, final_values[:, 0] - final_norm, 0.0)
        # The masked token counts among the others again.
        is_above = is_masked & (draft_values[row, 0] >= final_values[:, 0])
        ranks = verdict.spread(
            batched_count_greater_than(drafted_logits, draft_values),
            batched_count_greater_than(final_logits, final_values) + is_above,
            0,
        )
        return SamplerOutput(
            sampled_token_ids=tokens,
            logprobs_tensors=LogprobsTensors(tokens.reshape(-1, 1), logprobs.reshape(-1, 1), ranks.flatten()),
        )

    def _count(self, metadata: SpecDecodeMetadata, verdict: _Verdict) -> None:
        self._num_drafts += sum(length > 0 for length in metadata.num_draft_tokens)
        self._num_drafted += sum(metadata.num_draft_tokens)
        self._num_accepted += verdict.num_accepted.sum()

    def _processed(
        self, metadata: SpecDecodeMetadata, logits: torch.Tensor, sampling: SamplingMetadata
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the drafted places (D, V) and of the last ones (B, V), as sampling shapes them."""
        last = logits[metadata.bonus_logits_indices].to(torch.float32)
        last = self.sampler.apply_logits_processors(last, sampling, True)
        drafted = logits[metadata.target_logits_indices].to(torch.float32)
        drafted = self.apply_logits_processors(drafted, sampling, metadata)
        if sampling.all_greedy:
            return drafted, last
        sequence = _sequences(metadata)
        temperature = torch.where(sampling.temperature < 1e-5, 1.0, sampling.temperature)
        last.div_(temperature[:, None])
        drafted.div_(temperature[sequence][:, None])
        top_k, top_p = sampling.top_k, sampling.top_p
        last = apply_top_k_top_p(last, top_k, top_p)
        drafted = apply_top_k_top_p(
            drafted,
            None if top_k is None else top_k[sequence],
            None if top_p is None else top_p[sequence],
        )
        return drafted, last

    def _accept(
        self,
        metadata: SpecDecodeMetadata,
        logits: torch.Tensor,
        logprobs: torch.Tensor,
        draft_ids: torch.Tensor,
        sampling: SamplingMetadata,
    ) -> torch.Tensor:
        """Whether each drafted token would be accepted if all before it are: (D,) bool."""
        if sampling.all_greedy:
            return torch.eq(logits.argmax(dim=-1), draft_ids)
        uniform = generate_uniform_probs(
            len(draft_ids), metadata.num_draft_tokens, sampling.generators, logits.device
        )
        is_accepted = torch.lt(uniform, logprobs.double().exp())
        if sampling.all_random:
            return is_accepted
        is_greedy = (sampling.temperature < 1e-5)[_sequences(metadata)]
        return torch.where(is_greedy, logits.argmax(dim=-1) == draft_ids, is_accepted)

    def _draw(self, logits: torch.Tensor, sampling: SamplingMetadata) -> torch.Tensor:
        """One token for each row: (B,) int64."""
        if sampling.all_greedy:
            return torch.argmax(logits, dim=-1)
        drawn = torch.as_tensor(
            self.sampler.topk_topp_sampler(logits.clone(), sampling.generators, None, None)[0]
        ).long()
        if sampling.all_random:
            return drawn
        return torch.where(sampling.temperature < 1e-5, logits.argmax(dim=-1), drawn)


def _sequences(metadata: SpecDecodeMetadata) -> torch.Tensor:
    """Which sequence each drafted token belongs to: (D,) int64."""
    device = metadata.draft_token_ids.device
    counts = torch.tensor(metadata.num_draft_tokens)
    rows = torch.arange(len(metadata.num_draft_tokens)).repeat_interleave(counts)
    return rows.to(device, non_blocking=True)


def _judge(metadata: SpecDecodeMetadata, is_accepted: torch.Tensor) -> _Verdict:
    """Find the first rejection of each sequence."""
    device = is_accepted.device
    counts = torch.tensor(metadata.num_draft_tokens)
    starts = (counts.cumsum(0) - counts).to(device, non_blocking=True)
    num_drafted = counts.to(device, non_blocking=True)
    sequence = _sequences(metadata)
    place = torch.arange(len(is_accepted), device=device) - starts[sequence]
    grid = torch.zeros((len(counts), metadata.max_spec_len), dtype=torch.int64, device=device)
    grid[sequence, place] = is_accepted.long()
    num_accepted = grid.cumprod(dim=1).sum(dim=1)
    return _Verdict(
        sequence=sequence,
        place=place,
        num_accepted=num_accepted,
        rejected=num_accepted < num_drafted,
        rejected_row=(starts + num_accepted).clamp(max=len(is_accepted) - 1),
        max_drafted=metadata.max_spec_len,
    )


def _mask(logits: torch.Tensor, token_ids: torch.Tensor, is_masked: torch.Tensor) -> None:
    """Take ``token_ids`` (B,) out of ``logits`` (B, V) where ``is_masked`` (B,), in place."""
    values = logits.gather(1, token_ids[:, None])[:, 0]
    logits.scatter_(1, token_ids[:, None], torch.where(is_masked, float("-inf"), values)[:, None])


class _Scratch:
    """fp32 memory that stays.

    glibc takes what is larger than 32 MB from the kernel each time, page by page, which costs more than what
    is done with it: 64 rows over a vocabulary of 152,000 are 39 MB.
    """

    def __init__(self) -> None:
        self._memory = torch.empty(0)

    def of_shape(self, shape: torch.Size) -> torch.Tensor:
        """A tensor of ``shape`` whose values are not set; the next one lies in the same place."""
        if self._memory.numel() < shape.numel():
            self._memory = torch.empty(shape.numel())
        return self._memory[: shape.numel()].view(shape)


class CpuTokenSampler(TopKTopPSampler):  # type: ignore[misc]
    """Takes the place of ``topk_topp_sampler`` in vLLM's sampler."""

    def __init__(self) -> None:
        super().__init__(_MODE)
        self._logprobs, self._probabilities = _Scratch(), _Scratch()

    def forward_cpu(
        self,
        logits: torch.Tensor,
        generators: dict[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One token for each row of ``logits`` (B, V), fp32, (B,) int64, and the log-probabilities (B, V).

        ``generators`` holds those of the rows that have a seed of their own. Log-probabilities are good until
        the next call.
        """
        logits = apply_top_k_top_p(logits, k, p)
        logprobs = torch.log_softmax(logits, dim=-1, out=self._logprobs.of_shape(logits.shape))
        probabilities = torch.exp(logprobs, out=self._probabilities.of_shape(logits.shape))
        uniform = torch.rand(len(logits), dtype=torch.float64)
        for row, generator in generators.items():
            uniform[row] = torch.rand((), dtype=torch.float64, generator=generator)
        return inverse_transform(probabilities, uniform), logprobs


class CpuSampler(Sampler):  # type: ignore[misc]
    """vLLM's sampler with a CpuTokenSampler.

    The rank of a sampled token, which nobody here reads, is 0 where its log-probability alone is asked for:
    counting what lies above it takes as long as drawing it.
    """

    def __init__(self) -> None:
        super().__init__(_MODE)
        self.topk_topp_sampler = CpuTokenSampler()
        self._logits = _Scratch()

    def forward(
        self,
        logits: torch.Tensor,
        sampling_metadata: SamplingMetadata,
        predict_bonus_token: bool = False,
        logprobs_mode_override: LogprobsMode | None = None,
    ) -> SamplerOutput:
        """As vLLM's: a token for each row of ``logits`` (B, V), of any floating type."""
        if logits.dtype is not torch.float32:
            logits = self._logits.of_shape(logits.shape).copy_(logits)
        return super().forward(logits, sampling_metadata, predict_bonus_token, logprobs_mode_override)

    @staticmethod
    def gather_logprobs(
        logprobs: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor
    ) -> LogprobsTensors:
        """As vLLM's; without ranks for ``num_logprobs`` 0."""
        if num_logprobs:
            return Sampler.gather_logprobs(logprobs, num_logprobs, token_ids)
        ids = token_ids[:, None]
        return LogprobsTensors(ids.int(), logprobs.gather(1, ids), torch.zeros_like(token_ids))


def inverse_transform(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The tokens at which the cumulated ``probabilities`` (B, V) exceed ``uniform`` (B,) of their sum.

    Blocks of fp32 are summed as they are, their sums in fp64. A token without probability is never drawn.
    """
    num_rows, vocabulary = probabilities.shape
    if missing := -vocabulary % _BLOCK:
        probabilities = torch.nn.functional.pad(probabilities, (0, missing))
    blocks = probabilities.view(num_rows, -1, _BLOCK)
    # In fp64 this sum alone takes longer than all the rest, and each probability is no more exact than it is.
    block_ends = blocks.sum(dim=-1).double().cumsum(dim=-1)
    wanted = uniform[:, None] * _BELOW_ONE * block_ends[:, -1:]
    block = torch.searchsorted(block_ends, wanted, right=True)
    before = torch.where(block > 0, block_ends.gather(1, (block - 1).clamp(min=0)), 0.0)
    ends = blocks[torch.arange(num_rows), block[:, 0]].double().cumsum(dim=-1)
    wanted = torch.minimum(wanted - before, ends[:, -1:] * _BELOW_ONE)
    return (block * _BLOCK + torch.searchsorted(ends, wanted, right=True))[:, 0]
