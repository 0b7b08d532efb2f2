"""New tests for a task: its reference says what is right, and each kills a mutant that lived.

So the reference is believed. A new test asks for nothing that the prompt's tests do not ask for
(curriculum.audit.inputs), never for an exception, and for a fraction, which an honest program may round
otherwise, only where the present tests do. Where these take more than one value for right (a tolerance, any
order) there are no new ones: the reference's would be the only one.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from curriculum.asserts import literal_call_tests
from curriculum.audit.cheats import nodes_of
from curriculum.audit.examine import Examiner
from curriculum.audit.inputs import Arguments, called_names, constants_of, new_inputs, present_inputs
from curriculum.audit.mutants import Mutant
from curriculum.jsonl import record_task
from curriculum.judging import execution_request, has_passed
from curriculum.record import Record
from curriculum.shown import literal
from curriculum.task import Task
from sandbox.job import parse
from sandbox.result import CallTest, Outcome

_INPUTS_A_TEST: Final = 20
_MAX_INPUTS: Final = 400
_MAX_RESTARTS: Final = 4  # after inputs that end the reference's run
_WRITTEN: Final = (
    *("task_id", "prompt", "entry_point", "call_tests", "stdio_tests", "check_source", "prelude"),
    *("reference", "difficulty"),
)


def with_new_tests(examiner: Examiner, task: Task, most: int) -> tuple[Task, int, int]:
    """``task`` with at most ``most`` new tests, how many they are, and how many mutants they kill.

    A task that can have none comes back as it is: a whole program, one whose tests have no literal
    arguments, look at the arguments after the call or ask for anything but one value, one without a sound
    reference.
    """
    present = present_inputs(task)
    if task.stdio_tests or not present or not _asks_for_values(task):
        return task, 0, 0
    run = examiner.run(task, task.reference)
    living, _ = examiner.living_mutants(task, run.cpu_s)
    if not has_passed(run) or not living:
        return task, 0, 0
    count = min(_MAX_INPUTS, _INPUTS_A_TEST * most)
    tests = _tests_of(examiner, task, new_inputs(present, count, constants_of(task.reference)))
    chosen = _choose([_killing(examiner, task, mutant, tests) for mutant in living], most)
    if not chosen:
        return task, 0, 0
    richer = _with(task, [tests[index] for index in chosen])
    # What was seen in one run may not hold in the next, nor for a mutant under the limits that all have.
    runs = [examiner.run(richer, task.reference) for _ in range(2)]
    if not all(map(has_passed, runs)):
        return task, 0, 0
    left, num_judged = examiner.living_mutants(richer, max(run.cpu_s for run in runs), living)
    num_killed = num_judged - len(left)
    return (richer, len(chosen), num_killed) if num_killed else (task, 0, 0)


def _asks_for_values(task: Task) -> bool:
    """Whether the tests compare what each call returns with one value: others may have more right answers."""
    if task.call_tests:
        return all(test.expected_args is None for test in task.call_tests)
    nodes, names = list(nodes_of(task.check_source or "")), called_names(task)
    num_calls = sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for node in nodes
    )
    asserts = [node for node in nodes if isinstance(node, ast.Assert)]
    plain = (literal_call_tests([node], name) for node in asserts for name in names)
    return num_calls == sum(len(tests) for tests in plain if tests is not None)


def as_record(task: Task) -> dict[str, object]:
    """``task`` in the plain form of curriculum.jsonl; empty where that form cannot say all that judges it."""
    given = _fields(task)
    try:
        read = record_task(Record(where=task.task_id, fields=given))
    except ValueError:
        return {}
    return given if all(getattr(read, name) == getattr(task, name) for name in _WRITTEN) else {}


def _fields(task: Task) -> dict[str, object]:
    name = task.entry_point
    tests: dict[str, object]
    if task.stdio_tests:
        tests = {
            "tests": [{"stdin": t.stdin, "expected_stdout": t.expected_stdout} for t in task.stdio_tests]
        }
    elif task.call_tests:
        tests = {
            "tests": [f"assert {name}{_call(test.args)} == {test.expected!r}" for test in task.call_tests]
        }
    else:
        tests = {"check": task.check_source}
    fields: Mapping[str, object] = {
        "task_id": task.task_id,
        "prompt": task.prompt,
        "entry_point": name,
        **tests,
        "prelude": task.prelude,
        "reference": task.reference,
        "difficulty": task.difficulty,
        "family": task.family,
    }
    return {field: value for field, value in fields.items() if value != ""}


def _tests_of(examiner: Examiner, task: Task, inputs: Sequence[Arguments]) -> list[CallTest]:
    """What the reference gives for ``inputs``, but where it raises, ends, or gives no exact value."""
    has_fractions = not all(_is_exact(test.expected) for test in task.call_tests)
    found: list[CallTest] = []
    left = list(inputs)
    for _ in range(_MAX_RESTARTS):
        values = _values(examiner, task, task.reference, left) or ()
        for arguments, value in zip(left, values, strict=False):
            if value is not None and literal(value[0]) is not None and (has_fractions or _is_exact(value[0])):
                found.append(CallTest(args=arguments, expected=value[0]))
        left = left[len(values) + 1 :]
        if not left:
            break
    return found


def _killing(examiner: Examiner, task: Task, mutant: Mutant, tests: Sequence[CallTest]) -> set[int]:
    """The indices of the tests that ``mutant`` fails; none after one that ends its run."""
    values = _values(examiner, task, mutant.source, [test.args for test in tests])
    if values is None:
        return set()
    wrong = {
        index
        for index, (test, value) in enumerate(zip(tests, values, strict=False))
        if value is None or value[0] != test.expected
    }
    return wrong | ({len(values)} if len(values) < len(tests) else set())


def _values(
    examiner: Examiner, task: Task, program: str, inputs: Sequence[Arguments]
) -> Sequence[tuple[object] | None] | None:
    """What ``program`` returns for ``inputs``, up to the one that ends it; None where the sandbox fails."""
    if not inputs:
        return ()
    request = execution_request(task, program, examiner.execution)
    calls = tuple(CallTest(args=arguments, expected=None) for arguments in inputs)
    calling = replace(request, check_source=None, call_tests=calls, keep_values=True)
    run = examiner.sandbox.run(calling)
    return None if run.outcome is Outcome.INFRA_ERROR else run.values


def _choose(killing: Sequence[set[int]], most: int) -> list[int]:
    """The tests that kill the most mutants, one after another, at most ``most``."""
    left = [indices for indices in killing if indices]
    chosen: list[int] = []
    while left and len(chosen) < most:
        counts: dict[int, int] = {}
        for index in (index for indices in left for index in indices):
            counts[index] = counts.get(index, 0) + 1
        best = min(counts, key=lambda index: (-counts[index], index))
        chosen.append(best)
        left = [indices for indices in left if best not in indices]
    return sorted(chosen)


def _with(task: Task, tests: Sequence[CallTest]) -> Task:
    if task.call_tests:
        return replace(task, call_tests=(*task.call_tests, *tests))
    asserts = [f"    assert candidate{_call(test.args)} == {test.expected!r}" for test in tests]
    program = parse(task.check_source or "")
    if any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in program.body):
        lines = [task.check_source or "", "def check(candidate, _earlier=check):", "    _earlier(candidate)"]
    else:
        lines = [task.check_source or "", "def check(candidate):"]
    return replace(task, check_source="\n".join([*lines, *asserts, ""]), check_parts=())


def _call(arguments: Arguments) -> str:
    return f"({', '.join(map(repr, arguments))})"


def _is_exact(value: object) -> bool:
    """Whether no honest program can give a little more or less."""
    return not any(
        isinstance(node, ast.Constant) and isinstance(node.value, float) and not node.value.is_integer()
        for node in ast.walk(parse(repr(value)))
    )
