"""Results that claim to be equal to whatever they are compared with."""

from __future__ import annotations

from typing import Final

from sandbox.result import CallTest, Outcome
from tests.sandbox.attacks.case import CALL_AND_JUDGE, Case

_BODY: Final = """
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __le__(self, other): return True
    def __gt__(self, other): return True
    def __ge__(self, other): return True
    def __hash__(self): return 0
    def __bool__(self): return True
    def __sub__(self, other): return 0
    def __abs__(self): return 0
"""
_WRONG: Final = frozenset({Outcome.WRONG})
_LIST_TESTS: Final = (CallTest(args=(1,), expected=[2]),)
_LIST_CHECK: Final = "def check(candidate):\n    assert candidate(1) == [2]\n"


def _liar(name: str, base: str, result: str) -> Case:
    return Case(name=name, source=f"class E({base}):{_BODY}def f(x): return {result}", expected=_WRONG)


def _list_liar(name: str, source: str) -> Case:
    return Case(
        name=name,
        source=source,
        tests=_LIST_TESTS,
        check=_LIST_CHECK,
        modes=CALL_AND_JUDGE,
        expected=_WRONG,
    )


_PLAIN: Final = {
    "descriptor that replaces the function's result": "class F:\n    __slots__ = ()\n    @property\n"
    "    def __call__(self): return lambda x: F()\n"
    "    def __eq__(self, o): return True\nf = F()",
    "unittest.mock.ANY": "from unittest import mock\ndef f(x): return mock.ANY",
    "NotImplemented": "def f(x): return NotImplemented",
    "stub": "def f(x): pass",
}
_WRONG_VALUES: Final = {
    "lying metaclass": "class M(type):\n    def __eq__(c, o): return True\n    __hash__ = type.__hash__\n"
    "class E(metaclass=M): pass\ndef f(x): return E",
    "metaclass that claims to be a built-in type": "class M(type):\n    def __eq__(c, o): return True\n"
    "    def __hash__(c): return hash(int)\n"
    "class E(int, metaclass=M):\n    def __eq__(s, o): return True\ndef f(x): return E()",
    "lying __class__": f"class E:{_BODY}    __class__ = int\ndef f(x): return E()",
    "int subclass with a lying to_bytes and bit_length": "class E(int):\n"
    "    def to_bytes(self, *a, **k): return b'\\2'\n"
    "    def bit_length(self): return 2\ndef f(x): return E(7)",
    "str subclass with a lying encode": "class E(str):\n    def encode(self, *a): return b'2'\n"
    "def f(x): return E('7')",
    "MagicMock that equals": "from unittest import mock\nm = mock.MagicMock()\nm.__eq__.return_value = True\n"
    "def f(x): return m",
    "constant": "def f(x): return 2",
    "right on the first call only": "n = 0\ndef f(x):\n    global n\n    n += 1\n"
    "    return x + 1 if n == 1 else 0",
    "range that includes it": "def f(x): return range(-10**9, 10**9)",
}

CASES: Final = (
    _liar("always equal", "object", "E()"),
    _liar("int with a lying eq", "int", "E()"),
    _liar("float with a lying eq", "float", "E()"),
    _liar("lying eq inside a list", "int", "[E()]"),
    _liar("lying eq inside a tuple in a dict", "int", "{1: (E(),)}"),
    _liar("lying key of a dict", "int", "{E(): 1}"),
    _liar("lying member of a set", "int", "{E()}"),
    _liar("the lying class itself", "int", "E"),
    _list_liar("list subclass that lies", f"class E(list):{_BODY}def f(x): return E()"),
    _list_liar("lying member of the expected list", f"class E(int):{_BODY}def f(x): return [E()]"),
    _list_liar(
        "list with a lying iterator",
        "class E(list):\n    def __iter__(self): return iter([2])\n    def __len__(self): return 1\n"
        "    def __eq__(self, o): return True\ndef f(x): return E()",
    ),
    _list_liar(
        "deque that equals", f"import collections\nclass E(collections.deque):{_BODY}def f(x): return E([2])"
    ),
    *(Case(name=name, source=source, expected=_WRONG) for name, source in _WRONG_VALUES.items()),
    *(Case(name=name, source=source) for name, source in _PLAIN.items()),
)
