"""Programs that start, signal, read or outlive processes, or talk to the host's."""

from __future__ import annotations

from typing import Final

from sandbox.result import Outcome
from tests.sandbox.attacks.case import Case, harm

_EXCEPTION: Final = frozenset({Outcome.EXCEPTION})

_START: Final = {
    "fork": "if os.fork() == 0: os._exit(0)",
    "forkpty": "if os.forkpty()[0] == 0: os._exit(0)",
    "a daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1)\n    os._exit(0)",
    "subprocess": "import subprocess\nsubprocess.run(['/bin/true'])",
    "posix_spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "a shell": "if os.system('true') != 0: raise OSError",
    "exec": "os.execv('/bin/true', ['true'])",
    "exec of the interpreter": "os.execv(sys.executable, [sys.executable, '-c', ''])",
    "exec of memory": "fd = os.memfd_create('a', 0)\nos.execve(fd, ['a'], {})",
    "multiprocessing": "import multiprocessing\np = multiprocessing.Process(target=print)\np.start()\n"
    "p.join()",
    "a pool of processes": "from concurrent.futures import ProcessPoolExecutor\n"
    "with ProcessPoolExecutor(1) as pool: pool.submit(abs, 1).result(1)",
    "asyncio's subprocess": "import asyncio\nasyncio.run(asyncio.create_subprocess_exec('/bin/true'))",
}
_SIGNAL: Final = {
    "its parent": "os.kill(os.getppid(), 9)",
    "the zygote as PID 1": "os.kill(1, 0)",
    "its group": "os.kill(0, 0)",
    "a process of the host": "os.kill(@VICTIM@, 9)",
    "the owner": "os.kill(@OWNER@, 0)",
    "itself with SIGKILL": "os.kill(os.getpid(), 9)",
    "itself with SIGSTOP": "import signal\nsignal.raise_signal(signal.SIGSTOP)",
    "a thread of its own with SIGKILL": "import signal\nsignal.pthread_kill(threading.get_ident(), 9)",
    "a process through a descriptor": "import signal\nsignal.pidfd_send_signal(os.pidfd_open(@VICTIM@), 9)",
    "its judge and all neighbours": "found = 0\nfor pid in range(1, 400):\n"
    "    try: os.kill(pid, 0)\n    except OSError: continue\n    found += 1\nif not found: raise OSError",
    "by killpg": "os.killpg(os.getpgrp(), 0)",
}
_CONNECT: Final = {
    "TCP": "socket.create_connection(('127.0.0.1', @TCP@), 1)",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'a', ('127.0.0.1', @UDP@))",
    "a UNIX socket": "socket.socket(socket.AF_UNIX).connect('@STREAM@')",
    "an abstract UNIX socket": "socket.socket(socket.AF_UNIX).connect('\\0@ABSTRACT@')",
    "a UNIX datagram socket by a pair": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "a.sendto(b'a', '@DGRAM@')",
    "an abstract datagram socket by a pair": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "a.sendto(b'a', '\\0@ABSTRACT@-dgram')",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "raw packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "the kernel's ciphers": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "the hypervisor": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "a pair of another family": "socket.socketpair(socket.AF_TIPC, socket.SOCK_STREAM)",
    "a port of its own": "socket.create_server(('127.0.0.1', 0))",
    "a name server": "import urllib.request\nurllib.request.urlopen('http://localhost:@TCP@', timeout=1)",
}
_SHARE: Final = {
    "shared memory": "from multiprocessing import shared_memory\n"
    "shared_memory.SharedMemory(create=True, size=64)",
    "a semaphore with a name": "import _multiprocessing\n_multiprocessing.SemLock(1, 1, 1, '/attack', False)",
    "memory with a descriptor": "os.memfd_create('a')",
    "the next program's memory, by a queue": "import multiprocessing\nmultiprocessing.Queue()",
    "a lock on a file": "import fcntl\nfcntl.flock(1, fcntl.LOCK_EX)",
    "the terminal": "open('/dev/tty', 'w')",
}
_HARMLESS: Final = frozenset(
    {"starts fork", "starts subprocess", "starts posix_spawn", "starts a shell", "starts multiprocessing",
     "reaches TCP", "reaches UDP", "reaches a UNIX socket", "reaches an abstract UNIX socket",
     "reaches a port of its own", "reaches a UNIX datagram socket by a pair",
     "reaches an abstract datagram socket by a pair", "shares memory with a descriptor",
     "signals the owner"}
)  # fmt: skip


def _harms(verb: str, deeds: dict[str, str]) -> list[Case]:
    return [
        harm(f"{verb} {name}", body, harmless=f"{verb} {name}" in _HARMLESS) for name, body in deeds.items()
    ]


_PLAIN: Final = {
    "fork bomb that never gives up": "def f(x):\n    for _ in range(1000):\n        try: os.fork()\n"
    "        except OSError: pass\n"
    "    return x",
    "a survivor that answers instead": "def f(x):\n    try: pid = os.fork()\n    except OSError: return 0\n"
    "    if pid: os._exit(0)\n    os.setsid()\n    return x + 1",
    "kill the parent": "def f(x):\n    os.kill(os.getppid(), 9)\n    return x",
    "kill everything": "def f(x):\n    os.kill(-1, 9)\n    return x",
    "kill the judge": "def f(x):\n    for pid in range(2, 100):\n"
    "        try: os.kill(os.getpid() + pid - 50, 9)\n"
    "        except OSError: pass\n    return 0",
    "stop itself": "import signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return x",
    "kill itself": "def f(x):\n    os.kill(os.getpid(), 9)",
}

CASES: Final = (
    *_harms("starts", _START),
    *_harms("signals", _SIGNAL),
    *_harms("reaches", _CONNECT),
    *_harms("shares", _SHARE),
    Case(name="fork bomb", source="def f(x):\n    while True: os.fork()", expected=_EXCEPTION),
    *(Case(name=name, source=source) for name, source in _PLAIN.items()),
)
