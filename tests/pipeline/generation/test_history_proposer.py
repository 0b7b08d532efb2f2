"""The drafter behind vLLM's interface, driven step by step by a stand-in for vLLM's runner."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.generation.vllm.proposer import DraftPlanner, HistoryProposer, StepCosts

MAX_MODEL_LEN = 64
PROMPT = (7, 8, 9)


class Runner:
    """Rows of tokens as vLLM's runner keeps them; ``step`` adds tokens and asks for drafts."""

    def __init__(self, proposer: HistoryProposer, max_tokens: int = 50) -> None:
        self.proposer = proposer
        self.max_tokens = max_tokens
        self.requests: dict[str, SimpleNamespace] = {}
        self.input_batch = SimpleNamespace(req_ids=[], num_prompt_tokens=np.zeros(0, dtype=np.int32))

    def step(self, sampled: dict[str, list[int]], prompt: tuple[int, ...] = PROMPT) -> dict[str, list[int]]:
        """One step of exactly these requests; those that are missing have ended."""
        for name in self.requests.keys() - sampled.keys():
            del self.requests[name]
        for name, tokens in sampled.items():
            state = self.requests.setdefault(
                name,
                SimpleNamespace(
                    output_token_ids=[],
                    prompt=prompt,
                    sampling_params=SimpleNamespace(max_tokens=self.max_tokens),
                ),
            )
            state.output_token_ids += tokens
        self.input_batch.req_ids = list(sampled)
        rows: NDArray[np.int32] = np.zeros((len(sampled), MAX_MODEL_LEN), dtype=np.int32)
        lengths = []
        for row, name in enumerate(sampled):
            tokens = [*self.requests[name].prompt, *self.requests[name].output_token_ids]
            rows[row, : len(tokens)] = tokens
            lengths.append(len(tokens))
        self.input_batch.num_prompt_tokens = np.array([len(self.requests[n].prompt) for n in sampled])
        drafts = self.proposer.propose(list(sampled.values()), np.array(lengths, dtype=np.int32), rows)
        return dict(zip(sampled, drafts, strict=True))


def started(planner: DraftPlanner | None = None, *, shares_tasks: bool = True, **more: int) -> Runner:
    model_config = SimpleNamespace(max_model_len=MAX_MODEL_LEN)
    proposer = HistoryProposer(SimpleNamespace(model_config=model_config))
    runner = Runner(proposer, **more)
    proposer.begin(runner, planner, num_tokens=4, history_bytes=1 << 20, shares_tasks=shares_tasks)
    return runner


def test_nothing_is_drafted_before_it_begins() -> None:
    proposer = HistoryProposer(SimpleNamespace(model_config=SimpleNamespace(max_model_len=MAX_MODEL_LEN)))
    assert Runner(proposer).step({"a": [1]}) == {"a": []}


def test_drafts_come_from_an_earlier_draw_of_the_same_prompt_and_from_siblings() -> None:
    runner = started()
    for tokens in ([1], [2], [3], [4]):
        runner.step({"1/0": tokens})
    assert runner.step({"2/0": [1]})["2/0"] == [2, 3, 4]
    # A sibling in flight went another way: now two places say what follows 2.
    assert runner.step({"2/0": [2, 5], "2/1": [1]})["2/1"][0] == 2
    assert runner.step({"3/0": [1]}, prompt=(7, 8, 8))["3/0"] == [], "another task"


def test_ngram_drafts_come_from_the_sequence_alone_and_are_forgotten_with_it() -> None:
    runner = started(shares_tasks=False)
    runner.step({"a": [1, 2, 3, 4]})
    assert runner.step({"b": [1]})["b"] == []
    assert runner.step({"b": [2, 3, 1, 2]})["b"][:1] == [3]
    assert runner.step({"b": [7]})["b"][:2] == [8, 9], "the prompt is a part of it"
    runner.step({"c": [1]})
    assert len(runner.proposer._index._tasks) == 1


def test_a_draft_leaves_room_for_the_token_that_comes_of_itself() -> None:
    runner = started(max_tokens=4)
    runner.step({"a": [1, 2, 3, 4]})
    assert runner.step({"b": [1]})["b"] == [2, 3]
    assert runner.step({"b": [2]})["b"] == [3]
    assert runner.step({"b": [3]})["b"] == []


def test_a_prompt_that_is_still_read_gets_no_draft() -> None:
    runner = started()
    runner.step({"a": [1, 2, 3]})
    assert runner.step({"b": []})["b"] == []
    assert runner.step({"b": [1]})["b"] == [2, 3]


@pytest.mark.parametrize(("seconds", "drafts"), [({1: 1e-6, 64: 1e-6}, True), ({1: 1e-6, 2: 1.0}, False)])
def test_the_planner_decides_from_measured_costs(seconds: dict[int, float], drafts: bool) -> None:
    planner = DraftPlanner(StepCosts(seconds), capacity=64, most=4)
    runner = started(planner)
    runner.step({"a": [1, 2, 3, 4]})
    assert bool(runner.step({"b": [1]})["b"]) == drafts


def test_verdicts_on_drafts_are_learnt() -> None:
    planner = DraftPlanner(StepCosts({1: 1e-6, 64: 1e-6}), capacity=64, most=4)
    runner = started(planner)
    runner.step({"a": [1, 2, 3, 4]})
    assert runner.step({"b": [1]})["b"] == [2, 3, 4]
    runner.step({"b": [2, 3, 5]})
    # Of three tokens with the same match and share two were accepted.
    assert list(planner.acceptance._counts.values()) == [pytest.approx((2.0, 3.0), abs=0.01)]
