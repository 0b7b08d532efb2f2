"""Real completions of the built-in model, with their tasks, in the order in which they were sampled.

Read from tests/rewards/data, whose README says where they come from; samples nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from curriculum.humaneval import load_humaneval
from curriculum.jsonl import load_jsonl, read_records
from curriculum.ladder.index import ladder_tasks
from curriculum.task import Task

_DATA = Path(__file__).parents[2] / "tests" / "rewards" / "data"
_COMPLETIONS = _DATA / "completions.jsonl.gz"
# Tasks of neither a package nor the project: MBPP's, and those that the ladder has replaced since.
_OTHER_TASKS = (_DATA / "mbpp_tasks.jsonl.gz", _DATA / "ladder_tasks_replaced.jsonl.gz")

# What the model as it comes wrote, and what the same model wrote while and after it was trained.
UNTRAINED = ("humaneval", "mbpp", "ladder", "run0/before", "run1/before")
TRAINED = ("run0/train", "run0/after", "run1/train", "run1/after")
RUN_0 = ("run0/before", "run0/train", "run0/after")
RUN_1 = ("run1/before", "run1/train", "run1/after")


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCompletion:
    """One answer: ``text`` is prefill and completion together, ``source`` one of the README's."""

    source: str
    task: Task
    text: str


def load_completions(sources: Iterable[str] = UNTRAINED) -> list[RealCompletion]:
    """The completions of ``sources``, in the file's order.

    Raises ValueError for a source that the file lacks and for a task that is no longer there.
    """
    wanted = set(sources)
    others = [task for path in _OTHER_TASKS for task in load_jsonl(path)]
    tasks = {task.task_id: task for task in (*load_humaneval(), *others, *ladder_tasks("all"))}
    found = []
    for record in read_records(_COMPLETIONS):
        if record.text("source") not in wanted:
            continue
        task = tasks.get(record.text("task_id"))
        if task is None:
            raise record.error("task_id", "must be a task of HumanEval, MBPP or the ladder")
        found.append(RealCompletion(source=record.text("source"), task=task, text=record.text("text")))
    missing = wanted - {completion.source for completion in found}
    if missing:
        raise ValueError(f"{_COMPLETIONS.name}: source: value {sorted(missing)}: see its README for all")
    return found
