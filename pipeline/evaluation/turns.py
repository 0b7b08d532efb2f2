"""Second tries in an evaluation, beside answers that were drawn anew with as many tokens.

A second answer costs what it is long. So each answer that failed is resampled: fresh answers to the same
prompt until as many tokens are used as its later turns took, the last one cut off there. Without it more
turns would look good for no other reason than that they are more tries. Tokens are counted in two ways: those
that were sampled, as in pass@t (Olausson et al., Demystifying GPT Self-Repair for Code Generation, 2023), and
those of the feedback too, which are only read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from configs.rollouts_schema import MAX_FEEDBACK_LENGTH
from configs.schema import ExecutionConfig
from curriculum.judging import Executor
from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.evaluation.evaluate import EvaluatedSample, EvaluatedTurn, TextScorer
from pipeline.evaluation.forms import ChatForm
from pipeline.evaluation.passk import (
    Estimate,
    TaskCount,
    count_by_task,
    mean_pass_at_k,
    paired_difference,
    share,
)
from pipeline.generation.generator import Generator
from pipeline.messages import Completion, GenerationRequest
from pipeline.models.prompts import TurnTokens, decoded
from pipeline.rollouts.turns import TurnTerms, later_turns, write_one
from rewards.custom import CustomFeedback
from rewards.extract import extract_code
from rewards.feedback import make_feedback, refuse_feedback
from rewards.result import RewardResult, infra_error

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class SecondTries:
    """Goes on after failed answers of an evaluation, up to ``max_turns`` answers each.

    ``kind`` is one of configs.evaluation_options.FEEDBACK; ``custom`` has the last word. Raises ValueError
    for a template that cannot go on, and as ``refuse_feedback``.
    """

    def __init__(
        self,
        form: ChatForm,
        tokenizer: PreTrainedTokenizerBase,
        tasks: Sequence[Task],
        sandbox: Executor,
        execution: ExecutionConfig,
        *,
        max_turns: int,
        kind: str,
        custom: CustomFeedback | None = None,
    ) -> None:
        refuse_feedback(kind, tasks, "--feedback")
        self._form = form
        self._tokenizer = tokenizer
        self._sandbox = sandbox
        self._execution = execution
        self._kind = kind
        self._custom = custom
        self._one_at_a_time = asyncio.Lock()
        tokens = TurnTokens(tokenizer, form.generation, MAX_FEEDBACK_LENGTH, tasks[0])
        self._terms = TurnTerms(tokens=tokens, feedback=self._feedback, kind=kind, max_turns=max_turns)

    async def go_on(
        self,
        generator: Generator,
        scorer: TextScorer,
        task: Task,
        request: GenerationRequest,
        first: Completion,
        result: RewardResult,
    ) -> tuple[tuple[EvaluatedTurn, ...], bool | None, bool | None]:
        """The turns after ``first``, and of its sample ``resampled`` and ``resampled_by_answers``."""

        async def score(task: Task, completion: Completion) -> RewardResult:
            return await scorer.score(task, self._form.answer(task, completion.text))

        turns, fault = await later_turns(self._terms, generator.generate, score, task, request, first, result)
        shown = tuple(
            EvaluatedTurn(
                feedback=turn.feedback,
                text=self._form.answer(task, turn.completion.text),
                result=turn.result,
                num_tokens=turn.num_tokens,
            )
            for turn in turns
        )
        if fault:
            unjudged = EvaluatedTurn(feedback="", text="", result=infra_error(fault, 0.0), num_tokens=0)
            return (*shown, unjudged), None, None
        if not turns or request.sampling.temperature == 0:
            return shown, None, None
        num_told = sum(len(turn.feedback_ids) for turn in turns)
        budget = sum(turn.num_tokens for turn in turns)
        by_answers: bool | None = None
        for number in range(budget):
            name = f"{request.request_id}/{first.index}/fresh {number}"
            fresh = await write_one(
                generator.generate, request, name, prompt_ids=request.prompt_ids, max_completion_length=budget
            )
            cut = judged = await score(task, fresh)
            if by_answers is None and len(fresh.token_ids) > (left := budget - num_told):
                begun = decoded(self._tokenizer, fresh.token_ids[:left])
                cut = await score(task, replace(fresh, text=begun))
            if judged.is_infra_error or cut.is_infra_error:
                return shown, None, None
            budget -= max(1, len(fresh.token_ids))
            if by_answers is None and (cut.passed or budget <= num_told):
                by_answers = cut.passed
            if judged.passed or budget <= 0:
                return shown, judged.passed, by_answers
        return shown, False, by_answers

    async def _feedback(self, task: Task, completion: Completion, result: RewardResult, _: float) -> str:
        answer = self._form.answer(task, completion.text)
        program = extract_code(answer, task.entry_point, task.prompt)
        said = await asyncio.to_thread(
            make_feedback, self._kind, task, program, result, self._sandbox, self._execution
        )
        if self._custom is None:
            return said
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._custom.tell, task, answer, program, result, said)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """What more turns brought.

    ``pass_after[t]`` is the rate of answers that passed in one of the first t + 1 turns; ``repaired`` the
    share of first answers that failed and of which a later turn passed. ``resampled_by_answers`` is the rate
    where the later turns are replaced by fresh answers with as many tokens as were sampled in them,
    ``resampled`` with as many as they have, feedback included; ``above_...`` how much the last of
    ``pass_after`` is above it, paired by task. They are None for greedy answers, which are always the same.
    """

    pass_after: tuple[Estimate, ...]
    repaired: Estimate | None
    resampled_by_answers: Estimate | None
    above_resampled_by_answers: Estimate | None
    resampled: Estimate | None
    above_resampled: Estimate | None
    num_feedback_turns: int


def turn_report(samples: Sequence[EvaluatedSample], max_turns: int) -> TurnReport:
    """Count ``samples`` of conversations; those with a turn that could not be judged are left out.

    Raises StageError, with one reason, where none is left.
    """
    judged = [sample for sample in samples if sample.is_judged]
    if not judged:
        results = [result for one in samples for result in (one.result, *(turn.result for turn in one.turns))]
        reason = next((result.detail for result in results if result.is_infra_error), "there were none")
        raise StageError(
            f"evaluation: none of {len(samples)} conversations could be judged to its end: {reason}"
        )
    after = [_rates(judged, [_passes_within(one, number) for one in judged]) for number in range(max_turns)]
    failed = [one for one in judged if not one.result.passed]
    mended = [any(turn.result.passed for turn in one.turns) for one in failed]
    by_answers, above_by_answers = _beside(judged, [one.resampled_by_answers for one in judged], max_turns)
    resampled, above = _beside(judged, [one.resampled for one in judged], max_turns)
    return TurnReport(
        pass_after=tuple(mean_pass_at_k(counts, 1) for counts in after),
        repaired=share(_rates(failed, mended)) if failed else None,
        resampled_by_answers=by_answers,
        above_resampled_by_answers=above_by_answers,
        resampled=resampled,
        above_resampled=above,
        num_feedback_turns=sum(len(one.turns) for one in judged),
    )


def _beside(
    samples: Sequence[EvaluatedSample], fresh: Sequence[bool | None], max_turns: int
) -> tuple[Estimate | None, Estimate | None]:
    """The rate with ``fresh`` in place of later turns, and how much that with these is above it."""
    pairs = zip(samples, fresh, strict=True)
    compared = [(one, passed) for one, passed in pairs if one.result.passed or passed is not None]
    if all(passed is None for _, passed in compared):
        return None, None
    ones = [one for one, _ in compared]
    by_fresh = _rates(ones, [one.result.passed or bool(passed) for one, passed in compared])
    by_turns = _rates(ones, [_passes_within(one, max_turns - 1) for one in ones])
    return mean_pass_at_k(by_fresh, 1), paired_difference(by_fresh, by_turns)


def _passes_within(sample: EvaluatedSample, num_later: int) -> bool:
    return sample.result.passed or any(turn.result.passed for turn in sample.turns[:num_later])


def _rates(samples: Sequence[EvaluatedSample], passed: Sequence[bool]) -> tuple[TaskCount, ...]:
    return count_by_task(zip((sample.task_id for sample in samples), passed, strict=True))
