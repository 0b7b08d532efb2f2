"""How a task is judged: the request that the sandbox gets for an answer, its limits, and what passes.

Starts the sandbox as the configuration says; running is the sandbox's business, and what a verdict is worth
the rewards'.
"""

from __future__ import annotations

import ast
import io

from configs.schema import ExecutionConfig
from curriculum.task import Task
from sandbox.job import parse_quietly
from sandbox.pool import Executor as Executor
from sandbox.pool import SandboxPool
from sandbox.result import ExecutionRequest, ExecutionResult, Limits, Outcome

_MAX_INFRA_RETRIES = 2
# What an attempt takes besides the program's own time: starting a sandbox anew, ending a stuck one.
_OVERHEAD_S = 15.0


def execution_limits(config: ExecutionConfig) -> Limits:
    """The limits of one run; ``timeout`` bounds CPU time."""
    return Limits.around(config.timeout, config.max_memory * 1024**2)


def longest_run_s(config: ExecutionConfig, num_stdio_tests: int = 0) -> float:
    """The most wall time that judging one program may take, with every retry after faults of the sandbox.

    A whole program has the limits of a run in each of its ``num_stdio_tests``.
    """
    wall_s = max(1, num_stdio_tests) * execution_limits(config).wall_cap_s
    return (_MAX_INFRA_RETRIES + 1) * (wall_s + _OVERHEAD_S)


def start_sandbox(
    config: ExecutionConfig, num_workers: int = 1, *, without: frozenset[str] = frozenset()
) -> SandboxPool:
    """A sandbox as ``config`` says, to be closed by the caller; ``without`` as in SandboxPool, for tests.

    Raises sandbox.worker.SandboxError where it cannot start, also on a host that gives it less than
    level L2, unless ``allow_unsafe`` is set.
    """
    return SandboxPool(
        num_workers,
        max_infra_retries=_MAX_INFRA_RETRIES,
        modules=tuple(config.modules),
        allow_unsafe=config.allow_unsafe,
        without=without,
    )


def execution_request(task: Task, code: str, config: ExecutionConfig) -> ExecutionRequest:
    """The run that judges ``code`` as an answer to ``task``."""
    is_program = bool(task.stdio_tests)
    return ExecutionRequest(
        # A whole program runs alone: its prelude can only be a part of it.
        solution="".join(_whole_program(task, code)) if is_program else code,
        entry_point=task.entry_point,
        call_tests=task.call_tests,
        check_source=task.check_source,
        stdio_tests=task.stdio_tests,
        prelude="" if is_program else task.prelude,
        limits=execution_limits(config).for_outputs(task.stdio_tests),
    )


def line_of_answer(task: Task, code: str, line: int) -> int:
    """The line of ``code`` that is ``line`` of what ``execution_request`` runs; 0 for one of the prelude."""
    if not task.stdio_tests:
        return line
    first, prelude, _ = (part.count("\n") for part in _whole_program(task, code))
    if line <= first:
        return line
    return line - prelude if line > first + prelude else 0


def _whole_program(task: Task, code: str) -> tuple[str, str, str]:
    """What of the answer must come before the prelude, the prelude in lines of its own, and the rest."""
    if not task.prelude:
        return "", "", code
    first = "".join(io.StringIO(code).readlines()[: _last_future(code)])
    return _in_lines(first), _in_lines(task.prelude), code[len(first) :]


def _in_lines(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _last_future(code: str) -> int:
    """The line where the last import from ``__future__`` ends, which only a docstring may precede; or 0."""
    tree = parse_quietly(code) if "__future__" in code else None
    last = 0
    for number, statement in enumerate(tree.body if tree is not None else ()):
        match statement:
            case ast.ImportFrom(module="__future__"):
                last = statement.end_lineno or 0
            case ast.Expr(value=ast.Constant(value=str())) if number == 0:
                pass
            case _:
                break
    return last


def has_passed(result: ExecutionResult) -> bool:
    """Whether every test passed, and there was at least one."""
    return result.outcome is Outcome.PASS and result.num_passed == result.num_tests > 0
