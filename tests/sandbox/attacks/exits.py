"""Programs that end, or seem to end, before they can be found wrong."""

from __future__ import annotations

from typing import Final

from sandbox.result import Outcome
from tests.sandbox.attacks.case import Case

_EXCEPTION: Final = frozenset({Outcome.EXCEPTION})
_CRASH: Final = frozenset({Outcome.CRASH})

_PLAIN: Final = {
    "sys.exit at import, after a stub": "def f(x): return None\nsys.exit(0)",
    "exit in atexit": "import atexit\natexit.register(os._exit, 0)\ndef f(x): return 0",
    "exit in __del__ of the result": "class D:\n    def __del__(self): os._exit(0)\ndef f(x): return D()",
    "exit while the result is encoded": "class K(str):\n    def __del__(self): os._exit(0)\n"
    "class M(type):\n    __name__ = property(lambda c: os._exit(0))\n"
    "class E(metaclass=M): pass\ndef f(x): return E()",
    "function is not callable": "f = 2",
}
_CRASHING: Final = {
    "os._exit in the call": "def f(x): os._exit(0)",
    "os._exit at import": "os._exit(0)",
    "os._exit from a thread": "def f(x):\n    threading.Thread(target=os._exit, args=(0,)).start()\n"
    "    time.sleep(1)\n    return x + 1",
    "exit in atexit, run early": "import atexit\natexit.register(os._exit, 0)\n"
    "def f(x): atexit._run_exitfuncs()",
    "excepthook of a thread": "threading.excepthook = lambda a: os._exit(0)\n"
    "def f(x):\n    t = threading.Thread(target=lambda: 1 / 0)\n    t.start(); t.join()\n    return x + 1",
    "exit in __del__": "class D:\n    def __del__(self): os._exit(0)\ndef f(x):\n    D()\n    return x + 1",
    "exit in a signal handler": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(0))\n"
    "def f(x):\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    time.sleep(5)\n    return 0",
    "killed by its own timer": "import signal\ndef f(x):\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
    "    time.sleep(5)\n    return 0",
    "exit_group through ctypes": "import ctypes\ndef f(x): ctypes.CDLL(None)._exit(0)",
}
_RAISING: Final = {
    "exit in the call": "def f(x): raise SystemExit(0)",
    "exit at import": "raise SystemExit(0)",
    "exit in excepthook": "sys.excepthook = lambda *a: os._exit(0)\nsys.unraisablehook = sys.excepthook\n"
    "def f(x): raise ValueError",
    "no function": "x = 1",
}

CASES: Final = (
    *(Case(name=name, source=source, expected=_EXCEPTION) for name, source in _RAISING.items()),
    *(Case(name=name, source=source) for name, source in _PLAIN.items()),
    *(Case(name=name, source=source, expected=_CRASH) for name, source in _CRASHING.items()),
)
