"""New inputs for a task, like those that its tests have: of the same types, and small changes of them.

Edits leave out, double, move or copy an item, or take the next number. An argument may take the value of
another one, or a constant of the reference, for that is where its branches part. What else a new input may be
is read off the present ones, so that it keeps what the prompt asks of it: a number where there are numbers,
no negative number and nothing empty where there is none (a zero and a single element there may be), no new
sort of sign in a text, nothing more than twice as large (a constant: sixty times, as a text thirty times as
long). Drawn by hypothesis, the same every time.
"""

from __future__ import annotations

import ast
import math
import string
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from curriculum.audit.cheats import nodes_of
from curriculum.task import Task
from sandbox.job import PARSING, read_literal

Arguments = tuple[object, ...]
_CLASSES: Final = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
_CALLED: Final = "candidate"
_NUM_SEEDED: Final = 50  # inputs that constants are put into
_LARGEST_CONSTANT: Final = 30  # times the largest new number, or the longest text that is there


def present_inputs(task: Task) -> list[Arguments]:
    """The arguments of the calls in the tests of ``task`` that are literals, of the commonest number."""
    if task.call_tests:
        found = [test.args for test in task.call_tests]
    else:
        found = _literal_calls(task.check_source or "", called_names(task))
    if not found:
        return []
    size = Counter(map(len, found)).most_common(1)[0][0]
    return [arguments for arguments in found if len(arguments) == size]


def called_names(task: Task) -> set[str]:
    """What the check of ``task`` calls the function that it judges."""
    return {_CALLED, task.entry_point}


def constants_of(source: str) -> list[int | str]:
    """The numbers and texts that a program names, each once; none of what does not compile."""
    values = [node.value for node in nodes_of(source) if isinstance(node, ast.Constant)]
    return list(dict.fromkeys(value for value in values if type(value) is int or type(value) is str))


def new_inputs(
    present: Sequence[Arguments], count: int, constants: Sequence[int | str] = ()
) -> list[Arguments]:
    """At most ``count`` drawn inputs that are not among ``present``, and as many with ``constants``.

    None where nothing goes in. The constants are those of the reference.
    """
    if not present or not present[0]:
        return []
    typed = st.tuples(*(_like(column) for column in zip(*present, strict=True)))
    one, place = st.sampled_from(list(present)), st.integers(0, len(present[0]) - 1)
    changed = st.tuples(one, typed, place).map(
        lambda drawn: (*drawn[0][: drawn[2]], drawn[1][drawn[2]], *drawn[0][drawn[2] + 1 :])
    )
    edited = st.tuples(one, place, st.randoms(use_true_random=False)).map(
        lambda drawn: (
            *drawn[0][: drawn[1]],
            _edited(drawn[0][drawn[1]], drawn[2]),
            *drawn[0][drawn[1] + 1 :],
        )
    )
    drawn_texts: list[str] = []

    @settings(
        max_examples=2 * count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(edited, changed, typed))
    def collect(arguments: Arguments) -> None:
        drawn_texts.append(repr(arguments))

    # hypothesis parses modules on its way.
    with PARSING:
        collect()
    known = {repr(arguments) for arguments in present}
    texts = [text for text in dict.fromkeys(drawn_texts) if text not in known]
    # Read again: not all that is drawn has a text that gives it back.
    drawn = [read for text in texts if (read := _read(text)) is not None][:count]
    seen = known | {repr(arguments) for arguments in drawn}
    seeded = {repr(arguments): arguments for arguments in _seeded(present[:_NUM_SEEDED], constants)}
    others = [arguments for text, arguments in seeded.items() if text not in seen]
    # Where there are too many, some from everywhere.
    step = max(1, math.ceil(len(others) / count))
    return [*drawn, *others[::step]]


def _seeded(present: Sequence[Arguments], constants: Sequence[int | str]) -> list[Arguments]:
    """``present`` with one argument replaced by another of its call, or by a constant or its neighbour."""
    near = [
        value
        for constant in constants
        for value in ((constant,) if isinstance(constant, str) else (constant - 1, constant, constant + 1))
    ]
    columns = list(zip(*present, strict=True))
    return [
        (*arguments[:place], other, *arguments[place + 1 :])
        for arguments in present
        for place, value in enumerate(arguments)
        for other in (*arguments, *(constant for constant in near if _fits(constant, columns[place])))
        if type(other) is type(value) and other != value
    ]


def _fits(constant: int | str, column: Sequence[object]) -> bool:
    """Whether ``constant`` may stand where these values stand."""
    values: list[Any] = [value for value in column if type(value) is type(constant)]
    if not values:
        return False
    if isinstance(constant, str):
        longest = max(map(len, values))
        return 0 < len(constant) <= _LARGEST_CONSTANT * longest and set(constant) <= set(_alphabet(values))
    low, high = _range(values)
    return bool(low <= constant <= _LARGEST_CONSTANT * high)


def _edited(value: Any, random: Random) -> Any:
    """``value`` with one small change: a number next to it, an item left out, doubled, moved or changed."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | list | tuple):
        return value
    if isinstance(value, int | float):
        near = value + random.choice((-1, 1))
        return near if near >= 0 or value < 0 else value
    items = list(value)
    if len(items) > 0:
        place, other = random.randrange(len(items)), random.randrange(len(items))
        # Each place of a record has its own meaning.
        edits = ("change",) if isinstance(value, tuple) else ("leave out", "double", "move", "copy", "change")
        match random.choice(edits):
            case "leave out" if len(items) > 1:
                del items[place]
            case "double":
                items.insert(place, items[place])
            case "move":
                items[place], items[other] = items[other], items[place]
            case "copy":
                items[place] = items[other]
            case "change" if not isinstance(value, str) and not isinstance(items[place], list):
                items[place] = _edited(items[place], random)
    return "".join(items) if isinstance(value, str) else type(value)(items)


def _read(text: str) -> Arguments | None:
    try:
        read = read_literal(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return read if isinstance(read, tuple) and repr(read) == text else None


def _like(values: Sequence[object]) -> SearchStrategy[Any]:
    """Values like ``values``: a strategy for each type among them."""
    by_type: dict[type, list[Any]] = {}
    for value in values:
        by_type.setdefault(type(value), []).append(value)
    return st.one_of(*(_of_type(kind, of_kind) for kind, of_kind in by_type.items()))


def _of_type(kind: type, values: list[Any]) -> SearchStrategy[Any]:
    if kind is int:
        return st.integers(*_range(values))
    if kind is float:
        low, high = _range(values)
        return st.floats(low, high, allow_nan=False, allow_infinity=False).map(lambda value: round(value, 2))
    if kind is str:
        sizes = {"min_size": min(map(len, values)), "max_size": 2 * max(map(len, values))}
        return st.text(st.sampled_from(_alphabet(values)), **sizes) if _alphabet(values) else st.just("")
    if kind in (list, tuple, set, frozenset):
        return _collection(kind, values)
    if kind is dict:
        if not any(values):
            return st.just({})
        keys = _like([key for value in values for key in value])
        items = _like([item for value in values for item in value.values()])
        return st.dictionaries(keys, items, min_size=_least(values), max_size=_most(values))
    return st.sampled_from(values) if kind is not bool else st.booleans()


def _collection(kind: type, values: list[Any]) -> SearchStrategy[Any]:
    if not any(len(value) for value in values):
        return st.just(kind())
    sizes = {len(value) for value in values}
    if kind is tuple and len(sizes) == 1:
        # A record: each place has its own meaning.
        return st.tuples(*(_like(column) for column in zip(*values, strict=True)))
    inner = [item for value in values for item in value]
    items = _like(inner)
    if all(type(item) is list and item for item in inner) and all(
        len(set(map(len, one))) <= 1 for one in values
    ):
        # A table: its rows are of one length.
        cells = _like([cell for row in inner for cell in row])
        rows = st.integers(_least(inner), _most(inner)).map(
            lambda width: st.lists(cells, min_size=width, max_size=width)
        )
        least, most = _least(values), _most(values)
        return rows.flatmap(lambda row: st.lists(row, min_size=least, max_size=most)).map(kind)
    if kind is set or kind is frozenset:
        return st.sets(items, min_size=_least(values), max_size=_most(values)).map(kind)
    return st.lists(items, min_size=_least(values), max_size=_most(values)).map(kind)


def _range(values: list[Any]) -> tuple[Any, Any]:
    low, high = min(values), max(values)
    return (2 * low if low < 0 else 0), (2 * high if high > 0 else 0)


def _alphabet(values: list[str]) -> str:
    """The signs that are there, and their like: a lower-case letter stands for all of them."""
    signs = set("".join(values))
    alike = {sign for one in _CLASSES if len(signs & set(one)) > 1 for sign in one}
    # Zeros and ones alone are a number to the base of two.
    return "".join(sorted(signs if signs <= {"0", "1"} else signs | alike))


def _least(values: list[Any]) -> int:
    return min(1, *map(len, values))


def _most(values: list[Any]) -> int:
    return 2 * max(map(len, values))


def _literal_calls(source: str, names: set[str]) -> list[Arguments]:
    found: list[Arguments] = []
    for node in nodes_of(source):
        match node:
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in names and arguments:
                try:
                    found.append(tuple(ast.literal_eval(argument) for argument in arguments))
                except (ValueError, TypeError, SyntaxError, RecursionError):
                    continue
    return found
