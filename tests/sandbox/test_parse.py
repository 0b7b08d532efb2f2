"""Programs are parsed in several threads at once: CPython before 3.11.8 ends some of them (gh-106905)."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.job import parse, parse_quietly, read_literal

_PROGRAM = "def f(x):\n    if x:\n        return [a + b * (c - (d or e)) for a in x if (b and c)]\n" * 5
_VALUE = "[(1, {'a': [2, -3]}), ((4,), [[5]])]"


class _Cycle:
    """Garbage whose end lets another thread run, in whatever call it is found."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(1e-5)


@pytest.fixture
def much_garbage() -> Iterator[None]:
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(5)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def test_threads_that_parse_at_once_do_not_spoil_each_other(much_garbage: None) -> None:
    def work(number: int) -> bool:
        _Cycle()
        tree = parse_quietly(_PROGRAM) if number % 2 else parse(_PROGRAM)
        return tree is not None and len(tree.body) == 5 and read_literal(_VALUE)[1] == ((4,), [[5]])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(1000)))
