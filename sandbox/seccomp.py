"""Two system-call filters, installed through prctl: one for the zygote, a second for each child.

The zygote's is an allow list: what ``syscalls.py`` does not name fails with ENOSYS, known dangers
fail with EPERM, calls of another architecture's table end the process. The child's stands on top of
it and takes away what only the zygote needs. Filters see numbers and plain arguments, never memory
behind pointers (no paths), and stop no use of what is open already.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from sandbox.jail import SystemCall, check_call, prctl_call
from sandbox.syscalls import CHECKED, DENIED, OPENS, PLAIN, ZYGOTE_ONLY, Table

_COLUMNS: Final = {"x86_64": 0, "aarch64": 1}
_AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# One instruction of classic BPF: (code, jump if true, jump if false, value); see linux/filter.h.
_Instruction = tuple[int, int, int, int]
_Code = tuple[_Instruction, ...]
_LOAD, _JUMP, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_MAX_JUMP: Final = 255
# Offsets into struct seccomp_data. An argument has two halves, the low one first on both machines.
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16


def _fail(code: int) -> _Code:
    return ((_RETURN, 0, 0, 0x00050000 | code),)


_ALLOW: Final[_Code] = ((_RETURN, 0, 0, 0x7FFF0000),)
_KILL_PROCESS: Final[_Code] = ((_RETURN, 0, 0, 0x80000000),)
_EPERM: Final = _fail(errno.EPERM)
_ENOSYS: Final = _fail(errno.ENOSYS)
_ENOTTY: Final = _fail(errno.ENOTTY)

_CLONE_THREAD: Final = 0x00010000
# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. clone() cannot ask for NEWTIME.
_CLONE_NAMESPACES: Final = 0x7E020000
_AF_UNIX: Final = 1
_MSG_OOB: Final = 1
_RLIMIT_STACK: Final = 3
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
_IOCTLS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC. Not F_SETOWN and F_SETSIG, which send
# any signal to any process of the same user.
_FCNTLS: Final = (0, 1, 2, 3, 4, 1030)
# SET_PDEATHSIG, GET_DUMPABLE, SET_DUMPABLE, SET_NAME, SET_SECCOMP, SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS.
_PRCTLS: Final = (1, 3, 4, 15, 22, 36, 38)
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("num_instructions", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def zygote_filter(machine: str = platform.machine()) -> bytes:
    """What a warm interpreter, its forks and their threads need; nothing else.

    No program, no network, no namespace, no mount, no change of files but removal, no tracing, no
    new kind of call. ``machine`` is a name as of ``platform.machine``. Does not stop what the zygote
    itself needs: fork, signals, opening files. Raises OSError for a machine without a table.
    """
    column = _column(machine)
    checked = {
        "clone": _load_argument(0) + _branch(_JSET, _CLONE_NAMESPACES, _EPERM, _ALLOW),
        # A filter cannot see its flags, which lie in memory; libraries then use clone().
        "clone3": _ENOSYS,
        "fcntl": _load_argument(1) + _one_of(_FCNTLS, _EPERM),
        "ioctl": _load_argument(1) + _one_of(_IOCTLS, _ENOTTY),
        "prctl": _load_argument(0) + _one_of(_PRCTLS, _EPERM),
        "prlimit64": _load_argument(0) + _branch(_JEQ, 0, _ALLOW, _EPERM),
        # Nothing out of band, for which the kernel's code is rarely used, and has had holes.
        "recvfrom": _load_argument(3) + _branch(_JSET, _MSG_OOB, _EPERM, _ALLOW),
        # Without an address: one would reach the datagram sockets of the host's services.
        "sendto": _load_argument(3) + _branch(_JSET, _MSG_OOB, _EPERM, _if_null(4, _ALLOW, _EPERM)),
        # Other families would have the kernel load a module.
        "socketpair": _load_argument(0) + _branch(_JEQ, _AF_UNIX, _ALLOW, _EPERM),
    }
    decisions = _decide(PLAIN, column, _ALLOW) | _decide(OPENS, column, _ALLOW)
    decisions |= _decide(ZYGOTE_ONLY, column, _ALLOW) | _decide(DENIED, column, _EPERM)
    for name, code in checked.items():
        decisions |= _decide({name: CHECKED[name]}, column, code)
    foreign = _branch(_JEQ, _AUDIT_ARCH[machine], (), _KILL_PROCESS)
    # x32 calls have bit 30 set: above all tables.
    return _pack(_load(_ARCH) + foreign + _load(_NUMBER) + _search(decisions, default=_ENOSYS))


def child_filter(machine: str = platform.machine(), *, allow_opens: bool = True) -> bytes:
    """No new processes (threads are allowed), no signals, no descriptors passed, no rlimits but the
    stack's; with ``allow_opens`` False no file can be opened either.

    Adds to ``zygote_filter``, which must be in force. Does not stop reading of files that can be
    opened (Landlock's task), CPU and memory use (rlimits' task) or threads. Raises OSError for a
    machine without a table.
    """
    column = _column(machine)
    thread_only = _load_argument(0) + _branch(_JSET, _CLONE_THREAD, _ALLOW, _EPERM)
    # A soft stack limit is often raised for deep recursion. To lower the CPU limit would be a way to
    # die by SIGKILL, which reads as a fault of the host.
    stack_only = _load_argument(1) + _branch(_JEQ, _RLIMIT_STACK, _ALLOW, _EPERM)
    decisions = _decide(ZYGOTE_ONLY, column, _EPERM)
    for name, code in (
        ("clone", thread_only),
        ("prctl", _EPERM),
        ("prlimit64", _if_null(2, _ALLOW, stack_only)),
    ):
        decisions |= _decide({name: CHECKED[name]}, column, code)
    if not allow_opens:
        decisions |= _decide(OPENS, column, _EPERM)
    return _pack(_load(_NUMBER) + _search(decisions, default=_ALLOW))


def prepare(instructions: bytes) -> SystemCall:
    """The call that puts a filter in force for the process that makes it and for its children; it
    needs no_new_privs."""
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    program = _Program(len(instructions) // 8, ctypes.addressof(buffer))
    return prctl_call(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program), (buffer, program))


def install(instructions: bytes) -> None:
    """Put the filter in force now. Raises OSError."""
    call = prepare(instructions)
    check_call(call.function(*call.arguments), "prctl(PR_SET_SECCOMP)")


def _column(machine: str) -> int:
    if machine not in _COLUMNS:
        raise OSError(
            errno.ENOSYS, f"no table of system calls for machine {machine!r}; known: {', '.join(_COLUMNS)}"
        )
    if struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"no table of system calls for a 32-bit interpreter on {machine}")
    return _COLUMNS[machine]


def _decide(table: Table, column: int, code: _Code) -> dict[int, _Code]:
    return {numbers[column]: code for numbers in table.values() if numbers[column] >= 0}


def _load(offset: int) -> _Code:
    return ((_LOAD, 0, 0, offset),)


def _load_argument(index: int) -> _Code:
    """The low half: all that the kernel looks at, but for pointers and lengths."""
    return _load(_ARGUMENTS + 8 * index)


def _if_null(index: int, then: _Code, otherwise: _Code) -> _Code:
    """Look at both halves of a pointer."""
    low, high = _load_argument(index), _load(_ARGUMENTS + 8 * index + 4)
    return low + _branch(_JEQ, 0, high + _branch(_JEQ, 0, then, otherwise), otherwise)


def _branch(test: int, value: int, then: _Code, otherwise: _Code) -> _Code:
    """Both parts must end in a return, or ``then`` be empty: go on behind ``otherwise``."""
    if not then:
        return ((test, len(otherwise), 0, value), *otherwise)
    if len(then) > _MAX_JUMP:
        return ((test, 0, 1, value), (_JUMP, 0, 0, len(otherwise)), *otherwise, *then)
    return ((test, 0, len(then), value), *then, *otherwise)


def _one_of(values: Iterable[int], otherwise: _Code) -> _Code:
    code = otherwise
    for value in values:
        code = _branch(_JEQ, value, _ALLOW, code)
    return code


def _search(decisions: dict[int, _Code], *, default: _Code) -> _Code:
    """A binary search over the ranges of call numbers that are decided alike."""
    last = max(decisions) + 1
    codes = [decisions.get(number, default) for number in range(last)] + [default]
    starts = [0] + [
        number + 1 for number, (code, following) in enumerate(pairwise(codes)) if code != following
    ]
    return _search_ranges([(start, codes[start]) for start in starts])


def _search_ranges(ranges: list[tuple[int, _Code]]) -> _Code:
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    return _branch(_JGE, ranges[middle][0], _search_ranges(ranges[middle:]), _search_ranges(ranges[:middle]))


def _pack(code: _Code) -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
