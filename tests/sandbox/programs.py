"""What the HumanEval and MBPP tests share: requests from records, cheating bodies, runs in threads."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from curriculum.asserts import literal_call_tests
from curriculum.humaneval import last_head
from sandbox.pool import SandboxPool
from sandbox.result import ExecutionRequest, ExecutionResult, Limits

NUM_WORKERS = 2
# Generous: the machine that runs this may be busy with anything.
GENEROUS = Limits(cpu_s=60.0, wall_s=120.0, wall_cap_s=300.0)

# An interpreter's busy loop, which ends with the thread that started it, should that be killed.
ENDLESS = "import ctypes; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\nwhile True: pass"
# Bodies of a function, each line without its indentation.
CHEATS = {
    "exit": ["raise SystemExit(0)"],
    "os_exit": ["import os", "os._exit(0)"],
    "always_equal": [
        "class E:",
        "    def __eq__(self, other): return True",
        "    def __ne__(self, other): return False",
        "    def __hash__(self): return 0",
        "    def __bool__(self): return True",
        "return E()",
    ],
    "stub": ["pass"],
    "frame_walk": [
        "import sys",
        "frame = sys._getframe(1)",
        "while frame:",
        "    for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):",
        "        if type(value) is list: value.append('passed')",
        "    frame = frame.f_back",
        "return 'passed'",
    ],
    "assertion": ["raise AssertionError"],
}


def cheat(problem: dict[str, str], name: str) -> str:
    """A body for ``problem``, indented as its prompt is (the docstring's first line tells)."""
    last = problem["prompt"].rstrip("\n").splitlines()[-1]
    indent = last[: len(last) - len(last.lstrip())] or "    "
    return "".join(f"{indent}{line}\n" for line in CHEATS[name])


def check_request(problem: dict[str, str], body: str, limits: Limits) -> ExecutionRequest:
    """A request in judge mode."""
    prompt, entry_point = problem["prompt"], problem["entry_point"]
    return ExecutionRequest(
        solution=f"{prompt}{body}\n",
        entry_point=entry_point,
        check_source=problem["test"],
        # Imports and helpers stand before the function that is asked for.
        prelude=prompt[: last_head(prompt, entry_point)],
        limits=limits,
    )


def call_request(problem: dict[str, str], body: str, limits: Limits) -> ExecutionRequest | None:
    """A request in I/O mode; None where some assert is not a literal ``candidate(args) == value``."""
    asserts = [each for each in _check_body(problem["test"]) if not _holds_always(each)]
    tests = literal_call_tests(asserts, "candidate")
    if tests is None:
        return None
    return ExecutionRequest(
        solution=f"{problem['prompt']}{body}\n",
        entry_point=problem["entry_point"],
        call_tests=tests,
        limits=limits,
    )


def _holds_always(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Constant)


def _check_body(source: str) -> list[ast.stmt]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            return node.body
    raise AssertionError("no check function")


def run_all(pool: SandboxPool, requests: Iterable[ExecutionRequest]) -> list[ExecutionResult]:
    """The results in order, ``NUM_WORKERS`` at a time."""
    with ThreadPoolExecutor(NUM_WORKERS) as threads:
        return list(threads.map(pool.run, requests))
