"""The first steps of a run with ``grpo.warm_start_steps`` are supervised ones on verified answers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from pipeline.messages import Rollout, RolloutGroup, VersionRun
from pipeline.rollouts.batch import make_batch, warm_start_advantages
from pipeline.training.ranks import Ranks
from tests.pipeline.rollouts.groups import group, rollout
from tests.pipeline.tiny_model import make_config, make_model, save_model
from tests.pipeline.training.builders import gradients, relative_error

PROMPT = (3, 4, 5)
PASSING = ((7, 8, 9), (10, 11, 12, 13, 14), (7, 8, 9))
FAILING = ((20, 21), (22, 23, 24, 25))


def answer(token_ids: tuple[int, ...], *, passes: bool) -> Rollout:
    """Written by the policy itself: the log-probabilities are those of its weights."""
    one = rollout(1.0 if passes else 0.3)
    logprobs = _logprobs(make_model(seed=0), token_ids).tolist()
    completion = replace(
        one.completion,
        token_ids=token_ids,
        logprobs=tuple(logprobs),
        max_policy_version=0,
        version_runs=(VersionRun(num_tokens=len(token_ids), policy_version=0),),
    )
    return replace(one, prompt_ids=PROMPT, completion=completion)


def _logprobs(model: torch.nn.Module, token_ids: tuple[int, ...]) -> torch.Tensor:
    """Of each token after PROMPT: (L,)."""
    ids = torch.tensor([PROMPT + token_ids])
    logits = model(input_ids=ids).logits[0, len(PROMPT) - 1 : -1]
    chosen: torch.Tensor = logits.log_softmax(-1)[torch.arange(len(token_ids)), torch.tensor(token_ids)]
    return chosen


def a_group() -> RolloutGroup:
    answers = [answer(ids, passes=True) for ids in PASSING] + [answer(ids, passes=False) for ids in FAILING]
    return group(*answers)


def test_the_gradient_is_that_of_a_plain_supervised_step(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", seed=0)
    settings = {"warm_start_steps": 3}
    config = make_config(grpo=settings, generation={"temperature": 1.0})
    batch = make_batch(1, [a_group()], config.grpo)
    _, ours = gradients(Ranks(), config, folder, batch)
    plain = make_model(seed=0)
    kept = PASSING[:2]
    torch.autograd.backward(-torch.cat([_logprobs(plain, ids) for ids in kept]).mean())
    expected = {name: value.grad for name, value in plain.named_parameters() if value.grad is not None}
    assert relative_error(ours, expected) < 1e-5


def test_only_the_first_of_each_passing_answer_is_learned_from() -> None:
    config = make_config(grpo={"warm_start_steps": 3})
    batch = make_batch(3, [a_group()], config.grpo)
    assert [sample.advantage for sample in batch.samples] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert [sum(sample.loss_mask) for sample in batch.samples] == [3, 5, 0, 0, 0]
    assert batch.num_tokens == 8


def test_after_the_warm_start_the_advantages_are_relative_again() -> None:
    config = make_config(grpo={"warm_start_steps": 3})
    batch = make_batch(4, [a_group()], config.grpo)
    assert min(sample.advantage for sample in batch.samples) < 0 < batch.samples[0].advantage
    assert all(sum(sample.loss_mask) for sample in batch.samples)


def test_what_could_not_be_scored_is_no_wrong_answer() -> None:
    passed, lost = rollout(1.0), rollout(math.nan)
    assert warm_start_advantages(group(passed, lost))[0] == 1.0
    assert math.isnan(warm_start_advantages(group(passed, lost))[1])
    assert passed.completion.token_ids == lost.completion.token_ids
    assert warm_start_advantages(group(lost, passed, passed))[1:] == [1.0, 0.0]


def test_a_step_without_a_passing_answer_changes_nothing(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", seed=0)
    config = make_config(grpo={"warm_start_steps": 1})
    nothing = group(*(answer(ids, passes=False) for ids in FAILING))
    batch = make_batch(1, [nothing], config.grpo)
    assert batch.num_tokens == 0
    _, ours = gradients(Ranks(), config, folder, batch)
    assert all(not value.any() for value in ours.values())
