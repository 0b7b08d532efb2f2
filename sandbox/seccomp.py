"""Two system-call filters, installed through prctl: one for the zygote, a second for each child.

Deny lists, not allow lists: what they do not name stays allowed, so a new system call of a new
kernel is open until it is listed. They see numbers and plain arguments, never memory behind
pointers (no paths). Called by the zygote only.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from typing import Final

_X86: Final = "x86_64"
_ARM: Final = "aarch64"
_AUDIT_ARCH: Final = {_X86: 0xC000003E, _ARM: 0xC00000B7}
_X32_BIT: Final = 0x40000000

# name: (x86-64 number, arm64 number); -1 where the architecture has no such call.
_ZYGOTE_DENIED: Final = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "personality": (135, 92), "syslog": (103, 116), "acct": (163, 89),
    "quotactl": (179, 60), "swapon": (167, 224), "swapoff": (168, 225), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, -1), "ioperm": (173, -1),
    "modify_ldt": (154, -1), "memfd_secret": (447, 447),
    # Landlock has no say over these on files that the user owns.
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
}  # fmt: skip
_CHILD_DENIED: Final = {
    "fork": (57, -1), "vfork": (58, -1), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "memfd_create": (319, 279), "prctl": (157, 167),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122), "setpgid": (109, 154), "setsid": (112, 157),
    "inotify_add_watch": (254, 27),
}  # fmt: skip
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_PRLIMIT64: Final = (302, 261)
_CLONE_THREAD: Final = 0x00010000

_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_KILL_PROCESS: Final = 0x80000000
_OFFSET_NR, _OFFSET_ARCH, _OFFSET_ARG0 = 0, 4, 16
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2

_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("num_instructions", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def zygote_filter() -> bytes:
    """No new sockets, no exec, no namespaces, mounts, tracing, modules, io_uring, metadata changes.

    Does not stop what the zygote itself needs: fork, kill, reading and writing files.
    """
    machine, column = _machine()
    denied = [numbers[column] for numbers in _ZYGOTE_DENIED.values() if numbers[column] >= 0]
    return _assemble(machine, denied, child=False)


def child_filter() -> bytes:
    """No new processes (threads are allowed), no signals, no changing other processes' limits.

    Does not stop file access (Landlock's task), CPU and memory use (rlimits' task) or threads.
    """
    machine, column = _machine()
    denied = [numbers[column] for numbers in _CHILD_DENIED.values() if numbers[column] >= 0]
    return _assemble(machine, denied, child=True)


def install(instructions: bytes) -> None:
    """Put the filter in force for this process and its children; needs no_new_privs. Raises OSError."""
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    program = _Program(len(instructions) // 8, ctypes.addressof(buffer))
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


def _machine() -> tuple[str, int]:
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"no system-call table for {machine}; known: {', '.join(_AUDIT_ARCH)}")
    return machine, 0 if machine == _X86 else 1


def _assemble(machine: str, denied: list[int], *, child: bool) -> bytes:
    """A linear BPF program; jumps go forward to the shared returns at its end."""
    column = 0 if machine == _X86 else 1
    lines: list[tuple[int, str, str, int]] = [
        (_LOAD, "", "", _OFFSET_ARCH),
        (_JEQ, "", "kill", _AUDIT_ARCH[machine]),
        (_LOAD, "", "", _OFFSET_NR),
    ]
    if machine == _X86:
        lines.append((_JGE, "deny", "", _X32_BIT))
    if child:
        lines += [
            (_JEQ, "clone", "", _CLONE[column]),
            # ENOSYS makes glibc fall back to clone, whose flags a filter can read.
            (_JEQ, "enosys", "", _CLONE3[column]),
            (_JEQ, "prlimit", "", _PRLIMIT64[column]),
        ]
    lines += [(_JEQ, "deny", "", number) for number in denied]
    labels = {"allow": len(lines)}
    lines.append((_RETURN, "", "", _ALLOW))
    for label, action in (("deny", _ERRNO | errno.EPERM), ("enosys", _ERRNO | errno.ENOSYS),
                          ("kill", _KILL_PROCESS)):  # fmt: skip
        labels[label] = len(lines)
        lines.append((_RETURN, "", "", action))
    labels["clone"] = len(lines)
    lines += [(_LOAD, "", "", _OFFSET_ARG0), (_JSET, "", "fail", _CLONE_THREAD), (_RETURN, "", "", _ALLOW)]
    labels["prlimit"] = len(lines)
    lines += [(_LOAD, "", "", _OFFSET_ARG0), (_JEQ, "", "fail", 0), (_RETURN, "", "", _ALLOW)]
    labels["fail"] = len(lines)
    lines.append((_RETURN, "", "", _ERRNO | errno.EPERM))
    packed = bytearray()
    for index, (code, if_true, if_false, value) in enumerate(lines):
        jump_true = labels[if_true] - index - 1 if if_true else 0
        jump_false = labels[if_false] - index - 1 if if_false else 0
        assert 0 <= jump_true < 256 and 0 <= jump_false < 256
        packed += struct.pack("<HBBI", code, jump_true, jump_false, value)
    return bytes(packed)
