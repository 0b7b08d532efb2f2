"""What a model is told of a failed answer: what the setting allows, and nothing that a test hides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from configs.schema import ExecutionConfig
from curriculum.judging import execution_request
from curriculum.task import Task
from rewards.feedback import (
    FeedbackError,
    make_feedback,
    refuse_feedback,
    shows_examples,
    verdict_feedback,
    without_told_test,
)
from rewards.result import RewardResult
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, Outcome, StdioTest
from tests.fake_sandbox import FakeSandbox

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
# Of the test that `full` tells, and of the one that nothing tells.
TOLD, UNTOLD = ("70123", "70134"), ("80456", "90789")
HIDDEN = (*TOLD, *UNTOLD)


def judged(outcome: Outcome = Outcome.WRONG, detail: str = "") -> RewardResult:
    passed = outcome is Outcome.PASS
    return RewardResult(reward=0.0, breakdown={}, outcome=outcome, passed=passed, detail=detail)


def verdict_on(sandbox: SandboxPool, program: str, task: Task = TASK) -> RewardResult:
    run = sandbox.run(execution_request(task, program, CONFIG))
    return judged(run.outcome, run.detail)


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
        (
            "def add(a, b):\n    pass\nreturn a\n",
            "Your program is not valid Python: 'return' outside function (line 3).",
        ),
        ("def add(a, b):\n    await a\n", "Your program does not compile."),
        ("def sum(a, b):\n    return a\n", "Your program does not define add."),
        ("def add(a, b):\n    while True: pass\n", "Your program takes too long."),
        ("import os\ndef add(a, b):\n    os._exit(3)\n", "Your program ends the interpreter."),
        (WRITES_ITS_ARGUMENTS, f"Your program raises an exception in a test, in line 3: `{RAISES}`."),
        (GIVES_A_FALSE_LINE, "Your program raises KeyError in a test."),
    ],
)
def test_the_verdict_is_told_in_a_sentence(sandbox: SandboxPool, program: str, said: str) -> None:
    assert verdict_feedback(TASK, program, verdict_on(sandbox, program)) == said


def told(kind: str, sandbox: SandboxPool, program: str, task: Task = TASK) -> str:
    return make_feedback(kind, task, program, verdict_on(sandbox, program, task), sandbox, CONFIG)


def public(sandbox: SandboxPool, program: str, task: Task = TASK) -> str:
    return told("public", sandbox, program, task)


def test_of_several_examples_the_first_that_fails_is_told_by_its_call(sandbox: SandboxPool) -> None:
    assert public(sandbox, "def add(a, b):\n    return a * b\n") == "add(1, 2) returns 2."
    assert public(sandbox, "def add(a, b):\n    return a * 3\n") == "add(2, 2) returns 6."
    assert public(sandbox, "def add(a, b):\n    return 0\n") == "add(1, 2) returns 0."


def test_of_the_only_example_the_prompt_says_call_and_value(sandbox: SandboxPool) -> None:
    task = replace(TASK, prompt="Add two numbers, as in add(1, 2) == 3.")
    assert public(sandbox, "def add(a, b):\n    return a * b\n", task) == "The example returns 2."


def test_an_example_that_raises_is_told(sandbox: SandboxPool) -> None:
    said = public(sandbox, "def add(a, b):\n    return [3][a - 1]\n")
    assert "add(2, 2) raises an exception." in said and "add(1, 2)" not in said


def test_a_value_that_cannot_be_looked_at_is_no_exception(sandbox: SandboxPool) -> None:
    generates = "def add(a, b):\n    yield a + b\n"
    said = "add(1, 2) returns what is no plain data."
    assert told("public", sandbox, generates).endswith(said)
    hidden = "def add(a, b):\n    return a + b if a < 9 else iter([a])\n"
    said = "expects 70134; your program returns what is no plain data."
    assert told("full", sandbox, hidden).endswith(said)


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
    said = told("verdict", sandbox, program) + told("public", sandbox, program)
    assert not [value for value in HIDDEN if value in said]
    # What passes the examples is told the first test that the prompt does not show.
    passes = "    if a in (1, 2): return a + b\n"
    head, line, body = program.partition("def add(a, b):\n")
    full = told("full", sandbox, f"{head}{line}{passes}{body}")
    assert [value for value in HIDDEN if value in full] == list(TOLD)


def test_values_are_cut_and_what_cannot_be_shown_is_left_out(sandbox: SandboxPool) -> None:
    said = public(sandbox, "def add(a, b):\n    return 'x' * 10_000\n")
    assert len(said) < 600 and "xxx..." in said
    assert public(sandbox, "def add(a, b):\n    return 10 ** 20_000\n").endswith("returns ....")


def test_a_task_without_examples_has_no_run_of_them() -> None:
    plain = Task(
        task_id="t",
        prompt="Write add(a, b).",
        entry_point="add",
        call_tests=(CallTest(args=(1, 2), expected=3),),
    )
    sandbox = FakeSandbox(Outcome.WRONG)
    assert not shows_examples(plain) and shows_examples(TASK)
    make_feedback("public", plain, "def add(): ...\n", judged(), sandbox, CONFIG)
    make_feedback("public", TASK, " ", judged(), sandbox, CONFIG)
    make_feedback("verdict", TASK, "def add(): ...\n", judged(), sandbox, CONFIG)
    assert sandbox.requests == []


def test_the_examples_are_what_is_run_and_those_behind_one_that_ended_the_run_are_not_called_right() -> None:
    sandbox = FakeSandbox(Outcome.TIMEOUT_CPU)
    said = make_feedback("public", TASK, "def add(a, b): ...", judged(Outcome.TIMEOUT_CPU), sandbox, CONFIG)
    assert said == "Your program takes too long."
    (request,) = sandbox.requests
    assert request.keep_values and [test.args for test in request.call_tests] == [(1, 2), (2, 2)]


def test_a_sandbox_that_fails_gives_no_feedback() -> None:
    with pytest.raises(FeedbackError, match="no feedback on t/add: because"):
        make_feedback("public", TASK, "def add(): ...", judged(), FakeSandbox(Outcome.INFRA_ERROR), CONFIG)


def test_full_tells_the_first_test_that_failed_and_judges_the_next_answer_without_it(
    sandbox: SandboxPool,
) -> None:
    program = "def add(a, b):\n    return {1: 3, 2: 4, 70123: 5}[a]\n"
    assert told("full", sandbox, program).splitlines() == [
        "Your program gives a wrong result in a test. The examples of the task give the right values.",
        "For add(70123, 11) a test expects 70134; your program returns 5.",
    ]
    left = without_told_test("full", TASK, verdict_on(sandbox, program))
    assert left.call_tests == (TASK.call_tests[0], TASK.call_tests[2])
    assert replace(left, call_tests=TASK.call_tests) == TASK
    # The test that was told does not count, the one that was not does.
    assert verdict_on(sandbox, "def add(a, b):\n    return 3 if a == 1 else 90789\n", left).passed
    assert not verdict_on(sandbox, "def add(a, b):\n    return 3 if a == 1 else 70134\n", left).passed
    assert not [hidden for hidden in HIDDEN[2:] if hidden in told("full", sandbox, program)]


def test_a_told_test_that_raises_or_was_not_reached_is_told_without_a_value(sandbox: SandboxPool) -> None:
    raising = "def add(a, b):\n    return {1: 3, 2: 4}[a]\n"
    assert told("full", sandbox, raising).endswith("a test expects 70134; your program raises an exception.")
    ending = "import os\ndef add(a, b):\n    return {1: 3, 2: 4}.get(a) or os._exit(1)\n"
    assert told("full", sandbox, ending).endswith("\nFor add(70123, 11) a test expects 70134.")


def test_the_first_test_that_failed_is_told_also_where_a_later_one_never_ends(sandbox: SandboxPool) -> None:
    program = "def add(a, b):\n    while a < 0:\n        pass\n    return a + b if a < 9 else 3\n"
    said = told("full", sandbox, program)
    assert said.splitlines() == [
        "Your program takes too long. The examples of the task give the right values.",
        "For add(70123, 11) a test expects 70134; your program returns 3.",
    ]
    # And of an example whose value cannot be looked at nobody says that it raised.
    program = "def add(a, b):\n    while a == 2:\n        pass\n    return (a for a in [b])\n"
    said = public(sandbox, program)
    assert "gives no value." in said and "raises" not in said


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("public", "test 1: wrong value"),
        ("verdict", "test 1: wrong value"),
        ("full", "load: NameError"),
        ("full", "syntax: invalid syntax"),
        ("full", "test 0: wrong value"),  # the prompt shows it
        ("full", "test 9: wrong value"),
    ],
)
def test_all_tests_count_where_none_was_told(kind: str, detail: str) -> None:
    assert without_told_test(kind, TASK, judged(detail=detail)) is TASK


def test_the_last_test_is_never_told() -> None:
    last = replace(TASK, call_tests=TASK.call_tests[1:2])
    assert without_told_test("full", last, judged(detail="test 0: wrong value")) is last


def test_a_test_that_the_prompt_shows_counts_on_however_many_it_shows() -> None:
    shown = "\n".join(f">>> add({number}, 1)\n{number + 1}" for number in range(1, 6))
    tests = tuple(CallTest(args=(number, 1), expected=number + 1) for number in (9, 1, 5))
    task = replace(TASK, prompt=shown, call_tests=tests)
    assert without_told_test("full", task, judged(detail="test 2: wrong value")) is task
    runs = tuple(StdioTest(stdin=f"{number}\n", expected_stdout=f"{number + 1}\n") for number in (1, 2))
    prompt = "Print the next number.\n\nInput:\n1\nOutput:\n2\n"
    program = Task(task_id="t/next", prompt=prompt, entry_point="", stdio_tests=runs)
    assert without_told_test("full", program, judged(detail="test 0: wrong output")) is program
    # What is left then would be what the prompt shows: a program that fails the rest would pass.
    assert without_told_test("full", program, judged(detail="test 1: wrong output")) is program
    more = replace(program, stdio_tests=(*runs, StdioTest(stdin="3\n", expected_stdout="4\n")))
    left = without_told_test("full", more, judged(detail="test 1: wrong output")).stdio_tests
    assert left == (runs[0], more.stdio_tests[2])


def test_tests_like_the_one_that_was_told_do_not_count_either() -> None:
    again = replace(TASK, call_tests=(*TASK.call_tests, TASK.call_tests[1]))
    left = without_told_test("full", again, judged(detail="test 1: wrong value"))
    assert left.call_tests == (TASK.call_tests[0], TASK.call_tests[2])
    alone = replace(TASK, call_tests=(TASK.call_tests[1], TASK.call_tests[1]))
    assert without_told_test("full", alone, judged(detail="test 0: wrong value")) is alone


def test_a_whole_program_is_told_input_and_output() -> None:
    tests = tuple(StdioTest(stdin=f"{number}\n", expected_stdout=f"{number + 1}\n") for number in (1, 2))
    task = Task(task_id="t/next", prompt="Print the next number.", entry_point="", stdio_tests=tests)
    result = judged(detail="test 1: wrong output")
    said = make_feedback("full", task, "print(2)", result, FakeSandbox(Outcome.WRONG), CONFIG).splitlines()
    assert make_feedback("full", task, "", result, FakeSandbox(Outcome.WRONG), CONFIG).endswith(said[1])
    assert said[1:] == ["For the input '2\\n' a test expects '3\\n'."]
    assert without_told_test("full", task, result).stdio_tests == tests[:1]


@pytest.mark.parametrize("prelude", ["import math", "import math\nimport sys\n"])
@pytest.mark.parametrize(
    ("program", "place"),
    [
        ("print(math.pi / 0)", ", in line 1: `print(math.pi / 0)`"),
        ("# A\nfrom __future__ import annotations\n\nmath.pi / 0\n", ", in line 4: `math.pi / 0`"),
        (
            '"""B\n"""\nfrom __future__ import (\n    annotations,\n)  # (C)\nmath.pi / 0',
            ", in line 6: `math.pi / 0`",
        ),
    ],
)
def test_a_whole_program_stands_in_lines_of_its_own_behind_its_prelude(
    sandbox: SandboxPool, prelude: str, program: str, place: str
) -> None:
    tests = (StdioTest(stdin="1\n", expected_stdout="2\n"),)
    task = Task(task_id="t", prompt="Divide.", entry_point="", stdio_tests=tests, prelude=prelude)
    said = verdict_feedback(task, program, verdict_on(sandbox, program, task))
    assert said == f"Your program raises ZeroDivisionError in a test{place}."


def test_what_must_come_first_in_a_program_may_be_all_of_it(sandbox: SandboxPool) -> None:
    task = Task(
        task_id="t",
        prompt="Print nothing.",
        entry_point="",
        stdio_tests=(StdioTest(stdin="", expected_stdout=""),),
        prelude="import math",
    )
    assert verdict_on(sandbox, '"""A"""\nfrom __future__ import annotations', task).outcome is Outcome.PASS


def test_kinds_that_tell_nothing_of_any_task_are_refused() -> None:
    plain = Task(task_id="t", prompt="Write f.", entry_point="f", check_source="assert f(1) == 2")
    for kind in ("public", "full"):
        refuse_feedback(kind, [plain, TASK], "here")
        with pytest.raises(ValueError, match=f'here: value "{kind}"'):
            refuse_feedback(kind, [plain], "here")
    refuse_feedback("verdict", [plain], "here")
    # One test that the prompt shows, and one that it does not show, twice.
    one_hidden = replace(TASK, call_tests=(*TASK.call_tests[:2], TASK.call_tests[1]))
    with pytest.raises(ValueError, match='here: value "full"'):
        refuse_feedback("full", [one_hidden], "here")
