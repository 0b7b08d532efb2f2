"""The index of the ladder: every built-in task, and which families are held out from training.

It does not order, weight or sample the tasks. Called by ``curriculum.sources`` and by the suite.
"""

from __future__ import annotations

from curriculum.ladder import (
    algorithms,
    grids,
    grouping,
    lists_a,
    lists_b,
    lists_c,
    lists_d,
    lists_e,
    logic,
    mappings,
    numbers_a,
    numbers_b,
    ordering,
    planning,
    searching,
    sequences,
    strings_a,
    strings_b,
    strings_c,
    tuples_sets,
    windows,
)
from curriculum.task import Task

_ALL_TASKS: tuple[Task, ...] = (
    *numbers_a.TASKS,
    *numbers_b.TASKS,
    *logic.TASKS,
    *strings_a.TASKS,
    *strings_b.TASKS,
    *strings_c.TASKS,
    *lists_a.TASKS,
    *lists_b.TASKS,
    *lists_c.TASKS,
    *lists_d.TASKS,
    *lists_e.TASKS,
    *sequences.TASKS,
    *windows.TASKS,
    *mappings.TASKS,
    *grouping.TASKS,
    *tuples_sets.TASKS,
    *ordering.TASKS,
    *grids.TASKS,
    *searching.TASKS,
    *algorithms.TASKS,
    *planning.TASKS,
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
        return _ALL_TASKS
    if split == "train":
        return tuple(task for task in _ALL_TASKS if task.family not in HELDOUT_FAMILIES)
    if split == "heldout":
        return tuple(task for task in _ALL_TASKS if task.family in HELDOUT_FAMILIES)
    raise ValueError(f"ladder split {split!r} is unknown: use 'train', 'heldout' or 'all'")
