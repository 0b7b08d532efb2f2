"""Programs that write on, close, redirect or starve the descriptors that they find open."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Final

from sandbox.result import Outcome
from tests.sandbox.attacks.case import BRIEF_WALL, FAILS, PASSES, Case, harm

_VIOLATION: Final = frozenset({Outcome.VIOLATION})
_WALL: Final = frozenset({Outcome.TIMEOUT_WALL})
_SEND: Final = """
from sandbox.codec import encode
def send(body, fd=3):
    os.write(fd, struct.pack('<I', len(body)) + body)
def digits(number):
    size = number.bit_length() // 8 + 1
    return b'i' + count(size) + number.to_bytes(size, 'little', signed=True)
def count(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])
HUGE = digits(10**5000)
ERROR = b't\\x02s\\x05error'
"""
# Nested frozensets of one hash, whose comparison is quadratic in each level.
_TREE: Final = """
P = 2**61 - 1
shared = b''.join(digits(k * P) for k in range(1, 200))
leaves = b''.join(b'Z' + count(200) + shared + digits((1000 + k) * P) for k in range(200))
tree = b't\\x02s\\x02okS' + count(200) + leaves
"""

_PLAIN: Final = {
    "forged values on all descriptors": _SEND + "def f(x):\n    for fd in range(64):\n"
    "        for value in (('ready', None), ('ok', 2), ('pass', '', 3), ('pass', '', 3, 3)):\n"
    "            try: send(encode(value), fd)\n            except OSError: pass\n    return 0",
    "forged ready, then exit": _SEND + "send(encode(('ready', None)))\nos._exit(0)",
    "one surplus result": _SEND + "def f(x):\n    send(encode(('ok', 2)))\n    return x + 1",
    "empty frames": "def f(x):\n    os.write(3, b'\\0' * 64)\n    return x + 1",
    "close everything": "def f(x):\n    os.closerange(0, 64)\n    return x + 1",
    "redirect the channel": "def f(x):\n    os.dup2(1, 3)\n    return x + 1",
    "channel in non-blocking mode": "def f(x):\n    os.set_blocking(3, False)\n    return 0",
}
_HANGING: Final = {
    "half a surplus frame": "n = 0\ndef f(x):\n    global n\n    n += 1\n    if n == 3:\n"
    "        os.write(3, b'\\x05')\n    return x + 1",
    "error whose name is a huge integer": _SEND
    + "def f(x):\n    send(ERROR + b't\\x03t\\x01' + HUGE + b't\\0' + encode(0))\n    time.sleep(9)",
    "error at import whose name is a huge integer": _SEND
    + "send(ERROR + b't\\x03t\\x01' + HUGE + b't\\0' + encode(0))\ntime.sleep(9)",
    "error at import that is a huge integer": _SEND + "send(ERROR + HUGE)\ntime.sleep(9)",
    "error whose argument is a huge integer": _SEND
    + "def f(x):\n    send(ERROR + b't\\x03t\\x01s\\x0aValueErrort\\x01' + HUGE + encode(0))\n"
    "    time.sleep(9)",
    "unknown kind that is a huge integer": _SEND
    + "def f(x):\n    send(b't\\x02' + HUGE + HUGE)\n    time.sleep(9)",
    "a frame that is expensive to decode": _SEND + _TREE + "def f(x):\n    send(tree)\n    time.sleep(9)",
    "a frame at import that is expensive to decode": _SEND + _TREE + "send(tree)\ntime.sleep(9)",
    "close the channel and stay": "os.close(3)\ntime.sleep(60)",
    "talk to itself on the channel": _SEND
    + "def f(x):\n    a, b = socket.socketpair()\n    os.dup2(a.fileno(), 3)\n"
    "    for _ in range(9): send(encode(((1,), {}, False)), b.fileno())\n    return x + 1",
}
_FORGED: Final = {
    "forged verdict at import": _SEND + "send(encode(('pass', '', 3)))\ndef f(x): return 0",
    "surplus result after the last one": _SEND
    + "n = 0\ndef f(x):\n    global n\n    n += 1\n    if n == 3:\n"
    "        body = encode(('ok', x + 1))\n        frame = struct.pack('<I', len(body)) + body\n"
    "        os.write(3, frame + frame)\n        time.sleep(60)\n    return x + 1",
    "a huge frame": "def f(x):\n    os.write(3, b'\\xff' * 64)\n    return x + 1",
    "garbage frames": "def f(x):\n    os.write(3, b'\\x02\\0\\0\\0zz' * 64)\n    return x + 1",
    "nested beyond every depth": "def f(x):\n    body = b'l\\x01' * 100_000 + b'N'\n"
    "    os.write(3, struct.pack('<I', len(body)) + body)\n    return 0",
}

CASES: Final = (
    *(Case(name=name, source=source) for name, source in _PLAIN.items()),
    Case(
        name="forged ready, then it never reads",
        source=_SEND + "send(encode(('ready', None)))\ntime.sleep(60)",
        expected=_WALL,
        limits=BRIEF_WALL,
    ),
    *(Case(name=name, source=source, expected=_VIOLATION) for name, source in _FORGED.items()),
    *(Case(name=name, source=source, limits=BRIEF_WALL) for name, source in _HANGING.items()),
    Case(
        name="a slow drip of a frame",
        source="def f(x):\n    os.write(3, b'\\xff\\xff\\0\\0')\n    while True:\n"
        "        os.write(3, b'a')\n        time.sleep(0.01)",
        expected=_WALL,
        limits=BRIEF_WALL,
    ),
    Case(
        name="eats the owner's frames",
        source="def f(x):\n    threading.Thread(target=lambda: [os.read(3, 1) for _ in range(9**9)]).start()\n"
        "    time.sleep(0.02)\n    return x + 1",
        # All calls may have arrived by then; what it returns is right.
        expected=FAILS | PASSES,
        limits=BRIEF_WALL,
    ),
    Case(
        name="shuts the channel down for reading",
        source="socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_RD)\ndef f(x): return x + 1",
        expected=FAILS | PASSES,
    ),
    harm(
        "descriptors passed over the channel",
        "socket.send_fds(socket.socket(fileno=os.dup(3)), [b'\\0'], [0, 1, 2])",
    ),
    harm("descriptors received over the channel", "socket.recv_fds(socket.socket(fileno=os.dup(3)), 1, 1)"),
    harm(
        "a handle on the owner through its socket",
        """
        import ctypes
        s = socket.socket(fileno=os.dup(3))
        fd = struct.unpack('i', s.getsockopt(socket.SOL_SOCKET, 77, 4))[0]
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(424, fd, 0, None, 0) < 0 and libc.syscall(438, fd, 0, 0) < 0:
            raise OSError(ctypes.get_errno(), 'pidfd')
        """,
    ),
    harm(
        "options of the owner's socket",
        "socket.socket(fileno=os.dup(3)).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)",
    ),
    harm("urgent bytes on the channel", "socket.socket(fileno=os.dup(3)).send(b'!', socket.MSG_OOB)"),
    Case(
        name="flags left on what the next program has",
        source="import fcntl\nfor fd in range(3): fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)\n"
        "def f(x): return x + 1",
        expected=PASSES,
        then="import fcntl\nfor fd in range(3):\n"
        "    assert not fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK)\n"
        "def f(x): return x + 1",
    ),
    harm(
        "open descriptors beyond its own",
        """
        import stat
        found = []
        for fd in range(4, 64):
            try: mode = os.fstat(fd).st_mode
            except OSError: continue
            if not stat.S_ISCHR(mode): found.append(fd)
        if not found: raise OSError
        """,
    ),
)
