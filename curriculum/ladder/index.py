"""The index of the ladder: every built-in task, and which families are held out from training.

It does not order, weight or sample the tasks.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from curriculum.ladder.reader import read_tasks
from curriculum.task import Task

# In the order of the tasks.
TASK_FILES = (
    "numbers_arithmetic.py",
    "numbers_measures.py",
    "decisions.py",
    "strings_whole.py",
    "strings_parts.py",
    "strings_words.py",
    "lists_ends_and_totals.py",
    "lists_joining_and_slicing.py",
    "lists_maps_and_filters.py",
    "lists_counting_and_positions.py",
    "lists_checks_and_editing.py",
    "sequences.py",
    "windows.py",
    "dictionaries.py",
    "dictionaries_grouping.py",
    "tuples_and_sets.py",
    "ordering.py",
    "grids.py",
    "searching.py",
    "greedy_and_stacks.py",
    "planning.py",
)

# About a quarter of the families, picked so that each level and each topic keeps its share: a held-out
# score then moves for what was learned, not for a different mix. Families with a twin in another topic
# (the length of a string, of a list) stay on one side. Changing this set makes old scores incomparable
# with new ones.
HELDOUT_FAMILIES: frozenset[str] = frozenset(
    {
        # numbers and logic
        "categories",
        "digit sums",
        "prices and interest",
        "range checks",
        "signs",
        "sums and differences",
        # strings
        "character tests",
        "ciphers",
        "prefix and suffix",
        "repeating strings",
        "vowels",
        # lists and sequences
        "chunks and windows",
        "conditional sums",
        "list membership",
        "list totals",
        "map arithmetic",
        "progressions",
        # dictionaries, sets, order
        "dict merging",
        "dict views",
        "set relations",
        "sorting by key",
        # grids and algorithms
        "grid work",
        "subsets and choices",
    }
)


def ladder_tasks(split: str) -> tuple[Task, ...]:
    """Return the built-in tasks of one split, always in the same order.

    ``split`` is ``"train"``, ``"heldout"`` or ``"all"``; train and held-out share no family.
    Raises ValueError for any other name.
    """
    if split == "all":
        return _all_tasks()
    if split == "train":
        return tuple(task for task in _all_tasks() if task.family not in HELDOUT_FAMILIES)
    if split == "heldout":
        return tuple(task for task in _all_tasks() if task.family in HELDOUT_FAMILIES)
    raise ValueError(f"ladder split {split!r} is unknown: use 'train', 'heldout' or 'all'")


@cache
def _all_tasks() -> tuple[Task, ...]:
    folder = files("curriculum.ladder") / "tasks"
    return tuple(
        task
        for file in TASK_FILES
        for task in read_tasks((folder / file).read_text(encoding="utf-8"), f"curriculum/ladder/tasks/{file}")
    )
