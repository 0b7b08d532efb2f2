"""Programs that replace parts of the interpreter or of the sandbox's code in their process."""

from __future__ import annotations

from typing import Final

from tests.sandbox.attacks.case import BRIEF_WALL, Case

_LIAR: Final = "class E:\n    def __eq__(self, other): return True\n    __hash__ = None\n"
_SWALLOW: Final = "def f(x): return 0"

_PLAIN: Final = {
    "patched builtins": "import builtins\nbuiltins.type = lambda v: int\n"
    "builtins.isinstance = lambda *a: True\n"
    f"{_LIAR}def f(x): return E()",
    "all builtins return True": "import builtins\n"
    "for n in ('all', 'any', 'abs', 'bool', 'len', 'hash', 'id', 'sum'):\n"
    f"    setattr(builtins, n, lambda *a, **k: True)\n{_SWALLOW}",
    "patched codec": "import sandbox.codec, sandbox.candidate\n"
    f"sandbox.candidate.encode = sandbox.codec.encode = lambda v: b'T'\n{_SWALLOW}",
    "patched encoder": "import sandbox.codec as c\n"
    "c._Encoder.write = lambda self, v, d: self.out.extend(b'T')\n" + _SWALLOW,
    "patched answer that repeats the arguments": "import sandbox.candidate as c, sandbox.codec as k\n"
    f"c.call_answer = lambda fn, a, kw, with_args=False: k.encode(('ok', a))\n{_SWALLOW}",
    "patched AssertionError": "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})\n"
    + _SWALLOW,
    "optimised asserts": "import builtins\nbuiltins.__debug__\nsys.flags\n"
    "builtins.compile = lambda *a, **k: (lambda: None).__code__\n" + _SWALLOW,
    "patched json": "import json\njson.loads = json.dumps = lambda *a, **k: {'passed': True}\n" + _SWALLOW,
    "patched sendall on the channel object": "import gc\nfor o in gc.get_objects():\n"
    "    if isinstance(o, socket.socket): o.close()\n" + _SWALLOW,
    "patched codec modules": "import codecs, encodings\n"
    "codecs.encode = codecs.decode = lambda *a, **k: b'2'\n"
    "codecs.register(lambda n: None)\nsys.modules['encodings.utf_8'] = None\n" + _SWALLOW,
    "patched struct": "import struct\nstruct.pack = lambda *a: b'\\2'\nstruct.Struct = None\n" + _SWALLOW,
    "patched sys.exit and os._exit": f"sys.exit = os._exit = os.abort = lambda *a: None\n{_SWALLOW}",
    "changed small integers": "import ctypes\nfor n in (2, 6, -2):\n"
    "    ctypes.c_int.from_address(id(n) + 24).value = 0\n"
    "def f(x): return 0",
    "method of a built-in type replaced through ctypes": "import gc\n"
    "gc.get_referents(int.__dict__)[0]['__eq__'] = lambda a, b: True\n" + _SWALLOW,
}

CASES: Final = (
    *(Case(name=name, source=source) for name, source in _PLAIN.items()),
    Case(
        name="patched os.write and socket",
        source="os.write = lambda *a: 1\nsocket.socket.send = socket.socket.sendall = lambda *a: 1\n"
        + _SWALLOW,
        limits=BRIEF_WALL,
    ),
    Case(
        name="patched unittest",
        source="import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\n"
        "unittest.TestResult.wasSuccessful = lambda s: True\n" + _SWALLOW,
        check="import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
        "        self.assertEqual(f(1), 2)\n",
    ),
)
