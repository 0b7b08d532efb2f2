"""How hard a task looks before any model has tried it: the orders of a cold start.

Says nothing of how hard it is for this policy; curriculum.sampler measures that. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Literal

from curriculum.task import Task
from sandbox.job import parse_quietly

_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.Try,
    ast.BoolOp,
    ast.comprehension,
    ast.ExceptHandler,
    ast.match_case,
)
_NODES_PER_BRANCH = 10


def cold_start_order(
    tasks: Iterable[Task], strategy: Literal["length", "complexity", "success_rate"]
) -> tuple[Task, ...]:
    """``tasks`` from the easiest to the hardest; ties by task_id, so the order is one and the same.

    length: by the prompt's characters. complexity: by the reference's; tasks without one come after
    those with one, by length. success_rate: by level, then by length, until rates are known.
    """
    match strategy:
        case "length":
            return tuple(sorted(tasks, key=lambda task: (len(task.prompt), task.task_id)))
        case "complexity":
            return tuple(sorted(tasks, key=_complexity_key))
        case "success_rate":
            return tuple(sorted(tasks, key=lambda task: (task.difficulty, len(task.prompt), task.task_id)))


def complexity(source: str) -> int | None:
    """Size of a program: its syntax nodes without the docstrings', plus ten for each branch or loop.

    None when there is no source or it does not parse.
    """
    module = parse_quietly(source)
    if module is None or not module.body:
        return None
    total = 0
    for node in ast.walk(module):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        total += -1 if is_text else 1
        total += _NODES_PER_BRANCH if isinstance(node, _BRANCHES) else 0
    return total


def _complexity_key(task: Task) -> tuple[bool, int, int, str]:
    size = complexity(task.reference)
    return (size is None, size or 0, len(task.prompt), task.task_id)
