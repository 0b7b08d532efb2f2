"""From a data set's name to its tasks, for training and for evaluation.

Dispatches by name only; each source's own file knows its format. The configuration refuses to train on an
evaluation set by its name, this file by what the tasks are. Executes no code of any data set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache

from configs.schema import DatasetConfig
from configs.task_sets import BUILT_IN_DATASETS, EVALUATION_SETS, MBPP_ON_HUB, is_task_file
from curriculum.codeio import load_codeio
from curriculum.hub import load_hub
from curriculum.humaneval import load_humaneval
from curriculum.jsonl import load_jsonl
from curriculum.ladder.index import ladder_tasks
from curriculum.mbpp import is_for_training, is_test_id
from curriculum.shown import hide_tests
from curriculum.task import Task
from curriculum.word_problems.index import word_problems

_BUILT_IN: Mapping[str, Callable[[str], tuple[Task, ...]]] = {
    "ladder": ladder_tasks,
    "word-problems": word_problems,
}


def load_tasks(dataset: DatasetConfig) -> tuple[Task, ...]:
    """The tasks to train on, in the source's order, at most ``dataset.max_samples`` of them.

    Of tests that a prompt shows it keeps what ``dataset.shown_tests`` says.

    Raises ValueError for an unknown split, a malformed record, an empty set, and for tasks of an evaluation
    set that ``dataset.allow_evaluation_sets`` does not name. The ids of HumanEval, of MBPP's test part (11
    to 510), of LiveCodeBench and of the built-in held-out sets tell them, whatever the file is called and in
    whatever form it is. In the form of one of them a task with any other id counts as its too.
    """
    tasks = _load(dataset.name, dataset.split, dataset.columns)
    allowed = {None, *dataset.allow_evaluation_sets}
    for task in tasks:
        if (found := _evaluation_set_of(task)) not in allowed:
            raise ValueError(
                f"dataset.name: value {dataset.name!r} (split {dataset.split!r}): {found} is an evaluation "
                f"set; a score on it means nothing after training on it. By id or form {task.task_id} is of "
                f"it. To train on it all the same, add {found!r} to dataset.allow_evaluation_sets"
            )
    tasks = tasks[: dataset.max_samples]
    if dataset.shown_tests == "first":
        tasks = tuple(map(hide_tests, tasks))
    if not tasks:
        raise ValueError(f"dataset.name: value {dataset.name!r}: holds no task; at least one is needed")
    return tasks


def _evaluation_set_of(task: Task) -> str | None:
    """By its id, since an audit writes all tasks in the plain form; by its form where the id tells none."""
    if task.task_id.startswith("HumanEval/"):
        return "humaneval"
    if task.task_id.startswith("LiveCodeBench/"):
        return "livecodebench"
    if is_test_id(task.task_id):
        return "mbpp"
    for name in _BUILT_IN:
        if task.task_id in _heldout_ids(name):
            return f"{name}-heldout"
    return task.source if task.source in EVALUATION_SETS and not is_for_training(task) else None


@cache
def _heldout_ids(name: str) -> frozenset[str]:
    return frozenset(task.task_id for task in _BUILT_IN[name]("heldout"))


def load_named_tasks(name: str, split: str | None = None) -> tuple[Task, ...]:
    """The tasks of an evaluation: one of BUILT_IN_DATASETS, a file, or a data set's test split on the hub.

    Another ``split`` may be named. ladder and word-problems are their training splits (to see how far a model
    fits what it was trained on). Raises ValueError for another name and for a malformed file.
    """
    is_data_set = is_task_file(name) or "/" in name or os.path.isdir(name)
    if name not in BUILT_IN_DATASETS and not is_data_set:
        raise ValueError(
            f"tasks: value {name!r}: use {', '.join(BUILT_IN_DATASETS)}, a .jsonl file, "
            "OWNER/NAME or a folder with a data set"
        )
    return _load(name, split or ("train" if name in _BUILT_IN else "test"), columns={}, field="tasks")


def _load(name: str, split: str, columns: Mapping[str, str], field: str = "dataset.name") -> tuple[Task, ...]:
    match name:
        case "ladder" | "word-problems":
            return _BUILT_IN[name](split)
        case "ladder-heldout" | "word-problems-heldout":
            return _BUILT_IN[name.removesuffix("-heldout")]("heldout")
        case "humaneval":
            return load_humaneval()
        case "codeio":
            return load_codeio()
        case name if is_task_file(name):
            return load_jsonl(name)
        case _:
            address = MBPP_ON_HUB if name == "mbpp" else name
            return load_hub(address, split=split, columns=columns, setting=field)
