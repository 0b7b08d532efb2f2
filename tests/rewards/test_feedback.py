"""What a model is told of a failed answer: what the setting allows, and nothing that a test hides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from configs.schema import ExecutionConfig
from curriculum.judging import execution_request
from curriculum.task import Task
from rewards.feedback import example_request, public_feedback, shows_examples, verdict_feedback
from rewards.result import RewardResult
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome

CONFIG = ExecutionConfig()
# Hidden values are like nothing that a program or a prompt says.
TASK = Task(
    task_id="t/add",
    prompt='def add(a, b):\n    """The sum.\n    >>> add(1, 2)\n    3\n    >>> add(2, 2)\n    4\n    """\n',
    entry_point="add",
    call_tests=(
        CallTest(args=(1, 2), expected=3),
        CallTest(args=(70123, 11), expected=70134),
        CallTest(args=(-80456, "x"), expected=90789),
    ),
)
HIDDEN = ("70123", "70134", "80456", "90789")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool() as pool:
        yield pool


def verdict_on(sandbox: SandboxPool, program: str, task: Task = TASK) -> RewardResult:
    run = sandbox.run(execution_request(task, program, CONFIG))
    return RewardResult(
        reward=0.0,
        breakdown={},
        outcome=run.outcome,
        passed=run.outcome is Outcome.PASS,
        detail=run.detail,
        cached=False,
        seconds=0.0,
    )


RAISES = 'raise type(f"E{a}_{b}", (ValueError,), {})(f"{a} {b}")'
WRITES_ITS_ARGUMENTS = f"""
def add(a, b):
    {RAISES}
"""
GIVES_A_FALSE_LINE = """
def add(a, b):
    exec(compile("\\n" * (70_122 if a == 1 else abs(a) - 1) + "raise KeyError", "<solution>", "exec"))
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "Your answer holds no program."),
        ("def add(a, b):\n    return a - b\n", "Your program gives a wrong result in a test."),
        (
            "def add(a, b):\n    return a / 0\n",
            "Your program raises ZeroDivisionError in a test, in line 2: `return a / 0`.",
        ),
        (
            "import nowhere\n",
            "Your program raises ModuleNotFoundError when it is loaded, in line 1: `import nowhere`.",
        ),
        ("def add(a, b):\n    return a +\n", "Your program is not valid Python: invalid syntax (line 2)."),
        ("def sum(a, b):\n    return a\n", "Your program does not define add."),
        ("def add(a, b):\n    while True: pass\n", "Your program takes too long."),
        ("import os\ndef add(a, b):\n    os._exit(3)\n", "Your program ends the interpreter."),
        (WRITES_ITS_ARGUMENTS, f"Your program raises an exception in a test, in line 3: `{RAISES}`."),
        (GIVES_A_FALSE_LINE, "Your program raises KeyError in a test."),
    ],
)
def test_the_verdict_is_told_in_a_sentence(sandbox: SandboxPool, program: str, said: str) -> None:
    assert verdict_feedback(TASK, program, verdict_on(sandbox, program)) == said


def public(sandbox: SandboxPool, program: str, task: Task = TASK) -> str:
    request = example_request(task, program, CONFIG)
    assert request is not None
    return public_feedback(task, program, verdict_on(sandbox, program, task), sandbox.run(request))


def test_examples_that_fail_are_told_with_what_the_task_says(sandbox: SandboxPool) -> None:
    said = public(sandbox, "def add(a, b):\n    return a * b\n").splitlines()
    assert said == [
        "Your program gives a wrong result in a test.",
        "add(1, 2) returns 2; the task says 3.",
    ]


def test_an_example_that_raises_is_told(sandbox: SandboxPool) -> None:
    said = public(sandbox, "def add(a, b):\n    return [3][a - 1]\n")
    assert "add(2, 2) raises an exception; the task says 4." in said and "add(1, 2)" not in said


def test_where_only_hidden_tests_fail_that_is_said(sandbox: SandboxPool) -> None:
    said = public(sandbox, "def add(a, b):\n    return {1: 3, 2: 4}[a]\n")
    assert said.endswith("The examples of the task give the right values.")


@pytest.mark.parametrize(
    "program",
    [
        "def add(a, b):\n    return 0\n",
        WRITES_ITS_ARGUMENTS,
        GIVES_A_FALSE_LINE,
        "def add(a, b):\n    print(a, b)\n    return (a, b)\n",
        "seen = []\ndef add(a, b):\n    seen.append((a, b))\n    return seen\n",
        "def add(a, b):\n    raise KeyError(a, b)\n",
        "def add(a, b):\n    exec('x' * abs(a) + ' +')\n",
    ],
)
def test_no_feedback_holds_a_hidden_value(sandbox: SandboxPool, program: str) -> None:
    told = verdict_feedback(TASK, program, verdict_on(sandbox, program)) + public(sandbox, program)
    assert not [value for value in HIDDEN if value in told]


def test_values_are_cut_and_what_cannot_be_shown_is_left_out(sandbox: SandboxPool) -> None:
    said = public(sandbox, "def add(a, b):\n    return 'x' * 10_000\n")
    assert len(said) < 600 and "xxx..." in said
    assert "returns ...;" in public(sandbox, "def add(a, b):\n    return 10 ** 20_000\n")


def test_a_task_without_examples_has_no_run_of_them() -> None:
    plain = Task(
        task_id="t",
        prompt="Write add(a, b).",
        entry_point="add",
        call_tests=(CallTest(args=(1, 2), expected=3),),
    )
    assert not shows_examples(plain) and example_request(plain, "def add(): ...\n", CONFIG) is None
    assert shows_examples(TASK) and example_request(TASK, " ", CONFIG) is None


def test_examples_behind_one_that_ended_the_run_are_not_called_right() -> None:
    run = ExecutionResult(
        outcome=Outcome.TIMEOUT_CPU,
        num_passed=0,
        num_tests=2,
        detail="",
        clean=True,
        cpu_s=2.0,
        wall_s=2.0,
        level="L3",
    )
    result = RewardResult(
        reward=0.0, breakdown={}, outcome=run.outcome, passed=False, detail="", cached=False, seconds=0.0
    )
    assert public_feedback(TASK, "def add(a, b): ...", result, run) == "Your program takes too long."


def test_the_examples_are_what_is_run() -> None:
    request = example_request(TASK, "def add(a, b): ...", CONFIG)
    assert isinstance(request, ExecutionRequest) and request.keep_values
    assert [test.args for test in request.call_tests] == [(1, 2), (2, 2)]
