"""The rewards as a TRL reward function, plain and async, also inside the installed GRPOTrainer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import LlamaForCausalLM
from trl import GRPOConfig

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.task import Task
from pipeline.baseline.training import CpuGRPOTrainer
from rewards.result import RewardResult, infra_error
from rewards.scorer import Scorer
from rewards.trl import make_async_reward_function, make_reward_function, reward_metrics
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, Outcome
from tests.fake_sandbox import FakeSandbox
from tests.pipeline.tiny_model import make_byte_tokenizer, save_byte_model

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


class ScorerOnThreads:
    """An awaitable scorer without Ray: one Scorer, on other threads than the event loop's."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._lock = asyncio.Lock()

    async def score(self, task: Task, text: str) -> RewardResult:
        async with self._lock:
            return await asyncio.to_thread(self._scorer.score, task, text)


class MeetingPool:
    """Answers nobody before ``num_guests`` are waiting: a batch that is scored in turn never ends.

    The reward is the number in the completion; "broken" is a fault of the machine, "raise" one of the pool.
    """

    def __init__(self, num_guests: int) -> None:
        self.num_waiting = 0
        self.num_cancelled = 0
        self._num_guests = num_guests
        self._all_here = asyncio.Event()

    async def score(self, task: Task, text: str) -> RewardResult:
        self.num_waiting += 1
        if self.num_waiting == self._num_guests:
            self._all_here.set()
        if text == "raise":
            raise RuntimeError("the pool is closed")
        try:
            await self._all_here.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if text == "broken":
            return infra_error("broken", 0.0)
        return result({"syntax": 1.0}, reward=float(text))


def result(breakdown: dict[str, float], reward: float = 1.0) -> RewardResult:
    return RewardResult(reward=reward, breakdown=breakdown, outcome=Outcome.PASS, passed=True, seconds=0.5)


@pytest.fixture(scope="module")
def scorer(sandbox: SandboxPool) -> Iterator[Scorer]:
    with Scorer(RewardsConfig(), ExecutionConfig(), sandbox) as instance:
        yield instance


def test_plain_and_conversational_completions_score_alike(scorer: Scorer) -> None:
    reward = make_reward_function(BY_ID, scorer, prefill="```python\n")
    message = [{"role": "assistant", "content": ADD}]
    rewards = reward(["p"] * 3, [ADD, message, "oops ("], task_id=["t/add", "t/add", "t/sub"])
    assert rewards == pytest.approx([1.0, 1.0, 0.1])


def test_of_a_conversation_with_tools_the_models_last_message_is_the_answer(scorer: Scorer) -> None:
    reward = make_reward_function(BY_ID, scorer)
    wrong = "```python\ndef add(a, b):\n    return 0\n```"
    conversation = [
        {"role": "assistant", "content": wrong, "tool_calls": []},
        {"role": "tool", "content": ["a", "list"]},
        {"role": "tool", "content": wrong},
        {"role": "assistant", "content": f"```python\n{ADD}"},
    ]
    right, no_answer = reward(["p"] * 2, [conversation, conversation[1:3]], task_id=["t/add"] * 2)
    assert right == pytest.approx(1.0)
    assert no_answer is not None and no_answer < 0.5


def test_an_infrastructure_error_is_none_for_trl() -> None:
    logged: dict[str, float] = {}
    with Scorer(RewardsConfig(), ExecutionConfig(), FakeSandbox(Outcome.INFRA_ERROR)) as scorer:
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


def test_metrics_are_means_over_the_completions_that_have_the_part() -> None:
    results = [
        result({"syntax": 1.0, "tests": 1.0, "short": 0.25}),
        result({"syntax": 1.0, "tests": 0.0}),
        result({"syntax": 0.0}),
        infra_error("broken", 0.0),
    ]
    metrics = reward_metrics(results)
    assert metrics["rewards/syntax"] == pytest.approx(2 / 3)
    assert metrics["rewards/tests"] == pytest.approx(1 / 2)
    assert metrics["rewards/short"] == pytest.approx(1 / 4)
    assert metrics["rollout/syntax_failure_share"] == pytest.approx(1 / 3)
    assert metrics["rollout/infra_error_share"] == pytest.approx(1 / 4)


def test_the_async_form_gives_the_rewards_of_the_plain_one(scorer: Scorer) -> None:
    completions = [ADD, "def add(a, b):\n    return 5\n```", "oops ("]
    task_ids = ["t/add", "t/add", "t/sub"]
    logged: tuple[dict[str, float], dict[str, float]] = ({}, {})
    plain = make_reward_function(BY_ID, scorer, prefill="```python\n")(
        ["p"] * 3, completions, task_id=task_ids, log_metric=logged[0].__setitem__
    )

    async def score() -> list[float | None]:
        reward = make_async_reward_function(BY_ID, ScorerOnThreads(scorer), prefill="```python\n")
        return await reward(["p"] * 3, completions, task_id=task_ids, log_metric=logged[1].__setitem__)

    assert asyncio.run(score()) == plain == pytest.approx([1.0, 0.75, 0.1])
    timed = {"rewards/seconds", "rewards/seconds_mean"}
    assert {name: logged[0][name] for name in logged[0].keys() - timed} == {
        name: logged[1][name] for name in logged[1].keys() - timed
    }


def test_the_async_form_scores_a_batch_side_by_side_and_keeps_its_order() -> None:
    async def score() -> list[float | None]:
        reward = make_async_reward_function(BY_ID, MeetingPool(4))
        texts = ["0.1", "broken", "0.3", "0.4"]
        return await asyncio.wait_for(reward(["p"] * 4, texts, task_id=["t/add"] * 4), 60)

    assert asyncio.run(score()) == [0.1, None, 0.3, 0.4]


def test_when_the_pool_fails_the_batch_ends_with_its_error_and_nothing_stays_behind() -> None:
    async def score() -> int:
        pool = MeetingPool(4)
        reward = make_async_reward_function(BY_ID, pool)
        with pytest.raises(RuntimeError, match="the pool is closed"):
            await reward(["p"] * 3, ["0.1", "raise", "0.2"], task_id=["t/add"] * 3)
        await asyncio.sleep(0)
        return pool.num_cancelled

    assert asyncio.run(score()) == 2


def test_an_unknown_task_is_named_before_anything_is_scored() -> None:
    async def score() -> int:
        pool = MeetingPool(2)
        reward = make_async_reward_function(BY_ID, pool)
        with pytest.raises(ValueError, match="t/mul"):
            await reward(["p"] * 2, ["0.1", "0.2"], task_id=["t/add", "t/mul"])
        return pool.num_waiting

    assert asyncio.run(score()) == 0


# The answer is prefilled and an untrained model adds a comment: it compiles unless it has a line break.
PREFILL = "```python\ndef add(a, b):\n    return a + b\n#"


@pytest.mark.parametrize("form", ["plain", "async"])
def test_the_installed_grpo_trainer_trains_two_steps_on_these_rewards(
    form: str, scorer: Scorer, tmp_path: Path
) -> None:
    model = LlamaForCausalLM.from_pretrained(str(save_byte_model(tmp_path / "model")))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    seen: list[float | None] = []
    trainer = CpuGRPOTrainer(
        model=model,
        reward_funcs=remembering(form, scorer, seen),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=2,
            learning_rate=1e-2,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=6,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": f"# {TASKS[0].prompt}\n{PREFILL}", "task_id": TASKS[0].task_id}] * 4
        ),
        processing_class=make_byte_tokenizer(),
    )
    trainer.train()
    assert trainer.state.global_step == 2
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(seen) == 8 and len(steps) == 2
    for index, entry in enumerate(steps):
        rewards = [reward for reward in seen[4 * index : 4 * index + 4] if reward is not None]
        assert len(rewards) == 4 and all(reward == 0.1 or 0.9 <= reward <= 1.0 for reward in rewards)
        assert entry["reward"] == pytest.approx(math.fsum(rewards) / 4, abs=1e-6)
        assert entry["rollout/infra_error_share"] == 0.0
        assert 0.0 <= entry["rollout/pass_rate"] <= 1.0
    has_signal = any(len(set(seen[start : start + 4])) > 1 for start in (0, 4))
    assert has_signal != all(map(torch.equal, before, model.parameters())), "the rewards reach the weights"


def remembering(form: str, scorer: Scorer, seen: list[float | None]) -> Callable[..., object]:
    """The reward function in ``form``, with what it told TRL written to ``seen``."""
    if form == "plain":
        plain = make_reward_function(BY_ID, scorer, prefill=PREFILL)

        def reward(**columns: object) -> list[float | None]:
            rewards = plain(**columns)
            seen.extend(rewards)
            return rewards

        return reward
    coroutine = make_async_reward_function(BY_ID, ScorerOnThreads(scorer), prefill=PREFILL)

    async def reward_later(**columns: object) -> list[float | None]:
        rewards = await coroutine(**columns)
        seen.extend(rewards)
        return rewards

    return reward_later
