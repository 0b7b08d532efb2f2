"""Programs whose text or whose native code breaks parsers and interpreters."""

from __future__ import annotations

from typing import Final

from sandbox.result import Outcome
from tests.sandbox.attacks.case import BRIEF_CPU, CALL, Case

_CRASH: Final = frozenset({Outcome.CRASH})
_VIOLATION: Final = frozenset({Outcome.VIOLATION})
_EXCEPTION: Final = frozenset({Outcome.EXCEPTION})

_PLAIN: Final = {
    "surrogate in the source": "def f(x): return '\ud800'",
    "surrogate as a name": "\ud800 = 1\ndef f(x): return 1",
    "an unknown encoding": "# -*- coding: latin-7 -*-\ndef f(x): return 0",
    "a byte order mark inside": "def f(x):\ufeff return x",
    "parser bomb of parentheses": "def f(x): return " + "(" * 5000 + ")" * 5000,
    "parser bomb of lists": "def f(x): return " + "[" * 150 + "x" + "]" * 150,
    "parser bomb of signs": "def f(x): return " + "-" * 100_000 + "x",
    "parser bomb of attributes": "def f(x): return x" + ".a" * 100_000,
    "parser bomb of calls": "def f(x): return x" + "()" * 50_000,
    "parser bomb of lambdas": "def f(x): return " + "lambda: " * 20_000 + "x",
    "parser bomb of sums": "def f(x): return " + "x+" * 100_000 + "x*0",
    "parser bomb of indentation": "def f(x):\n" + "".join(" " * (i + 1) + "if x:\n" for i in range(200)),
    "parser bomb in the call": "def f(x): return eval('(' * 100 + '-' * 10**6 + '1' + ')' * 100)",
    "compiler bomb of a folded constant": "def f(x): return " + "(" * 20 + "'a' * 4000" + ") * 4000" * 20,
    "compiler bomb of finally blocks": "def f(x):\n"
    + "".join(" " * (i + 1) + "try: pass\n" + " " * (i + 1) + "finally:\n" for i in range(19))
    + " " * 20
    + "x += 1\n",
    "compiler bomb of closures": "def f(x):\n "
    + ";".join(f"_{i} = x" for i in range(1000))
    + "\n return "
    + "lambda: " * 900
    + "("
    + "+".join(f"_{i}" for i in range(1000))
    + ")\n",
    "nested f-strings": "def f(x): return " + "f'{" * 2 + "x" + "}'" * 2,
    "literal_eval bomb": "import ast\ndef f(x): return ast.literal_eval('[' * 10**5)",
    "json bomb": "import json\ndef f(x): return json.loads('[' * 10**6)",
    "endless recursion in C, limit raised": "sys.setrecursionlimit(10**9)\nclass A:\n"
    "    def __repr__(self): return repr(self)\n"
    "def f(x): return repr(A())",
    "deep repr recursion": "def f(x):\n    a = []\n    for _ in range(10**6): a = [a]\n    return repr(a)",
    "deep destruction": "class N: pass\ndef f(x):\n    n = None\n    for _ in range(10**6):\n"
    "        m = N(); m.n = n; n = m\n"
    "    return 0",
    "segfault that faulthandler reports": "import faulthandler\nfaulthandler.enable(sys.__stderr__)\n"
    "def f(x): faulthandler._sigsegv()",
    "crash in the interpreter by bad bytecode": "import types\ndef f(x): pass\n"
    "f.__code__ = f.__code__.replace(co_code=bytes([255, 255] * 8), co_consts=())\n",
}
_CRASHING: Final = {
    "pickle bomb": "import pickle\ndef f(x): return pickle.loads(b'cos\\n_exit\\n(I0\\ntR.')",
    "segfault": "import ctypes\ndef f(x): return ctypes.string_at(0)",
    "segfault at import": "import ctypes\nctypes.string_at(0)",
    "segfault, handler ignored": "import ctypes, signal\nsignal.signal(signal.SIGSEGV, signal.SIG_IGN)\n"
    "def f(x): return ctypes.string_at(0)",
    "abort": "def f(x): os.abort()",
}

CASES: Final = (
    Case(name="NUL in the source", source="def f(x): return 1\0", expected=_EXCEPTION),
    *(Case(name=name, source=source) for name, source in _PLAIN.items()),
    *(Case(name=name, source=source, expected=_CRASH) for name, source in _CRASHING.items()),
    Case(name="too large", source="#" + "a" * 1_000_001, expected=_VIOLATION),
    Case(name="endless recursion", source="def f(x): return f(x)", expected=_EXCEPTION),
    Case(
        name="endless recursion, limit raised",
        source="sys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
        limits=BRIEF_CPU,
    ),
    Case(
        name="division by zero in native code",
        source="import ctypes, mmap\npage = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(b'\\x31\\xc9\\xf7\\xf1\\xc3' if os.uname().machine == 'x86_64' else bytes(4))\n"
        "code = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
        "def f(x): return code()",
        expected=_CRASH,
        modes=CALL,
    ),
    Case(
        name="all memory unmapped",
        source="import ctypes\ndef f(x): ctypes.CDLL(None).munmap(ctypes.c_void_p(0x1000),"
        " ctypes.c_size_t((1 << 47) - 0x3000))",
        expected=_CRASH,
        modes=CALL,
    ),
)
