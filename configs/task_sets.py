"""The names under which task sets go, and which of them may be trained on.

Checks names only: the tasks themselves are curriculum.sources' business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from configs.errors import Problem, unknown, wrong_value

EVALUATION_SETS = ("humaneval", "mbpp", "ladder-heldout", "word-problems-heldout", "livecodebench")
BUILT_IN_DATASETS = (
    "ladder",
    "ladder-heldout",
    "humaneval",
    "mbpp",
    "codeio",
    "word-problems",
    "word-problems-heldout",
)
# Sets with splits of our own: train, heldout, all.
_SPLIT_SETS = ("ladder", "word-problems")
# What a Task's field ``source`` can hold.
TASK_SOURCES = (
    "ladder",
    "codeio",
    "humaneval",
    "mbpp",
    "jsonl",
    "livecodebench",
    "word-problems",
    "gsm8k",
)
HUB_FILE_PREFIX = "hf://datasets/"
_FILE_ENDINGS = (".jsonl", ".jsonl.gz")
_A_FILE = "an existing .jsonl file"

MBPP_ON_HUB = "google-research-datasets/mbpp"
# Hub ids under which an evaluation set is known; training on them is training on that set.
_HUB_EVALUATION_SETS = {
    "openai/openai_humaneval": "humaneval",
    "evalplus/humanevalplus": "humaneval",
    MBPP_ON_HUB: "mbpp",
    "evalplus/mbppplus": "mbpp",
    "livecodebench/code_generation": "livecodebench",
    "livecodebench/code_generation_lite": "livecodebench",
}


def is_task_file(name: str) -> bool:
    """Whether ``name`` is meant as a file of tasks, here or on the hub."""
    return name.endswith(_FILE_ENDINGS)


def is_on_hub(name: str) -> bool:
    """Whether ``name`` is meant as a hub data set: neither a built-in one nor a file."""
    return name not in BUILT_IN_DATASETS and not is_task_file(name)


def is_fetched(name: str) -> bool:
    """Whether it is one that has to come from the hub: not a folder here."""
    on_hub = name == "mbpp" or name.startswith(HUB_FILE_PREFIX) or is_on_hub(name)
    return on_hub and not os.path.isdir(name)


def training_set_problems(name: str, split: str, allowed_sets: Sequence[str]) -> list[Problem]:
    """What is wrong with a set of tasks to train on; fields are those of the section ``dataset``.

    ``allowed_sets`` are the evaluation sets that the user allows by name.
    """
    problems = [
        wrong_value("allow_evaluation_sets", allowed, f"any of: {', '.join(EVALUATION_SETS)}")
        for allowed in allowed_sets
        if allowed not in EVALUATION_SETS
    ]
    return _name_problems(name, split, allowed_sets) + split_problems(name, split) + problems


def evaluation_set_of(name: str, split: str) -> str | None:
    """The evaluation set that a set of tasks is, by its name and split, if any. MBPP has a training part."""
    if name in _SPLIT_SETS:
        return f"{name}-heldout" if split in ("heldout", "all") else None
    if (name == "mbpp" or name.lower() == MBPP_ON_HUB) and split != "test":
        return None
    found = _HUB_EVALUATION_SETS.get(name.lower(), name)
    return found if found in EVALUATION_SETS else None


def task_set_problems(field: str, name: str, split: str = " (split test)") -> list[Problem]:
    """What is wrong with ``name`` as a set of tasks; empty if nothing is.

    ``split`` says which one of a hub data set is read: for an evaluation test.
    """
    if is_task_file(name):
        return _file_problems(field, name)
    if is_on_hub(name) and not _is_hub_name(name):
        on_hub = f"a hub data set as OWNER/NAME{split} or a folder of one"
        return [unknown(field, name, BUILT_IN_DATASETS, _A_FILE, on_hub)]
    return []


def _name_problems(name: str, split: str, allowed_sets: Sequence[str]) -> list[Problem]:
    if problems := task_set_problems("name", name, split=""):
        return problems
    evaluation_set = evaluation_set_of(name, split)
    if evaluation_set is None or evaluation_set in allowed_sets:
        return []
    allowed = (
        f"a training set; {evaluation_set} is an evaluation set: a score on it means nothing after training "
        f"on it (to train on it all the same: dataset.allow_evaluation_sets: [{evaluation_set}])"
    )
    return [wrong_value("name", name, allowed, "split")]


def split_problems(name: str, split: str) -> list[Problem]:
    """What is wrong with the ``split`` of the set ``name``; empty if nothing is."""
    if name in _SPLIT_SETS:
        splits: tuple[str, ...] = ("train", "heldout", "all")
    elif name == "humaneval":
        splits = ("train", "test")
    elif name.removesuffix("-heldout") in (*_SPLIT_SETS, "codeio") or is_task_file(name):
        splits = ("train",)
    else:
        return []
    if split in splits:
        return []
    reason = "" if len(splits) > 1 else f" (the default: {name} has no splits)"
    return [wrong_value("split", split, f"{' or '.join(splits)}{reason}", "name")]


def _is_hub_name(name: str) -> bool:
    """Whether ``name`` can be a data set of the hub, or is a folder with one."""
    is_name = name.count("/") == 1 and all(name.split("/")) and not os.path.isfile(name)
    return is_name or os.path.isdir(name)


def hub_file_parts(address: str) -> tuple[str, str | None, str] | None:
    """OWNER/NAME, the revision (a branch, tag or commit) and PATH of a file's address on the hub, or None."""
    found = re.fullmatch(rf"{HUB_FILE_PREFIX}([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)", address)
    return None if found is None else (found[1], found[2], found[3])


def _file_problems(field: str, name: str) -> list[Problem]:
    if name.startswith(HUB_FILE_PREFIX):
        allowed = f"{HUB_FILE_PREFIX}OWNER/NAME[@REVISION]/PATH.jsonl"
        return [] if hub_file_parts(name) is not None else [wrong_value(field, name, allowed)]
    if os.path.isfile(name):
        return []
    return [Problem(field=field, fault=f"no such file: {name}", allowed=f"{_A_FILE} (or .jsonl.gz)")]
