"""What confines a sandbox process: one function a wall, each saying what it does NOT stop.

Linux only, through ctypes, no helper binaries. The functions raise OSError where the host refuses;
the zygote decides what to do without a wall, and names the level by trying (see ``canary.py``).
System-call filters are in ``seccomp.py``, the file system is in ``mounts.py``.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

libc: Final = ctypes.CDLL(None, use_errno=True)
_pylibc: Final = ctypes.PyDLL(None, use_errno=True)

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITY_VERSION_3: Final = 0x20080522
_NOBODY: Final = 65534

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWPID: Final = 0x20000000
_CLONE_NEWNET: Final = 0x40000000

# The Landlock calls have the same numbers on every architecture.
_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_ADD_RULE: Final = 445
_LANDLOCK_RESTRICT_SELF: Final = 446
_LANDLOCK_WRITE_FILE: Final = 1 << 1
_LANDLOCK_READ_FILE: Final = 1 << 2
_LANDLOCK_READ_DIR: Final = 1 << 3
# Rights known to each ABI version: 13 at first, then refer, truncate, ioctl on devices.
_LANDLOCK_NUM_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_LANDLOCK_NUM_RIGHTS_NEWEST: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCall:
    """A libc function with its arguments made beforehand; ``buffer`` keeps what they point to alive."""

    function: Callable[..., int]
    arguments: tuple[object, ...]
    buffer: object = None


def rlimit_call(which: int, soft: int, hard: int | None = None) -> SystemCall:
    """Set a resource limit; the hard one is the soft one, unless given.

    The limits do not stop: CPU use spread over forked processes (each counts alone), memory shared
    through files, many small files.
    """
    buffer = (ctypes.c_ulong * 2)(soft, soft if hard is None else hard)
    return SystemCall(
        function=_pylibc.setrlimit,
        arguments=(ctypes.c_int(which), ctypes.c_void_p(ctypes.addressof(buffer))),
        buffer=buffer,
    )


def death_signal_call() -> SystemCall:
    """``die_with_parent`` for a child."""
    return prctl_call(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def prctl_call(option: int, second: int, third: int = 0, buffer: object = None) -> SystemCall:
    """``prctl(option, second, third, 0, 0)``; ``buffer`` is what ``third`` is the address of."""
    arguments = (option, second, third, 0, 0)
    return SystemCall(function=_pylibc.prctl, arguments=tuple(map(ctypes.c_ulong, arguments)), buffer=buffer)


def set_lasting_rlimits(num_processes: int) -> None:
    """Bound open files, core dumps and, where not 0, processes and threads, for a zygote and all its
    children. The kernel exempts uid 0 from the last one."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if num_processes > 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (num_processes, num_processes))


def set_no_new_privs() -> None:
    """Set-uid binaries give nothing from now on. Does not take away what the process already has."""
    check_call(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Send this process the signal ``number`` when the thread that forked it ends; 0 takes it back.

    Does not reach grandchildren, is lost when the uid changes, and a child that may call prctl can
    undo it. Never use it in a child of a multi-threaded owner: a thread of a pool may end while its
    process lives on.
    """
    check_call(libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def forbid_inspection() -> None:
    """No ptrace and no /proc/PID/mem of this process by others of the same user.

    Does not stop root outside, nor reading of what has world-readable /proc entries (names, sizes).
    """
    check_call(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def drop_capabilities() -> None:
    """Give up every capability. Does not change the uid: files of the same owner stay accessible."""
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    check_call(libc.capset(header, bytes(24)), "capset")


def become_nobody(readable: str) -> None:
    """From uid 0 to an unprivileged uid and no groups, unless the folder ``readable`` would be lost.

    Does not separate two sandboxes from each other: both are the same nobody. Raises PermissionError
    where nobody cannot list ``readable`` (an interpreter below somebody's home), OSError without
    the right to change the uid.
    """
    try:
        os.setegid(_NOBODY)
        os.seteuid(_NOBODY)
        os.listdir(readable)
    finally:
        os.seteuid(0)
        os.setegid(0)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def unshare_system() -> None:
    """New PID (for the next fork), network, IPC and UTS namespaces; takes privileges.

    Afterwards there is no network, not even loopback, and the first fork is PID 1: when it ends,
    all its descendants end. Does not hide files or /proc, does not limit CPU or memory.
    """
    flags = _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS
    check_call(libc.unshare(flags), "unshare")


def unshare_user(proc: int) -> None:
    """Enter a new user namespace that knows one user: this one. ``proc`` is a descriptor of /proc.

    Gives all privileges inside it (to be dropped when the rest is built), none outside, and a count
    of processes of its own. Widens the kernel's surface until capabilities are dropped.
    """
    uid, gid = os.geteuid(), os.getegid()
    # Only of an inspectable process may the maps be written by an unprivileged user.
    check_call(libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")
    check_call(libc.unshare(_CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        file = os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc)
        try:
            os.write(file, text.encode("ascii"))
        finally:
            os.close(file)


def unshare_mounts() -> None:
    """A mount namespace of our own; by itself hides nothing (see ``mounts.py``)."""
    check_call(libc.unshare(_CLONE_NEWNS), "unshare")


def enter_landlock(paths: Iterable[str], folders: Iterable[str]) -> None:
    """From now on: read the files and trees ``paths``, list ``folders``, use /dev/null; nothing else.

    No other file can be opened, none made, changed or removed, no TCP, no abstract UNIX sockets and
    no signals to the outside where the kernel knows these rights. Does not stop stat() and chdir()
    (existence of paths shows), use of descriptors already open, chmod and chown (the system-call
    filter's task), or reads of memory. Needs no_new_privs; holds for all children.
    """
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    check_call(version, "landlock_create_ruleset")
    rights = (1 << _LANDLOCK_NUM_RIGHTS.get(version, _LANDLOCK_NUM_RIGHTS_NEWEST)) - 1
    attributes = struct.pack("<Q", rights)
    if version >= 4:
        attributes += struct.pack("<Q", 0b11)
    if version >= 6:
        attributes += struct.pack("<Q", 0b11)
    ruleset: int = libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    check_call(ruleset, "landlock_create_ruleset")
    try:
        for path in folders:
            _allow(ruleset, path, _LANDLOCK_READ_DIR)
        for path in paths:
            _allow(ruleset, path, _LANDLOCK_READ_FILE | _LANDLOCK_READ_DIR)
        _allow(ruleset, "/dev/null", _LANDLOCK_READ_FILE | _LANDLOCK_WRITE_FILE)
        check_call(libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def address_space_bytes() -> int:
    """Return the size of this process's address space now, in bytes. Reads /proc."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def shared_library_paths() -> list[str]:
    """Where the dynamic loader finds what the interpreter and its extension modules link to."""
    triplet = f"{platform.machine()}-linux-gnu"
    paths = []
    for folder in ("/lib64", "/usr/lib64", f"/lib/{triplet}", f"/usr/lib/{triplet}"):
        # A folder that holds the standard library holds installed packages too.
        inside = os.path.realpath(os.__file__).startswith(os.path.realpath(folder) + "/")
        paths += _libraries(folder) if inside else [folder]
    return paths + _libraries(os.path.join(sys.base_prefix, "lib"))


def _libraries(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    return [os.path.join(folder, name) for name in os.listdir(folder) if ".so" in name]


def check_call(result: int, call: str) -> None:
    """Raise the OSError of a libc call that failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= ~_LANDLOCK_READ_DIR
        rule = struct.pack("<Qi", rights, descriptor)
        check_call(libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), "landlock_add_rule")
    finally:
        os.close(descriptor)
