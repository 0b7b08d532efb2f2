"""Programs that never end: computing, blocking or sleeping."""

# ruff: noqa: E501
from __future__ import annotations

import platform
from typing import Final

from sandbox.result import Outcome
from tests.sandbox.attacks.case import BRIEF_CPU, BRIEF_WALL, CALL, CALL_AND_JUDGE, JUDGE, Case

_CPU: Final = frozenset({Outcome.TIMEOUT_CPU})
_WALL: Final = frozenset({Outcome.TIMEOUT_WALL})

# name: source; each in one mode only, for the suite's own time's sake.
_SPINS: Final = {
    "infinite loop": "def f(x):\n    while True: pass",
    "infinite loop at import": "while True: pass",
    "infinite loop, signals ignored": "import signal\nfor s in set(signal.Signals) - {9, 19}:\n"
    "    signal.signal(s, signal.SIG_IGN)\ndef f(x):\n    while True:\n        try:\n"
    "            while True: pass\n        except BaseException: pass",
    "infinite loop, signals blocked": "import signal\nsignal.pthread_sigmask(0, range(1, 65))\n"
    "def f(x):\n    while True: pass",
    "infinite loop in C": "import itertools\ndef f(x): return sum(itertools.repeat(0))",
    "infinite loop in C, second": "import itertools\ndef f(x): return max(itertools.count())",
    "infinite generator": "def f(x):\n    def g():\n        while True: yield 0\n    return 1 in g()",
    "pathological regex": "import re\ndef f(x): return bool(re.match(r'(a+)+$', 'a' * 60 + 'b'))",
    "pathological hashing": "def f(x):\n    d = {}\n    for k in range(10**6): d[k * (2**61 - 1)] = 0\n"
    "    return x + 1",
    "lying hashes": "class K:\n    def __hash__(self): return 1\n    def __eq__(self, o): return False\n"
    "def f(x): return len({K() for _ in range(10**6)})",
    "huge power": "def f(x): return pow(3, 10**10) and x + 1",
    "huge integer to text": "sys.set_int_max_str_digits(0)\ndef f(x): return len(str(1 << 10**8))",
    "text to huge integer": "sys.set_int_max_str_digits(0)\ndef f(x): return int('7' * 10**7) % 10",
    "factorial": "import math\ndef f(x): return math.factorial(10**8)",
    "computing threads without the lock": "import hashlib\ndef g():\n    b = bytes(1 << 20)\n"
    "    while True: hashlib.sha256(b)\ndef f(x):\n    for _ in range(4): threading.Thread(target=g).start()\n"
    "    time.sleep(60)",
    "computing threads after the answer": "def g():\n    while True: pass\nn = 0\ndef f(x):\n    global n\n"
    "    n += 1\n    for _ in range(8): threading.Thread(target=g).start()\n    if n == 3: time.sleep(60)\n"
    "    return x + 1",
    "a storm of timers": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\n"
    "signal.setitimer(signal.ITIMER_REAL, 1e-5, 1e-5)\ndef f(x):\n    while True: time.sleep(1)",
    "a lock held for ever": "sys.setswitchinterval(1e9)\ndef g():\n    while True: pass\ndef f(x):\n"
    "    threading.Thread(target=g).start()\n    return x",
    "copies of copies": "import copy\ndef f(x):\n    a = []\n    for _ in range(40): a = [a, a]\n"
    "    return repr(a)[0] == 1",
    "infinite loop in __del__": "class D:\n    def __del__(self):\n        while True: pass\ndef f(x): D()",
    "infinite loop in a metaclass": "class M(type):\n    @property\n    def __name__(c):\n"
    "        while True: pass\nclass E(metaclass=M): pass\ndef f(x): return E()",
    "infinite loop in an exception's text": "class E(Exception):\n    def __str__(self):\n"
    "        while True: pass\ndef f(x): raise E",
}
_SLEEPS: Final = {
    "sleep in the call": "def f(x):\n    time.sleep(60)\n    return x + 1",
    "sleep at import": "time.sleep(60)",
    "sleep in many threads": "def f(x):\n    ts = [threading.Thread(target=time.sleep, args=(60,)) for _ in range(20)]\n"
    "    for t in ts: t.start()\n    for t in ts: t.join()",
    "deadlock": "def f(x):\n    lock = threading.Lock()\n    lock.acquire(); lock.acquire()",
    "waits for a signal": "import signal\ndef f(x): signal.pause()",
    "waits for a blocked signal": "import signal\nsignal.pthread_sigmask(0, range(1, 65))\n"
    "def f(x): signal.sigwait({signal.SIGUSR1})",
    "reads an empty pipe": "def f(x): return os.read(os.pipe()[0], 1)",
    "polls nothing": "import select\ndef f(x): return select.poll().poll()",
    "a future never done": "import asyncio\nasync def g(): await asyncio.Event().wait()\n"
    "def f(x): return asyncio.run(g())",
    "many short sleeps": "def f(x):\n    while True: time.sleep(0.002)",
    "writes to a full pipe": "def f(x):\n    r, w = os.pipe()\n    while True: os.write(w, bytes(1 << 16))",
    "sleep in a finaliser": "class D:\n    def __del__(self): time.sleep(60)\ndef f(x):\n    D()\n    return x + 1",
    "waits for its channel": "def f(x): return socket.socket(fileno=3).recv(1)",
}
_JUMP: Final = {"x86_64": "\\xeb\\xfe", "aarch64": "\\x00\\x00\\x00\\x14"}
_NATIVE: Final = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b'{jump}')
code = ctypes.PYFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
def f(x): return code()
"""

CASES: Final = (
    *(
        Case(
            name=name,
            source=source,
            expected=_CPU,
            limits=BRIEF_CPU,
            modes=JUDGE if index % 3 == 0 else CALL,
        )
        for index, (name, source) in enumerate(_SPINS.items())
    ),
    Case(
        name="native code that jumps to itself",
        source=_NATIVE.format(jump=_JUMP.get(platform.machine(), "")),
        expected=_CPU,
        limits=BRIEF_CPU,
        modes=CALL,
    ),
    *(
        Case(
            name=name,
            source=source,
            expected=_WALL,
            limits=BRIEF_WALL,
            modes=CALL_AND_JUDGE if index < 2 else JUDGE if index % 3 == 0 else CALL,
        )
        for index, (name, source) in enumerate(_SLEEPS.items())
    ),
)
