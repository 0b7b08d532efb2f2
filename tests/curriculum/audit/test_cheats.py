"""Programs without an idea: what they are made of, and the tasks that they pass."""

from __future__ import annotations

import pytest

from configs.schema import ExecutionConfig
from curriculum.audit.cheats import (
    constant_programs,
    empty_program,
    is_constant,
    look_up_program,
    looks_up,
)
from curriculum.audit.examine import Examiner
from curriculum.task import Task
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, StdioTest


def task_of(prompt: str, *tests: tuple[tuple[object, ...], object], reference: str = "") -> Task:
    return Task(
        task_id="t",
        prompt=prompt,
        entry_point="f",
        call_tests=tuple(CallTest(args=arguments, expected=expected) for arguments, expected in tests),
        reference=reference,
    )


@pytest.mark.parametrize(
    ("program", "is_look_up"),
    [
        ("def f(x):\n    if x == 1: return 2\n    if x == 3: return 6\n    return 10\n", False),
        ("def f(x):\n    if x == 3: return 6\n    if x == 5: return 10\n    return 2\n", True),
        ("def f(x):\n    return {1: 2, 3: 6, 5: 10}[x]\n", True),
        ("def f(x):\n    return 2 * x\n", False),
        ("def f(x):\n    return 6 if x == 3 else x + x\n", False),
        ("def f(x):\n    return [3, 5][x]\n", False),
        ("def f(x:\n", False),
    ],
)
def test_a_look_up_is_seen_by_what_it_compares_with(program: str, is_look_up: bool) -> None:
    prompt = ">>> f(1)\n2\n>>> f(3)\n6\n>>> f(5)\n10\n"
    doubled = task_of(prompt, ((1,), 2), ((3,), 6), ((5,), 10))
    assert looks_up(doubled, program) == is_look_up


def test_lists_and_texts_are_compared_by_value() -> None:
    prompt = ">>> f([1, 2], 'a')\n3\n>>> f([-4], \"b\")\n5\n"
    task = task_of(prompt, (([1, 2], "a"), 3), (([-4], "b"), 5))
    assert looks_up(task, "def f(x, y):\n    if x == [1,2]: return 3\n    if y == 'b': return 5\n")
    assert not looks_up(task, "def f(x, y):\n    if x == []: return 3\n    if y == '': return 5\n")
    # Numbers of which no text can be made, and none of their kind.
    assert not looks_up(task, f"def f(x, y):\n    return x == 0x{'f' * 4000} or x == 1{'0' * 400} + 1j\n")


def test_a_task_is_known_by_what_passes_it(sandbox: SandboxPool) -> None:
    examiner = Examiner(sandbox=sandbox, execution=ExecutionConfig(), max_mutants=10)
    same = task_of("?", ((1,), 3), ((2,), 3), reference="def f(x):\n    return 3\n")
    assert examiner.examine(same).passed_by == ("constant",)
    nothing = task_of("?", ((1,), None), reference="def f(x):\n    return None\n")
    assert examiner.examine(nothing).passed_by == ("empty", "constant")
    doubled = "def f(x):\n    return 2 * x\n"
    shown = task_of("f(1) == 2 and f(3) == 6", ((1,), 2), ((3,), 6), reference=doubled)
    found = examiner.examine(shown)
    assert found.passed_by == ("look-up",) and found.constant_share == 0.5
    hidden = task_of("f(1) == 2", ((1,), 2), ((3,), 6), reference=doubled)
    assert examiner.examine(hidden).passed_by == ()


def test_whole_programs_and_methods_have_them_too(sandbox: SandboxPool) -> None:
    program = Task(
        task_id="p",
        prompt="Read a number, print its double. For 2 print 4.",
        entry_point="",
        stdio_tests=(
            StdioTest(stdin="2\n", expected_stdout="4\n"),
            StdioTest(stdin="5\n", expected_stdout="10\n"),
        ),
        reference="print(2 * int(input()))\n",
    )
    examiner = Examiner(sandbox=sandbox, execution=ExecutionConfig(), max_mutants=10)
    found = examiner.examine(program)
    assert (found.passed_by, found.constant_share, found.fault) == ((), 0.5, "")
    assert look_up_program(program) is not None and empty_program(program) == ""
    method = Task(
        task_id="m",
        prompt="?",
        entry_point="Solution.f",
        call_tests=(CallTest(args=(1,), expected=1),),
        reference="class Solution:\n    def f(self, x):\n        return x\n",
    )
    assert examiner.examine(method).passed_by == ("constant",)


@pytest.mark.parametrize(
    ("prompt", "is_shown"),
    [
        ("Double it. For 2 print 4.", True),
        ("Input:\n  2  \nOutput:\n4\n", True),
        ("Double a number from 1 to 20; 4 is even.", False),
        ("For 2 print twice as much.", False),
        ("You get 4 for 2.", False),
        ("For 2 print 4.5 or 14 or 4th.", False),
        ("For -2 print 4.", False),
    ],
)
def test_a_whole_programs_test_is_shown_where_its_input_and_then_its_output_stand(
    prompt: str, is_shown: bool
) -> None:
    test = StdioTest(stdin="2\n", expected_stdout="4\n")
    task = Task(task_id="p", prompt=prompt, entry_point="", stdio_tests=(test,))
    assert (look_up_program(task) is not None) == is_shown


def test_a_function_without_arguments_may_be_a_constant() -> None:
    no_input = task_of("?", ((), 3), reference="def f():\n    return 3\n")
    assert is_constant(no_input) and not is_constant(task_of("?", ((1,), 3)))
    check = Task(
        task_id="c",
        prompt="?",
        entry_point="f",
        check_source="def check(candidate):\n    assert candidate() == 12\n",
        reference="def f():\n    return 3 * 4\n",
    )
    assert is_constant(check)
    assert "return 12" in next(constant_programs(check))
