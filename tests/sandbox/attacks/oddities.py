"""Honest programs that do unusual things: all must pass."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Final

from sandbox.result import CallTest, Limits, StdioTest
from tests.sandbox.attacks.case import (
    CALL,
    CALL_AND_JUDGE,
    CHECK,
    JUDGE,
    PASSES,
    STDIO,
    STDIO_TESTS,
    TESTS,
    Case,
)

_PATIENT: Final = Limits(cpu_s=10.0, wall_s=60.0)
_LISTS: Final = (CallTest(args=([2, 1],), expected=[1, 2]),)

# name: source, for the common task in both modes.
_PLAIN: Final = {
    "plain": "def f(x): return x + 1",
    "big prints": "def f(x):\n    for _ in range(100): print('a' * 1000)\n    return x + 1",
    "prints to stderr": "def f(x):\n    print('debug', file=sys.stderr)\n    return x + 1",
    "closes stdout": "sys.stdout.close()\ndef f(x): return x + 1",
    "closes all standard descriptors": "os.closerange(0, 3)\ndef f(x): return x + 1",
    "deep recursion": "sys.setrecursionlimit(100_000)\ndef g(n): return n and 1 + g(n - 1)\n"
    "def f(x): return x + g(20_000) - 19_999",
    "a big stack for a thread": "threading.stack_size(1 << 27)\nsys.setrecursionlimit(10**6)\nout = []\n"
    "def g(n): return 0 if n == 0 else 1 + g(n - 1)\ndef f(x):\n"
    "    t = threading.Thread(target=lambda: out.append(g(30_000)))\n    t.start(); t.join()\n"
    "    return x + out.pop() - 29_999",
    "callable class instance": "class Add:\n    def __call__(self, x): return x + 1\nf = Add()",
    "a class for a function": "class f(int):\n    def __new__(cls, x): return x + 1",
    "lambda": "f = lambda x: x + 1",
    "partial": "import functools, operator\nf = functools.partial(operator.add, 1)",
    "cached": "import functools\n@functools.lru_cache(None)\ndef f(x): return x + 1",
    "single dispatch": "import functools\n@functools.singledispatch\ndef f(x): raise TypeError\n"
    "@f.register\ndef _(x: int): return x + 1",
    "generators inside": "def f(x): return sum(1 for _ in range(1)) + x",
    "random": "import random\ndef f(x): return x + random.choice([1, 1])",
    "system randomness": "import secrets, uuid\ndef f(x): return x + 1 + 0 * secrets.randbelow(9) * uuid.uuid4().int",
    "time": "import datetime\ndef f(x):\n    time.perf_counter(); datetime.datetime.now()\n    return x + 1",
    "a short sleep": "def f(x):\n    time.sleep(0.01)\n    return x + 1",
    "threads": "def f(x):\n    out = []\n    t = threading.Thread(target=lambda: out.append(x + 1))\n"
    "    t.start(); t.join()\n    return out[0]",
    "a pool of threads": "from concurrent.futures import ThreadPoolExecutor\ndef f(x):\n"
    "    with ThreadPoolExecutor(4) as p: return sum(p.map(abs, [1] * 8)) - 7 + x",
    "lingering thread": "def f(x):\n    threading.Thread(target=time.sleep, args=(60,)).start()\n    return x + 1",
    "lingering daemon": "def g():\n    while True: time.sleep(0.01)\n"
    "threading.Thread(target=g, daemon=True).start()\ndef f(x): return x + 1",
    "future annotations and dataclasses": "from __future__ import annotations\n"
    "from dataclasses import dataclass\nfrom typing import List\n@dataclass\nclass P:\n    x: int\n"
    "def f(x: int) -> int: return P(x).x + 1",
    "named tuples and enums": "import enum, typing\nclass P(typing.NamedTuple):\n    x: int\n"
    "class C(enum.IntEnum):\n    ONE = 1\ndef f(x): return P(x).x + C.ONE",
    "lazy imports": "def f(x):\n    import hashlib, unittest, sqlite3, zoneinfo, xml.etree, csv, pprint\n    return x + 1",
    "asyncio": "import asyncio\nasync def g(x):\n    await asyncio.sleep(0.001)\n    return x + 1\n"
    "def f(x): return asyncio.run(g(x))",
    "decimals and fractions": "from decimal import Decimal\nfrom fractions import Fraction\n"
    "def f(x): return int(Decimal(x) + Fraction(1).numerator)",
    "main guard": "def f(x): return x + 1\nif __name__ == '__main__': print(f(1)); sys.exit(1)",
    "equal by Python's rules": "def f(x): return complex(x + 1)",
    "exception handled": "def f(x):\n    try: raise ValueError\n    except ValueError: return x + 1",
    "finally": "def f(x):\n    try: 1 / 0\n    finally: return x + 1",
    "lowered recursion limit": "sys.setrecursionlimit(200)\ndef f(x): return x + 1",
    "state kept between calls": "calls = []\ndef f(x):\n    calls.append(x)\n    return calls[-1] + 1",
    "default mutable argument": "def f(x, seen=[]):\n    seen.append(x)\n    return seen[-1] + 1",
    "attributes of the function": "def f(x):\n    f.count = getattr(f, 'count', 0) + 1\n    return x + 1",
    "warnings": "import warnings\ndef f(x):\n    warnings.warn('old')\n    return x + 1",
    "logging": "import logging\nlogging.basicConfig(level=10)\ndef f(x):\n    logging.info('%s', x)\n    return x + 1",
    "signal handlers": "import signal\nsignal.signal(signal.SIGINT, lambda *a: None)\ndef f(x): return x + 1",
    "an alarm that is switched off": "import signal\ndef f(x):\n    signal.alarm(5); signal.alarm(0)\n    return x + 1",
    "context managers": "import contextlib, io\ndef f(x):\n    with contextlib.redirect_stdout(io.StringIO()): print(x)\n"
    "    with contextlib.suppress(ValueError): raise ValueError\n    return x + 1",
    "regexes with flags": "import re\ndef f(x): return x + len(re.findall('(?x) a # b', 'A', re.I | re.M))",
    "garbage collection": "import gc\ngc.disable()\ndef f(x):\n    gc.collect()\n    return x + 1",
    "exits caught": "def f(x):\n    try: sys.exit(0)\n    except SystemExit: return x + 1",
    "input at its end": "def f(x):\n    try: input()\n    except EOFError: return x + 1",
    "compiled at run time": "exec(compile('def f(x): return x + 1', 'a', 'exec'))",
    "numbers beyond 64 bits": "def f(x): return (x + 1 + 10**5000) - 10**5000",
    "atexit": "import atexit\natexit.register(print, 'bye')\ndef f(x): return x + 1",
    "type checking block": "from typing import TYPE_CHECKING, Optional\nif TYPE_CHECKING: import nothing\n"
    "def f(x: Optional[int]) -> Optional[int]: return x + 1",
    "tracing switched on and off": "sys.settrace(lambda *a: None); sys.settrace(None)\ndef f(x): return x + 1",
    "temporary text files in memory": "import io\ndef f(x):\n    b = io.StringIO(str(x))\n    return int(b.read()) + 1",
    "a pipe of its own": "def f(x):\n    r, w = os.pipe()\n    os.write(w, b'1')\n    return x + int(os.read(r, 1))",
    "half of the memory": "def f(x): return len(bytearray(200 * 1024**2)) - 200 * 1024**2 + x + 1",
}
# name: (source, value): the program returns the value it was given.
_VALUES: Final[dict[str, object]] = {
    "text beyond ASCII": "naïve ✓ 𝄞",
    "surrogates": "a\ud800b\udfff",
    "NUL and control characters": "a\0b\x1b",
    "negative zero": -0.0,
    "infinities": [float("inf"), float("-inf")],
    "booleans": [True, False, None],
    "large integers": [2**64, -(2**64), 10**4000],
    "mixed containers": {"a": [1, (2, {3}), frozenset({(4, 5)})], 6: {7: b"8"}, None: 1.5},
    "empty containers": [[], (), {}, set(), frozenset(), "", b""],
    "a big list": list(range(100_000)),
    "a big text": "a" * 2_000_000,
    "nested lists": [[[[[[[[[[1]]]]]]]]]],
    "ranges and complex numbers": [range(3), 1 + 2j],
    "tuples as keys": {(1, 2): (3, 4)},
    # The hash of -1 is that of -2.
    "a grid whose points share hashes": {(x, y) for x in range(-60, 60) for y in range(-60, 60)},
    "sets of sets that share hashes": {frozenset({x, y}) for x in range(-20, 20) for y in range(-20, 20)},
}
# name: (result of f, expected)
_KINDS: Final[dict[str, tuple[str, object]]] = {
    "a Counter": ("__import__('collections').Counter('aab')", {"a": 2, "b": 1}),
    "a defaultdict": ("__import__('collections').defaultdict(int, a=1)", {"a": 1}),
    "an OrderedDict": ("__import__('collections').OrderedDict(a=1)", {"a": 1}),
    "True for 1": ("True", 1),
    "2.0 for 2": ("2.0", 2),
}
_PROGRAMS: Final = {
    "plain": "print(int(input()) + 1)",
    "sys.exit(0) after the answer": "print(int(input()) + 1)\nsys.exit(0)",
    "sys.exit() in a function": "def main():\n    print(int(input()) + 1)\n    sys.exit()\nmain()",
    "exit()": "print(int(input()) + 1)\nexit()",
    "quit()": "print(int(input()) + 1)\nquit()",
    "os._exit(0) after a flush": "print(int(input()) + 1, flush=True)\nos._exit(0)",
    "sys.stdin": "for line in sys.stdin: sys.stdout.write(str(int(line) + 1))",
    "all input at once": "print(*[int(v) + 1 for v in sys.stdin.read().split()], sep='\\n')",
    "bytes": "sys.stdout.buffer.write(b'%d' % (int(sys.stdin.buffer.readline()) + 1))",
    "fast input": "import io\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\nprint(int(input()) + 1)",
    "open(0)": "print(int(open(0).read()) + 1)",
    "a new input": "input = sys.stdin.readline\nprint(int(input()) + 1)",
    "fileinput": "import fileinput\nfor line in fileinput.input(): print(int(line) + 1)",
    "main guard": "def main(): print(int(input()) + 1)\nif __name__ == '__main__': main()",
    "a thread with a big stack": "threading.stack_size(1 << 27)\nsys.setrecursionlimit(10**6)\n"
    "def main(): print(int(input()) + 1)\nt = threading.Thread(target=main)\nt.start()\nt.join()",
    "a thread that is not joined": "threading.Thread(target=lambda: print(int(input()) + 1)).start()",
    "answer in atexit": "import atexit\nv = int(input())\natexit.register(lambda: print(v + 1))",
    "closes stdout at the end": "print(int(input()) + 1)\nsys.stdout.close()",
    "prints to stderr too": "print('debug', file=sys.stderr)\nprint(int(input()) + 1)",
    "white space at the ends": "print(int(input()) + 1, end=' \\n\\n')",
    "asyncio": "import asyncio\nasync def main(): print(int(input()) + 1)\nasyncio.run(main())",
    "os.write": "os.write(1, str(int(os.read(0, 99)) + 1).encode())",
    "redirected": "import contextlib\nwith contextlib.redirect_stdout(sys.stdout): print(int(input()) + 1)",
    "dataclass in main": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(P(int(input())).x + 1)",
    "the first stdout, after another": "import io\nold = sys.stdout\nsys.stdout = io.StringIO()\n"
    "print(int(input()) + 1)\nold.write(sys.stdout.getvalue())",
    "__stdout__, after another": "import io\nsys.stdout = io.StringIO()\nprint(int(input()) + 1)\n"
    "sys.__stdout__.write(sys.stdout.getvalue())",
    "a file for stdout that is not closed": "out = open(1, 'w')\nout.write(str(int(input()) + 1))",
    "such a file that a function holds": "out = open(1, 'w')\ndef main(): out.write(str(int(input()) + 1))\nmain()",
    "such a file of bytes in a circle": "class A: pass\na = A()\na.a, a.out = a, os.fdopen(1, 'wb', 1 << 20)\n"
    "a.out.write(b'%d' % (int(input()) + 1))",
    "a print to such a file": "import functools\nprint = functools.partial(print, file=open(1, 'w'))\n"
    "print(int(input()) + 1)",
    "a print of everybody's to such a file": "import builtins, functools\n"
    "builtins.print = functools.partial(print, file=open(1, 'w'))\nprint(int(input()) + 1)",
    "answer at the end of an object": "class A:\n    def __del__(self): print(v + 1)\na = A()\nv = int(input())",
    "answer at the end of a generator": "def g():\n    try: yield\n    finally: print(int(input()) + 1)\n"
    "x = g()\nnext(x)",
    "an end that fails": "class A:\n    def __del__(self): print(v + 1); 1 / 0\na = A()\nv = int(input())",
    "an executor that is not shut down": "from concurrent.futures import ThreadPoolExecutor\n"
    "pool = ThreadPoolExecutor(2)\nprint(sum(pool.map(int, [input()])) + 1)",
    "a loop's executor": "import asyncio\nloop = asyncio.new_event_loop()\n"
    "print(int(loop.run_until_complete(loop.run_in_executor(None, input))) + 1)",
    "a stdout of its own that only writes and flushes": "class Out:\n    texts = []\n"
    "    def write(self, text): self.texts.append(text)\n"
    "    def flush(self): os.write(1, ''.join(self.texts).encode()); self.texts.clear()\n"
    "sys.stdout = Out()\nprint(int(input()) + 1)",
    "no stdout at the end": "os.write(1, b'%d' % (int(input()) + 1))\nsys.stdout = None",
    "a stdout made of another": "import io\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\n"
    "print(int(input()) + 1)",
    "many objects at the end": "class A:\n    def __del__(self): out.append(1)\nout = []\n"
    "a = [[A()] for _ in range(60_000)]\nb = open(1, 'w')\nb.write(str(int(input()) + 1))",
    "the name of its file": "assert os.path.basename(__file__) == sys.argv[0]\nprint(int(input()) + 1)",
    "input() at its end": "v = int(input())\ntry: input()\nexcept EOFError: print(v + 1)",
}
_SORT: Final = "def f(xs): xs.sort()"


def _honest(
    name: str,
    source: str,
    modes: tuple[str, ...] = CALL_AND_JUDGE,
    *,
    tests: tuple[CallTest, ...] = TESTS,
    check: str = CHECK,
    stdio_tests: tuple[StdioTest, ...] = STDIO_TESTS,
) -> Case:
    return Case(
        name=f"honest: {name}",
        source=source,
        modes=modes,
        expected=PASSES,
        limits=_PATIENT,
        tests=tests,
        check=check,
        stdio_tests=stdio_tests,
    )


def _raising(name: str, kind: str) -> Case:
    check = f"def check(candidate):\n    try:\n        candidate(1)\n    except {kind}:\n        return\n    assert False\n"
    return _honest(f"raises {name}, as it should", f"def f(x): raise {name}('why')", JUDGE, check=check)


CASES: Final = (
    *(_honest(name, source) for name, source in _PLAIN.items()),
    *(
        _honest(
            f"returns {name}", "def f(x): return x", CALL, tests=(CallTest(args=(value,), expected=value),)
        )
        for name, value in _VALUES.items()
    ),
    *(
        _honest(
            f"returns {name}", f"def f(): return {result}", CALL, tests=(CallTest(args=(), expected=value),)
        )
        for name, (result, value) in _KINDS.items()
    ),
    _honest("returns its argument sorted", "def f(xs):\n    xs.sort()\n    return xs", CALL, tests=_LISTS),
    _honest(
        "sorts in place",
        _SORT,
        CALL,
        tests=(CallTest(args=([2, 1],), expected=None, expected_args=([1, 2],)),),
    ),
    _raising("ValueError", "ValueError"),
    _raising("FileNotFoundError", "OSError"),
    _raising("KeyError", "LookupError"),
    _raising("UnicodeError", "ValueError"),
    _raising("ZeroDivisionError", "ArithmeticError"),
    _raising("AssertionError", "AssertionError"),
    _raising("RecursionError", "RuntimeError"),
    *(_honest(f"program: {name}", source, STDIO) for name, source in _PROGRAMS.items()),
    _honest(
        "program: Windows lines",
        "print(int(input()) + 1)",
        STDIO,
        stdio_tests=(StdioTest(stdin="1\r\n", expected_stdout="2\r\n"),),
    ),
    _honest(
        "program: much input",
        "print(sum(map(int, sys.stdin)))",
        STDIO,
        stdio_tests=(StdioTest(stdin="1\n" * 1_000_000, expected_stdout="1000000"),),
    ),
)
