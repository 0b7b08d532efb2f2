"""Results of the wrong kind or size, and results and arguments that change afterwards."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Final

from sandbox.result import CallTest, Outcome
from tests.sandbox.attacks.case import CALL, CALL_AND_JUDGE, JUDGE, Case

_WRONG: Final = frozenset({Outcome.WRONG})
_SORT_TEST: Final = (CallTest(args=([2, 1],), expected=None, expected_args=([1, 2],)),)
_SORT_CHECK: Final = "def check(candidate):\n    xs = [2, 1]\n    assert candidate(xs) == sorted(xs)\n"
_ALIAS_CHECK: Final = (
    "def check(candidate):\n    r = candidate(1)\n    import time\n    time.sleep(0.1)\n    assert r == [2]\n"
)
_TWICE_CHECK: Final = (
    "def check(candidate):\n    r = candidate(1)\n    assert candidate(2) == [3]\n    assert r == [2]\n"
)

# name: the result.
_FOREIGN: Final = {
    "a generator": "(v for v in [x + 1])",
    "an iterator": "iter([x + 1])",
    "a map": "map(abs, [x + 1])",
    "a lambda": "lambda: x + 1",
    "a module": "os",
    "a byte array": "bytearray(b'a')",
    "a memory view": "memoryview(b'a')",
    "a coroutine": "(lambda: (yield))()",
    "a property": "property()",
    "a frame": "sys._getframe()",
    "a code object": "f.__code__",
    "an exception": "ValueError(x + 1)",
    "a weak reference": "__import__('weakref').ref(f)",
    "a simple namespace": "__import__('types').SimpleNamespace(v=x + 1)",
    "a file": "sys.stdout",
    "a socket": "socket.socket(fileno=os.dup(3))",
    "keys of a dict": "{x + 1: 0}.keys()",
    "ellipsis": "...",
    "nan": "float('nan')",
    "infinity": "float('inf')",
    "the argument": "x",
    "the result as text": "str(x + 1)",
    "the result in a list": "[x + 1]",
    "the result, negated twice as text": "'--' + str(x + 1)",
    "an empty tuple": "()",
    "a surrogate": "'\\ud800'",
    "a huge result": "[x] * 10_000_000",
    "a huge text": "'a' * 50_000_000",
    "a huge integer": "1 << 80_000_000",
    "a range without end": "range(10**100)",
    "keys that collide": "{k * (2**61 - 1) for k in range(1, 3000)}",
}

_PLAIN: Final = {
    "self-referential result": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "self-referential dict": "def f(x):\n    a = {}\n    a[1] = a\n    return a",
    "a result of a million levels": "def f(x):\n    a = []\n    for _ in range(10**6): a = [a]\n    return a",
    "a result that shares itself to exponential size": "def f(x):\n    a = [1]\n"
    "    for _ in range(60): a = [a, a]\n    return a",
    "a result that grows while it is read": "def f(x):\n    a = [0]\n    def g():\n"
    "        while True: a.append(0)\n"
    "    threading.Thread(target=g, daemon=True).start()\n    return a",
}

CASES: Final = (
    *(Case(name=f"returns {name}", source=f"def f(x): return {result}") for name, result in _FOREIGN.items()),
    *(Case(name=name, source=source) for name, source in _PLAIN.items()),
    Case(
        name="empties its argument, returns it",
        source="def f(xs):\n    xs.clear()\n    return []",
        modes=JUDGE,
        check=_SORT_CHECK,
        expected=_WRONG,
    ),
    Case(
        name="empties its argument in place of sorting it",
        source="def f(xs): xs.clear()",
        modes=CALL,
        tests=_SORT_TEST,
        expected=_WRONG,
    ),
    Case(
        name="leaves its argument in place of sorting it",
        source="def f(xs): pass",
        modes=CALL,
        tests=_SORT_TEST,
        expected=_WRONG,
    ),
    Case(
        name="puts a liar into its argument",
        source="class E(list):\n    def __eq__(s, o): return True\ndef f(xs): xs[:] = [E(), E()]",
        modes=CALL,
        tests=_SORT_TEST,
        expected=_WRONG,
    ),
    Case(
        name="result that changes after return",
        source="def f(x):\n    a = [0]\n    threading.Timer(0.02, a.__setitem__, (0, x + 1)).start()\n    return a",
        modes=JUDGE,
        check=_ALIAS_CHECK,
        expected=_WRONG,
    ),
    Case(
        name="result that the next call mends",
        source="a = [0]\nold = []\ndef f(x):\n    for r, v in old: r[0] = v + 1\n    r = [0 if not old else x + 1]\n"
        "    old.append((r, x))\n    return r",
        modes=JUDGE,
        check=_TWICE_CHECK,
        expected=_WRONG,
    ),
    Case(
        name="changes what it was given, for the next call",
        source="def f(x):\n    f.__defaults__ = (1,)\n    return getattr(f, 'last', 0)",
        modes=CALL_AND_JUDGE,
        expected=_WRONG,
    ),
)
