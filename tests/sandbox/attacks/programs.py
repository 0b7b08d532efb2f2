"""Whole programs (stdio mode) that try to be judged right without having printed the answer."""

from __future__ import annotations

from typing import Final

from sandbox.result import Limits, Outcome
from tests.sandbox.attacks.case import BRIEF_CPU, BRIEF_WALL, FAILS, LITTLE_MEMORY, ROOMY, STDIO, Case

_WRONG: Final = frozenset({Outcome.WRONG})
_ANSWER: Final = "print(int(input()) + 1)\n"
_LITTLE_OUTPUT: Final = Limits(cpu_s=5.0, wall_s=20.0, output_bytes=100_000)


def _program(name: str, source: str, expected: frozenset[Outcome] = FAILS, limits: Limits = ROOMY) -> Case:
    return Case(name=f"program: {name}", source=source, modes=STDIO, expected=expected, limits=limits)


_PRINTING: Final = {
    "prints nothing": "pass",
    "exits with 0": "sys.exit(0)",
    "os._exit with 0": "os._exit(0)",
    "prints all possible answers": "for v in range(100): print(v)",
    "prints the answer twice": _ANSWER + "print(2); print(6)",
    "prints the answer among others": "print(*range(-100, 100))",
    "echoes its input": "print(input())",
    "prints to stderr": "print(int(input()) + 1, file=sys.stderr)",
    "prints to the channel": "os.write(3, b'%d\\n' % (int(input()) + 1))",
    "writes the answer into stdin": "v = int(input()) + 1\nos.write(0, b'%d\\n' % v)",
    "closes stdout": "sys.stdout.close(); os.close(1)",
    "prints through another stdout": "import io\nsys.stdout = io.StringIO()\n" + _ANSWER,
    "a stdout that equals": "class E(str):\n    def __eq__(s, o): return True\n"
    "    def split(s, *a): return s\nprint(E('any'))",
    "answer after its exit, by a daemon": "def g():\n    time.sleep(0.3)\n    os.write(1, b'2\\n')\n"
    "threading.Thread(target=g, daemon=True).start()",
    "answer after its exit, by a fork": "try: pid = os.fork()\nexcept OSError: pid = 1\n"
    "if pid == 0:\n    time.sleep(0.3)\n    os.write(1, b'2\\n')",
    "searches for the expected output": "import gc\nfor o in gc.get_objects():\n"
    "    if type(o).__name__ in ('StdioTest', 'StdioRun', 'ExecutionRequest'):\n"
    "        print(getattr(o, 'expected_stdout', o))",
    "reads all descriptors for the expected output": "for fd in range(64):\n"
    "    if fd == 3: continue\n    try: data = os.pread(fd, 4096, 0)\n    except OSError: continue\n"
    "    os.write(1, data)",
    "reads the input of other tests": "os.lseek(0, 0, 0)\nos.write(1, os.read(0, 10**6))",
    "answer behind a hole": "os.lseek(1, 50_000, 0)\n" + _ANSWER,
    "answer behind a carriage return": "print('7\\r' + str(int(input()) + 1))",
    "answer behind backspaces": "print('7\\b' + str(int(input()) + 1))",
    "answer behind an erased line": "print('7\\x1b[2K\\r' + str(int(input()) + 1))",
    "answer with a NUL": "print(str(int(input()) + 1) + '\\0')",
    "answer in other digits": "print(chr(0xff11 + int(input())))",
    "bytes that are no text": "os.write(1, b'\\xff\\xfe2\\n')",
    "changes its output after its end by mapping it": "import mmap\nos.write(1, b'7\\n')\n"
    "m = mmap.mmap(1, 2)\nm[0:1] = b'8'",
    "exit in atexit, before the answer is flushed": "import atexit\natexit.register(os._exit, 0)\n"
    "sys.stdout.write(str(int(input()) + 1))",
}
_FAILING: Final = {
    "closes stdout before the answer": "os.close(1)\n" + _ANSWER,
    "answer, then a failure": _ANSWER + "raise ValueError",
    "answer, then exit code 1": _ANSWER + "sys.exit(1)",
    "answer, then a text for exit code": _ANSWER + "sys.exit('wrong')",
    "answer, then a segfault": _ANSWER + "sys.stdout.flush()\nimport ctypes\nctypes.string_at(0)",
    "answer, then abort": _ANSWER + "sys.stdout.flush()\nos.abort()",
    "writes far behind the end": "os.pwrite(1, b'2', 1 << 50)",
    "a huge integer on the channel": "n = 10**5000\nb = n.to_bytes(3000, 'little')\n"
    "b = b'i' + bytes([3000 & 127 | 128, 3000 >> 7]) + b\n"
    "os.write(3, struct.pack('<I', len(b)) + b)\nos._exit(1)",
    "garbage on the channel": "os.write(3, bytes(range(256)) * 64)\nos._exit(1)",
    "half a frame on the channel": "os.write(3, struct.pack('<I', 1000) + b'l')\nos._exit(1)",
}

CASES: Final = (
    *(_program(name, source, _WRONG) for name, source in _PRINTING.items()),
    *(_program(name, source) for name, source in _FAILING.items()),
    _program(
        "answer, then a loop",
        _ANSWER + "sys.stdout.flush()\nwhile True: pass",
        frozenset({Outcome.TIMEOUT_CPU}),
        BRIEF_CPU,
    ),
    _program(
        "answer, then sleep",
        _ANSWER + "sys.stdout.flush()\ntime.sleep(60)",
        frozenset({Outcome.TIMEOUT_WALL}),
        BRIEF_WALL,
    ),
    _program(
        "answer, then a thread that never ends",
        _ANSWER + "threading.Thread(target=time.sleep, args=(60,)).start()",
        frozenset({Outcome.TIMEOUT_WALL}),
        BRIEF_WALL,
    ),
    _program(
        "answer, then a flood",
        _ANSWER + "while True: print('a' * 1000)",
        frozenset({Outcome.VIOLATION}),
        _LITTLE_OUTPUT,
    ),
    _program(
        "answer, then a flood of errors",
        _ANSWER + "while True: os.write(2, bytes(1000))",
        frozenset({Outcome.VIOLATION}),
        _LITTLE_OUTPUT,
    ),
    _program(
        "answer, then a memory bomb",
        _ANSWER + "a = bytearray(1 << 40)",
        frozenset({Outcome.OOM}),
        LITTLE_MEMORY,
    ),
    _program("grows its input without end", "while True: os.write(0, bytes(10_000))", limits=_LITTLE_OUTPUT),
    _program(
        "floods the channel",
        "while True: os.write(3, bytes(10_000))",
        frozenset({Outcome.TIMEOUT_WALL, Outcome.TIMEOUT_CPU}),
        BRIEF_WALL,
    ),
    _program("syntax error", "def f(:", frozenset({Outcome.EXCEPTION})),
    _program("NUL in the source", "print(2)\0", frozenset({Outcome.EXCEPTION})),
    _program("reads for ever", "while True: sys.stdin.read()", frozenset({Outcome.TIMEOUT_CPU}), BRIEF_CPU),
    _program(
        "killed by its own timer",
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(9)",
        frozenset({Outcome.CRASH}),
    ),
)
