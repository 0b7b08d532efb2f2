"""Goes on after an answer that failed: feedback, another answer, its verdict, until one passes.

    answer ─► verdict ─► feedback ─► answer ─► verdict ─► ... at most max_turns answers

Each answer goes on by itself, as soon as its own verdict is there. A later turn is a request of one sequence
whose prompt is all that stands before it, token by token (pipeline.models.prompts), so that an engine finds
the beginning in its prefix cache. Does not begin a conversation, and does not decide what a pass is worth.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from curriculum.task import Task
from pipeline.generation.generator import GeneratorError
from pipeline.messages import Completion, EarlierTurn, GenerationRequest, VersionRun
from pipeline.models.prompts import TurnTokens, request_seed
from rewards.feedback import FeedbackError, without_told_test
from rewards.result import RewardResult, infra_error
from rewards.user_function import UserFunctionError

Generate = Callable[[GenerationRequest], AsyncIterator[Completion]]
Score = Callable[[Task, Completion], Awaitable[RewardResult]]
# With the priority among what waits for the reward workers, the smallest first.
Feedback = Callable[[Task, Completion, RewardResult, float], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An answer after feedback: what was told, its tokens ``feedback_ids`` before the answer, the verdict."""

    feedback: str
    feedback_ids: tuple[int, ...]
    completion: Completion
    result: RewardResult

    @property
    def num_tokens(self) -> int:
        """Tokens of the feedback and of the answer."""
        return len(self.feedback_ids) + len(self.completion.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTerms:
    """Conversations of at most ``max_turns`` answers; ``tokens`` encodes the ``feedback`` in between.

    ``kind`` of feedback says which tests still count after it, ``priority`` is what it is asked with.
    """

    tokens: TurnTokens
    feedback: Feedback
    kind: str
    max_turns: int
    priority: float = 0.0


async def later_turns(
    terms: TurnTerms,
    generate: Generate,
    score: Score,
    task: Task,
    request: GenerationRequest,
    first: Completion,
    result: RewardResult,
) -> tuple[tuple[Turn, ...], str]:
    """The turns after ``first``, an answer to ``request`` with the verdict ``result``, as ``terms`` say.

    ``generate`` writes the answers, ``score`` judges them. None after a pass, or after what could not be
    judged. Also why there was no feedback on the last of them, where it should have gone on; else "". Raises
    GeneratorError where an answer is missing, and whatever generator and score raise.
    """
    turns: list[Turn] = []
    prompt_ids, completion = request.prompt_ids, first
    while len(turns) + 1 < terms.max_turns and not result.passed and not result.is_infra_error:
        try:
            said = await terms.feedback(task, completion, result, terms.priority)
        except (FeedbackError, UserFunctionError) as error:
            return tuple(turns), str(error)
        feedback, feedback_ids = terms.tokens.encode(task, completion.token_ids, said)
        prompt_ids = (*prompt_ids, *completion.token_ids, *feedback_ids)
        name = f"{request.request_id}/{first.index}/turn {len(turns) + 2}"
        completion = await write_one(generate, request, name, prompt_ids=prompt_ids)
        task = without_told_test(terms.kind, task, result)
        result = await score(task, completion)
        turns.append(Turn(feedback=feedback, feedback_ids=feedback_ids, completion=completion, result=result))
    return tuple(turns), ""


async def write_one(
    generate: Generate,
    request: GenerationRequest,
    name: str,
    *,
    prompt_ids: tuple[int, ...],
    max_completion_length: int | None = None,
) -> Completion:
    """One more completion, sampled as ``request`` is, of ``prompt_ids``; ``name`` is its request's own.

    Raises GeneratorError where there is none.
    """
    longest = request.sampling.max_completion_length
    sampling = replace(request.sampling, max_completion_length=min(longest, max_completion_length or longest))
    # Without the request's name, which counts how often it was issued: a resume draws the same.
    place = name.removeprefix(request.request_id)
    one = replace(
        request,
        request_id=name,
        prompt_ids=prompt_ids,
        num_generations=1,
        sampling=sampling,
        seed=None if request.seed is None else request_seed(request.seed, place),
    )
    written = [completion async for completion in generate(one)]
    if len(written) != 1:
        raise GeneratorError(f"{name}: the generator gave {len(written)} of 1 completions")
    return written[0]


def as_one(
    first: Completion, result: RewardResult, turns: Sequence[Turn], fault: str = ""
) -> tuple[Completion, RewardResult, tuple[EarlierTurn, ...]]:
    """A whole conversation as one completion with its last verdict, and what came before: see Rollout.

    With a ``fault``, for which it did not go on, it has none. The tokens of feedback count as of the version
    that wrote the answer after them.
    """
    last = infra_error(fault, 0.0) if fault else turns[-1].result if turns else result
    if not turns:
        return first, last, ()
    answers = [first, *(turn.completion for turn in turns)]
    results = [result, *(turn.result for turn in turns)]
    told = [(), *(turn.feedback_ids for turn in turns)]
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    for feedback_ids, answer in zip(told, answers, strict=True):
        token_ids += feedback_ids + answer.token_ids
        logprobs += (0.0,) * len(feedback_ids) + answer.logprobs
    newest = max(answer.max_policy_version for answer in answers)
    whole = replace(
        answers[-1],
        index=first.index,
        token_ids=token_ids,
        logprobs=logprobs,
        min_policy_version=min(answer.min_policy_version for answer in answers),
        max_policy_version=newest,
        version_runs=_runs([len(ids) for ids in told], answers),
        num_cached_tokens=sum(answer.num_cached_tokens or 0 for answer in answers),
        receipt=next(one.receipt for one in reversed(answers) if one.max_policy_version == newest),
    )
    earlier = tuple(
        EarlierTurn(
            text=answer.text,
            num_tokens=len(answer.token_ids),
            feedback=turn.feedback,
            num_feedback_tokens=len(turn.feedback_ids),
            reward=verdict.reward,
            outcome=str(verdict.outcome),
            detail=verdict.detail,
            finish_reason=answer.finish_reason,
        )
        for answer, verdict, turn in zip(answers, results, turns, strict=False)
    )
    return whole, last, earlier


def _runs(num_told: Sequence[int], answers: Sequence[Completion]) -> tuple[VersionRun, ...]:
    """Which version wrote which token; nothing where one wrote all, or an answer does not say."""
    found: list[tuple[int, int]] = []
    for num_tokens, answer in zip(num_told, answers, strict=True):
        if not answer.version_runs and answer.min_policy_version != answer.max_policy_version:
            return ()
        whole = VersionRun(policy_version=answer.min_policy_version, num_tokens=len(answer.token_ids))
        runs = [(run.policy_version, run.num_tokens) for run in answer.version_runs or (whole,)]
        for version, num in [(runs[0][0], num_tokens), *runs]:
            if found and found[-1][0] == version:
                num += found.pop()[1]
            found.append((version, num))
    if len(found) == 1:
        return ()
    return tuple(VersionRun(policy_version=version, num_tokens=num) for version, num in found)
