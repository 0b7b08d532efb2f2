"""Training on conversations: each answer goes on by itself, and what is trained on is what was sampled."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.schema import Config, GenerationConfig, GrpoConfig
from curriculum.task import Task
from pipeline.messages import (
    Completion,
    GenerationRequest,
    Rollout,
    RolloutGroup,
    SamplingSettings,
    VersionRun,
)
from pipeline.models.prompts import TurnTokens
from pipeline.record.audit import audit
from pipeline.rollouts.batch import batch_metrics, make_batch
from pipeline.rollouts.turns import Turn, TurnTerms, as_one, later_turns, write_one
from rewards.feedback import FeedbackError
from rewards.result import RewardResult
from tests.pipeline.fake_stages import GROUPS_PER_STEP, NUM_GENERATIONS, TASKS, FakeRun, make_config, scored
from tests.pipeline.tiny_model import make_byte_tokenizer

ANSWER = (7, 8)


@pytest.fixture
def terms() -> TurnTerms:
    tokenizer = make_byte_tokenizer()
    tokenizer.chat_template = None

    async def feedback(task: Task, completion: Completion, result: RewardResult, _: float) -> str:
        return f"It was {result.outcome}."

    return TurnTerms(
        tokens=TurnTokens(tokenizer, GenerationConfig(assistant_prefill=""), 400, TASKS[0]),
        feedback=feedback,
        kind="verdict",
        max_turns=3,
    )


def config_of(**rollouts: object) -> Config:
    return make_config(rollouts={"max_turns": 3, "feedback": "verdict", **rollouts})


def told(terms: TurnTerms, task: Task) -> int:
    return len(terms.tokens.encode(task, ANSWER, "It was wrong.")[1])


def one_passes_late(task: Task, index: int) -> RewardResult:
    """The first completion of a request never passes, and a later turn is the first of its request."""
    return scored(float(index == 1))


def test_feedback_is_asked_with_the_priority_of_its_group(tmp_path: Path, terms: TurnTerms) -> None:
    asked = []

    async def feedback(task: Task, completion: Completion, result: RewardResult, priority: float) -> str:
        asked.append(priority)
        return "It was wrong."

    run = FakeRun(tmp_path, config_of(), score_of=one_passes_late, turns=replace(terms, feedback=feedback))
    draws = {group.draw_id for group in run.take()}
    assert len(draws) > 1 and draws <= set(asked)


def test_what_failed_goes_on_and_what_passed_does_not(tmp_path: Path, terms: TurnTerms) -> None:
    run = FakeRun(tmp_path, config_of(), score_of=one_passes_late, turns=terms)
    for group in run.take():
        num_told = told(terms, group.task)
        for rollout in group.rollouts:
            ended = rollout.completion.index == 1
            assert len(rollout.earlier) == (0 if ended else 2)
            mask = (1, 1) if ended else ((1, 1) + (0,) * num_told) * 2 + (1, 1)
            assert rollout.sampled == mask and rollout.num_sampled == sum(mask)
            pairs = zip(rollout.completion.logprobs, mask, strict=True)
            logprobs = [value for value, is_sampled in pairs if is_sampled]
            assert logprobs == [-0.5, -0.25] * (len(rollout.earlier) + 1)
            assert {turn.feedback for turn in rollout.earlier} <= {"It was wrong."}
    assert audit(tmp_path / "run").violations == ()


def test_each_answer_goes_on_before_its_group_is_written(tmp_path: Path, terms: TurnTerms) -> None:
    run = FakeRun(tmp_path, config_of(), score_of=one_passes_late, turns=terms)
    first = run.take()[0].draw_id
    assert run.log.index(f"generate draw-{first}/0/turn 2") < run.log.index(f"completion draw-{first} 3")


def test_a_later_turn_draws_the_same_however_often_its_request_was_issued() -> None:
    async def seeds_of(attempt: int) -> list[int | None]:
        seeds: list[int | None] = []

        async def generate(request: GenerationRequest) -> AsyncIterator[Completion]:
            seeds.append(request.seed)
            yield completion((3,), (0,))

        request = GenerationRequest(
            request_id=f"draw-12.{attempt}",
            prompt_ids=(1,),
            num_generations=2,
            sampling=SamplingSettings(),
            seed=5,
        )
        for index, turn in ((0, 2), (1, 2), (0, 3)):
            await write_one(generate, request, f"{request.request_id}/{index}/turn {turn}", prompt_ids=(1, 2))
        return seeds

    first, second = (asyncio.run(seeds_of(attempt)) for attempt in (0, 1))
    assert first == second and len(set(first)) == 3


def test_a_pass_in_a_later_turn_is_discounted_for_each_turn_before_it(
    tmp_path: Path, terms: TurnTerms
) -> None:
    verdicts: dict[str, Iterator[float]] = {}

    def score_of(task: Task, index: int) -> RewardResult:
        # A whole group is scored at once: four first answers, then four second ones, then two.
        later = verdicts.setdefault(task.task_id, iter([0.0] * NUM_GENERATIONS + [1.0, 1.0, 0.0, 0.0]))
        return scored(next(later, 1.0))

    config = make_config(
        rollouts={"max_turns": 3, "feedback": "verdict", "turn_discount": 0.5},
        acceleration={"max_staleness": 0, "async_rewards": {"enabled": False}},
    )
    run = FakeRun(tmp_path, config, score_of=score_of, turns=terms)
    for group in run.take():
        rewards = sorted((len(rollout.earlier), rollout.result.reward) for rollout in group.rollouts)
        assert rewards == [(1, 0.5), (1, 0.5), (2, 0.25), (2, 0.25)]
        assert all(rollout.result.passed for rollout in group.rollouts)


def test_feedback_that_fails_is_no_wrong_answer(tmp_path: Path, terms: TurnTerms) -> None:
    async def feedback(task: Task, completion: Completion, result: RewardResult, _: float) -> str:
        if completion.index == 2:
            raise FeedbackError("no sandbox")
        return "Wrong."

    broken = replace(terms, feedback=feedback)
    run = FakeRun(tmp_path, config_of(), score_of=one_passes_late, turns=broken)
    for group in run.take():
        lost = [rollout for rollout in group.rollouts if rollout.result.is_infra_error]
        assert [(one.completion.index, one.result.detail) for one in lost] == [(2, "no sandbox")]
        assert math.isnan(lost[0].result.reward)


def test_feedback_that_fails_after_a_later_turn_leaves_what_was_judged(
    tmp_path: Path, terms: TurnTerms
) -> None:
    # A later answer is the first of its request.
    async def feedback(task: Task, completion: Completion, result: RewardResult, _: float) -> str:
        if completion.index == 0:
            raise FeedbackError("no sandbox")
        return "Wrong."

    broken = replace(terms, feedback=feedback)
    run = FakeRun(tmp_path, config_of(), score_of=lambda task, index: scored(float(index % 2)), turns=broken)
    group = next(iter(run.take()))
    lost = [rollout for rollout in group.rollouts if rollout.result.is_infra_error]
    assert [(one.completion.index, one.result.detail) for one in lost] == [
        (0, "no sandbox"),
        (2, "no sandbox"),
    ]
    assert [[str(turn.outcome) for turn in one.earlier] for one in lost] == [[], ["wrong"]]
    assert [one.num_sampled for one in lost] == [len(ANSWER), 2 * len(ANSWER)]


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_a_run_that_dies_and_goes_on_loses_nothing(
    tmp_path: Path, terms: TurnTerms, max_staleness: int
) -> None:
    config = make_config(max_staleness, rollouts={"max_turns": 3, "feedback": "verdict"})
    FakeRun(tmp_path, config, score_of=one_passes_late, turns=terms).die_in(2)
    resumed = FakeRun(tmp_path, config, score_of=one_passes_late, turns=terms).train()
    assert audit(tmp_path / "run").violations == ()
    ((num_draws,),) = resumed.rows("SELECT COUNT(*) FROM draws WHERE status = 'trained'")
    assert num_draws == 3 * GROUPS_PER_STEP
    turns = [json.loads(text) for (text,) in resumed.rows("SELECT turns FROM rollouts")]
    assert {len(one) for one in turns} == {0, 2}


def test_what_was_stored_comes_back_whole(tmp_path: Path, terms: TurnTerms) -> None:
    run = FakeRun(tmp_path, config_of(), score_of=one_passes_late, turns=terms)

    async def body() -> RolloutGroup:
        producing = asyncio.create_task(run.producer.run())
        group = (await run.buffer.take(1, 20))[0]
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)
        return group

    group = asyncio.run(asyncio.wait_for(body(), 30))
    (draw,) = [one for one in run.ledger.unfinished_draws() if one.draw_id == group.draw_id]
    prompt_ids = group.rollouts[0].prompt_ids
    # What a cache spared it is of the process that asked.
    whole = [
        replace(one, completion=replace(one.completion, num_cached_tokens=None)) for one in group.rollouts
    ]
    assert run.ledger.load_rollouts(draw, prompt_ids) == tuple(whole)
    run.close()


def completion(
    token_ids: tuple[int, ...], versions: tuple[int, ...], *, knows_runs: bool = True
) -> Completion:
    runs = tuple(VersionRun(policy_version=version, num_tokens=1) for version in versions)
    return Completion(
        index=3,
        token_ids=token_ids,
        logprobs=tuple(-float(token) for token in token_ids),
        text="code",
        finish_reason="stop",
        min_policy_version=min(versions),
        max_policy_version=max(versions),
        version_runs=runs if knows_runs and len(set(versions)) > 1 else (),
        receipt=f"receipt {max(versions)}",
    )


answers = st.lists(
    st.lists(st.tuples(st.integers(1, 99), st.integers(0, 3)), min_size=1, max_size=5), min_size=2, max_size=4
)


@given(
    answers=answers, feedback=st.lists(st.lists(st.integers(100, 199), max_size=4), min_size=3, max_size=3)
)
def test_a_conversation_is_one_sequence_of_what_was_sampled_and_told(
    answers: list[list[tuple[int, int]]], feedback: list[list[int]]
) -> None:
    parts = [
        completion(tuple(token for token, _ in one), tuple(sorted(version for _, version in one)))
        for one in answers
    ]
    turns = [
        Turn(feedback="no", feedback_ids=tuple(ids), completion=part, result=scored(0.0))
        for ids, part in zip(feedback, parts[1:], strict=False)
    ]
    whole, _, earlier = as_one(parts[0], scored(0.0), turns)
    rollout = Rollout(prompt_ids=(1, 2), completion=whole, result=scored(0.0), earlier=earlier)
    pairs = list(zip(whole.token_ids, whole.logprobs, whole.token_versions, rollout.sampled, strict=True))
    assert [pair[:3] for pair in pairs if pair[3]] == [
        (token, -float(token), version)
        for part in parts
        for token, version in zip(part.token_ids, part.token_versions, strict=True)
    ]
    assert [pair[:2] for pair in pairs if not pair[3]] == [
        (token, 0.0) for ids in feedback[: len(turns)] for token in ids
    ]
    assert whole.receipt == f"receipt {whole.max_policy_version}"
    assert all(one != other for one, other in pairwise(run.policy_version for run in whole.version_runs))


def test_a_conversation_with_an_answer_of_unknown_versions_counts_as_old_as_it_can_be() -> None:
    parts = [completion((1, 2), (0, 2), knows_runs=False), completion((3,), (2,))]
    turn = Turn(feedback="no", feedback_ids=(9,), completion=parts[1], result=scored(1.0))
    whole, result, _ = as_one(parts[0], scored(0.0), [turn])
    assert whole.token_versions == (0, 0, 0, 0) and result.passed


@pytest.mark.parametrize(
    ("grpo", "mask"),
    [
        (GrpoConfig(), (1, 1, 0, 0, 1)),
        # A warm start learns what passed, and nothing of what came before it.
        (GrpoConfig(warm_start_steps=2), (0, 0, 0, 0, 1)),
        (GrpoConfig(mask_truncated_completions=True), (1, 1, 0, 0, 1)),
    ],
)
def test_feedback_is_never_trained_on(grpo: GrpoConfig, mask: tuple[int, ...]) -> None:
    turn = Turn(feedback="no", feedback_ids=(8, 9), completion=completion((5,), (1,)), result=scored(1.0))
    whole, result, earlier = as_one(completion((3, 4), (0, 0)), scored(0.0), [turn])
    rollouts = (
        Rollout(prompt_ids=(1, 2), completion=whole, result=result, earlier=earlier),
        Rollout(prompt_ids=(1, 2), completion=completion((6,), (0,)), result=scored(0.0)),
    )
    group = RolloutGroup(draw_id=1, task=TASKS[0], rollouts=rollouts)
    batch = make_batch(2, [group], grpo)
    sample = batch.samples[0]
    assert sample.token_ids == (1, 2, 3, 4, 8, 9, 5)
    assert sample.loss_mask == (0, 0, *mask)
    assert sample.old_logprobs == (0.0, 0.0, -3.0, -4.0, 0.0, 0.0, -5.0)
    assert batch.num_tokens == sum(sum(one.loss_mask) for one in batch.samples)
    metrics = batch_metrics(2, [group], Config(grpo=grpo))
    assert metrics["rollout/turns"] == 1.5 and metrics["rollout/repaired_share"] == 1.0
    # Three and one tokens were sampled, and in the first rollout two of feedback stand between them.
    assert metrics["rollout/completion_length"] == 2.0 and metrics["rollout/feedback_tokens"] == 1.0
    assert metrics["rollout/first_turn_pass_rate"] == 0.0 and metrics["rollout/pass_rate"] == 0.5
    # The ages of the four tokens that were sampled: 1, 1, 0 and 1.
    assert metrics["train/token_staleness_mean"] == 0.75


@pytest.mark.parametrize(("is_first", "mask"), [(True, (0, 0, 0, 1)), (False, (1, 1, 0, 0))])
def test_of_a_conversation_the_answer_that_was_cut_off_is_masked(
    is_first: bool, mask: tuple[int, ...]
) -> None:
    parts = [completion((3, 4), (0, 0)), completion((5,), (1,))]
    parts[not is_first] = replace(parts[not is_first], finish_reason="length")
    turn = Turn(feedback="no", feedback_ids=(8,), completion=parts[1], result=scored(1.0))
    whole, result, earlier = as_one(parts[0], scored(0.0), [turn])
    rollouts = (
        Rollout(prompt_ids=(1,), completion=whole, result=result, earlier=earlier),
        Rollout(prompt_ids=(1,), completion=completion((6,), (0,)), result=scored(0.0)),
    )
    group = RolloutGroup(draw_id=1, task=TASKS[0], rollouts=rollouts)
    grpo = GrpoConfig(mask_truncated_completions=True)
    assert make_batch(2, [group], grpo).samples[0].loss_mask == (0, *mask)
    assert batch_metrics(2, [group], Config(grpo=grpo))["rollout/truncated_share"] == pytest.approx(1 / 3)


def test_what_is_kept_of_feedback_is_what_was_told(terms: TurnTerms) -> None:
    async def feedback(task: Task, completion: Completion, result: RewardResult, _: float) -> str:
        return "Wrong. " * 400

    async def generate(request: GenerationRequest) -> AsyncIterator[Completion]:
        yield completion((7,), (0,))

    async def score(task: Task, answer: Completion) -> RewardResult:
        return scored(1.0)

    request = GenerationRequest(
        request_id="r", prompt_ids=(1,), num_generations=1, sampling=SamplingSettings()
    )
    long = replace(terms, feedback=feedback)
    first, result = completion((3,), (0,)), scored(0.0)
    (turn,), _ = asyncio.run(later_turns(long, generate, score, TASKS[0], request, first, result))
    assert len(turn.feedback_ids) <= 400 < len("Wrong. " * 400)
    assert turn.feedback.startswith("Wrong. Wrong.") and turn.feedback.endswith("...")
    assert terms.tokens.encode(TASKS[0], (3,), turn.feedback)[1] == turn.feedback_ids
