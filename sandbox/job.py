"""From a prompt, a solution and tests, as files and data sets hold them, to an ExecutionRequest.

The rule for prompts, for whoever uses ``python -m sandbox``:

- A prompt that holds the head of the entry point (``def NAME`` at column 0; HumanEval's form) is code.
  What stands before that head is the prelude, which solution and tests may both use. A solution that
  begins with an indented line, or does not itself define the entry point at column 0, is a completion:
  the program is prompt + solution, as in OpenAI's harness. Any other solution stands alone.
- A prompt without that head is a prelude if it is Python, else prose; the solution stands alone.
- In stdio mode there is no entry point: the prompt is not used.

Nothing is taken out of chat answers: a solution with a code fence in it does not compile. Runs nothing.
"""

from __future__ import annotations

import ast
import builtins
import re
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sandbox.result import CallTest, ExecutionRequest, Limits, StdioTest

_CALL_TEST_FIELDS: Final = frozenset({"args", "expected", "expected_args"})
_STDIO_TEST_FIELDS: Final = frozenset({"stdin", "expected_stdout"})
# Held by the thread that parses, see ``parse``.
PARSING: Final = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The tests of one program: exactly one of the three holds something."""

    check_source: str | None = None
    call_tests: tuple[CallTest, ...] = ()
    stdio_tests: tuple[StdioTest, ...] = ()


def make_request(
    *,
    prompt: str,
    solution: str,
    entry_point: str,
    tests: Suite,
    limits: Limits,
    copy_back: bool = False,
) -> ExecutionRequest:
    """The run that judges ``solution``, by the rule above. Raises ValueError that names the field."""
    prelude = ""
    if not tests.stdio_tests:
        if not all(part.isidentifier() for part in entry_point.split(".", 1)):
            raise ValueError(
                f"entry_point: value {entry_point!r}: must be a function's name, or Class.method"
            )
        prelude, solution = _join(prompt, solution, entry_point.partition(".")[0])
    return ExecutionRequest(
        solution=solution,
        entry_point="" if tests.stdio_tests else entry_point,
        check_source=tests.check_source,
        call_tests=tests.call_tests,
        stdio_tests=tests.stdio_tests,
        prelude=prelude,
        copy_back=copy_back,
        limits=limits.for_outputs(tests.stdio_tests),
    )


def read_tests(value: object) -> Suite:
    """The tests in a list of objects, all with args and expected or all with stdin and expected_stdout.

    JSON knows no tuples, sets or bytes; a task that needs them has a test program. Raises ValueError.
    """
    if not isinstance(value, list) or not value or not all(isinstance(test, dict) for test in value):
        raise ValueError('tests: must be a list of {"args": [...], "expected": ...} objects, and not empty')
    tests = cast("list[dict[str, object]]", value)
    if "stdin" in tests[0]:
        return Suite(stdio_tests=tuple(_stdio_test(index, test) for index, test in enumerate(tests)))
    return Suite(call_tests=tuple(_call_test(index, test) for index, test in enumerate(tests)))


def refuse_constant(name: str) -> object:
    """For ``json.loads``, which takes NaN and infinities otherwise. Raises ValueError."""
    raise ValueError(f"{name} is not JSON")


def find_entry_point(prompt: str, tests: Suite) -> str:
    """The function that is tested: the last one at the prompt's top level, else what the tests call.

    In a test program that is the argument of its own ``check(...)`` call, or the only function that
    its asserts call. Raises ValueError when neither tells.
    """
    heads = re.findall(r"^(?:async\s+)?def\s+(\w+)\s*\(", prompt, re.MULTILINE)
    if heads:
        return str(heads[-1])
    names = _called_names(tests.check_source or "")
    if len(names) == 1:
        return names.pop()
    found = f"; the tests call {', '.join(sorted(names))}" if names else ""
    raise ValueError(f"entry point: neither prompt nor tests tell which function is meant{found}")


def parse(source: str, flags: int = 0) -> ast.Module:
    """As ``ast.parse``, without the parser's warnings on others' code; ``flags`` are more of ``compile``'s.

    By one thread at a time: of several at once CPython before 3.11.8 ends some with a SystemError
    (gh-106905), since they share a counter, and the collection of garbage lets another thread in.
    """
    with PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = compile(source, "<unknown>", "exec", ast.PyCF_ONLY_AST | flags, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree


def read_literal(text: str) -> Any:
    """As ``ast.literal_eval`` of a text, by one thread at a time as well."""
    with PARSING:
        return ast.literal_eval(text)


def parse_quietly(source: str) -> ast.Module | None:
    """The syntax tree, or None for text that is not Python."""
    try:
        return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def known_names(statements: Sequence[ast.stmt]) -> set[str]:
    """The builtins, and the names that ``statements`` bind anywhere."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {*dir(builtins), *filter(None, map(bound_name, nodes))}


def bound_name(node: ast.AST) -> str | None:
    """The name that ``node`` itself binds; None where it binds none."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.MatchAs(name=bound) | ast.MatchStar(name=bound) | ast.MatchMapping(rest=bound):
            return bound
        case ast.ExceptHandler(name=bound):
            return bound
        case ast.alias(name=imported, asname=other):
            return other or imported.partition(".")[0]
    return None


def prelude_of(before: str) -> str | None:
    """The program in ``before``, which stands before a function's head; None where it is not Python.

    A decorator belongs to the head; and prose above it would make every completion fail.
    """
    program = parse_quietly(f"{before}def f(): pass\n")
    if program is None or not isinstance(head := program.body[-1], ast.FunctionDef):
        return None
    first = min([head.lineno, *(decorator.lineno for decorator in head.decorator_list)])
    return "".join(f"{line}\n" for line in before.split("\n")[: first - 1])


def _join(prompt: str, solution: str, name: str) -> tuple[str, str]:
    """The prelude and the whole program."""
    head = re.compile(rf"^(?:async\s+def|def|class)\s+{re.escape(name)}\b", re.MULTILINE)
    heads = list(head.finditer(prompt))
    if not heads:
        return ("" if parse_quietly(prompt) is None else prompt), solution
    prelude = prelude_of(prompt[: heads[-1].start()])
    if prelude is None:
        raise ValueError(
            f"prompt: what stands before the head of {name} is not Python; leave it out, or leave the "
            "prompt empty where solutions stand alone"
        )
    first = next((line for line in solution.split("\n") if line.strip()), "")
    is_completion = first[:1] in (" ", "\t") or head.search(solution) is None
    return prelude, prompt + solution if is_completion else solution


def _call_test(index: int, test: dict[str, object]) -> CallTest:
    if not {"args", "expected"} <= set(test) <= _CALL_TEST_FIELDS:
        raise ValueError(f"tests: item {index}: must have args and expected, and may have expected_args")
    args, expected_args = test["args"], test.get("expected_args")
    if not isinstance(args, list) or not (expected_args is None or isinstance(expected_args, list)):
        raise ValueError(f"tests: item {index}: args and expected_args must be lists")
    return CallTest(
        args=tuple(args),
        expected=test["expected"],
        expected_args=None if expected_args is None else tuple(expected_args),
    )


def _stdio_test(index: int, test: dict[str, object]) -> StdioTest:
    if set(test) != _STDIO_TEST_FIELDS or not all(isinstance(text, str) for text in test.values()):
        raise ValueError(f"tests: item {index}: must have stdin and expected_stdout, both text")
    texts = cast("dict[str, str]", test)
    return StdioTest(stdin=texts["stdin"], expected_stdout=texts["expected_stdout"])


def _called_names(source: str) -> set[str]:
    tree = parse_quietly(source)
    if tree is None:
        return set()
    for statement in tree.body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id="check"), args=[ast.Name(id=name)])):
                return {name}
    known = known_names(tree.body)
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    calls = [node for each in asserts for node in ast.walk(each) if isinstance(node, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)} - known
