"""Programs that end, or seem to end, before they can be found wrong."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Final

from sandbox.result import Outcome
from tests.sandbox.attacks.case import Case

_EXCEPTION: Final = frozenset({Outcome.EXCEPTION})
_CRASH: Final = frozenset({Outcome.CRASH})

CASES: Final = (
    Case(name="exit in the call", source="def f(x): raise SystemExit(0)", expected=_EXCEPTION),
    Case(name="exit at import", source="raise SystemExit(0)", expected=_EXCEPTION),
    Case(name="sys.exit at import, after a stub", source="def f(x): return None\nsys.exit(0)"),
    Case(name="os._exit in the call", source="def f(x): os._exit(0)", expected=_CRASH),
    Case(name="os._exit at import", source="os._exit(0)", expected=_CRASH),
    Case(
        name="os._exit from a thread",
        source="def f(x):\n    threading.Thread(target=os._exit, args=(0,)).start()\n"
        "    time.sleep(1)\n    return x + 1",
        expected=_CRASH,
    ),
    Case(
        name="exit in atexit",
        source="import atexit\natexit.register(os._exit, 0)\ndef f(x): return 0",
    ),
    Case(
        name="exit in atexit, run early",
        source="import atexit\natexit.register(os._exit, 0)\ndef f(x): atexit._run_exitfuncs()",
        expected=_CRASH,
    ),
    Case(
        name="exit in excepthook",
        source="sys.excepthook = lambda *a: os._exit(0)\nsys.unraisablehook = sys.excepthook\n"
        "def f(x): raise ValueError",
        expected=_EXCEPTION,
    ),
    Case(
        name="excepthook of a thread",
        source="threading.excepthook = lambda a: os._exit(0)\n"
        "def f(x):\n    t = threading.Thread(target=lambda: 1 / 0)\n    t.start(); t.join()\n    return x + 1",
        expected=_CRASH,
    ),
    Case(
        name="exit in __del__",
        source="class D:\n    def __del__(self): os._exit(0)\ndef f(x):\n    D()\n    return x + 1",
        expected=_CRASH,
    ),
    Case(
        name="exit in __del__ of the result",
        source="class D:\n    def __del__(self): os._exit(0)\ndef f(x): return D()",
    ),
    Case(
        name="exit in a signal handler",
        source="import signal\nsignal.signal(signal.SIGALRM, lambda *a: os._exit(0))\n"
        "def f(x):\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    time.sleep(5)\n    return 0",
        expected=_CRASH,
    ),
    Case(
        name="killed by its own timer",
        source="import signal\ndef f(x):\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
        "    time.sleep(5)\n    return 0",
        expected=_CRASH,
    ),
    Case(
        name="exit_group through ctypes",
        source="import ctypes\ndef f(x): ctypes.CDLL(None)._exit(0)",
        expected=_CRASH,
    ),
    Case(
        name="exit while the result is encoded",
        source="class K(str):\n    def __del__(self): os._exit(0)\n"
        "class M(type):\n    __name__ = property(lambda c: os._exit(0))\n"
        "class E(metaclass=M): pass\ndef f(x): return E()",
    ),
    Case(name="no function", source="x = 1", expected=_EXCEPTION),
    Case(name="function is not callable", source="f = 2"),
)
