"""Programs that use up memory, output or threads."""

from __future__ import annotations

from typing import Final

from sandbox.result import Limits, Outcome
from tests.sandbox.attacks.case import BRIEF_CPU, CALL, LITTLE_MEMORY, Case

_OOM: Final = frozenset({Outcome.OOM})
_STARVED: Final = frozenset({Outcome.OOM, Outcome.CRASH, Outcome.EXCEPTION, Outcome.TIMEOUT_CPU})
_VIOLATION: Final = frozenset({Outcome.VIOLATION})
_LITTLE_OUTPUT: Final = Limits(cpu_s=0.6, wall_s=20.0, memory_bytes=256 * 1024**2, output_bytes=100_000)
_BRIEF_MEMORY: Final = Limits(cpu_s=0.6, wall_s=20.0, memory_bytes=96 * 1024**2)


_BOMBS: Final = {
    "memory bomb": "def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 20))",
    "sudden memory bomb": "def f(x): return len(b'a' * (1 << 40))",
    "memory bomb at import": "a = bytearray(1 << 40)\ndef f(x): return x + 1",
    "gradual memory bomb": "def f(x):\n    a = bytearray()\n    while True: a += bytes(4096)",
    "many small objects": "def f(x): return len(list(range(10**8)))",
    "an integer of terabytes": "def f(x): return 1 << (1 << 42)",
    "gzip bomb": "import gzip\ndef f(x): return len(gzip.decompress(gzip.compress(bytes(1 << 23)) * 500))",
    "lzma bomb": "import lzma\n"
    "def f(x): return len(lzma.decompress(lzma.compress(bytes(1 << 22), preset=0) * 500))",
    "bz2 bomb": "import bz2\ndef f(x): return len(bz2.decompress(bz2.compress(bytes(1 << 22)) * 500))",
    "billion laughs": "def f(x):\n    s = 'ha'\n    for _ in range(60): s += s\n    return s",
}
_STARVING: Final = {
    "mapped memory bomb": "import mmap\ndef f(x):\n    a = []\n    while True:\n"
    "        m = mmap.mmap(-1, 1 << 22)\n"
    "        m[::4096] = bytes(1024); a.append(m)",
    "private mapped memory bomb": "import mmap\ndef f(x):\n    a = []\n    while True:\n"
    "        a.append(mmap.mmap(-1, 1 << 22, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))",
    "memory from malloc": "import ctypes\nmalloc = ctypes.CDLL(None).malloc\n"
    "malloc.restype = ctypes.c_void_p\ndef f(x):\n    while True:\n"
    "        p = malloc(ctypes.c_size_t(1 << 20))\n        if not p: raise MemoryError\n"
    "        ctypes.memset(p, 1, 1 << 20)",
    "memory in other threads' stacks": "threading.stack_size(1 << 26)\ndef f(x):\n"
    "    for _ in range(9): threading.Thread(target=time.sleep, args=(60,)).start()\n    return x",
    "memory in pipes": "def f(x):\n    while True:\n        r, w = os.pipe()\n"
    "        os.set_blocking(w, False)\n        os.write(w, bytes(1 << 16))",
    "memory in socket buffers": "def f(x):\n    kept = []\n    while True:\n"
    "        a, b = socket.socketpair()\n        kept += a, b\n        a.setblocking(False)\n"
    "        a.send(bytes(1 << 20))",
}

CASES: Final = (
    *(
        Case(name=name, source=source, expected=expected, limits=LITTLE_MEMORY)
        for expected, bombs in ((_OOM, _BOMBS), (_STARVED, _STARVING))
        for name, source in bombs.items()
    ),
    Case(
        name="memory bomb that swallows its end",
        source="def f(x):\n    a = []\n    while True:\n        try: a.append(bytearray(1 << 16))\n"
        "        except MemoryError: pass",
        expected=frozenset({Outcome.TIMEOUT_CPU}),
        limits=_BRIEF_MEMORY,
    ),
    Case(
        name="memory leaked into the exception",
        source="class E(Exception): pass\ndef f(x): raise E(bytes(1 << 24), 'a' * (1 << 24))",
        expected=frozenset({Outcome.EXCEPTION, Outcome.OOM}),
        limits=LITTLE_MEMORY,
    ),
    Case(
        name="thread bomb",
        source="def f(x):\n    while True: threading.Thread(target=time.sleep, args=(60,)).start()",
        limits=Limits(cpu_s=0.5, wall_s=20.0, memory_bytes=256 * 1024**2),
    ),
    Case(
        name="thread bomb with small stacks",
        source="threading.stack_size(32768)\ndef f(x):\n"
        "    while True: threading.Thread(target=time.sleep, args=(60,)).start()",
        limits=BRIEF_CPU,
        modes=CALL,
    ),
    Case(
        name="threads that make threads",
        source="def g():\n    while True:\n        try: threading.Thread(target=g).start()\n"
        "        except Exception: pass\ndef f(x):\n    g()",
        limits=BRIEF_CPU,
        modes=CALL,
    ),
    Case(name="output flood", source="def f(x):\n    while True: print('a' * 10000)", limits=_LITTLE_OUTPUT),
    Case(
        name="output flood on stderr",
        source="def f(x):\n    while True: os.write(2, b'a' * 10000)",
        expected=_VIOLATION,
        limits=_LITTLE_OUTPUT,
    ),
    Case(
        name="output flood, signal ignored",
        source="import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\ndef f(x):\n    while True:\n"
        "        try: os.write(2, b'a' * 10000)\n        except OSError: return x + 1",
        expected=_VIOLATION,
        limits=_LITTLE_OUTPUT,
    ),
    Case(
        name="output far behind the end",
        source="def f(x):\n    os.pwrite(2, b'a', 1 << 40)\n    return x + 1",
        limits=_LITTLE_OUTPUT,
    ),
    Case(
        name="warnings without end",
        source="import warnings\nwarnings.simplefilter('always')\ndef f(x):\n"
        "    while True: warnings.warn('a' * 1000)",
        expected=_VIOLATION,
        limits=_LITTLE_OUTPUT,
    ),
)
