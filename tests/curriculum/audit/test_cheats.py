"""Programs without an idea: what they are made of, and the tasks that they pass."""

from __future__ import annotations

from configs.schema import ExecutionConfig
from curriculum.audit.cheats import (
    constant_programs,
    empty_program,
    is_constant,
    look_up_program,
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
