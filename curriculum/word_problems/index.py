"""All built-in word problems, and which kinds are held out from training."""

from __future__ import annotations

from curriculum.task import Task
from curriculum.word_problems import money, quantities, relations

_NUM_OF_A_KIND = 12
_TEMPLATES = (*money.TEMPLATES, *quantities.TEMPLATES, *relations.TEMPLATES)

# A third of the kinds, some of each topic and level. Changing this set, a template or the number of problems
# makes old scores incomparable with new ones.
HELDOUT_FAMILIES = frozenset(
    {
        "bakery",
        "discount",
        "split bill",
        "boxes",
        "harvest",
        "meeting",
        "ages",
        "doubling",
        "fraction",
        "legs",
    }
)


def word_problems(split: str) -> tuple[Task, ...]:
    """The problems of one split, always the same in the same order; train and heldout share no kind.

    ``split`` is "train", "heldout" or "all". Raises ValueError for any other name.
    """
    if split not in ("train", "heldout", "all"):
        raise ValueError(f"word-problems split {split!r} is unknown: use 'train', 'heldout' or 'all'")
    wanted = {"train": (False,), "heldout": (True,), "all": (False, True)}[split]
    return tuple(
        template.task(number)
        for template in _TEMPLATES
        if (template.family in HELDOUT_FAMILIES) in wanted
        for number in range(_NUM_OF_A_KIND)
    )
