"""The Scorer and its cache on the real sandbox: honest answers earn, cheats do not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from configs.schema import ExecutionConfig, RewardsConfig, RewardWeights
from curriculum.task import Task
from rewards.cache import VerdictCache, is_reproducible, verdict_key
from rewards.execution import score_execution, score_tests
from rewards.fast import FastVerdict
from rewards.rubric import Scorer
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome

TASK = Task(
    task_id="t/add",
    prompt="Write a function add(a, b) that returns the sum.",
    entry_point="add",
    call_tests=(
        CallTest(args=(1, 2), expected=3),
        CallTest(args=(0, 0), expected=0),
        CallTest(args=(-1, 1), expected=0),
        CallTest(args=("a", "b"), expected="ab"),
    ),
)
CHECKED = Task(
    task_id="t/checked",
    prompt='def add(a, b):\n    """Return the sum."""\n',
    entry_point="add",
    check_source="def check(candidate):\n    assert candidate(1, 2) == 3\n",
)
HONEST = "def add(a, b):\n    return a + b\n"


class FakeSandbox:
    """Gives one prepared verdict: for faults that a real sandbox does not show on demand."""

    level = "fake"

    def __init__(self, outcome: Outcome, num_passed: int = 0, num_tests: int = 4) -> None:
        self.num_runs = 0
        self._outcome = outcome
        self._num_passed = num_passed
        self._num_tests = num_tests

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        self.num_runs += 1
        return ExecutionResult(
            outcome=self._outcome,
            num_passed=self._num_passed,
            num_tests=self._num_tests,
            detail="because",
            clean=True,
            cpu_s=0.0,
            wall_s=0.0,
            level=self.level,
        )


def fenced(code: str) -> str:
    return f"```python\n{code}```"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool() as pool:
        yield pool


@pytest.fixture(scope="module")
def scorer(sandbox: SandboxPool) -> Iterator[Scorer]:
    with Scorer(RewardsConfig(), ExecutionConfig(timeout=1.0), None, sandbox) as instance:
        yield instance


def test_an_honest_answer_earns_everything(scorer: Scorer) -> None:
    for task in (TASK, CHECKED):
        result = scorer.score(task, fenced(HONEST))
        assert result.reward == pytest.approx(1.0)
        assert result.passed and result.outcome is Outcome.PASS
        assert dict.fromkeys(result.breakdown, 1.0) == result.breakdown


def test_a_continuation_of_the_prompts_head_is_judged_whole(scorer: Scorer) -> None:
    assert scorer.score(CHECKED, "    return a + b\n").passed


def test_partial_credit_is_the_fraction_of_tests(scorer: Scorer) -> None:
    result = scorer.score(TASK, fenced("def add(a, b):\n    return 0 if a in (0, -1) else 7\n"))
    assert result.outcome is Outcome.WRONG and not result.passed
    assert result.breakdown["tests"] == pytest.approx(0.5)
    assert result.breakdown["execution"] == 1.0
    assert result.reward == pytest.approx(0.75)


def test_writing_to_stderr_costs_half_of_the_execution_reward(scorer: Scorer) -> None:
    noisy = "import sys\n\n\ndef add(a, b):\n    print('x', file=sys.stderr)\n    return a + b\n"
    result = scorer.score(TASK, fenced(noisy))
    assert result.passed
    assert result.breakdown["execution"] == 0.5
    assert result.reward == pytest.approx(0.9)


@pytest.mark.parametrize("text", ["```python\ndef add(a, b:\n```", "", "```python\n```", "I cannot do that."])
def test_what_does_not_compile_gets_the_constant_and_never_runs(text: str) -> None:
    sandbox = FakeSandbox(Outcome.PASS, 4)
    with Scorer(RewardsConfig(), ExecutionConfig(), None, sandbox) as scorer:
        result = scorer.score(TASK, text)
    assert result.reward == RewardsConfig().syntax_failure_reward
    assert result.detail.startswith("syntax: ") and not result.passed
    assert set(result.breakdown.values()) == {0.0} and len(result.breakdown) == 5
    assert sandbox.num_runs == 0


ALWAYS_EQUAL = """
class Equal:
    def __eq__(self, other):
        return True


def add(a, b):
    return Equal()
"""


@pytest.mark.parametrize(
    ("name", "code", "most"),
    [
        ("nothing", "pass\n", 0.35),
        ("a stub", "def add(a, b):\n    pass\n", 0.51),
        ("another function", "def sub(a, b):\n    return a - b\n", 0.35),
        ("an object that equals everything", ALWAYS_EQUAL, 0.51),
        ("a false exit status", "import os\n\n\ndef add(a, b):\n    os._exit(0)\n", 0.31),
        ("an exit on import", "import sys\nsys.exit(0)\n\n\ndef add(a, b):\n    return 3\n", 0.31),
        ("an endless loop", "def add(a, b):\n    while True:\n        pass\n", 0.31),
        ("an exception", "def add(a, b):\n    raise ValueError\n", 0.31),
        (
            "a patched comparison",
            "import builtins\nbuiltins.all = lambda x: True\n\n\ndef add(a, b):\n    return 4\n",
            0.51,
        ),
        ("a printed verdict", "def add(a, b):\n    print('pass', 'OK', '4 passed')\n    return None\n", 0.51),
    ],
)
def test_no_cheat_earns_as_much_as_an_honest_answer(
    name: str, code: str, most: float, scorer: Scorer
) -> None:
    for task in (TASK, CHECKED):
        result = scorer.score(task, fenced(code))
        assert not result.passed, name
        assert result.breakdown["tests"] <= 0.5, name
        assert result.reward <= most, (name, result)


def test_all_or_nothing_gives_nothing_for_three_of_four(sandbox: SandboxPool) -> None:
    numbers_only = "def add(a, b):\n    return a + b if isinstance(a, int) else 0\n"
    with Scorer(RewardsConfig(tests="all"), ExecutionConfig(), None, sandbox) as scorer:
        assert scorer.score(TASK, fenced(numbers_only)).breakdown["tests"] == 0.0
        assert scorer.score(TASK, fenced(HONEST)).breakdown["tests"] == 1.0


@pytest.mark.parametrize("mode", ["fraction", "all"])
@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.PASS])
def test_only_a_pass_earns_the_tests_in_full(outcome: Outcome, mode: str) -> None:
    run = FakeSandbox(outcome, num_passed=4).run(ExecutionRequest(solution="", entry_point="f"))
    assert score_tests(run, "all" if mode == "all" else "fraction") == 0.0
    assert score_execution(run) == (1.0 if outcome is Outcome.WRONG else 0.0)


def test_a_pass_of_no_tests_is_no_pass() -> None:
    with Scorer(RewardsConfig(), ExecutionConfig(), None, FakeSandbox(Outcome.PASS, 0, 0)) as scorer:
        result = scorer.score(TASK, fenced(HONEST))
    assert not result.passed and result.breakdown["tests"] == 0.0


def test_an_infrastructure_error_is_never_a_score() -> None:
    with Scorer(RewardsConfig(), ExecutionConfig(), None, FakeSandbox(Outcome.INFRA_ERROR)) as scorer:
        result = scorer.score(TASK, fenced(HONEST))
    assert math.isnan(result.reward)
    assert result.outcome is Outcome.INFRA_ERROR and not result.passed and result.detail == "because"


def test_weights_are_taken_as_given(sandbox: SandboxPool) -> None:
    weights = RewardWeights(tests=2.0, execution=0.0, syntax=0.0, lint=0.0, complexity=0.0)
    with Scorer(RewardsConfig(weights=weights), ExecutionConfig(), None, sandbox) as scorer:
        assert scorer.score(TASK, fenced(HONEST)).reward == pytest.approx(2.0)


def test_without_execution_nothing_runs_nothing_passes_and_its_weights_count_nothing() -> None:
    with Scorer(RewardsConfig(), ExecutionConfig(enabled=False), None, None) as scorer:
        result = scorer.score(TASK, fenced(HONEST))
    assert result.reward == pytest.approx(0.30)
    assert set(result.breakdown) == {"syntax", "lint", "complexity"}
    assert not result.passed


def test_execution_without_a_sandbox_is_refused() -> None:
    with pytest.raises(ValueError, match=r"execution\.enabled"):
        Scorer(RewardsConfig(), ExecutionConfig(), None, None)


def test_a_repeated_program_comes_from_the_cache_with_the_same_verdict(sandbox: SandboxPool) -> None:
    cache = VerdictCache(100)
    with Scorer(RewardsConfig(), ExecutionConfig(), cache, sandbox) as scorer:
        first = scorer.score(TASK, fenced(HONEST))
        # Other prose around the same program: the program is what counts.
        second = scorer.score(TASK, "Here it is:\n" + fenced(HONEST) + "\nDone.")
    assert (first.cached, second.cached) == (False, True)
    assert (second.reward, second.breakdown, second.outcome) == (first.reward, first.breakdown, first.outcome)
    assert (cache.counts.num_hits, cache.counts.num_misses) == (2, 2)


def test_other_tests_or_limits_miss_the_cache() -> None:
    cache, sandbox = VerdictCache(100), FakeSandbox(Outcome.PASS, 4)
    other = Task(task_id="t/add", prompt=TASK.prompt, entry_point="add", call_tests=TASK.call_tests[:1])
    with Scorer(RewardsConfig(), ExecutionConfig(), cache, sandbox) as scorer:
        scorer.score(TASK, fenced(HONEST))
        scorer.score(other, fenced(HONEST))
        assert sandbox.num_runs == 2
        scorer.score(TASK, fenced(HONEST))
        assert sandbox.num_runs == 2
    with Scorer(RewardsConfig(), ExecutionConfig(timeout=1.0), cache, sandbox) as scorer:
        scorer.score(TASK, fenced(HONEST))
    assert sandbox.num_runs == 3


@pytest.mark.parametrize("outcome", [Outcome.INFRA_ERROR, Outcome.TIMEOUT_WALL, Outcome.OOM])
def test_the_cache_keeps_no_verdict_that_the_machine_had_a_part_in(outcome: Outcome) -> None:
    cache, sandbox = VerdictCache(100), FakeSandbox(outcome)
    with Scorer(RewardsConfig(), ExecutionConfig(), cache, sandbox) as scorer:
        for _ in range(2):
            assert not scorer.score(TASK, fenced(HONEST)).cached
    assert sandbox.num_runs == 2
    assert len(cache) == 1  # the fast verdict


@pytest.mark.parametrize(
    "outcome", sorted(set(Outcome) - {Outcome.INFRA_ERROR, Outcome.TIMEOUT_WALL, Outcome.OOM})
)
def test_the_cache_keeps_every_other_verdict(outcome: Outcome) -> None:
    assert is_reproducible(FakeSandbox(outcome).run(ExecutionRequest(solution="", entry_point="f")))


def test_the_least_recently_used_verdict_goes_first() -> None:
    cache = VerdictCache(2)
    verdict = FastVerdict(syntax=1.0, lint=1.0, complexity=1.0, message="")
    one, two, three = (verdict_key("fast", [name]) for name in ("one", "two", "three"))
    cache.put(one, verdict)
    cache.put(two, verdict)
    assert cache.get(one) is verdict
    cache.put(three, verdict)
    assert cache.get(two) is None and cache.get(one) is verdict and cache.get(three) is verdict
    assert cache.counts.num_evictions == 1


def test_keys_tell_the_parts_apart() -> None:
    keys = {
        verdict_key("fast", ["ab", "c"]),
        verdict_key("fast", ["a", "bc"]),
        verdict_key("fast", ["abc"]),
        verdict_key("execution", ["abc"]),
        verdict_key("fast", ["abc", ""]),
    }
    assert len(keys) == 5
    assert verdict_key("fast", ["\ud800"]) == verdict_key("fast", ["\ud800"])


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_size"):
        VerdictCache(0)
