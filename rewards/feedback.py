"""What a model is told of an answer that failed, so that it can correct it: one short text.

    verdict   how the program failed: the outcome, the kind of exception, the line of the program
    public    that, and what the program gives for the first example in the prompt that it fails
    full      that, and the first test that failed, which no longer counts from then on

Each word is a token that could have been spent on another answer instead: one example is told, not all that
fail, that the result is wrong is not said twice, and nothing is repeated that the prompt says: of its only
example neither call nor value, of several the call alone, which says which one is meant.

Never what another test expects or is called with. Of an exception only the names of Python's own kinds are
told: a program could hide the arguments of a test in a name of its own. Of a line the number is told only
where the program has such a line, with the program's own text.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from configs.schema import ExecutionConfig
from curriculum.judging import Executor, execution_limits, line_of_answer
from curriculum.shown import shown_examples, shows_run
from curriculum.task import Task
from rewards.result import RewardResult
from rewards.syntax import find_misplaced
from sandbox.job import parse, read_literal
from sandbox.result import NOT_COMPILED, CallTest, ExecutionRequest, Outcome, StdioTest

_MAX_EXAMPLES: Final = 3
_MAX_VALUE_CHARS: Final = 160
_TEST: Final = re.compile(r"test (\d+): ")
# What a call's own exception makes of a run.
_RAISED: Final = (Outcome.EXCEPTION, Outcome.OOM)
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
    """Raise ValueError, by the name of ``setting``, where ``kind`` tells of no task more than another kind.

    That is "public" where no prompt shows an example, and "full" where no task has a test to tell and one
    more to judge by that its prompt does not show.
    """
    if kind == "public" and not any(map(shows_examples, tasks)):
        raise ValueError(
            f'{setting}: value "public": no prompt of these tasks shows an example; set it to verdict'
        )
    if kind == "full" and all(_num_hidden(task) < 2 for task in tasks):
        raise ValueError(
            f'{setting}: value "full": none of these tasks has several tests, beside those that the prompt '
            "shows, that could be told one by one; set it to public or verdict"
        )


def make_feedback(
    kind: str, task: Task, program: str, result: RewardResult, sandbox: Executor, config: ExecutionConfig
) -> str:
    """Feedback of ``kind``, one of configs.rollouts_schema.FeedbackKind; examples and told tests are run.

    Raises FeedbackError where the sandbox fails.
    """
    said = verdict_feedback(task, program, result)
    if kind == "verdict":
        return said
    told = _told(kind, task, result)
    if task.stdio_tests:
        return said if told is None else f"{said}\n{_input_line(task.stdio_tests[told])}"
    examples = _examples(task)
    tests = examples if told is None else (*examples, task.call_tests[told])
    if not tests or not program.strip():
        return said
    request = ExecutionRequest(
        solution=program,
        entry_point=task.entry_point,
        call_tests=tests,
        prelude=task.prelude,
        keep_values=True,
        limits=execution_limits(config),
    )
    run = sandbox.run(request)
    if run.outcome is Outcome.INFRA_ERROR:
        raise FeedbackError(f"no feedback on {task.task_id}: {run.detail}")
    # Those behind one that ended the run were not tried.
    tried = list(zip(examples, run.values, strict=False))
    failed = next((one for one in tried if one[1] is None or one[1][0] != one[0].expected), None)
    if failed is None and len(tried) == len(examples) > 0:
        said += " The examples of the task give the right values."
    lines = [said] if failed is None or result.outcome is not Outcome.WRONG else []
    # What is too long is cut at its end: the test that is told comes before the example.
    if told is not None:
        lines.append(_told_line(task, tests[-1], run.values[len(examples) :], result.outcome))
    if failed is not None:
        # The first that failed, so that the outcome is its own.
        test, value = failed
        which = "The example" if len(examples) == 1 else _call(task, test)
        lines.append(f"{which} {_given(value, run.outcome)}.")
    return "\n".join(lines)


def without_told_test(kind: str, task: Task, result: RewardResult) -> Task:
    """``task`` without the test that feedback on ``result`` tells: what the next answer is judged by.

    Tests with the same arguments, or the same input, go with it.
    """
    told = _told(kind, task, result)
    if told is None:
        return task
    asked = _asked(_tests(task)[told])
    return replace(
        task,
        call_tests=tuple(test for test in task.call_tests if _asked(test) != asked),
        stdio_tests=tuple(test for test in task.stdio_tests if _asked(test) != asked),
    )


def verdict_feedback(task: Task, program: str, result: RewardResult) -> str:
    """How ``program`` failed, in a sentence."""
    if not program.strip():
        return "Your answer holds no program."
    if result.outcome is not Outcome.EXCEPTION:
        return _WORDS[result.outcome]
    if result.detail.endswith(" is not defined"):
        return f"Your program does not define {task.entry_point}."
    try:
        misplaced = find_misplaced(parse(program))
    except (SyntaxError, ValueError) as error:
        place = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else "a character that is not allowed"
        return f"Your program is not valid Python: {said}{place}."
    except (RecursionError, MemoryError):
        return "Your program is nested too deeply."
    if misplaced:
        return f"Your program is not valid Python: {misplaced}."
    if result.detail == NOT_COMPILED or result.detail.startswith("syntax: "):
        return "Your program does not compile."
    where = "when it is loaded" if result.detail.startswith("load: ") else "in a test"
    reason, _, number = result.detail.rpartition(", line ")
    return f"Your program raises {_kind(reason or result.detail)} {where}{_place(task, program, number)}."


def shows_examples(task: Task) -> bool:
    """Whether there is an example in the prompt that can be run."""
    return not task.stdio_tests and bool(_examples(task))


def _examples(task: Task) -> tuple[CallTest, ...]:
    return tuple(islice(_shown_calls(task), _MAX_EXAMPLES))


def _shown_calls(task: Task) -> Iterator[CallTest]:
    for arguments, value in shown_examples(task):
        yield CallTest(args=read_literal(arguments), expected=read_literal(value))


def _tests(task: Task) -> tuple[CallTest, ...] | tuple[StdioTest, ...]:
    return task.call_tests or task.stdio_tests


def _told(kind: str, task: Task, result: RewardResult) -> int | None:
    """The index of the test that "full" tells: the first that failed.

    None where the prompt shows it, where it is the last one that the prompt does not show, and where the
    program failed before any test.
    """
    place = _TEST.match(result.detail)
    tests = _tests(task)
    if kind != "full" or place is None or (index := int(place[1])) >= len(tests):
        return None
    # What the prompt shows anyway is nothing to judge by alone.
    return None if _shows(task, tests[index]) or _num_hidden(task) < 2 else index


def _num_hidden(task: Task) -> int:
    """How many tests, counted once for the same arguments, the prompt does not show."""
    hidden: list[object] = []
    for test in _tests(task):
        if not _shows(task, test) and _asked(test) not in hidden:
            hidden.append(_asked(test))
    return len(hidden)


def _asked(test: CallTest | StdioTest) -> object:
    return test.stdin if isinstance(test, StdioTest) else test.args


def _shows(task: Task, test: CallTest | StdioTest) -> bool:
    """Whether the prompt has the test: the call, or its input and its output."""
    if isinstance(test, StdioTest):
        return shows_run(test, task.prompt)
    return any(shown.args == test.args for shown in _shown_calls(task))


def _told_line(task: Task, test: CallTest, values: Sequence[tuple[object] | None], outcome: Outcome) -> str:
    after = "" if test.expected_args is None else f", and the arguments to be {_shown(test.expected_args)}"
    given = f"; your program {_given(values[0], outcome)}" if values else ""
    return f"For {_call(task, test)} a test expects {_shown(test.expected)}{after}{given}."


def _call(task: Task, test: CallTest) -> str:
    return f"{task.entry_point}({', '.join(map(_shown, test.args))})"


def _given(value: tuple[object] | None, outcome: Outcome) -> str:
    """What a call gave; ``outcome`` is that of its test, and says why there is no ``value``."""
    if value is not None:
        return f"returns {_shown(value[0])}"
    if outcome is Outcome.WRONG:
        # Such as a generator: see sandbox.codec.
        return "returns what is no plain data"
    # Where a later call ended the program, why this one gave nothing is not known.
    return "raises an exception" if outcome in _RAISED else "gives no value"


def _input_line(test: StdioTest) -> str:
    return f"For the input {_shown(test.stdin)} a test expects {_shown(test.expected_stdout)}."


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
    index = line_of_answer(task, program, int(number)) - 1
    lines = program.split("\n")
    line = lines[index].strip() if 0 <= index < len(lines) else ""
    return f", in line {index + 1}: `{_cut(line)}`" if line else ""


def _kind(detail: str) -> str:
    name = detail.rpartition(": ")[2]
    kind = getattr(builtins, name, None)
    return name if isinstance(kind, type) and issubclass(kind, BaseException) else "an exception"
