"""The samplers that we put into vLLM, on made-up logits: what they write follows the distribution.

The checks can fail: rules with a known bias, and vLLM's own sampler on CPU, are found out by them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from pipeline.generation.vllm.samplers import (
    CpuSampler,
    CpuTokenSampler,
    DeterministicDraftSampler,
    inverse_transform,
)
from pipeline.generation.vllm.worker import (
    WorkerMethods,
    chi_square_z,
    draft_metadata,
    draft_sampler_fault,
    sampling_metadata,
    token_sampler_fault,
)

CPU = torch.device("cpu")
# Logits of three places in a row, over five tokens.
PLACES = torch.tensor([[1.0, 0.0, -1.0, 0.5, 2.0], [0.0, 0.3, 1.5, -2.0, 0.0], [0.7, 0.1, 0.0, 0.0, -0.5]])
NUM_SEQUENCES = 30_000


@pytest.fixture(scope="module")
def sampler() -> DeterministicDraftSampler:
    torch.manual_seed(0)
    return DeterministicDraftSampler(CpuSampler(), None, CPU)


def verify(
    sampler: DeterministicDraftSampler, drafts: Sequence[tuple[int, ...]], sampling: SamplingMetadata
) -> SamplerOutput:
    """What is written where each sequence has the logits of PLACES and one of the ``drafts``."""
    rows = [row for draft in drafts for row in range(len(draft) + 1)]
    return sampler(draft_metadata(drafts, CPU), None, PLACES[rows], sampling)


def shaped(logits: torch.Tensor, temperature: float, top_k: int, top_p: float) -> torch.Tensor:
    """What sampling makes of logits (N, V): log-probabilities."""
    k = torch.full((len(logits),), top_k, dtype=torch.int32) if top_k else None
    p = torch.full((len(logits),), top_p) if top_p < 1 else None
    return torch.log_softmax(apply_top_k_top_p(logits / temperature, k, p).double(), dim=-1)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.3, 3, 1.0), (1.0, 0, 0.8)]
)
@pytest.mark.parametrize("draft", [(4, 2), (2, 3), (1, 1), (3, -1)])
def test_all_tokens_of_a_draft_jointly_follow_the_distribution(
    sampler: DeterministicDraftSampler,
    draft: tuple[int, int],
    temperature: float,
    top_k: int,
    top_p: float,
) -> None:
    sampling = sampling_metadata(NUM_SEQUENCES, CPU, temperature, top_k, top_p)
    tokens = verify(sampler, [draft] * NUM_SEQUENCES, sampling).sampled_token_ids
    logprobs = shaped(PLACES, temperature, top_k, top_p)
    # Where a draft was refused the later places were not written: -1.
    outcomes: dict[tuple[int, ...], float] = {}
    for first, second, third in itertools.product(range(5), repeat=3):
        chance = float(logprobs[0, first].exp())
        written = [first, -1, -1]
        if first == draft[0]:
            chance *= float(logprobs[1, second].exp())
            written[1] = second
            if second == draft[1]:
                chance *= float(logprobs[2, third].exp())
                written[2] = third
        outcomes[tuple(written)] = chance
    assert sum(outcomes.values()) == pytest.approx(1.0)
    possible = [outcome for outcome, chance in outcomes.items() if chance > 0]
    counts = torch.tensor([(tokens == torch.tensor(outcome)).all(dim=1).sum() for outcome in possible])
    assert counts.sum() == NUM_SEQUENCES, "nothing impossible is written"
    expected = torch.tensor([outcomes[outcome] for outcome in possible], dtype=torch.float64)
    assert chi_square_z(counts, expected) < 5


def test_log_probabilities_and_ranks_are_those_of_the_shaped_distribution(
    sampler: DeterministicDraftSampler,
) -> None:
    drafts = [(4, 2), (), (1,), (4, 2)] * 50
    output = verify(sampler, drafts, sampling_metadata(len(drafts), CPU, 0.7, 4))
    assert output.logprobs_tensors is not None
    expected = shaped(PLACES, 0.7, 4, 1.0)
    tokens = output.sampled_token_ids
    logprobs = output.logprobs_tensors.logprobs.reshape(tokens.shape)
    ranks = output.logprobs_tensors.selected_token_ranks.reshape(tokens.shape)
    assert tokens.shape == (200, 3)
    for sequence, place in itertools.product(range(200), range(3)):
        token = int(tokens[sequence, place])
        if token >= 0:
            assert float(logprobs[sequence, place]) == pytest.approx(float(expected[place, token]), abs=1e-5)
            assert int(ranks[sequence, place]) == int((expected[place] >= expected[place, token]).sum())


def test_greedy_sequences_take_the_most_likely_token_beside_sampled_ones(
    sampler: DeterministicDraftSampler,
) -> None:
    drafts = [(4, 2), (4, 0), (0, 2), ()]
    expected = [[4, 2, 0], [4, 2, -1], [4, -1, -1], [4, -1, -1]]
    greedy = sampling_metadata(4, CPU, temperature=0.0)
    assert verify(sampler, drafts, greedy).sampled_token_ids.tolist() == expected
    mixed = replace(
        greedy, all_greedy=False, all_random=False, temperature=torch.tensor([0.0, 1.0, 0.0, 0.0])
    )
    tokens = verify(sampler, drafts, mixed).sampled_token_ids
    for sequence in (0, 2, 3):
        assert tokens[sequence].tolist() == expected[sequence]


def test_a_sequence_with_a_seed_repeats_itself(sampler: DeterministicDraftSampler) -> None:
    seen = set()
    for _ in range(20):
        seeded = replace(
            sampling_metadata(3, CPU),
            generators={0: torch.Generator().manual_seed(5), 1: torch.Generator().manual_seed(6)},
        )
        output = verify(sampler, [(4, 2), (1,), (0,)], seeded)
        seen.add(tuple(map(tuple, output.sampled_token_ids[:2].tolist())))
    assert len(seen) == 1


class AcceptsAll(DeterministicDraftSampler):
    """A biased rule: every draft is taken."""

    def _accept(self, *arguments: object) -> torch.Tensor:
        return torch.ones(arguments[2].shape, dtype=torch.bool)  # type: ignore[attr-defined]


class AcceptsTooOften(DeterministicDraftSampler):
    """A subtly biased rule: a draft is taken with the square root of its probability."""

    def _accept(
        self,
        metadata: SpecDecodeMetadata,
        logits: torch.Tensor,
        logprobs: torch.Tensor,
        draft_ids: torch.Tensor,
        sampling: SamplingMetadata,
    ) -> torch.Tensor:
        return super()._accept(metadata, logits, logprobs / 2, draft_ids, sampling)


def test_the_self_test_passes_the_sampler_and_finds_biased_rules(sampler: DeterministicDraftSampler) -> None:
    for _ in range(20):
        assert draft_sampler_fault(sampler, CPU) == ""
    for biased in (AcceptsAll, AcceptsTooOften):
        assert "do not follow" in draft_sampler_fault(biased(sampler.sampler, None, CPU), CPU)

    def wrong_logprobs(
        metadata: SpecDecodeMetadata,
        draft_probs: torch.Tensor | None,
        logits: torch.Tensor,
        sampling: SamplingMetadata,
    ) -> SamplerOutput:
        output = sampler(metadata, draft_probs, logits, sampling)
        assert output.logprobs_tensors is not None
        output.logprobs_tensors.logprobs.mul_(1.01)
        return output

    assert "log-probabilities" in draft_sampler_fault(wrong_logprobs, CPU)


class AlwaysTheFirst(torch.nn.Module):
    """Draws token 0, whatever the logits are."""

    def forward(
        self, logits: torch.Tensor, generators: object, k: object, p: object
    ) -> tuple[torch.Tensor, None]:
        return torch.zeros(len(logits), dtype=torch.int64), None


def test_without_a_sound_sampler_our_drafter_stays_idle_and_vllms_is_refused() -> None:
    inner = Sampler("processed_logprobs")
    inner.topk_topp_sampler = AlwaysTheFirst()
    worker: Any = WorkerMethods()
    worker.model_runner = SimpleNamespace(sampler=inner, speculative_config=None, device=CPU)
    assert "do not follow" in worker.begin_speculation("history", 4, False, 1000)
    with pytest.raises(RuntimeError, match="draft_model cannot be used"):
        worker.begin_speculation("draft_model", 4, False, 0)


def test_what_is_drafted_for_the_self_test_is_not_counted() -> None:
    worker: Any = WorkerMethods()
    worker.model_runner = SimpleNamespace(sampler=CpuSampler(), speculative_config=None, device=CPU)
    assert worker.begin_speculation("draft_model", 4, False, 0) == ""
    assert worker.speculation_counts() == {"drafts": 0.0, "drafted": 0.0, "accepted": 0.0}
    installed = worker.model_runner.rejection_sampler
    verify(installed, [(4, 2), (1,)], sampling_metadata(2, CPU))
    assert worker.speculation_counts()["drafted"] == 3.0


def test_vllms_own_sampler_is_found_out_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a version of vLLM passes, the reason to replace its sampler is speed alone."""
    CpuPlatform.register_triton_kernel_overrides()
    own = RejectionSampler(Sampler("processed_logprobs"))
    # Its temperatures lie in memory that nothing has filled.
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *given, **more: new_empty(*given, **more).fill_(9))
    assert draft_sampler_fault(own, CPU) != ""


def test_the_cpu_sampler_passes_its_self_test() -> None:
    for _ in range(5):
        assert token_sampler_fault(CpuTokenSampler()) == ""


def test_the_self_test_finds_a_sampler_that_is_off() -> None:
    inner = CpuTokenSampler()
    assert "do not follow" in token_sampler_fault(lambda logits, *rest: inner(logits * 2.0, *rest))
    assert "no probability" in token_sampler_fault(lambda logits, *rest: inner(logits.clamp(min=-2), *rest))


@given(
    st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.001, 0.3, 2.0]), min_size=1, max_size=700).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_a_draw_is_where_the_cumulated_probabilities_pass_the_number(
    weights: list[float], uniform: float
) -> None:
    token = int(inverse_transform(torch.tensor([weights]), torch.tensor([uniform], dtype=torch.float64))[0])
    exact = torch.tensor(weights).double()
    assert exact[token] > 0
    ends = exact.cumsum(0)
    wanted = uniform * float(ends[-1])
    slack = 1e-6 * float(ends[-1])
    assert float(ends[token]) >= wanted - slack
    assert float(ends[token] - exact[token]) <= wanted + slack


def test_rows_are_drawn_apart() -> None:
    probabilities = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    numbers = torch.tensor([0.9, 0.4, 0.0], dtype=torch.float64)
    assert inverse_transform(probabilities, numbers).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vllms_sampler_around_it_writes_what_vllms_own_would(dtype: torch.dtype) -> None:
    """The same tokens where there is one choice, and the log-probabilities of those that were drawn."""
    own, ours = Sampler("processed_logprobs"), CpuSampler()
    for num_rows, vocabulary in ((3, 300), (40, 700), (2, 128)):
        logits = 3 * torch.randn(num_rows, vocabulary, generator=torch.Generator().manual_seed(0)).to(dtype)
        greedy = sampling_metadata(num_rows, CPU, temperature=0.0)
        assert torch.equal(
            ours(logits.clone(), greedy).sampled_token_ids, own(logits.clone(), greedy).sampled_token_ids
        )
        drawn = ours(logits.clone(), sampling_metadata(num_rows, CPU, temperature=0.7))
        assert drawn.logprobs_tensors is not None
        exact = shaped(logits.float(), 0.7, 0, 1.0).gather(1, drawn.sampled_token_ids.long())
        assert torch.allclose(drawn.logprobs_tensors.logprobs.double(), exact, atol=1e-5)
        assert torch.equal(drawn.logprobs_tensors.logprob_token_ids, drawn.sampled_token_ids)
        # With more than the sampled token's, ranks are vLLM's.
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        ids = drawn.sampled_token_ids[:, 0].long()
        found, expected = (one.gather_logprobs(logprobs, 2, ids) for one in (ours, own))
        assert torch.equal(found.logprobs, expected.logprobs)
        assert torch.equal(found.selected_token_ranks, expected.selected_token_ranks)
