"""What early abort does to the expected gradient, by exact enumeration of a policy over four tokens.

The policy writes up to three tokens of "x = 1", "x = (", ")" and the end, each a line; its logits are a
table over prefixes. Groups of two, real advantages, the real watch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch

from pipeline.generation.early_abort import AnswerWatch
from pipeline.rollouts.batch import group_advantages
from rewards.syntax import check_syntax

TEXTS = ("x = 1\n", "x = (\n", ")\n", "")
END = 3
LENGTH = 3
FENCE = "```python\n"
Tokens = tuple[int, ...]
Gradient = torch.Tensor  # (prefixes, tokens)
PREFIXES = [prefix for length in range(LENGTH) for prefix in itertools.product(range(END), repeat=length)]
LOGITS = torch.randn(
    len(PREFIXES), len(TEXTS), generator=torch.Generator().manual_seed(0), dtype=torch.float64
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``tokens`` as they would be without abort, the first ``num_kept`` of them with it."""

    tokens: Tokens
    num_kept: int
    probability: float
    reward: float

    @property
    def is_aborted(self) -> bool:
        return self.num_kept < len(self.tokens)


def answers() -> list[Answer]:
    found = []
    for tokens in itertools.product(range(len(TEXTS)), repeat=LENGTH):
        if END in tokens:
            # Shorter answers once, not with everything that could stand behind their end.
            if any(token != 0 for token in tokens[tokens.index(END) + 1 :]):
                continue
            tokens = tokens[: tokens.index(END) + 1]
        rows = torch.log_softmax(LOGITS, dim=1)
        logprob = sum(float(rows[PREFIXES.index(tokens[:t]), tokens[t]]) for t in range(len(tokens)))
        program = "".join(TEXTS[token] for token in tokens)
        compiles = check_syntax(program).score == 1.0
        reward = 0.5 + 0.25 * program.count("x") if compiles else 0.1
        found.append(
            Answer(tokens=tokens, num_kept=kept(tokens), probability=math.exp(logprob), reward=reward)
        )
    return found


def kept(tokens: Tokens) -> int:
    watch = AnswerWatch(FENCE)
    for count, token in enumerate(tokens, start=1):
        if watch.feed(TEXTS[token]):
            return count
    return len(tokens)


ANSWERS = answers()


def score(tokens: Tokens, place: int) -> Gradient:
    """The gradient of log pi(tokens[place] | what is before it)."""
    row = PREFIXES.index(tokens[:place])
    gradient = torch.zeros_like(LOGITS)
    gradient[row] = -torch.softmax(LOGITS[row], dim=0)
    gradient[row, tokens[place]] += 1
    return gradient


def scores(tokens: Tokens, start: int, end: int) -> Gradient:
    return sum((score(tokens, place) for place in range(start, end)), torch.zeros_like(LOGITS))


SCORES = {
    (answer.tokens, end): scores(answer.tokens, 0, end)
    for answer in ANSWERS
    for end in (answer.num_kept, len(answer.tokens))
}


def expected(
    term: Callable[[Sequence[Answer], Sequence[float]], Gradient], scale_rewards: str = "group"
) -> Gradient:
    """The mean of ``term(group, advantages)`` over all groups of two."""
    total = torch.zeros_like(LOGITS)
    for group in itertools.product(ANSWERS, repeat=2):
        advantages = group_advantages([[answer.reward for answer in group]], scale_rewards=scale_rewards)[0]  # type: ignore[arg-type]
        total += group[0].probability * group[1].probability * term(group, advantages)
    return total


def gradient(loss_type: str, *, is_aborting: bool) -> Callable[[Sequence[Answer], Sequence[float]], Gradient]:
    """The policy gradient of one group, with the token weights of ``grpo.loss_type``."""

    def term(group: Sequence[Answer], advantages: Sequence[float]) -> Gradient:
        lengths = [answer.num_kept if is_aborting else len(answer.tokens) for answer in group]
        weights = {
            "dr_grpo": [1 / (2 * LENGTH)] * 2,
            "grpo": [1 / (2 * length) for length in lengths],
            "dapo": [1 / sum(lengths)] * 2,
        }[loss_type]
        parts = zip(group, advantages, weights, lengths, strict=True)
        return sum(
            (
                weight * advantage * SCORES[answer.tokens, length]
                for answer, advantage, weight, length in parts
            ),
            torch.zeros_like(LOGITS),
        )

    return term


def test_the_toy_policy_is_a_distribution_and_some_of_it_is_ended() -> None:
    assert math.isclose(sum(answer.probability for answer in ANSWERS), 1.0)
    aborted = [answer for answer in ANSWERS if answer.is_aborted]
    assert 0.1 < sum(answer.probability for answer in aborted) < 0.9
    assert {answer.reward for answer in aborted} == {0.1}
    assert len({answer.reward for answer in ANSWERS}) > 2


@pytest.mark.parametrize("scale_rewards", ["group", "none"])
def test_with_constant_token_weights_the_expected_gradient_is_the_same(scale_rewards: str) -> None:
    plain = expected(gradient("dr_grpo", is_aborting=False), scale_rewards)
    aborting = expected(gradient("dr_grpo", is_aborting=True), scale_rewards)
    assert plain.abs().max() > 1e-3
    torch.testing.assert_close(aborting, plain, rtol=0, atol=1e-14)


def test_the_terms_that_are_lost_have_mean_zero() -> None:
    def lost(group: Sequence[Answer], advantages: Sequence[float]) -> Gradient:
        return sum(
            (
                advantage * scores(answer.tokens, answer.num_kept, len(answer.tokens))
                for answer, advantage in zip(group, advantages, strict=True)
                if answer.is_aborted
            ),
            torch.zeros_like(LOGITS),
        )

    def magnitude(group: Sequence[Answer], advantages: Sequence[float]) -> Gradient:
        return lost(group, advantages).abs()

    assert expected(lost).abs().max() < 1e-14
    assert expected(magnitude).max() > 1e-4, "single terms are not zero: their noise is gone"


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_with_a_mean_over_each_answer_or_over_the_step_kept_tokens_weigh_more(loss_type: str) -> None:
    """The difference is A (1/k - 1/n) of the kept tokens less A / n of the lost ones.

    Of n tokens k are written: in twice an answer with grpo, in the step with dapo.
    """

    def difference(group: Sequence[Answer], advantages: Sequence[float]) -> Gradient:
        total = torch.zeros_like(LOGITS)
        for answer, advantage in zip(group, advantages, strict=True):
            counted = [answer, answer] if loss_type == "grpo" else group
            num_plain = sum(len(one.tokens) for one in counted)
            num_kept = sum(one.num_kept for one in counted)
            end = answer.num_kept
            total += advantage * (1 / num_kept - 1 / num_plain) * scores(answer.tokens, 0, end)
            total -= advantage / num_plain * scores(answer.tokens, end, len(answer.tokens))
        return total

    plain = expected(gradient(loss_type, is_aborting=False))
    found = expected(gradient(loss_type, is_aborting=True)) - plain
    assert found.abs().max() > 1e-4
    torch.testing.assert_close(found, expected(difference), rtol=0, atol=1e-14)
