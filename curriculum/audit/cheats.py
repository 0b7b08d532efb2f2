"""Programs without an idea, which no good task lets pass: an empty one, constants, look-ups of what is shown.

A look-up answers the examples that the prompt shows, and otherwise the commonest of their answers, as a whole
program nothing.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from curriculum.shown import literal, shown_examples, shows_run
from curriculum.task import Task
from sandbox.job import parse_quietly, read_literal

# What a function without an idea returns, besides what the tests expect.
_COMMON: Final[tuple[object, ...]] = (None, True, False, 0, 1, -1, "", [])
_MAX_CONSTANTS: Final = 12
# What an honest program compares with as well.
_HONEST: Final[tuple[object, ...]] = (0, 1, 2, -1, None, "", " ", [], (), {})


def is_constant(task: Task) -> bool:
    """Whether an honest answer is a constant: nothing goes in."""
    if task.stdio_tests:
        return not any(test.stdin.strip() for test in task.stdio_tests)
    if task.call_tests:
        return not any(test.args for test in task.call_tests)
    return any(
        isinstance(node, ast.FunctionDef) and node.name == task.entry_point and not ast.unparse(node.args)
        for node in nodes_of(task.reference)
    )


def empty_program(task: Task) -> str:
    """The head of what is asked for, and nothing in it."""
    return "" if task.stdio_tests else _function(task, "pass")


def constant_programs(task: Task) -> Iterator[str]:
    """Programs that always give one answer, the commonest among what the tests expect first."""
    if task.stdio_tests:
        for output in _by_frequency(test.expected_stdout for test in task.stdio_tests):
            yield f"print({output!r}, end='')\n"
        return
    expected = (
        [test.expected for test in task.call_tests] if task.call_tests else _compared(task.check_source or "")
    )
    literals = _by_frequency(text for value in expected if (text := literal(value)) is not None)
    common = (repr(value) for value in _COMMON)
    for text in list(dict.fromkeys([*literals, *common]))[:_MAX_CONSTANTS]:
        yield _function(task, f"return {text}")


def look_up_program(task: Task) -> str | None:
    """A program that knows the examples of the prompt; None where it shows none."""
    if task.stdio_tests:
        shown = {
            test.stdin: test.expected_stdout for test in task.stdio_tests if shows_run(test, task.prompt)
        }
        lines = ["import sys", f"print({shown!r}.get(sys.stdin.read(), ''), end='')"]
        return "\n".join(lines) + "\n" if shown else None
    examples = list(shown_examples(task))
    if not examples:
        return None
    table = ", ".join(f"({arguments}, {value})" for arguments, value in examples)
    fallback = _by_frequency(value for _, value in examples)[0]
    body = f"return next((value for known, value in [{table}] if known == args), {fallback})"
    return _function(task, body)


def looks_up(task: Task, program: str) -> bool:
    """Whether ``program`` compares with the arguments of two examples of the prompt, or has them as keys.

    A sign, not a proof: values that honest programs compare with, such as 0 and the empty list, do not count.
    """
    nodes = list(nodes_of(program))
    sides = [
        side for node in nodes if isinstance(node, ast.Compare) for side in (node.left, *node.comparators)
    ]
    keys = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys if key is not None]
    compared = set(map(repr, _literals([*sides, *keys])))
    examples = [read_literal(arguments) for arguments, _ in shown_examples(task)]
    told = [{repr(value) for value in values if value not in _HONEST} for values in examples]
    return sum(bool(values & compared) for values in told) >= 2


def _compared(check_source: str) -> list[object]:
    """The literals that a test program compares something with."""
    equalities = (
        node
        for node in nodes_of(check_source)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.Is)
    )
    return list(_literals(side for node in equalities for side in (node.left, *node.comparators)))


def _literals(nodes: Iterable[ast.expr]) -> Iterator[object]:
    for node in nodes:
        try:
            value = ast.literal_eval(node)
            # Of a number with too many digits there is no text.
            repr(value)
        except (ValueError, TypeError, RecursionError, MemoryError, OverflowError):
            continue
        yield value


def nodes_of(source: str) -> Iterator[ast.AST]:
    """All nodes of a program; none of what does not compile."""
    tree = parse_quietly(source)
    return iter(()) if tree is None else ast.walk(tree)


def _by_frequency(texts: Iterable[str]) -> list[str]:
    return [text for text, _ in Counter(texts).most_common()]


def _function(task: Task, body: str) -> str:
    owner, _, name = task.entry_point.rpartition(".")
    if not owner:
        return f"def {name}(*args, **kwargs):\n    {body}\n"
    return f"class {owner}:\n    def {name}(self, *args, **kwargs):\n        {body}\n"
