"""Self-tests of the samplers that we put into vLLM: does what they write follow the distribution?

Run in the engine's process before they are used (pipeline.generation.vllm.worker), on made-up logits, without
a model. They catch what a new version of vLLM or a kernel broke; the whole engine is tested in
benchmarks.speculation_exactness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

# Any callable with the signature of vLLM's rejection sampler.
DraftSampler = Callable[
    [SpecDecodeMetadata, torch.Tensor | None, torch.Tensor, SamplingMetadata], SamplerOutput
]
# Any callable with the signature of vLLM's TopKTopPSampler.
TokenSampler = Callable[
    [torch.Tensor, dict[int, torch.Generator], torch.Tensor | None, torch.Tensor | None],
    tuple[torch.Tensor, torch.Tensor | None],
]
_LOGITS = (2.0, 1.0, 0.5, 0.0, -0.5, -1.0, 1.5, 0.2)
_NUM_SEQUENCES = 8192
_NUM_DRAWN = 4 * 1024
_MIN_EXPECTED = 5
# Standard deviations of a chi-square statistic beyond which the sampler is refused: a sound one gets
# there once in some ten thousand starts of the engine.
_LIMIT = 6.0


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


def draft_sampler_fault(sampler: DraftSampler, device: torch.device) -> str:
    """An empty string, or in what the sampler is wrong.

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


def token_sampler_fault(sampler: TokenSampler) -> str:
    """An empty string, or in what a sampler without drafts is wrong; see draft_sampler_fault.

    The vocabulary is larger than a block of the sampler's, its last token is likely and one impossible.
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
