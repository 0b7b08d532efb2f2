"""Programs that make forbidden system calls directly; each passes only where none of them worked."""

# ruff: noqa: E501
from __future__ import annotations

import platform
from typing import Final

from sandbox.result import Outcome
from tests.sandbox.attacks.case import CALL, Case, harm

# A refusal is one of these; any other error means that the call got through to its arguments.
_SETUP: Final = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    number = x86 if os.uname().machine == 'x86_64' else arm
    if number < 0: raise OSError(errno.ENOSYS, 'not on this machine')
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *given)
    code = ctypes.get_errno()
    if result < 0 and code in (errno.EPERM, errno.EACCES, errno.ENOSYS): raise OSError(code, str(number))
    return result
page = ctypes.create_string_buffer(4096)
import resource
def limit(kind, values):
    try: resource.setrlimit(kind, values)
    except ValueError as error: raise OSError(errno.EPERM, str(error))
"""
_CALLS: Final = {
    "ptrace of itself": "call(101, 117, 0, 0, 0, 0)",
    "ptrace of a process of the host": "call(101, 117, 16, @VICTIM@, 0, 0)",
    "process_vm_readv": "call(310, 270, @OWNER@, page, 1, page, 1, 0)",
    "process_vm_writev": "call(311, 271, os.getppid(), page, 1, page, 1, 0)",
    "pidfd_open": "call(434, 434, os.getppid(), 0)",
    "pidfd_getfd": "call(438, 438, 3, 3, 0)",
    "process_madvise": "call(440, 440, 3, page, 1, 4, 0)",
    "kcmp": "call(312, 272, os.getpid(), os.getppid(), 0, 0, 0)",
    "io_uring": "call(425, 425, 1, page)",
    "asynchronous I/O": "call(206, 0, 1, page)",
    "memfd_create": "call(319, 279, b'a', 0)",
    "memfd_secret": "call(447, 447, 0)",
    "userfaultfd": "call(323, 282, 1)",
    "bpf": "call(321, 280, 0, page, 64)",
    "perf_event_open": "call(298, 241, page, 0, -1, -1, 0)",
    "unshare of the user": "call(272, 97, 0x10000000)",
    "unshare of the network": "call(272, 97, 0x40000000)",
    "setns": "call(308, 268, 3, 0)",
    "clone into a namespace": "if call(56, 220, 0x10000000 | 17, 0, 0, 0, 0) == 0: os._exit(0)",
    "clone of a process": "if call(56, 220, 17, 0, 0, 0, 0) == 0: os._exit(0)",
    "clone3": "call(435, 435, page, 64)",
    "clone of a thread into a namespace": "call(56, 220, 0x10010f00 | 0x100, 0, 0, 0, 0)",
    "execve": "call(59, 221, b'/does/not/exist', 0, 0)",
    "execveat": "call(322, 281, -1, b'/does/not/exist', 0, 0, 0)",
    "mount": "call(165, 40, b'none', b'/does/not/exist', b'tmpfs', 0, 0)",
    "umount": "call(166, 39, b'/does/not/exist', 0)",
    "pivot_root": "call(155, 41, b'/does/not/exist', b'/does/not/exist')",
    "chroot": "call(161, 51, b'/does/not/exist')",
    "open_tree": "call(428, 428, -100, b'/', 0)",
    "fsopen": "call(430, 430, b'tmpfs', 0)",
    "openat2": "call(437, 437, -100, b'@SECRET@', page, 24)",
    "open_by_handle_at": "call(304, 265, 3, page, 0)",
    "System V shared memory": "call(29, 194, 0, 4096, 0o1600)",
    "System V messages": "call(68, 186, 0, 0o1600)",
    "System V semaphores": "call(64, 190, 0, 1, 0o1600)",
    "message queues": "call(240, 180, b'attack', 0o100, 0o600, 0)",
    "keys": "call(248, 217, b'user', b'attack', b'a', 1, -3)",
    "personality": "call(135, 92, 0x0040000)",
    "modify_ldt": "call(154, -1, 0, page, 16)",
    "arch_prctl": "call(158, -1, 0x1003, page)",
    "setuid": "call(105, 146, 0)",
    "setresuid": "call(117, 147, 0, 0, 0)",
    "setgroups": "call(116, 159, 1, page)",
    "capset": "call(126, 91, page, page)",
    "tkill": "call(200, 130, @VICTIM@, 9)",
    "tgkill": "call(234, 131, @VICTIM@, @VICTIM@, 9)",
    "rt_sigqueueinfo": "call(129, 138, @VICTIM@, 10, page)",
    "prctl: parent's death signal": "call(157, 167, 1, 0, 0, 0, 0)",
    "prctl: dumpable": "call(157, 167, 4, 1, 0, 0, 0)",
    "prctl: memory map": "call(157, 167, 35, 1, 0, 0, 0)",
    "prctl: subreaper": "call(157, 167, 36, 1, 0, 0, 0)",
    "a filter that lies about calls": "call(317, 277, 1, 8, page)",
    "a timer that sends SIGKILL": "import struct\n"
    "event = struct.pack('<QiiI', 0, 9, 0, 0).ljust(64, b'\\0')\ncall(222, 107, 1, event, page)",
    "owner of a descriptor": "call(72, 25, 3, 8, os.getppid())",
    "signal of a descriptor": "call(72, 25, 3, 10, 9)",
    "seals on its output": "call(72, 25, 1, 1033, 15)",
    "size of a pipe": "r, w = os.pipe()\ncall(72, 25, w, 1031, 1 << 20)",
    "size of its output": "call(77, 46, 1, 1 << 40)",
    "disk space for its output": "call(285, 47, 1, 0, 0, 1 << 19)",
    "splice": "r, w = os.pipe()\ncall(275, 76, 0, 0, w, 0, 1, 0)",
    "vmsplice": "r, w = os.pipe()\ncall(278, 75, w, page, 0, 0)",
    "sendmmsg": "call(307, 269, 3, page, 0, 0)",
    "priority": "call(141, 140, 0, 0, -5)",
    "affinity": "call(203, 122, 0, 8, page)",
    "real-time scheduling": "call(144, 119, 0, 1, page)",
    "locked memory": "call(151, 230, 2)",
    "host name": "call(170, 161, b'attack', 6)",
    "the kernel's log": "call(103, 116, 3, page, 4096)",
    "input for a terminal": "if call(16, 29, 0, 0x5412, page) < 0 and ctypes.get_errno() == 25: raise OSError",
    "Landlock rules of its own": "call(444, 444, 0, 0, 1)",
    "raised CPU limit": "limit(resource.RLIMIT_CPU, (900, 900))",
    "raised memory limit": "limit(resource.RLIMIT_AS, (-1, -1))",
    "raised output limit": "limit(resource.RLIMIT_FSIZE, (-1, -1))",
    "raised descriptor limit": "limit(resource.RLIMIT_NOFILE, (999, 999))",
    "raised process limit": "limit(resource.RLIMIT_NPROC, (9999, 9999))",
    "core dumps": "limit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))",
    "lowered CPU limit, to be killed by the kernel": "limit(resource.RLIMIT_CPU, (0, 0))\nwhile True: pass",
    "limits of its parent": "import resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "an unknown call": "call(9999, 9999, 0)",
}
_X32: Final = {
    "x32 fork": "if call(0x40000000 + 57, -1) == 0: os._exit(0)",
    "x32 execve": "call(0x40000000 + 520, -1, b'/does/not/exist', 0, 0)",
    "x32 socket": "call(0x40000000 + 41, -1, 2, 1, 0)",
    "x32 ptrace": "call(0x40000000 + 521, -1, 0, 0, 0, 0)",
}
_HARMLESS: Final = frozenset(
    {"memfd_create", "pidfd_open", "unshare of the network", "chroot", "System V messages",
     "personality", "keys", "execve", "clone of a process"}
)  # fmt: skip
# mov eax, NUMBER; int 0x80; ret
_INT_80: Final = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b'\\xb8' + struct.pack('<I', {number}) + b'\\xcd\\x80\\xc3')
code = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
def f(x):
    code()
    return x + 1
"""
_KILLED: Final = frozenset({Outcome.VIOLATION, Outcome.CRASH})

CASES: Final = (
    *(harm(f"call: {name}", body, setup=_SETUP, harmless=name in _HARMLESS) for name, body in _CALLS.items()),
    *(
        (
            *(harm(f"call: {name}", body, setup=_SETUP) for name, body in _X32.items()),
            Case(name="i386 getpid", source=_INT_80.format(number=20), modes=CALL, expected=_KILLED),
            Case(name="i386 fork", source=_INT_80.format(number=2), modes=CALL, expected=_KILLED),
        )
        if platform.machine() == "x86_64"
        else ()
    ),
)
