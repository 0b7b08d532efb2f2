"""The rewards as a TRL reward function; tests/pipeline/test_baseline.py runs them inside TRL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.task import Task
from rewards.rubric import Scorer
from rewards.trl import make_reward_function, reward_metrics
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome

TASKS = tuple(
    Task(
        task_id=f"t/{name}",
        prompt=f"Write a function {name}(a, b).",
        entry_point=name,
        call_tests=(CallTest(args=(3, 2), expected=expected), CallTest(args=(0, 0), expected=0)),
    )
    for name, expected in (("add", 5), ("sub", 1))
)
BY_ID = {task.task_id: task for task in TASKS}
ADD = "def add(a, b):\n    return a + b\n```"


class BrokenSandbox:
    """A sandbox whose machinery fails: a fault that the real one does not show on demand."""

    level = "fake"

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        return ExecutionResult(
            outcome=Outcome.INFRA_ERROR,
            num_passed=0,
            num_tests=2,
            detail="broken",
            clean=False,
            cpu_s=0.0,
            wall_s=0.0,
            level=self.level,
        )


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with SandboxPool() as sandbox, Scorer(RewardsConfig(), ExecutionConfig(), None, sandbox) as instance:
        yield instance


def test_plain_and_conversational_completions_score_alike(scorer: Scorer) -> None:
    reward = make_reward_function(BY_ID, scorer, prefill="```python\n")
    message = [{"role": "assistant", "content": ADD}]
    rewards = reward(["p"] * 3, [ADD, message, "oops ("], task_id=["t/add", "t/add", "t/sub"])
    assert rewards == pytest.approx([1.0, 1.0, 0.1])


def test_an_infrastructure_error_is_none_for_trl() -> None:
    logged: dict[str, float] = {}
    with Scorer(RewardsConfig(), ExecutionConfig(), None, BrokenSandbox()) as scorer:
        reward = make_reward_function(BY_ID, scorer, prefill="```python\n")
        rewards = reward(["p"] * 2, [ADD, "oops ("], task_id=["t/add"] * 2, log_metric=logged.__setitem__)
    assert rewards == [None, 0.1]
    assert logged["rollout/infra_error_share"] == 0.5
    assert logged["rollout/pass_rate"] == 0.0
    assert logged["rollout/syntax_failure_share"] == 1.0


def test_no_rollout_at_all_has_no_metrics() -> None:
    assert reward_metrics([]) == {}


def test_an_unknown_task_is_named(scorer: Scorer) -> None:
    with pytest.raises(ValueError, match="t/mul"):
        make_reward_function(BY_ID, scorer)(["p"], [ADD], task_id=["t/mul"])
