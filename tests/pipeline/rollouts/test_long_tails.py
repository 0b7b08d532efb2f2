"""Longest first changes the order alone, and tokens that early abort saved are estimated."""

from __future__ import annotations

from pathlib import Path

import pytest

from curriculum.task import Task
from pipeline.messages import Completion
from pipeline.rollouts.lengths import AbortAccount, ExpectedLengths
from tests.pipeline.fake_stages import FakeRun, make_config


def completion(length: int, finish_reason: str = "stop") -> Completion:
    return Completion(
        index=0,
        token_ids=(7,) * length,
        logprobs=(-1.0,) * length,
        text="",
        finish_reason=finish_reason,
        min_policy_version=0,
        max_policy_version=0,
    )


def test_a_task_is_expected_to_answer_as_it_did_of_late() -> None:
    lengths = ExpectedLengths()
    assert lengths.expect("new", 30) > lengths.expect("other", 20), "long prompts first"
    lengths.record("a", 20, [10, 30])
    assert lengths.expect("a", 20) == 20
    lengths.record("a", 20, [100])
    assert lengths.expect("a", 20) == 60
    assert lengths.expect("new", 10) == 10 * (20 + 100) / 40, "the mean answer, by the length of the prompt"
    assert lengths.expect("new", 20) > lengths.expect("new", 10)


def test_what_an_aborted_completion_saved_is_what_others_had_left_there() -> None:
    account = AbortAccount()
    account.record(completion(5, "abort"))
    assert account.drain().num_tokens_saved == 0, "nothing is known yet"
    for length in (4, 10, 20):
        account.record(completion(length))
    account.record(completion(8, "abort"))
    account.record(completion(15, "abort"))
    counts = account.drain()
    assert counts.num_aborted == 2
    assert counts.num_tokens_saved == ((10 - 8) + (20 - 8)) / 2 + (20 - 15)
    assert account.drain().num_aborted == 0


def issued(run: FakeRun) -> list[str]:
    """The tasks in the order in which the generator was asked for them."""
    task_of = {
        f"draw-{draw_id}": task_id for draw_id, task_id in run.rows("SELECT draw_id, task_id FROM draws")
    }
    return [str(task_of[line.split()[1]]) for line in run.log if line.startswith("generate ")]


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_longest_first_asks_for_the_same_tasks_in_another_order(tmp_path: Path, max_staleness: int) -> None:
    """Six tasks, three steps of two: every step trains on the same tasks, the longer prompt asked first."""
    tasks = tuple(
        Task(task_id=f"t{index}", prompt="p" * index, entry_point="f", check_source="def check(f): pass")
        for index in range(6)
    )
    asked = {}
    trained = {}
    for is_on in (True, False):
        folder = tmp_path / str(is_on)
        folder.mkdir()
        config = make_config(
            acceleration={"max_staleness": max_staleness, "long_tails": {"longest_first": is_on}}
        )
        run = FakeRun(folder, config, tasks=tasks)
        run.producer._prompt_ids = lambda task: (1,) * (1 + len(task.prompt))
        run.train()
        asked[is_on] = issued(run)
        trained[is_on] = run.rows("SELECT draw_id, task_id FROM draws ORDER BY draw_id")
    assert trained[True] == trained[False]
    pairs = [asked[True][start : start + 2] for start in range(0, 6, 2)]
    assert [sorted(pair) for pair in pairs] == [
        sorted(asked[False][start : start + 2]) for start in range(0, 6, 2)
    ]
    assert pairs[0] == sorted(pairs[0], reverse=True), "no answers yet: the longer prompt first"
    assert asked[True] != asked[False]
