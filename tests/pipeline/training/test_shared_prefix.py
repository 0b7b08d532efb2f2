"""Sharing what a group's completions begin with is exact: the loss, gradient and metrics of each alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.messages import TrainBatch, TrainingSample
from pipeline.training.batching import MicroBatchPlan, StepTotals
from pipeline.training.rows import Tree, share_prefix, share_prompt
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_groups
from tests.pipeline.training.builders import assert_each_near, micro_plans


def _alike(samples: Sequence[TrainingSample], lengths: Sequence[int]) -> list[TrainingSample]:
    """``samples`` of one group, each beginning with so many of the first one's completion tokens."""
    first, num_prompt = samples[0], samples[0].num_prompt_tokens
    found = []
    for sample, length in zip(samples, lengths, strict=True):
        end = num_prompt + min(length, len(first.token_ids) - num_prompt)
        found.append(replace(sample, token_ids=first.token_ids[:end] + sample.token_ids[end:]))
    return found


def _batch() -> TrainBatch:
    """Of one group all begin alike and two are equal; of one all are equal; of one none are alike.

    Equal completions keep log-probabilities and advantages of their own: the behaviour policy of each.
    """
    batch = make_groups((7, 1, 4, 3), [[9, 9, 6, 7], [5, 5, 5, 5], [4, 8, 6, 2], [1, 1, 2, 3]])
    groups = [list(batch.samples[start : start + 4]) for start in range(0, 16, 4)]
    groups[0] = _alike(groups[0], [9, 9, 4, 3])
    groups[1] = _alike(groups[1], [5, 5, 5, 5])
    groups[3] = _alike(groups[3], [1, 1, 1, 1])
    return replace(batch, samples=tuple(sample for group in groups for sample in group))


BATCH = _batch()


def assert_sharing_changes_nothing(
    folder: Path, batch: TrainBatch, *, packed: bool, **sections: Mapping[str, object]
) -> None:
    """Loss and gradient of ``batch``: the same with shared beginnings, shared prompts, nothing shared."""
    results = []
    for acceleration in ({"shared_prefix": True}, {"shared_prefix": False}, {"shared_prompt": False}):
        config = make_config(
            acceleration={**acceleration, "token_packing": {"enabled": packed}},
            training={"gradient_accumulation_steps": 4},
            **sections,
        )
        results.append(Trainer(config, folder).gradients(batch))
    loss, gradient = results[0]
    for expected_loss, expected in results[1:]:
        assert loss == pytest.approx(expected_loss, abs=1e-6)
        assert_each_near(gradient, expected)
        assert max(float(value.abs().max()) for value in expected.values()) > 1e-3


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize(
    "grpo",
    [
        *({"loss_type": name} for name in ("grpo", "dr_grpo", "dapo", "bnpo")),
        {"loss_type": "cispo", "epsilon_high": 5.0},
        {"importance_sampling_level": "sequence"},
    ],
)
def test_shared_beginnings_keep_loss_and_gradient(
    folder: Path, grpo: dict[str, object], beta: float, packed: bool
) -> None:
    assert_sharing_changes_nothing(folder, BATCH, packed=packed, grpo={**grpo, "beta": beta})


def _conversations() -> TrainBatch:
    """BATCH where a stretch of each longer completion is feedback, which has no loss tokens.

    Some of it lies in what the group shares, some begins there, and some is of one sequence alone.
    """
    samples = []
    for number, sample in enumerate(BATCH.samples):
        start = sample.num_prompt_tokens + 1 + number % 2
        end = min(start + 2 + number % 3, len(sample.token_ids) - 1)
        told = range(start, end)
        mask = tuple(int(is_on and place not in told) for place, is_on in enumerate(sample.loss_mask))
        old = tuple(value * is_on for value, is_on in zip(sample.old_logprobs, mask, strict=True))
        samples.append(replace(sample, loss_mask=mask, old_logprobs=old))
    batch = replace(BATCH, samples=tuple(samples))
    assert batch.num_tokens < BATCH.num_tokens
    return batch


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "grpo",
    [
        *({"loss_type": name, "beta": 0.1} for name in ("grpo", "dr_grpo", "dapo", "bnpo")),
        {"loss_type": "cispo", "epsilon_high": 5.0},
        {"importance_sampling_level": "sequence"},
    ],
)
def test_conversations_in_rows_have_the_gradient_of_each_alone(
    folder: Path, grpo: dict[str, object], packed: bool
) -> None:
    turns = {"max_turns": 2}
    assert_sharing_changes_nothing(folder, _conversations(), packed=packed, grpo=grpo, rollouts=turns)


def test_what_feedback_says_has_no_gradient_of_its_own(folder: Path) -> None:
    """Only through what comes after it: where all after it is masked too, other feedback changes nothing."""
    config = make_config(training={"gradient_accumulation_steps": 4})
    found = []
    for token in (5, 6):
        samples = []
        for sample in BATCH.samples:
            cut = sample.num_prompt_tokens + 1
            tail = len(sample.token_ids) - cut
            samples.append(
                replace(
                    sample,
                    token_ids=sample.token_ids[:cut] + (token,) * tail,
                    loss_mask=sample.loss_mask[:cut] + (0,) * tail,
                    old_logprobs=sample.old_logprobs[:cut] + (0.0,) * tail,
                )
            )
        batch = replace(BATCH, samples=tuple(samples))
        found.append(Trainer(config, folder).gradients(batch)[1])
    assert_each_near(found[0], found[1])


def test_a_step_reports_the_same_of_its_tokens(folder: Path) -> None:
    found = []
    for shared in (True, False):
        config = make_config(
            acceleration={"shared_prefix": shared}, training={"gradient_accumulation_steps": 4}
        )
        found.append(dict(Trainer(config, folder).step(BATCH).metrics))
    ours, expected = found
    num_shared = ours.pop("train/shared_prefix_tokens")
    assert num_shared > 0 == expected.pop("train/shared_prefix_tokens")
    # How full the rows are changes, and nothing else.
    assert ours.pop("train/pack_ratio") < expected.pop("train/pack_ratio")
    assert ours == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("max_tokens", [None, 12, 30, 1000])
def test_each_loss_token_is_predicted_from_its_own_past(max_tokens: int | None) -> None:
    plans = micro_plans(
        BATCH.samples,
        packs=max_tokens is not None,
        shares_prompts=True,
        acceleration={
            "shared_prefix": True,
            "skip_zero_advantages": False,
            "token_packing": {"max_tokens": max_tokens or 1, "min_pack_ratio": 0.0},
        },
    )
    found, expected = [], []
    for plan in plans:
        part = plan.build()
        assert part.layout is not None and part.position_ids is not None
        ids, positions = part.input_ids[0].tolist(), part.position_ids[0].tolist()
        pasts = _pasts(ids, positions, [(tree.num_prompt, tree.completions) for tree in part.layout.trees])
        for token, prediction in enumerate(part.prediction_ids.tolist()):
            assert part.token_starts[prediction] <= token < part.token_starts[prediction + 1]
            source, target = int(part.source_rows[prediction]), int(part.target_ids[prediction])
            found.append((pasts[source], target, float(part.old_logprobs[token])))
        for item in plan.samples:
            sample = item.sample
            for position in range(sample.num_prompt_tokens, len(sample.token_ids)):
                old = float(torch.tensor(sample.old_logprobs[position]))
                expected.append((sample.token_ids[:position], sample.token_ids[position], old))
    assert sorted(found) == sorted(expected)
    totals = StepTotals(num_samples=16, num_tokens=BATCH.num_tokens, num_parts=1, micro_plans=plans)
    if max_tokens == 1000:
        # Of the first group 3 tokens are shared by all, and two completions of 8 inputs are one branch.
        (plan,) = plans
        trees = [_tree_of(plan, num_prompt) for num_prompt in (7, 1, 4, 3)]
        assert [tree.num_prompt for tree in trees] == [7 + 3, 1 + 4, 4, 3]
        assert trees[0].completions == (8 - 3, 5 - 3, 6 - 3) and trees[1].completions == (0,)
        assert totals.num_shared_prompt_tokens == 3 * (7 + 1 + 4 + 3)
        assert totals.num_shared_tokens - totals.num_shared_prompt_tokens == (3 * 3 + 5) + 3 * 4 + 0


def _tree_of(plan: MicroBatchPlan, num_prompt: int) -> Tree:
    layout = plan.build().layout
    assert layout is not None
    places = [group[0].sample.num_prompt_tokens for group in plan.groups]
    return layout.trees[places.index(num_prompt)]


def _pasts(
    ids: Sequence[int], positions: Sequence[int], trees: Sequence[tuple[int, tuple[int, ...]]]
) -> list[tuple[int, ...]]:
    """For each place of a row the tokens that it sees, itself last."""
    pasts: list[tuple[int, ...]] = []
    start = 0
    for num_trunk, branches in trees:
        trunk = tuple(ids[start : start + num_trunk])
        pasts += [trunk[: place + 1] for place in range(num_trunk)]
        start += num_trunk
        for length in branches:
            branch = tuple(ids[start : start + length])
            pasts += [trunk + branch[: place + 1] for place in range(length)]
            start += length
    assert [len(past) - 1 for past in pasts] == list(positions)
    return pasts


TOKENS = st.lists(st.integers(0, 2), max_size=6).map(tuple)


@given(st.lists(TOKENS, min_size=1, max_size=6), st.integers(0, 3))
def test_every_sequence_can_be_read_back(ends: list[tuple[int, ...]], num_prompt: int) -> None:
    sequences = [(7,) * num_prompt + end for end in ends]
    for found in (share_prefix(sequences), share_prompt(sequences, num_prompt)):
        for sequence, number, offset in zip(sequences, found.suffix_of, found.offsets(), strict=True):
            assert found.prefix + found.suffixes[number] == sequence
            read = [
                found.token_ids[place + (offset if place >= len(found.prefix) else 0)]
                for place in range(len(sequence))
            ]
            assert tuple(read) == sequence
        assert len(found.token_ids) == found.tree.num_tokens <= sum(map(len, sequences))
    suffixes = share_prefix(sequences).suffixes
    assert len(set(suffixes)) == len(suffixes), "equal sequences are computed once"
    assert len({suffix[:1] for suffix in suffixes}) > 1 or suffixes == ((),), "the prefix is all they share"
