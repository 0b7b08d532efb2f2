"""The rewards against a slow, plain second implementation, on real completions of the built-in model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.rewards.completions import TRAINED, UNTRAINED, RealCompletion, load_completions
from configs.schema import ExecutionConfig, RewardCacheConfig, RewardsConfig, RewardWeights
from curriculum.judging import start_sandbox
from curriculum.task import Task
from pipeline.evaluation.scorers import local_reward_worker
from rewards.cache import is_reproducible
from rewards.pool import RewardPool
from rewards.result import RewardResult
from sandbox.result import CallTest
from tests.references.rewards import NOTHING, Beforehand, ReferenceScore, judge_beforehand, reference_score
from tests.references.type_safety import reference_type_safety

# Models write "\s" and "is 1"; the parser warns of them, here and in the rewards.
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence", "ignore::SyntaxWarning")
EXECUTION = ExecutionConfig()
DOUBLE = Task(
    task_id="double",
    prompt="Write a function `double(n)`.",
    entry_point="double",
    call_tests=tuple(CallTest(args=(n,), expected=2 * n) for n in (0, 1, 2, 3)),
)


@pytest.fixture(scope="module")
def completions() -> list[RealCompletion]:
    return load_completions()


def every(completions: Sequence[RealCompletion], number: int) -> list[RealCompletion]:
    """``number`` completions, spread evenly over all."""
    return [completions[index * len(completions) // number] for index in range(number)]


def score_twice(
    completions: Sequence[RealCompletion], rewards: RewardsConfig
) -> list[tuple[RewardResult, RewardResult]]:
    """The verdicts of a pool: as judged, and as found in its cache in a second round."""

    async def score_all(pool: RewardPool) -> list[RewardResult]:
        return [await pool.score(one.task, one.text) for one in completions]

    pool = RewardPool(rewards, EXECUTION, RewardCacheConfig(), 1, start_worker=local_reward_worker)
    try:
        first, second = (asyncio.run(score_all(pool)) for _ in range(2))
    finally:
        pool.close()
    return list(zip(first, second, strict=True))


def score_plainly(
    completions: Sequence[RealCompletion], rewards: RewardsConfig, beforehand: Beforehand | None = None
) -> list[ReferenceScore]:
    """Each answer to a task once; ``beforehand`` of None is made here of all of them."""
    if beforehand is None:
        beforehand = judge_beforehand([(one.task, one.text) for one in completions], rewards)
    scores: dict[tuple[str, str], ReferenceScore] = {}
    with start_sandbox(EXECUTION) as sandbox:
        for one in completions:
            if (one.task.task_id, one.text) not in scores:
                score = reference_score(one.task, one.text, rewards, EXECUTION, sandbox, beforehand)
                scores[one.task.task_id, one.text] = score
    return [scores[one.task.task_id, one.text] for one in completions]


def differences(completion: RealCompletion, result: RewardResult, reference: ReferenceScore) -> list[str]:
    """What the two verdicts on one completion disagree about, in words."""
    what: dict[str, tuple[object, object]] = {
        "outcome": (result.outcome, reference.outcome),
        "reward": (result.reward, reference.reward),
    }
    for name in {*result.breakdown, *reference.breakdown}:
        what[name] = (result.breakdown.get(name), reference.breakdown.get(name))
    unequal = [f"{name} {a} and {b}" for name, (a, b) in what.items() if not _are_equal(a, b)]
    if result.passed != (reference.breakdown.get("tests") == 1.0):
        unequal.append(f"passed {result.passed}")
    where = f"{completion.source} {completion.task.task_id}"
    return [f"{where}: {line}: {completion.text!r}" for line in unequal]


def _are_equal(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, abs_tol=1e-9)
    return a == b


def disagreements(
    completions: Sequence[RealCompletion], rewards: RewardsConfig, beforehand: Beforehand | None = None
) -> list[str]:
    """Judge all by both, side by side, and list what differs."""
    with ThreadPoolExecutor(2) as threads:
        ours = threads.submit(score_twice, completions, rewards)
        plain = threads.submit(score_plainly, completions, rewards, beforehand)
    found = []
    for one, results, reference in zip(completions, ours.result(), plain.result(), strict=True):
        for result in results:
            found += differences(one, result, reference)
        if is_reproducible(results[0]) and not results[1].cached:
            found.append(f"{one.task.task_id}: the second verdict did not come from the cache")
    return found


def test_the_completions_are_real_and_many(completions: list[RealCompletion]) -> None:
    assert len(completions) >= 2000
    assert len({one.text for one in completions}) >= 2000
    assert {one.source for one in completions} == set(UNTRAINED)


@pytest.mark.parametrize(
    ("text", "reward", "breakdown"),
    [
        ("def double(n):\n    return 2 * n\n", 1.0, {}),
        ("def double(n):\n    return n\n", 0.625, {"tests": 0.25}),
        ("def double(n):\n    import os\n    return n + n\n", 0.995, {"lint": 0.95}),
        ("def double(n):\n    return 1 / 0\n", 0.3, {"tests": 0.0, "execution": 0.0}),
        (
            "def triple(n):\n    return 2 * n\n",
            0.15,
            dict.fromkeys(("tests", "execution", "lint", "complexity"), 0),
        ),
        ("def double(n:\n", 0.1, dict.fromkeys(("tests", "execution", "syntax", "lint", "complexity"), 0)),
        (
            "def double(n):\n"
            + "".join(f"{'    ' * i}if n:\n" for i in range(1, 7))
            + "    " * 7
            + "n += 0\n    return n + n\n",
            0.98,
            {"complexity": 0.6},
        ),
    ],
)
def test_the_reference_says_what_the_definitions_say(
    text: str, reward: float, breakdown: dict[str, float]
) -> None:
    """Worked out by hand, so that reference and rewards cannot be wrong together."""
    expected = dict.fromkeys(("tests", "execution", "syntax", "lint", "complexity"), 1.0) | breakdown
    with start_sandbox(EXECUTION) as sandbox:
        score = reference_score(DOUBLE, text, RewardsConfig(), EXECUTION, sandbox)
    assert score.breakdown == pytest.approx(expected)
    assert score.reward == pytest.approx(reward)


def test_a_disagreement_is_found() -> None:
    one = RealCompletion(source="hand", task=DOUBLE, text="def double(n):\n    return n\n")
    ((result, _),) = score_twice([one], RewardsConfig(weights=RewardWeights(lint=0.2)))
    (reference,) = score_plainly([one], RewardsConfig())
    assert differences(one, result, reference) != []


def test_a_hundred_completions_score_as_the_reference_says(completions: list[RealCompletion]) -> None:
    # Each by a process of its own, where the other tests show many programs to one.
    assert disagreements(every(completions, 100), RewardsConfig(), NOTHING) == []


def test_all_or_nothing_scores_as_the_reference_says(completions: list[RealCompletion]) -> None:
    assert disagreements(every(completions, 50), RewardsConfig(tests="all")) == []


@pytest.mark.slow
@pytest.mark.parametrize("sources", [UNTRAINED, TRAINED], ids=["the model as it comes", "in training"])
def test_every_completion_scores_as_the_reference_says(sources: tuple[str, ...]) -> None:
    completions = load_completions(sources)
    assert len(completions) >= 2000
    assert disagreements(completions, RewardsConfig()) == []


@pytest.mark.slow
def test_completions_score_the_same_in_a_fresh_sandbox_each(completions: list[RealCompletion]) -> None:
    sample = every(completions, 25)
    references = [score_plainly([one], RewardsConfig())[0] for one in sample]
    results = score_twice(sample, RewardsConfig())
    for one, (result, _), reference in zip(sample, results, references, strict=True):
        assert differences(one, result, reference) == []


@pytest.mark.slow
def test_type_safety_is_what_a_fresh_mypy_says(completions: list[RealCompletion]) -> None:
    annotated = [one for one in completions if "->" in one.text]
    others = [one for one in completions if "->" not in one.text]
    rewards = RewardsConfig(weights=RewardWeights(type_safety=0.1))
    sample = every(annotated, 40) + every(others, 20)
    beforehand = judge_beforehand([(one.task, one.text) for one in sample], rewards)
    assert disagreements(sample, rewards, beforehand) == []
    # One mypy read them all; alone each says the same.
    earning = [program for program, score in beforehand.type_safety.items() if score > 0]
    for prelude, code in (earning[len(earning) * n // 3] for n in range(3)):
        assert reference_type_safety(code, prelude) == beforehand.type_safety[prelude, code]
