"""Tasks, answers and verdicts as these tests need them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from pipeline.messages import Completion, GenerationRequest
from rewards.result import RewardResult
from sandbox.result import Outcome
from tests.pipeline.fake_stages import FakeGenerator
from tests.pipeline.rollouts.groups import completion
from tests.pipeline.tiny_model import make_byte_tokenizer


def write_tasks(file: Path, names: str = "abc") -> Path:
    """A task for each letter of ``names``: a function of that name which gives back what it is given."""
    tests = [{"args": [3], "expected": 3}]
    lines = [
        {"task_id": name, "prompt": f"Write {name}(x): {name}(3) == 3", "entry_point": name, "tests": tests}
        for name in names
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def result_of(outcome: Outcome, detail: str = "") -> RewardResult:
    """The verdict of the tests."""
    passed = outcome is Outcome.PASS
    return RewardResult(
        reward=math.nan if outcome is Outcome.INFRA_ERROR else float(passed),
        breakdown={"tests": float(passed)},
        outcome=outcome,
        passed=passed,
        detail=detail,
        cached=False,
        seconds=0.5,
    )


class ScriptedGenerator(FakeGenerator):
    """Answers what ``answer`` says by request and index, the last one first; as many tokens as characters."""

    def __init__(self, answer: Callable[[str, int], str], *, num_missing: int = 0) -> None:
        super().__init__([], lambda request: None)
        self._answer = answer
        self._tokenizer = make_byte_tokenizer()
        self.num_missing = num_missing
        self.most_writing = 0
        self.requests: list[GenerationRequest] = []

    async def _write(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.requests.append(request)
        self.most_writing = max(self.most_writing, self.num_writing)
        for index in reversed(range(self.num_missing, request.num_generations)):
            await asyncio.sleep(0)
            text = self._answer(request.request_id, index)[: request.sampling.max_completion_length]
            # One for each character, also where the tokenizer has one for several.
            token_ids = tuple(self._tokenizer.encode(one, add_special_tokens=False)[0] for one in text)
            yield replace(completion(index, length=len(text)), text=text, token_ids=token_ids)
