"""What a model is told of an answer that failed, so that it can correct it: one short text.

    verdict   how the program failed: the outcome, the kind of exception, the line of the program
    public    that, and what the program gives for the examples that the prompt shows

Never what a test expects or is called with, unless the prompt shows it. Of an exception only the names of
Python's own kinds are told: a program could hide the arguments of a test in a name of its own. Of a line the
number is told only where the program has such a line, with the program's own text.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import Final

from configs.schema import ExecutionConfig
from curriculum.audit.cheats import shown_examples
from curriculum.judging import Executor, execution_limits
from curriculum.task import Task
from rewards.result import RewardResult
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome

_MAX_EXAMPLES: Final = 3
_MAX_VALUE_CHARS: Final = 160
_WORDS: Final = {
    Outcome.WRONG: "Your program gives a wrong result in a test.",
    Outcome.TIMEOUT_CPU: "Your program takes too long.",
    Outcome.TIMEOUT_WALL: "Your program takes too long.",
    Outcome.OOM: "Your program needs too much memory.",
    Outcome.CRASH: "Your program ends the interpreter.",
    Outcome.VIOLATION: "Your program does what is not allowed here, or prints too much.",
}


class FeedbackError(RuntimeError):
    """There is no feedback, by no fault of the answer; the message says why."""


def refuse_feedback(kind: str, tasks: Sequence[Task], setting: str) -> None:
    """Raise ValueError, by the name of ``setting``, for "public" where no prompt shows an example."""
    if kind == "public" and not any(map(shows_examples, tasks)):
        raise ValueError(
            f'{setting}: value "public": no prompt of these tasks shows an example; set it to verdict'
        )


def make_feedback(
    kind: str, task: Task, program: str, result: RewardResult, sandbox: Executor, config: ExecutionConfig
) -> str:
    """Feedback of ``kind``, one of configs.rollouts_schema.FeedbackKind; "public" runs the examples.

    Raises FeedbackError where the sandbox fails.
    """
    request = example_request(task, program, config) if kind == "public" else None
    if request is None:
        return verdict_feedback(task, program, result)
    run = sandbox.run(request)
    if run.outcome is Outcome.INFRA_ERROR:
        raise FeedbackError(f"no feedback on {task.task_id}: {run.detail}")
    return public_feedback(task, program, result, run)


def verdict_feedback(task: Task, program: str, result: RewardResult) -> str:
    """How ``program`` failed, in a sentence."""
    if not program.strip():
        return "Your answer holds no program."
    if result.outcome is not Outcome.EXCEPTION:
        return _WORDS[result.outcome]
    if result.detail.endswith(" is not defined"):
        return f"Your program does not define {task.entry_point}."
    try:
        ast.parse(program)
    except (SyntaxError, ValueError) as error:
        place = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else "a character that is not allowed"
        return f"Your program is not valid Python: {said}{place}."
    except (RecursionError, MemoryError):
        return "Your program is nested too deeply."
    where = "when it is loaded" if result.detail.startswith("load: ") else "in a test"
    reason, _, number = result.detail.rpartition(", line ")
    return f"Your program raises {_kind(reason or result.detail)} {where}{_place(task, program, number)}."


def example_request(task: Task, program: str, config: ExecutionConfig) -> ExecutionRequest | None:
    """The run of ``program`` on the examples that the prompt shows; None where there are none to run."""
    examples = _examples(task)
    if not examples or not program.strip() or task.stdio_tests:
        return None
    return ExecutionRequest(
        solution=program,
        entry_point=task.entry_point,
        call_tests=examples,
        prelude=task.prelude,
        keep_values=True,
        limits=execution_limits(config),
    )


def public_feedback(task: Task, program: str, result: RewardResult, run: ExecutionResult) -> str:
    """``verdict_feedback``, and a line an example that fails, from ``run`` of ``example_request``."""
    examples = _examples(task)
    # Those behind one that ended the run were not tried.
    tried = list(zip(examples, run.values, strict=False))
    lines = [_line(task, test, value) for test, value in tried if value is None or value[0] != test.expected]
    said = verdict_feedback(task, program, result)
    if not lines and len(tried) == len(examples):
        return f"{said} The examples of the task give the right values."
    return "\n".join([said, *lines])


def shows_examples(task: Task) -> bool:
    """Whether there is an example in the prompt that can be run."""
    return not task.stdio_tests and bool(_examples(task))


def _examples(task: Task) -> tuple[CallTest, ...]:
    found: Sequence[tuple[str, str]] = list(shown_examples(task))[:_MAX_EXAMPLES]
    return tuple(
        CallTest(args=ast.literal_eval(arguments), expected=ast.literal_eval(value))
        for arguments, value in found
    )


def _line(task: Task, test: CallTest, value: tuple[object] | None) -> str:
    call = f"{task.entry_point}({', '.join(map(_shown, test.args))})"
    given = "raises an exception" if value is None else f"returns {_shown(value[0])}"
    return f"{call} {given}; the task says {_shown(test.expected)}."


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of too many digits
        return "..."
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 3] + "..."


def _place(task: Task, program: str, number: str) -> str:
    """The line of ``program`` that the sandbox gave as ``number``, if it is one."""
    if not number.isdecimal():
        return ""
    # A whole program runs with its prelude before it, see curriculum.judging.execution_request.
    index = int(number) - 1 - (task.prelude.count("\n") if task.stdio_tests else 0)
    lines = program.split("\n")
    line = lines[index].strip() if 0 <= index < len(lines) else ""
    return f", in line {index + 1}: `{_cut(line)}`" if line else ""


def _kind(detail: str) -> str:
    name = detail.rpartition(": ")[2]
    kind = getattr(builtins, name, None)
    return name if isinstance(kind, type) and issubclass(kind, BaseException) else "an exception"
