"""Exceptions and values aimed at the test program's own control flow."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Final

from tests.sandbox.attacks.case import JUDGE, Case

_SWALLOWS_ALL: Final = "def check(candidate):\n    try:\n        assert candidate(1) == 2\n    except BaseException:\n        pass\n"
_SWALLOWS_EXIT: Final = "def check(candidate):\n    try:\n        assert candidate(1) == 2\n    except SystemExit:\n        pass\n"
_MAPPED: Final = "def check(candidate):\n    for got, want in zip(map(candidate, [1, 5]), [2, 6]):\n        assert got == want\n"
_ALL_MAPPED: Final = "def check(candidate):\n    assert all(map(candidate, [1, 5]))\n"
_NEXT: Final = (
    "def check(candidate):\n    assert next((False for _ in iter(lambda: candidate(1), 2)), True)\n"
)
_UNITTEST: Final = """
import unittest
class T(unittest.TestCase):
    def test_one(self):
        self.assertEqual(f(1), 2)
    def test_two(self):
        with self.subTest('sub'):
            self.assertEqual(f(5), 6)
"""
_PYTEST: Final = "def test_one():\n    assert f(1) == 2\ndef test_two():\n    assert f(5) == 6\n"
_ASSERTS: Final = "assert f(1) == 2\nassert f(5) == 6\n"
_EXPECTS: Final = "def check(candidate):\n    try:\n        candidate(1)\n    except ValueError:\n        return\n    assert False\n"
_NO_CALL: Final = "def check(candidate):\n    pass\n"
_DRAWS: Final = (
    "import random\ndef check(candidate):\n    for _ in range(5):\n        want = random.randrange(10**6)\n"
    "        assert candidate(want - 1) == want\n"
)


def _raises(name: str, setup: str, raised: str) -> Case:
    return Case(name=f"raises {name}", source=f"{setup}\ndef f(x): raise {raised}")


def _in_check(name: str, source: str, check: str) -> Case:
    return Case(name=name, source=source, check=check, modes=JUDGE)


CASES: Final = (
    _raises("AssertionError", "", "AssertionError"),
    _raises("a kind of AssertionError", "class E(AssertionError): pass", "E('passed')"),
    _raises("SkipTest", "import unittest", "unittest.SkipTest('not today')"),
    _raises("StopIteration", "", "StopIteration(2)"),
    _raises("StopAsyncIteration", "", "StopAsyncIteration"),
    _raises("KeyboardInterrupt", "", "KeyboardInterrupt"),
    _raises("GeneratorExit", "", "GeneratorExit"),
    _raises("BaseException", "", "BaseException"),
    _raises("a group", "", "BaseExceptionGroup('g', [SystemExit(0), ValueError()])"),
    _raises("nothing that can be raised", "", "0"),
    _raises("MemoryError", "", "MemoryError"),
    _raises("TimeoutError", "", "TimeoutError"),
    _raises(
        "the harness's own errors", "SandboxError = type('SandboxError', (RuntimeError,), {})", "SandboxError"
    ),
    _raises(
        "what says it passed",
        "class E(Exception):\n    def __str__(self): return 'pass'\n    __repr__ = __str__",
        "E('ok')",
    ),
    _raises("what exits when looked at", "class E(Exception):\n    def __str__(self): os._exit(0)", "E"),
    _raises(
        "what raises when looked at",
        "class E(Exception):\n    def __str__(self): raise SystemExit(0)\n"
        "    @property\n    def args(self): raise KeyboardInterrupt",
        "E",
    ),
    _raises(
        "what lies about its class",
        "class M(type):\n    __name__ = 'ok'\n    __mro__ = ()\n"
        "class E(Exception, metaclass=M):\n    __class__ = int",
        "E",
    ),
    _raises("a class without a text", "E = type('pass', (Exception,), {})", "E"),
    _raises("a class with a surrogate for its name", "E = type('\\ud800', (Exception,), {})", "E"),
    _raises("a huge text", "", "ValueError('a' * 10_000_000)"),
    _raises("a huge integer", "", "ValueError(1 << 30_000_000)"),
    _raises(
        "arguments that point to themselves",
        "e = ValueError()\ne.args = ([],)\ne.args[0].append(e.args)",
        "e",
    ),
    _raises(
        "a chain without end", "a = ValueError(); b = ValueError()\na.__cause__ = b; b.__cause__ = a", "a"
    ),
    _in_check("raises where a check swallows all", "def f(x): raise SystemExit(0)", _SWALLOWS_ALL),
    _in_check("dies where a check swallows all", "def f(x): os._exit(0)", _SWALLOWS_ALL),
    _in_check("a liar where a check swallows all", "class E: pass\ndef f(x): return E()", _SWALLOWS_ALL),
    _in_check("exits where a check swallows exits", "def f(x): raise SystemExit(0)", _SWALLOWS_EXIT),
    _in_check("StopIteration inside map and zip", "def f(x): raise StopIteration", _MAPPED),
    _in_check("StopIteration inside map and all", "def f(x): raise StopIteration", _ALL_MAPPED),
    _in_check(
        "StopIteration of its own class inside map",
        "class E(StopIteration): pass\ndef f(x): raise E",
        _ALL_MAPPED,
    ),
    _in_check("StopIteration inside iter", "def f(x): raise StopIteration", _NEXT),
    _in_check(
        "right once, then StopIteration inside map",
        "n = 0\ndef f(x):\n    global n\n    n += 1\n    if n > 1: raise StopIteration\n    return x + 1",
        _MAPPED,
    ),
    _in_check("exits where a ValueError is expected", "def f(x): raise SystemExit(0)", _EXPECTS),
    _in_check("dies where a ValueError is expected", "def f(x): os._exit(0)", _EXPECTS),
    _in_check("returns where a ValueError is expected", "def f(x): return ValueError", _EXPECTS),
    _in_check("a check that makes no call", "def f(x): return 0", _NO_CALL),
    _in_check(
        "draws what the check draws", "import random\ndef f(x): return random.randrange(10**6)", _DRAWS
    ),
    _in_check(
        "draws what a check without a seed of its own draws",
        "import random\nrandom.seed(0)\ndef f(x): return random.randrange(10**6)",
        _DRAWS,
    ),
    _in_check("SkipTest in a unittest", "import unittest\ndef f(x): raise unittest.SkipTest", _UNITTEST),
    _in_check("exit in a unittest", "def f(x): raise SystemExit(0)", _UNITTEST),
    _in_check("os._exit in a unittest", "def f(x): os._exit(0)", _UNITTEST),
    _in_check("AssertionError in a unittest", "def f(x): raise AssertionError", _UNITTEST),
    _in_check("right in one unittest only", "def f(x): return 2", _UNITTEST),
    _in_check("SkipTest in test functions", "import unittest\ndef f(x): raise unittest.SkipTest", _PYTEST),
    _in_check("right in one test function only", "def f(x): return 2", _PYTEST),
    _in_check(
        "exit between bare asserts",
        "def f(x):\n    if x == 5: raise SystemExit(0)\n    return x + 1",
        _ASSERTS,
    ),
    _in_check(
        "os._exit between bare asserts", "def f(x):\n    if x == 5: os._exit(0)\n    return x + 1", _ASSERTS
    ),
    _in_check(
        "a check of its own",
        "def check(candidate): pass\ndef f(x): return 0\nclass T: pass\ndef test_one(): pass",
        _ASSERTS,
    ),
)
