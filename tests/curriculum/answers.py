"""What the curriculum tests share: a task from one record, and the verdict on a program for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from configs.schema import ExecutionConfig
from curriculum.jsonl import load_jsonl
from curriculum.judging import execution_request, has_passed
from curriculum.task import Task
from sandbox.pool import SandboxPool


def task_of(tmp_path: Path, record: Mapping[str, object]) -> Task:
    """The only task of ``record.jsonl``, which is written with this record."""
    file = tmp_path / "record.jsonl"
    file.write_text(json.dumps(record) + "\n", encoding="utf-8")
    (task,) = load_jsonl(file)
    return task


def passes(sandbox: SandboxPool, task: Task, program: str) -> bool:
    return has_passed(sandbox.run(execution_request(task, program, ExecutionConfig())))
