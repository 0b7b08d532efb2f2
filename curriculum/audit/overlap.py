"""How near a task is to one of a benchmark: 8-grams of words, compared by MinHash (Broder, 1997; datasketch).

Of each task the words of its prompt and of its reference count, without case and punctuation. A text of
fewer words is one gram.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from curriculum.mbpp import is_for_training
from curriculum.sources import load_named_tasks
from curriculum.task import Task

if TYPE_CHECKING:
    from datasketch import MinHash

_BENCHMARKS: Final = ("humaneval", "mbpp")
_WORDS_A_GRAM: Final = 8
_NUM_HASHES: Final = 128


def benchmark_tasks(names: Sequence[str] | None, note: Callable[[str], None]) -> Iterator[Task]:
    """The tasks of the benchmarks ``names``, but what of MBPP is for training.

    For None those of HumanEval and of MBPP's test part; ``note`` gets a line where one cannot be had. Raises
    ValueError and OSError where one that was named cannot.
    """
    for name in names or _BENCHMARKS:
        try:
            tasks = load_named_tasks(name)
        except (ValueError, OSError):
            if names:
                raise
            note(f"{name} cannot be had here; no near tasks are looked for in it")
            continue
        yield from (task for task in tasks if not is_for_training(task))


class Overlap:
    """Finds the nearest of ``benchmarks``, whose tasks are known by their ids."""

    def __init__(self, benchmarks: Iterable[Task]) -> None:
        self._known = [(task.task_id, _sketch(task)) for task in benchmarks]

    def nearest(self, task: Task) -> tuple[str, float]:
        """The id of the nearest other task and the Jaccard similarity, 0 to 1; ('', 0.0) where nothing is."""
        own = _sketch(task)
        found = ((float(own.jaccard(sketch)), name) for name, sketch in self._known if name != task.task_id)
        similarity, name = max(found, default=(0.0, ""))
        return (name, similarity) if similarity > 0.0 else ("", 0.0)


def _sketch(task: Task) -> MinHash:
    # Imported here: numbers and scipy come with it.
    from datasketch import MinHash

    sketch = MinHash(num_perm=_NUM_HASHES)
    sketch.update_batch([gram.encode("utf-8", "surrogatepass") for gram in _grams(task)])
    return sketch


def _grams(task: Task) -> Iterator[str]:
    for text in (task.prompt, task.reference):
        words = re.findall(r"\w+", text.lower())
        if words:
            for start in range(max(1, len(words) - _WORDS_A_GRAM + 1)):
                yield " ".join(words[start : start + _WORDS_A_GRAM])
