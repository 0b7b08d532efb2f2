"""Programs that try to be judged better than they are, or to do harm; and honest oddities."""

from __future__ import annotations

import pytest

from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Limits, Outcome

_LIMITS = Limits(cpu_s=1.0, wall_s=5.0, memory_bytes=128 * 1024**2)
# The honest answer is x + 1.
_TESTS = tuple(CallTest(args=(x,), expected=x + 1) for x in (1, 5, -3))
_CHECK = "def check(candidate):\n" + "".join(f"    assert candidate({x}) == {x + 1}\n" for x in (1, 5, -3))

_HEAD = "import os, sys, socket, struct, threading, time\n"
_ALWAYS_EQUAL = """
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
"""
_CHEATS = {
    "exit in the call": "def f(x): raise SystemExit(0)",
    "exit at import": "raise SystemExit(0)",
    "os._exit in the call": "def f(x): os._exit(0)",
    "os._exit at import": "os._exit(0)",
    "os._exit from a thread": "def f(x):\n    threading.Thread(target=os._exit, args=(0,)).start()\n"
    "    time.sleep(1)\n    return x + 1",
    "always equal": f"class E:{_ALWAYS_EQUAL}\ndef f(x): return E()",
    "int with a lying eq": f"class E(int):{_ALWAYS_EQUAL}\ndef f(x): return E()",
    "lying eq inside a list": f"class E(int):{_ALWAYS_EQUAL}\ndef f(x): return [E()]",
    "lying metaclass": "class M(type):\n    def __eq__(c, o): return True\n    __hash__ = type.__hash__\n"
    "class E(metaclass=M): pass\ndef f(x): return E",
    "stub": "def f(x): pass",
    "constant": "def f(x): return 2",
    "right on the first call only": "n = 0\ndef f(x):\n    global n\n    n += 1\n"
    "    return x + 1 if n == 1 else 0",
    "no function": "x = 1",
    "raise AssertionError": "def f(x): raise AssertionError",
    "patched builtins": "import builtins\nbuiltins.type = lambda v: int\n"
    "builtins.isinstance = lambda *a: True\n"
    f"class E:{_ALWAYS_EQUAL}\ndef f(x): return E()",
    "patched codec": "import sandbox.codec, sandbox.candidate\n"
    "sandbox.candidate.encode = lambda v: b'T'\ndef f(x): return 0",
    "patched AssertionError": "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})\n"
    "def f(x): return 0",
    "frame walk": "def f(x):\n    frame = sys._getframe()\n    while frame:\n"
    "        for k, v in list(frame.f_locals.items()):\n"
    "            if type(v) is list: v.append('passed')\n"
    "            if 'expected' in k: return v\n        frame = frame.f_back",
    "gc for expected values": "import gc\ndef f(x):\n    for o in gc.get_objects():\n"
    "        if type(o).__name__ == 'CallTest': return o.expected",
    "forged ready and value on all descriptors": "def f(x):\n    for fd in range(64):\n"
    "        for body in (b't\\x02s\\x02okT', b't\\x03s\\x04passs\\x00i\\x01\\x05'):\n"
    "            try: os.write(fd, struct.pack('<I', len(body)) + body)\n"
    "            except OSError: pass\n    return 0",
    "one surplus result": "def f(x):\n    body = b't\\x02s\\x02oki\\x01\\x02'\n"
    "    os.write(3, struct.pack('<I', len(body)) + body)\n    return x + 1",
    "a huge frame": "def f(x):\n    os.write(3, b'\\xff' * 64)\n    return x + 1",
    "garbage frames": "def f(x):\n    os.write(3, b'\\x02\\0\\0\\0zz' * 64)\n    return x + 1",
    "close everything": "def f(x):\n    os.closerange(0, 64)\n    return x + 1",
    "close the channel and stay": "os.close(3)\ntime.sleep(60)",
    "redirect the channel": "def f(x):\n    os.dup2(1, 3)\n    return x + 1",
    "infinite loop": "def f(x):\n    while True: pass",
    "infinite loop, signals ignored": "import signal\nfor s in set(signal.Signals) - {9, 19}:\n"
    "    signal.signal(s, signal.SIG_IGN)\ndef f(x):\n    while True:\n        try:\n"
    "            while True: pass\n"
    "        except BaseException: pass",
    "memory bomb": "def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 20))",
    "sudden memory bomb": "def f(x): return len(b'a' * (1 << 40))",
    "huge result": "def f(x): return [x] * 10_000_000",
    "self-referential result": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "endless recursion": "def f(x): return f(x)",
    "endless recursion, limit raised": "sys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
    "deep repr recursion": "def f(x):\n    a = []\n    for _ in range(10**6): a = [a]\n    return repr(a)",
    "fork bomb": "def f(x):\n    while True: os.fork()",
    "thread bomb": "def f(x):\n    while True: threading.Thread(target=time.sleep, args=(60,)).start()",
    "output flood": "def f(x):\n    while True: print('a' * 10000)",
    "output flood on stderr": "def f(x):\n    while True: os.write(2, b'a' * 10000)",
    "kill the parent": "import signal\ndef f(x):\n    os.kill(os.getppid(), 9)\n    return x",
    "kill everything": "def f(x):\n    os.kill(-1, 9)\n    return x",
    "stop itself": "import signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return x",
    "kill itself": "def f(x):\n    os.kill(os.getpid(), 9)",
    "segfault": "import ctypes\ndef f(x): return ctypes.string_at(0)",
    "NUL in the source": "def f(x): return 1\0",
    "surrogate in the source": "def f(x): return '\ud800'",
    "parser bomb": "def f(x): return " + "(" * 5000 + ")" * 5000,
    "too large": "#" + "a" * 1_000_001,
    "nan": "def f(x): return float('nan')",
    "result with colliding keys": "def f(x): return {k * (2**61 - 1) for k in range(1, 5000)}",
}
_SLEEPERS = {
    "sleep in the call": "def f(x):\n    time.sleep(60)\n    return x + 1",
    "sleep at import": "time.sleep(60)",
}
_HONEST = {
    "plain": "def f(x): return x + 1",
    "big prints": "def f(x):\n    for _ in range(100): print('a' * 1000)\n    return x + 1",
    "deep recursion": "sys.setrecursionlimit(100_000)\ndef g(n): return n and 1 + g(n - 1)\n"
    "def f(x): return x + g(20_000) - 19_999",
    "callable class instance": "class Add:\n    def __call__(self, x): return x + 1\nf = Add()",
    "lambda": "f = lambda x: x + 1",
    "generators inside": "def f(x): return sum(1 for _ in range(1)) + x",
    "random": "import random\ndef f(x): return x + random.choice([1, 1])",
    "threads": "def f(x):\n    out = []\n    t = threading.Thread(target=lambda: out.append(x + 1))\n"
    "    t.start(); t.join()\n    return out[0]",
    "lingering thread": "def f(x):\n    threading.Thread(target=time.sleep, args=(60,)).start()\n"
    "    return x + 1",
    "dataclass and typing": "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    "from typing import List\n@dataclass\nclass P:\n    x: int\ndef f(x: int) -> int: return P(x).x + 1",
    "lazy imports": "import asyncio, hashlib, unittest, sqlite3, zoneinfo\n"
    "async def g(x): return x + 1\ndef f(x): return asyncio.run(g(x))",
    "main guard": "def f(x): return x + 1\nif __name__ == '__main__': print(f(1))",
    "equal by Python's rules": "def f(x): return float(x + 1)",
    "exception handled": "def f(x):\n    try: raise ValueError\n    except ValueError: return x + 1",
    "changed recursion limit": "sys.setrecursionlimit(200)\ndef f(x): return x + 1",
}


def _run(pool: SandboxPool, source: str, *, judge: bool, limits: Limits = _LIMITS) -> ExecutionResult:
    solution = source if source.startswith("from __future__") else _HEAD + source
    return pool.run(
        ExecutionRequest(
            solution=solution,
            entry_point="f",
            call_tests=() if judge else _TESTS,
            check_source=_CHECK if judge else None,
            limits=limits,
        )
    )


@pytest.mark.parametrize("judge", [False, True], ids=["call", "judge"])
@pytest.mark.parametrize("name", _CHEATS)
def test_no_cheat_passes_and_none_reads_as_a_fault_of_the_sandbox(
    pool: SandboxPool, name: str, judge: bool
) -> None:
    result = _run(pool, _CHEATS[name], judge=judge)
    assert result.outcome not in (Outcome.PASS, Outcome.INFRA_ERROR), result
    assert result.num_passed < result.num_tests
    assert _run(pool, _HONEST["plain"], judge=judge).outcome is Outcome.PASS


@pytest.mark.parametrize("judge", [False, True], ids=["call", "judge"])
@pytest.mark.parametrize("name", _SLEEPERS)
def test_sleeping_ends_at_the_wall_limit(pool: SandboxPool, name: str, judge: bool) -> None:
    result = _run(pool, _SLEEPERS[name], judge=judge, limits=Limits(wall_s=0.5))
    assert result.outcome is Outcome.TIMEOUT_WALL


@pytest.mark.parametrize("judge", [False, True], ids=["call", "judge"])
@pytest.mark.parametrize("name", _HONEST)
def test_honest_oddities_pass(pool: SandboxPool, name: str, judge: bool) -> None:
    limits = Limits(cpu_s=10.0, wall_s=60.0)
    result = _run(pool, _HONEST[name], judge=judge, limits=limits)
    assert result.outcome is Outcome.PASS, result
    assert result.num_passed == result.num_tests


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("exit in the call", Outcome.EXCEPTION),
        ("os._exit in the call", Outcome.CRASH),
        ("os._exit at import", Outcome.CRASH),
        ("always equal", Outcome.WRONG),
        ("constant", Outcome.WRONG),
        ("infinite loop", Outcome.TIMEOUT_CPU),
        ("infinite loop, signals ignored", Outcome.TIMEOUT_CPU),
        ("memory bomb", Outcome.OOM),
        ("sudden memory bomb", Outcome.OOM),
        ("fork bomb", Outcome.EXCEPTION),
        ("output flood on stderr", Outcome.VIOLATION),
        ("segfault", Outcome.CRASH),
        ("one surplus result", Outcome.VIOLATION),
        ("garbage frames", Outcome.VIOLATION),
        ("too large", Outcome.VIOLATION),
        ("endless recursion", Outcome.EXCEPTION),
    ],
)
def test_the_outcome_names_what_happened(pool: SandboxPool, name: str, outcome: Outcome) -> None:
    if outcome in (Outcome.EXCEPTION, Outcome.CRASH) and "fork" in name and "L2" not in pool.level:
        pytest.skip(f"level {pool.level} has no system-call filter")
    assert _run(pool, _CHEATS[name], judge=False).outcome is outcome


def test_a_jailed_program_cannot_read_write_connect_or_run_anything(pool: SandboxPool) -> None:
    if "L2" not in pool.level:
        pytest.skip(f"level {pool.level} does not promise this")
    source = """
import ctypes, subprocess
def tried(action):
    try: action()
    except (PermissionError, OSError): return 0
    return 1
def f(x):
    import sandbox.codec as module
    actions = [
        lambda: open(module.__file__), lambda: open('/etc/passwd'), lambda: open('/proc/self/environ'),
        lambda: open('/proc/1/mem', 'rb'), lambda: os.listdir('/'), lambda: open('a', 'w'),
        lambda: os.mkdir('a'),
        lambda: open('/tmp/a', 'w'), lambda: open('/dev/shm/a', 'w'), lambda: os.chmod('.', 0o777),
        lambda: socket.socket(), lambda: socket.socket(socket.AF_UNIX), lambda: subprocess.run(['/bin/true']),
        lambda: os.execv('/bin/true', ['true']), os.fork, lambda: os.kill(os.getppid(), 0),
        lambda: os.memfd_create('a'), lambda: os.pidfd_open(os.getppid()), lambda: os.setpriority(0, 0, 5),
    ]
    return x + 1 + sum(tried(action) for action in actions) + len(os.environ)
"""
    result = _run(pool, source, judge=False, limits=Limits(cpu_s=10.0, wall_s=60.0))
    assert result.outcome is Outcome.PASS, result


def test_weaker_walls_are_named_and_still_never_let_a_cheat_pass() -> None:
    walls = frozenset({"namespaces", "landlock", "seccomp"})
    with SandboxPool(without=walls) as pool:
        assert pool.level == "L0"
        for name in (
            "os._exit in the call",
            "always equal",
            "frame walk",
            "one surplus result",
            "memory bomb",
        ):
            for judge in (False, True):
                result = _run(pool, _CHEATS[name], judge=judge)
                assert result.outcome not in (Outcome.PASS, Outcome.INFRA_ERROR), result
                assert result.level == "L0"
        source = "assert not os.listdir('.')\nopen('poison', 'w').close()\ndef f(x): return x + 1"
        for _ in range(2):
            assert _run(pool, source, judge=False).outcome is Outcome.PASS
