"""The type reward: what counts, one check never changes the next, and no failure is scored."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

import rewards.type_check
from rewards.type_check import (
    TypeChecker,
    TypeCheckError,
    _check_by_process,
    _Server,
    type_score,
)
from rewards.type_rules import count_hidden, count_reported, is_blocking, neutralise_type_comments
from tests.processes import descendants, left_by_killed_owner, none_runs

pytestmark = pytest.mark.slow

HONEST = "def f(xs: list[int]) -> int:\n    return sum(x * x for x in xs)\n"
WRONG = "def f(xs: list[int]) -> str:\n    return sum(xs)\n"
BARE = "def f(a, b):\n    return a + b\n"
EXAMPLES = {
    "honest": (HONEST, 0),
    "one error": (WRONG, 1),
    "no annotations": (BARE, 5),
    "a library that mypy does not see": (
        "import numpy as np\n\ndef f(xs: list[int]) -> list[int]:\n    return sorted(xs)\n",
        0,
    ),
    "known imports": (
        "import math\nfrom collections import Counter\n\n"
        "def f(xs: list[int]) -> Counter[float]:\n    return Counter(math.sqrt(x) for x in xs)\n",
        0,
    ),
    "a module that is not loaded beforehand": (
        "import tkinter\n\ndef f(x: int) -> str:\n    return tkinter.nothing + x\n",
        2,
    ),
    "methods": (
        "class C:\n    def __init__(self, x: int) -> None:\n        self.x = x\n\n"
        "    @staticmethod\n    def g(x: int) -> int:\n        return x\n\n"
        "    @classmethod\n    def h(cls) -> int:\n        return 1\n\n"
        "def f(x: int) -> int:\n    return C(x).x + C.g(x) + C.h()\n",
        0,
    ),
    "a defensive check": (
        "def f(x: int) -> int:\n    if not isinstance(x, int):\n        raise TypeError(x)\n    return x\n",
        0,
    ),
    "nothing": ("x = 1\n", 0),
    "no Python for mypy": ("def f(:\n", 10),
}
# What a resident checker might choke on, remember, or let into the next check.
POISON = [
    "def f(x: int) -> int:\n    return " + "(" * 90 + "x" + ")" * 90 + "\n",
    "def f(x: int) -> int:\n    return x" + " + x" * 5000 + "\n",
    "x = " + "[" * 90 + "]" * 90 + "\n",
    f"from typing import Literal\nT = Literal[{', '.join(map(str, range(8000)))}]\ndef f(x: T) -> T: ...\n",
    "class A: pass\n" + "".join(f"class A{i}(A{i - 1 if i else ''}): pass\n" for i in range(600)),
    "int = str\nlist = dict\ndef sum(x: int) -> int: return x\n",
    "import builtins\nbuiltins.sum = lambda x: ''\n",
    "import collections\ncollections.Counter = int\n",
    "# mypy: plugins=nowhere\n# mypy: ignore-errors\nx: int = ''\n",
    "T = list['T']\ndef f(x: T) -> T: return x[0]\n",
    "import solution\nfrom solution import f\ndef f(x: int) -> str: return 1\n",
    "def f(:\n",
    "x = 1\0\n",
    "",
]  # fmt: skip


def test_a_tenth_is_lost_for_each_error() -> None:
    assert [type_score(number) for number in (0, 1, 10, 11)] == [1.0, 0.9, 0.0, 0.0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_errors_by_example_as_in_a_process_of_its_own(name: str, checker: TypeChecker) -> None:
    code, expected = EXAMPLES[name]
    assert checker.count_errors(code) == expected
    neutral, _ = neutralise_type_comments(code)
    messages = _check_by_process(neutral, 60.0)
    assert messages is not None
    alone = 10 if is_blocking(messages) else count_hidden(neutral) + count_reported(messages, neutral)
    assert min(10, alone) == expected


def test_what_stands_before_a_program_is_known_and_its_errors_are_not_counted(checker: TypeChecker) -> None:
    prelude = "from typing import List\n\ndef helper(x: int) -> int:\n    return str(x)\n"
    good = "def f(x: List[int]) -> int:\n    return helper(x[0])\n"
    bad = "def f(x: List[int]) -> str:\n    return helper(x[0])\n"
    assert checker.count_errors(good, prelude) == 0
    assert checker.count_errors(bad, prelude) == 1
    assert checker.count_errors(good) >= 2
    # What a program has again, as Python lets it, is no error either.
    again = "from typing import List\n\ndef helper(x: int) -> int:\n    return x\n\n" + good
    assert checker.count_errors(again, prelude) == checker.count_errors(again) == 0
    stars = "from math import *\nfrom bisect import *\n"
    own = "import bisect\n\ndef f(x: list[int]) -> int:\n    return bisect.bisect_left(x, pow(2, 5, 7))\n"
    assert checker.count_errors(own, stars) == 0


def test_what_stops_mypy_before_it_looks_earns_nothing(checker: TypeChecker) -> None:
    code = (
        "try:\n    from . import a\nexcept ImportError:\n    pass\n\n\ndef f(x: int) -> str:\n    return x\n"
    )
    assert checker.count_errors(code) == 10
    assert _check_by_process(code, 60.0) is None
    assert checker.count_errors("def f(x: int) -> int:\n    return x\n") == 0


def test_no_program_changes_the_verdict_on_the_next(checker: TypeChecker) -> None:
    before = [checker.count_errors(code) for code, _ in EXAMPLES.values()]
    for poison in POISON:
        assert 0 <= checker.count_errors(poison) <= 10
        for code in (HONEST, WRONG):
            assert checker.count_errors(code) == EXAMPLES["honest" if code == HONEST else "one error"][1], (
                poison[:80]
            )
    assert [checker.count_errors(code) for code, _ in EXAMPLES.values()] == before
    assert checker._num_failures == 0


@pytest.mark.parametrize("first_line", ["", "import tkinter\n"])
def test_a_program_that_takes_mypy_too_long_earns_nothing(
    first_line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each further level doubles the work of inference, and more.
    code = "def f(x: int) -> object:\n    return " + "list(map(lambda y: " * 14 + "x" + ", [1]))" * 14 + "\n"
    monkeypatch.setattr(rewards.type_check, "_PROCESS_CPU_S", 4)
    # A busy machine gives these seconds late.
    monkeypatch.setattr(rewards.type_check, "_CPU_SHARE", 0.03)
    with TypeChecker(timeout_s=60.0) as checker:
        assert checker.count_errors(first_line + code) == 10
        assert checker._num_failures == 0
        assert checker.count_errors(HONEST) == 0


def test_a_worker_gives_its_hard_limit_away_with_no_program() -> None:
    with TypeChecker(timeout_s=60.0) as checker:
        limits = {}
        for code in (HONEST, WRONG):
            checker.count_errors(code)
            assert checker._server is not None
            (worker,) = descendants(checker._server._process.pid)
            limits[code] = (worker, resource.prlimit(worker, resource.RLIMIT_CPU))
    # Only root could have raised it again for the second.
    (first, (soft, hard)), (second, (_, later)) = limits.values()
    assert first == second and 0 < soft < 60
    assert hard == later == resource.getrlimit(resource.RLIMIT_CPU)[1]


def test_a_killed_server_is_started_again_and_a_broken_one_replaced_by_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TypeChecker(timeout_s=60.0) as checker:
        assert checker.count_errors(WRONG) == 1
        assert checker._server is not None
        os.kill(checker._server._process.pid, signal.SIGKILL)
        assert checker.count_errors(WRONG) == 1
        assert checker._num_failures == 0
        checker.close()
        monkeypatch.setattr(_Server, "_receive", lambda *_: (_ for _ in ()).throw(OSError("broken")))
        assert checker.count_errors(WRONG) == 1
        assert checker._num_failures == 3


def test_no_mypy_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with TypeChecker() as checker, pytest.raises(TypeCheckError, match="no verdict"):
        checker.count_errors(HONEST)


def test_the_server_and_its_worker_die_with_a_killed_owner() -> None:
    program = (
        "import time\nfrom rewards.type_check import TypeChecker\nchecker = TypeChecker(60.0)\n"
        "checker.count_errors('x = 1\\n')\nprint(checker._server._process.pid, flush=True)\ntime.sleep(60)\n"
    )
    family = left_by_killed_owner(program)
    assert len(family) == 2
    assert none_runs(family, 20.0), f"of {family} some outlived their owner"


def test_the_environment_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_errors = true\n")
    (tmp_path / "helper.pyi").write_text("def g(x: int) -> int: ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYPYPATH", str(tmp_path))
    monkeypatch.setenv("MYPY_CONFIG_FILE", str(tmp_path / "mypy.ini"))
    with TypeChecker(timeout_s=60.0) as checker:
        assert checker.count_errors(WRONG) == 1
        assert checker.count_errors("from helper import g\n\ndef f(x: int) -> int:\n    return g(x)\n") > 0


def test_neutralising_moves_no_column_and_counts_what_it_takes() -> None:
    code = "x = ''  # type: ignore[misc]\ny = 1  #type:int\n# mypy: ignore-errors\n"
    neutral, num_ignores = neutralise_type_comments(code)
    assert num_ignores == 2
    assert list(map(len, neutral.split("\n"))) == list(map(len, code.split("\n")))
    assert "type" not in neutral and "mypy" not in neutral
    kept = "print(f'#{type:>3}', {'type': 1})\n"
    assert neutralise_type_comments(kept) == (kept, 0)
