"""Goes on after an answer that failed: feedback, another answer, its verdict, until one passes.

    answer ─► verdict ─► feedback ─► answer ─► verdict ─► ... at most max_turns answers

Each answer goes on by itself, as soon as its own verdict is there. A later turn is a request of one sequence
whose prompt is all that stands before it, token by token (pipeline.models.turns), so that an engine finds the
beginning in its prefix cache. Does not begin a conversation, and does not decide what a pass is worth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from curriculum.task import Task
from pipeline.generation.generator import Generator, GeneratorError
from pipeline.messages import Completion, GenerationRequest
from pipeline.models.turns import TurnTokens
from rewards.result import RewardResult

Score = Callable[[Task, Completion], Awaitable[RewardResult]]
Feedback = Callable[[Task, Completion, RewardResult], Awaitable[str]]


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


class TurnLoop:
    """Conversations of at most ``max_turns`` answers by ``generator``."""

    def __init__(
        self, generator: Generator, tokens: TurnTokens, feedback: Feedback, score: Score, max_turns: int
    ) -> None:
        self._generator = generator
        self._tokens = tokens
        self._feedback = feedback
        self._score = score
        self._max_turns = max_turns

    async def go_on(
        self, task: Task, request: GenerationRequest, first: Completion, result: RewardResult
    ) -> tuple[Turn, ...]:
        """The turns after ``first``, an answer to ``request`` with the verdict ``result``.

        None after a pass, or after what could not be judged. Raises GeneratorError where an answer is
        missing, and whatever generator, feedback and score raise.
        """
        turns: list[Turn] = []
        prompt_ids, completion = request.prompt_ids, first
        while len(turns) + 1 < self._max_turns and not result.passed and not result.is_infra_error:
            feedback = await self._feedback(task, completion, result)
            feedback_ids = self._tokens.feedback_ids(task, completion.token_ids, feedback)
            prompt_ids = (*prompt_ids, *completion.token_ids, *feedback_ids)
            name = f"{request.request_id}/{first.index}/turn {len(turns) + 2}"
            completion = await write_one(self._generator, request, name, prompt_ids=prompt_ids)
            result = await self._score(task, completion)
            turns.append(
                Turn(feedback=feedback, feedback_ids=feedback_ids, completion=completion, result=result)
            )
        return tuple(turns)


async def write_one(
    generator: Generator,
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
    one = replace(
        request,
        request_id=name,
        prompt_ids=prompt_ids,
        num_generations=1,
        sampling=sampling,
        seed=None if request.seed is None else _seed_of(request.seed, name),
    )
    written = [completion async for completion in generator.generate(one)]
    if len(written) != 1:
        raise GeneratorError(f"{name}: the generator gave {len(written)} of 1 completions")
    return written[0]


def _seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4]) >> 1
