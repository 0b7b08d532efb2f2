"""New inputs stay within what the tests show; new tests are right, kill a mutant each, and can be read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.schema import ExecutionConfig
from curriculum.audit.examine import Examiner
from curriculum.audit.inputs import constants_of, new_inputs, present_inputs
from curriculum.audit.new_tests import as_record, with_new_tests
from curriculum.jsonl import load_jsonl
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome, StdioTest
from tests.fake_sandbox import make_run

CLAMP = """
def f(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x
"""


@pytest.fixture
def examiner(sandbox: SandboxPool) -> Examiner:
    return Examiner(sandbox=sandbox, execution=ExecutionConfig(), max_mutants=50)


def clamp(*tests: tuple[tuple[int, int, int], int]) -> Task:
    return Task(
        task_id="clamp",
        prompt="Write f(x, low, high): x, but not below low and not above high.",
        entry_point="f",
        call_tests=tuple(CallTest(args=arguments, expected=expected) for arguments, expected in tests),
        reference=CLAMP,
    )


FUNCTION = clamp(((5, 1, 9), 5))
PROGRAM = Task(
    task_id="echo",
    prompt="Print the number that you read.",
    entry_point="",
    stdio_tests=(StdioTest(stdin="1\n", expected_stdout="1\n"),),
)


def test_numbers_keep_their_sign_texts_their_signs_and_nothing_is_empty_that_was_not() -> None:
    inputs = new_inputs([(3, "abc", [1, 2], None), (9, "b", [5], None)], 100)
    assert len(inputs) > 50
    for number, text, items, nothing in inputs:
        assert isinstance(number, int) and 0 <= number <= 18
        assert isinstance(text, str) and 1 <= len(text) <= 6 and text.isalpha() and text.islower()
        assert isinstance(items, list) and 1 <= len(items) <= 4 and all(0 <= item <= 10 for item in items)
        assert nothing is None
    assert inputs == new_inputs([(3, "abc", [1, 2], None), (9, "b", [5], None)], 100)


def test_an_argument_may_be_a_constant_of_the_reference_or_another_argument() -> None:
    source = 'def f(n, name, m):\n    return -7 if n > 400 and name in ("May", "B 2") else 9_999_999\n'
    constants = constants_of(source)
    assert sorted(map(str, constants)) == ["400", "7", "9999999", "B 2", "May"]
    inputs = new_inputs([(20, "June", 3), (30, "April", 4)], 50, constants)
    numbers, names, others = zip(*inputs, strict=True)
    assert {399, 400, 401} <= set(numbers), "where a branch parts"
    assert 9_999_999 not in numbers, "sixty times the largest is the most"
    assert "May" in names
    assert "B 2" not in names, "a new sort of sign"
    assert {20, 30} & set(others), "the value of another argument"
    assert constants_of("def f(:") == []


def test_tables_stay_tables_records_stay_records_and_binary_stays_binary() -> None:
    present = [([[1, 2], [3, 4]], ("a", 1), "0110"), ([[5, 6, 7]], ("b", 2), "1")]
    for table, record, number in new_inputs(present, 80):
        assert isinstance(table, list) and len({len(row) for row in table}) <= 1
        assert isinstance(record, tuple) and isinstance(record[0], str) and isinstance(record[1], int)
        assert isinstance(number, str) and set(number) <= {"0", "1"}


VALUES = st.recursive(
    st.integers(-9, 9) | st.text("ab", max_size=3) | st.booleans() | st.none() | st.floats(0, 1),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text("k"), inner)
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.nested_given], max_examples=40)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=3))
def test_any_present_inputs_give_new_ones_that_are_plain_data(present: list[tuple[object, ...]]) -> None:
    known = {repr(one) for one in present}
    for arguments in new_inputs(present, 5):
        assert len(arguments) == 2 and repr(arguments) not in known


def test_nothing_in_gives_nothing_new() -> None:
    assert new_inputs([], 5) == new_inputs([()], 5) == []


def test_inputs_of_a_test_program_are_its_literal_calls() -> None:
    check = "def check(candidate):\n    assert candidate(1, [2]) == 3\n    f(4, [5])\n    candidate(x, y)\n"
    task = Task(task_id="t", prompt="?", entry_point="f", check_source=check)
    assert sorted(present_inputs(task)) == [(1, [2]), (4, [5])]


def test_new_tests_kill_what_lived_and_the_reference_passes_them(examiner: Examiner) -> None:
    weak = clamp(((5, 1, 9), 5), ((3, 2, 8), 3))
    before = examiner.examine(weak)
    richer, num_added, num_killed = with_new_tests(examiner, weak, 5)
    after = examiner.examine(richer)
    assert 0 < num_added == len(richer.call_tests) - 2 <= num_killed
    assert after.num_killed == before.num_killed + num_killed > 0.8 * after.num_mutants
    assert after.fault == "" and richer.prompt == weak.prompt
    # As few as are needed, no more than are asked for.
    assert with_new_tests(examiner, weak, 1)[1] == 1
    assert with_new_tests(examiner, richer, 5)[1:] == (0, 0)


@dataclass
class _LosesCalls:
    """A sandbox in which no mutant returns a value when it is only called."""

    inner: SandboxPool
    outcome: Outcome
    level: str = "fake"

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        is_called = request.keep_values and request.solution != CLAMP
        return make_run(self.outcome) if is_called else self.inner.run(request)


@pytest.mark.parametrize("outcome", [Outcome.INFRA_ERROR, Outcome.TIMEOUT_CPU])
def test_only_what_fails_the_new_tests_counts_as_killed(
    outcome: Outcome, sandbox: SandboxPool, examiner: Examiner
) -> None:
    weak = clamp(((5, 1, 9), 5))
    before = examiner.examine(weak)
    faulty = replace(examiner, sandbox=_LosesCalls(sandbox, outcome))
    richer, num_added, num_killed = with_new_tests(faulty, weak, 5)
    assert examiner.examine(richer).num_killed == before.num_killed + num_killed
    assert num_killed < before.num_mutants - before.num_killed
    assert outcome is not Outcome.INFRA_ERROR or num_added == 0


@pytest.mark.parametrize("head", ["def check(candidate):", "def check (candidate):"])
def test_a_test_program_gets_them_too(head: str, examiner: Examiner) -> None:
    check = f"{head}\n    assert candidate(5, 1, 9) == 5\n    assert candidate(3, 2, 8) == 3\n"
    weak = Task(task_id="t", prompt="?", entry_point="f", check_source=check, reference=CLAMP)
    richer, num_added, num_killed = with_new_tests(examiner, weak, 5)
    assert num_added > 0
    assert "_earlier(candidate)" in (richer.check_source or "")
    assert examiner.examine(richer).num_killed == examiner.examine(weak).num_killed + num_killed
    # And once more, over what was added.
    one, *_ = with_new_tests(examiner, weak, 1)
    again, num_more, _ = with_new_tests(examiner, one, 5)
    assert num_more > 0 and examiner.examine(again).fault == ""


@pytest.mark.parametrize(
    "test",
    [
        "sorted(candidate(3, 2, 8)) == [3]",
        "candidate(3, 2, 8) in (2, 3)",
        "abs(candidate(3, 2, 8) - 3) < 1e-6",
        "candidate(3, 2, 8)",
        "candidate(*[3, 2, 8]) == 3",
    ],
)
def test_where_several_answers_may_be_right_there_are_no_new_tests(test: str, examiner: Examiner) -> None:
    check = f"def check(candidate):\n    assert candidate(5, 1, 9) == 5\n    assert {test}\n"
    task = Task(task_id="t", prompt="?", entry_point="f", check_source=check, reference=CLAMP)
    assert with_new_tests(examiner, task, 5) == (task, 0, 0)


def test_work_of_a_check_program_is_no_fault_of_a_mutant(examiner: Examiner) -> None:
    """What it does before the first call, and between calls, takes more than ten times the reference."""
    work = "sum(i * i for i in range(3_000_000))"
    check = f"def check(candidate):\n    {work}\n    assert candidate(5, 1, 9) == 5\n    {work}\n"
    slow = Task(task_id="t", prompt="?", entry_point="f", check_source=check, reference=CLAMP)
    quick = replace(slow, check_source=check.replace(work, "pass"))
    found, expected = examiner.examine(slow), examiner.examine(quick)
    assert found.fault == "" and 0 < expected.num_killed < expected.num_mutants
    assert (found.num_mutants, found.num_killed) == (expected.num_mutants, expected.num_killed)
    assert found.passed_by == expected.passed_by


def test_values_that_have_no_text_make_no_tests(examiner: Examiner) -> None:
    factorial = """
def f(n):
    product = 1
    for i in range(2, n + 1):
        product *= i
    return product
"""
    tests = (CallTest(args=(5,), expected=120), CallTest(args=(1000,), expected=math.factorial(1000)))
    task = Task(task_id="t", prompt="?", entry_point="f", call_tests=tests, reference=factorial)
    _, num_added, _ = with_new_tests(examiner, task, 20)
    assert num_added < 20


def test_inputs_that_the_reference_does_not_take_make_no_tests(examiner: Examiner) -> None:
    reference = "def f(x):\n    if x > 10:\n        exit() if x == 11 else int('x')\n    return x % 3 / 2\n"
    task = Task(
        task_id="t",
        prompt="?",
        entry_point="f",
        call_tests=(CallTest(args=(6,), expected=0.0), CallTest(args=(9,), expected=0.0)),
        reference=reference,
    )
    richer, num_added, _ = with_new_tests(examiner, task, 10)
    # Nor do fractions, which honest programs may round otherwise.
    assert num_added > 0
    assert all(test.args[0] <= 10 for test in richer.call_tests)  # type: ignore[operator]
    assert all(float(str(test.expected)).is_integer() for test in richer.call_tests)


def test_what_is_written_is_read_as_the_same_task(tmp_path: Path, examiner: Examiner) -> None:
    tuples = Task(
        task_id="t",
        prompt="?",
        entry_point="f",
        call_tests=(CallTest(args=((1, 2), {3}), expected=(1,)),),
        reference="def f(a, b):\n    return a[:1]\n",
    )
    tasks = [tuples, *load_named_tasks("ladder")[:20], *load_named_tasks("word-problems")[:3]]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(as_record(task))}\n" for task in tasks), encoding="utf-8")
    for read, task in zip(load_jsonl(path), tasks, strict=True):
        assert (read.task_id, read.prompt, read.call_tests, read.check_source, read.reference) == (
            task.task_id, task.prompt, task.call_tests, task.check_source, task.reference,
        )  # fmt: skip
        assert examiner.examine(read).fault == ""


@pytest.mark.parametrize(
    "task",
    [
        replace(PROGRAM, stdio_tests=(StdioTest(stdin="1\n", expected_stdout="1.0\n", decimals=True),)),
        replace(FUNCTION, entry_point="Solution.f", check_source="def check(f): ...\n", call_tests=()),
        replace(FUNCTION, call_tests=(CallTest(args=([2, 1],), expected=None, expected_args=([1, 2],)),)),
        replace(FUNCTION, call_tests=(CallTest(args=(1,), expected=float("inf")),)),
    ],
    ids=["numbers by value", "a method", "arguments after the call", "no literal"],
)
def test_what_the_plain_form_cannot_say_is_not_written_in_it(task: Task) -> None:
    assert as_record(task) == {}
    assert as_record(PROGRAM) != {} != as_record(FUNCTION)
