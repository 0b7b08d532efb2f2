"""The Scorer on the real sandbox: honest answers earn, cheats do not, and only what has weight runs."""

from __future__ import annotations

import gc
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from configs.rewards_schema import SourceRewards
from configs.schema import ExecutionConfig, RewardsConfig, RewardWeights
from curriculum.task import Task
from rewards.digest import judge_digest
from rewards.execution import score_execution, score_tests
from rewards.lint import Linter
from rewards.result import RewardResult
from rewards.scorer import Scorer
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome, StdioTest
from tests.fake_sandbox import FakeSandbox

ROOT = Path(__file__).parents[2]
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
    reference="def add(a, b):\n    return a + b\n",
    source="ladder",
)
CHECKED = Task(
    task_id="t/checked",
    prompt='def add(a, b):\n    """Return the sum."""\n',
    entry_point="add",
    check_source="def check(candidate):\n    assert candidate(1, 2) == 3\n",
)
HONEST = "def add(a, b):\n    return a + b\n"
TYPED = "def add(a: int, b: int) -> int:\n    return a + b\n"
WRONGLY_TYPED = "def add(a: int, b: int) -> int:\n    return a + b\n\n\nadd('1', '2')\n"
# (prompt, completion, code) of each call of a custom reward, since the last clear().
CALLS: list[tuple[object, object, object]] = []


def is_short(
    prompts: Sequence[object], completions: Sequence[object], code: Sequence[str], **columns: object
) -> list[float]:
    """A custom reward: 1 for less than 100 characters."""
    CALLS.extend(zip(prompts, completions, code, strict=True))
    return [float(len(program) < 100) for program in code]


async def has_no_opinion(completions: Sequence[object], **columns: object) -> list[None]:
    """A custom reward that leaves itself out."""
    return [None for _ in completions]


def breaks(completions: Sequence[object], **columns: object) -> list[float]:
    """A custom reward with a fault."""
    raise KeyError("no such column")


def fenced(code: str) -> str:
    return f"```python\n{code}```"


def score_with(rewards: RewardsConfig, code: str, task: Task = TASK) -> RewardResult:
    """The score where every test passes."""
    with Scorer(rewards, ExecutionConfig(), FakeSandbox(Outcome.PASS, 4)) as scorer:
        return scorer.score(task, fenced(code))


@pytest.fixture(scope="module")
def scorer(sandbox: SandboxPool) -> Iterator[Scorer]:
    with Scorer(RewardsConfig(), ExecutionConfig(timeout=1.0), sandbox) as instance:
        yield instance


def test_an_honest_answer_earns_everything(scorer: Scorer) -> None:
    for task in (TASK, CHECKED):
        result = scorer.score(task, fenced(HONEST))
        assert result.reward == pytest.approx(1.0)
        assert result.passed and result.outcome is Outcome.PASS and not result.is_infra_error
        assert dict.fromkeys(result.breakdown, 1.0) == result.breakdown
        assert result.seconds > 0


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
def test_what_does_not_compile_gets_the_constant_and_nothing_else_runs(text: str) -> None:
    CALLS.clear()
    sandbox = FakeSandbox(Outcome.PASS, 4)
    rewards = RewardsConfig(custom=[f"{__name__}:is_short"])
    with Scorer(rewards, ExecutionConfig(), sandbox) as scorer:
        result = scorer.score(TASK, text)
    assert result.reward == RewardsConfig().syntax_failure_reward
    assert result.detail.startswith("syntax: ") and not result.passed
    assert set(result.breakdown.values()) == {0.0} and len(result.breakdown) == 6
    assert sandbox.requests == [] and CALLS == []


# The parser takes them; the compiler does not.
NOT_COMPILED = {
    "await": "def add(a, b):\n    await a\n    return a + b\n",
    "nonlocal": "def add(a, b):\n    nonlocal c\n    return a + b\n",
    "twice the same argument": "def add(a, b, a):\n    return a + b\n",
    "twice the same keyword": "def add(a, b):\n    return sum([a, b], start=0, start=0)\n",
    "blocks": "def add(a, b):\n"
    + "".join(" " * i + "for _ in a:\n" for i in range(1, 23))
    + " " * 23
    + "pass\n",
}


@pytest.mark.parametrize("name", NOT_COMPILED)
def test_what_only_the_sandbox_finds_not_to_compile_gets_the_constant_too(scorer: Scorer, name: str) -> None:
    program = Task(
        task_id="t/program",
        prompt="Print 3.",
        entry_point="",
        stdio_tests=(StdioTest(stdin="", expected_stdout="3\n"),) * 2,
    )
    for task in (TASK, CHECKED, program):
        result = scorer.score(task, fenced(NOT_COMPILED[name]))
        assert (result.reward, result.detail) == (
            RewardsConfig().syntax_failure_reward,
            "syntax: SyntaxError",
        )
        assert result.outcome is Outcome.EXCEPTION and not result.passed
        assert set(result.breakdown.values()) == {0.0} and len(result.breakdown) == 5


def test_a_syntax_error_that_a_program_raises_is_none_of_its_own(scorer: Scorer) -> None:
    for raised in ("raise SyntaxError('no')", "exec('(')", "raise SyntaxError"):
        result = scorer.score(TASK, fenced(f"{raised}\n\n\n{HONEST}"))
        assert (result.breakdown["syntax"], result.detail) == (1.0, "load: SyntaxError, line 1")


def test_what_compiles_only_at_great_cost_ends_in_the_sandbox(sandbox: SandboxPool) -> None:
    bomb = "def add(a, b):\n" + "".join(f"{' ' * i}try: pass\n{' ' * i}finally:\n" for i in range(1, 20))
    with Scorer(RewardsConfig(), ExecutionConfig(timeout=1.0), sandbox) as scorer:
        gc.collect()
        started = time.thread_time()
        result = scorer.score(TASK, fenced(f"{bomb}{' ' * 20}a += 1\n"))
        assert time.thread_time() - started < 1.0
    assert result.outcome in (Outcome.OOM, Outcome.TIMEOUT_CPU)
    assert result.breakdown["syntax"] == 1.0 and result.breakdown["execution"] == 0.0


def test_what_weighs_nothing_is_not_linted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(linter: Linter, code: str, given: object) -> int:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(Linter, "count_issues", refuse)
    rewards = RewardsConfig(preset="tests_only", per_source={"mbpp": SourceRewards(weights={"lint": 1.0})})
    with Scorer(rewards, ExecutionConfig(), FakeSandbox(Outcome.PASS, 4)) as scorer:
        for code, reward in ((HONEST, 1.0), ("def add(", 0.0)):
            result = scorer.score(TASK, fenced(code))
            assert result.reward == reward
            assert set(result.breakdown) == {"syntax", "complexity", "tests", "execution"}
        with pytest.raises(AssertionError, match="nobody asked"):
            scorer.score(replace(TASK, source="mbpp"), fenced(HONEST))


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
    with Scorer(RewardsConfig(tests="all"), ExecutionConfig(), sandbox) as scorer:
        assert scorer.score(TASK, fenced(numbers_only)).breakdown["tests"] == 0.0
        assert scorer.score(TASK, fenced(HONEST)).breakdown["tests"] == 1.0


@pytest.mark.parametrize("mode", ["fraction", "all"])
@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.PASS])
def test_only_a_pass_earns_the_tests_in_full(outcome: Outcome, mode: str) -> None:
    run = FakeSandbox(outcome, num_passed=4).run(ExecutionRequest(solution="", entry_point="f"))
    assert score_tests(run, "all" if mode == "all" else "fraction") == 0.0
    assert score_execution(run) == (1.0 if outcome is Outcome.WRONG else 0.0)


def test_a_pass_of_no_tests_is_no_pass() -> None:
    with Scorer(RewardsConfig(), ExecutionConfig(), FakeSandbox(Outcome.PASS, 0, 0)) as scorer:
        result = scorer.score(TASK, fenced(HONEST))
    assert not result.passed and result.breakdown["tests"] == 0.0


def test_an_infrastructure_error_is_never_a_score() -> None:
    with Scorer(RewardsConfig(), ExecutionConfig(), FakeSandbox(Outcome.INFRA_ERROR)) as scorer:
        result = scorer.score(TASK, fenced(HONEST))
    assert math.isnan(result.reward) and result.is_infra_error and not result.passed
    assert result.outcome is Outcome.INFRA_ERROR and result.detail == "because"


def test_a_task_whose_own_check_cannot_run_is_named_and_costs_no_answer_its_score() -> None:
    broken = replace(CHECKED, task_id="t/broken", check_source="broken")
    result = score_with(RewardsConfig(), HONEST, broken)
    assert result.is_infra_error and result.detail == "t/broken: check program cannot run"


def test_a_reference_that_the_tasks_own_check_cannot_judge_is_no_answers_fault() -> None:
    class OnlyAnswers(FakeSandbox):
        def run(self, request: ExecutionRequest) -> ExecutionResult:
            if request.solution == "reference":
                raise ValueError("check program cannot run")
            return super().run(request)

    rewards = RewardsConfig(weights=RewardWeights(performance=0.25))
    with Scorer(rewards, ExecutionConfig(), OnlyAnswers(Outcome.PASS, 4)) as scorer:
        result = scorer.score(replace(TASK, reference="reference"), fenced(HONEST))
    assert result.is_infra_error and result.detail == f"{TASK.task_id}: check program cannot run"


def test_no_program_makes_a_wrong_answer_a_failure_of_the_judge() -> None:
    program = f"def add(a, b):\n    return 0\n\n\ndef g():\n    __import__(0x{'f' * 3600})\n"
    with Scorer(RewardsConfig(), ExecutionConfig(), FakeSandbox(Outcome.WRONG, 1)) as scorer:
        result = scorer.score(TASK, fenced(program))
    assert result.outcome is Outcome.WRONG and math.isfinite(result.reward)


def test_without_execution_nothing_runs_nothing_passes_and_its_weights_count_nothing() -> None:
    with Scorer(RewardsConfig(), ExecutionConfig(enabled=False), None) as scorer:
        result = scorer.score(TASK, fenced(HONEST))
    assert result.reward == pytest.approx(0.30)
    assert set(result.breakdown) == {"syntax", "lint", "complexity"}
    assert not result.passed


def test_without_a_sandbox_a_program_that_does_not_compile_has_no_tests_either() -> None:
    rewards, execution = RewardsConfig(), ExecutionConfig(enabled=False)
    with Scorer(rewards, execution, None) as scorer:
        assert set(scorer.score(TASK, fenced("def add(a, b:")).breakdown) == {"syntax", "lint", "complexity"}


def test_execution_without_a_sandbox_is_refused() -> None:
    with pytest.raises(ValueError, match=r"execution\.enabled"):
        Scorer(RewardsConfig(), ExecutionConfig(), None)


def test_types_performance_and_custom_rewards_are_in_the_breakdown_only_where_they_weigh_something() -> None:
    usual = {"syntax", "lint", "complexity", "tests", "execution"}
    assert set(score_with(RewardsConfig(), HONEST).breakdown) == usual
    weights = RewardWeights(type_safety=0.5, performance=0.25)
    rewards = RewardsConfig(
        weights=weights,
        custom=[f"{__name__}:is_short", f"{__name__}:has_no_opinion"],
        custom_weights=[2.0, 1.0],
    )
    everything = score_with(rewards, TYPED)
    assert set(everything.breakdown) == {*usual, "type_safety", "performance", "is_short"}
    assert everything.reward == pytest.approx(1.0 + 0.5 + 0.25 + 2.0)
    worse_typed = score_with(rewards, WRONGLY_TYPED)
    assert 0.0 < worse_typed.breakdown["type_safety"] < 1.0
    no_answer = score_with(rewards, "x = 1\n")
    assert no_answer.breakdown["type_safety"] == no_answer.breakdown["lint"] == 0.0


def test_a_custom_reward_of_weight_0_is_not_called_and_others_see_prompt_text_and_program() -> None:
    CALLS.clear()
    spec = f"{__name__}:is_short"
    score_with(RewardsConfig(custom=[spec], custom_weights=[0.0]), HONEST)
    assert CALLS == []
    score_with(RewardsConfig(custom=[spec]), HONEST)
    assert len(CALLS) == 1 and CALLS[0] == (TASK.prompt, fenced(HONEST), HONEST)


def test_a_custom_reward_that_raises_is_an_infrastructure_error_that_names_it() -> None:
    result = score_with(RewardsConfig(custom=[f"{__name__}:breaks"]), HONEST)
    assert result.is_infra_error
    assert "test_scorer:breaks" in result.detail and "no such column" in result.detail


def test_a_source_has_rules_of_its_own() -> None:
    only_tests: dict[str, object] = {"execution": 0.0, "syntax": 0.0, "lint": 0.0, "complexity": 0.0}
    rewards = RewardsConfig.model_validate(
        {"per_source": {"ladder": {"weights": only_tests, "syntax_failure_reward": 0.0}}}
    )
    assert score_with(rewards, HONEST).reward == pytest.approx(0.5)
    assert score_with(rewards, HONEST, replace(TASK, source="mbpp")).reward == pytest.approx(1.0)
    assert score_with(rewards, "def add(a, b:").reward == 0.0
    assert score_with(rewards, "def add(a, b:", replace(TASK, source="mbpp")).reward == 0.1


def test_an_answer_on_which_no_reward_has_an_opinion_is_not_judged() -> None:
    """As in TRL: a 0 would enter the statistics of its group."""
    weights = RewardWeights(syntax=0, lint=0, complexity=0, tests=0, execution=0)
    specs = [f"{__name__}:has_no_opinion", f"{__name__}:is_short"]
    alone = score_with(RewardsConfig(weights=weights, custom=specs[:1]), HONEST)
    assert alone.is_infra_error and "no reward with a weight has an opinion" in alone.detail
    assert score_with(RewardsConfig(weights=weights, custom=specs), HONEST).reward == 1.0


def configuration(
    rewards: RewardsConfig | None = None, execution: ExecutionConfig | None = None, level: str = "L3"
) -> tuple[str, ...]:
    sandbox = FakeSandbox(Outcome.PASS, level=level)
    with Scorer(rewards or RewardsConfig(), execution or ExecutionConfig(), sandbox) as scorer:
        return scorer.configuration


@pytest.mark.parametrize(
    ("rewards", "execution", "level"),
    [
        (RewardsConfig(tests="all"), None, "L3"),
        (RewardsConfig(weights=RewardWeights(lint=0.2)), None, "L3"),
        (RewardsConfig(syntax_failure_reward=0.0), None, "L3"),
        (RewardsConfig.model_validate({"per_source": {"mbpp": {"tests": "all"}}}), None, "L3"),
        (RewardsConfig(custom=[f"{__name__}:is_short"]), None, "L3"),
        (RewardsConfig(weights=RewardWeights(type_safety=0.1)), None, "L3"),
        (None, ExecutionConfig(timeout=3.0), "L3"),
        (None, ExecutionConfig(max_memory=256), "L3"),
        (None, ExecutionConfig(modules=["numpy"]), "L3"),
        (None, ExecutionConfig(enabled=False), "L3"),
        (None, None, "L2"),
    ],
)
def test_every_setting_that_can_change_a_verdict_is_in_the_configuration(
    rewards: RewardsConfig | None, execution: ExecutionConfig | None, level: str
) -> None:
    assert configuration(rewards, execution, level) != configuration()
    assert configuration() == configuration()


@pytest.mark.parametrize(
    "name", ["rewards.scorer.judge_digest", "platform.python_version", "rewards.digest.version"]
)
def test_other_code_that_judges_has_another_configuration(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = ExecutionConfig(modules=["numpy"])
    before = configuration(None, execution)
    monkeypatch.setattr(name, lambda *_: "another")
    assert configuration(None, execution) != before


def test_a_change_of_the_source_of_what_judges_has_another_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("rewards", "sandbox"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "curriculum").mkdir()
    shutil.copy(ROOT / "curriculum" / "judging.py", tmp_path / "curriculum")
    monkeypatch.setattr("rewards.digest.__file__", str(tmp_path / "rewards" / "digest.py"))
    before = judge_digest()
    assert judge_digest() == before
    for name in ("rewards/scorer.py", "sandbox/judge.py", "curriculum/judging.py"):
        source = tmp_path / name
        source.write_bytes(source.read_bytes() + b"\n")
        changed = judge_digest()
        assert changed != before
        before = changed


def test_the_versions_of_the_tools_are_in_the_configuration(linter: Linter) -> None:
    weights = RewardWeights(type_safety=0.1)
    assert {linter.version, f"mypy {version('mypy')}"} <= {*configuration(RewardsConfig(weights=weights))}
