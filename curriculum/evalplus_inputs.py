"""MBPP+'s inputs with the types that JSON cannot hold: tuples, sets and complex numbers, task by task.

EvalPlus's files hold lists and strings in their place, and its loader knows by number which tasks meant
what; this is that table. HumanEval+ needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Arguments = list[Any]

# What is made of the list of arguments of one call, and the numbers of the tasks it is done for.
_TUPLES = "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809"
_LISTS_OF_TUPLES = "63 64 70 94 120 237 272 299 400 409 417 438 473 614 780"
_FIRST_LIST_OF_TUPLES = "75 413 444 753"
_SECOND_TUPLE = "106 750"
_FIRST_TUPLE = "250 307 405 446 617 720 763 808"
_TUPLES_OF_TUPLES = "259 401 445"
_ALL_TUPLES = "580 615 791"


def restore_types(task_id: str, inputs: list[Arguments]) -> list[Arguments]:
    """The inputs of ``task_id``, "Mbpp/2" say, with the types that its function takes.

    Raises TypeError, ValueError, IndexError or AttributeError where they have another shape than that
    task's.
    """
    benchmark, _, number = task_id.partition("/")
    restore = _RESTORERS.get(number) if benchmark == "Mbpp" else None
    return inputs if restore is None else [restore(arguments) for arguments in inputs]


def _tuples(values: Any) -> list[Any]:
    return [tuple(value) for value in values]


def _deep(value: Any) -> Any:
    return tuple(_deep(item) for item in value) if isinstance(value, list) else value


def _sets(arguments: Arguments) -> Arguments:
    # EvalPlus puts a dictionary where a set would be empty.
    return [[set(item) if isinstance(item, list) and item else {} for item in arguments[0]]]


def _mixed_tuple(arguments: Arguments) -> Arguments:
    return [tuple(tuple(item) if isinstance(item, list) else item for item in arguments[0])]


def _values_tuples(arguments: Arguments) -> Arguments:
    return [{key: tuple(value) for key, value in arguments[0].items()}, *arguments[1:]]


def _for_each(numbers: str, restore: Callable[[Arguments], Arguments]) -> dict[str, Any]:
    return dict.fromkeys(numbers.split(), restore)


_RESTORERS: dict[str, Callable[[Arguments], Arguments]] = {
    **_for_each(_TUPLES, _tuples),
    **_for_each(_LISTS_OF_TUPLES, lambda arguments: [_tuples(argument) for argument in arguments]),
    **_for_each(_FIRST_LIST_OF_TUPLES, lambda arguments: [_tuples(arguments[0]), arguments[1]]),
    **_for_each(_SECOND_TUPLE, lambda arguments: [arguments[0], tuple(arguments[1])]),
    **_for_each(_FIRST_TUPLE, lambda arguments: [tuple(arguments[0]), *arguments[1:]]),
    **_for_each(_TUPLES_OF_TUPLES, lambda arguments: [tuple(_tuples(argument)) for argument in arguments]),
    **_for_each(_ALL_TUPLES, lambda arguments: [_deep(argument) for argument in arguments]),
    "115": _sets,
    "124": lambda arguments: [float(arguments[0]), complex(arguments[1])],
    "252": lambda arguments: [complex(arguments[0])],
    "278": _mixed_tuple,
    "722": _values_tuples,
}
