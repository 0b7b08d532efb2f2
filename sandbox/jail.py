"""What confines a sandbox process: one function a wall, each saying what it does NOT stop.

Linux only, through ctypes, no helper binaries. The functions raise OSError where the host refuses;
the zygote decides what to do without a wall, and names the level by trying (see ``canary.py``).
System-call filters are in ``seccomp.py``. Called by the zygote and its children.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITY_VERSION_3: Final = 0x20080522

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


def set_rlimits(*, cpu_s: int, address_space_bytes: int, file_bytes: int, num_processes: int) -> None:
    """Bound CPU seconds, address space, size of written files, open files, processes; no core dumps.

    Does not stop: CPU use spread over forked processes (each counts alone), memory shared through
    files, many small files, or, for uid 0, any number of processes (the kernel exempts it).
    """
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes, address_space_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if num_processes > 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (num_processes, num_processes))


def set_no_new_privs() -> None:
    """Set-uid binaries give nothing from now on. Does not take away what the process already has."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def die_with_parent() -> None:
    """SIGKILL this process when the thread that forked it ends.

    Does not reach grandchildren, and a child that may call prctl can undo it. Never use it in a
    child of a multi-threaded owner: a thread of a pool may end while its process lives on.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def forbid_inspection() -> None:
    """No ptrace and no /proc/PID/mem of this process by others of the same user.

    Does not stop root outside, nor reading of what has world-readable /proc entries (names, sizes).
    """
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def drop_capabilities() -> None:
    """Give up every capability. Does not change the uid: files of the same owner stay accessible."""
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def unshare_namespaces() -> None:
    """Enter new user, PID (for the next fork), network, IPC and UTS namespaces.

    Afterwards there is no network, not even loopback, and the first fork is PID 1: when it ends,
    all its descendants end. Does not hide files or /proc (no mount namespace), does not limit CPU
    or memory, and widens the kernel's surface until capabilities are dropped.
    """
    uid, gid = os.geteuid(), os.getegid()
    flags = _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS
    _check(_libc.unshare(flags), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def make_landlock_ruleset() -> int:
    """Return the descriptor of a ruleset: read the standard library and shared libraries, nothing else.

    Once entered: no other file can be opened, none made, changed or removed, no TCP, no abstract
    UNIX sockets and no signals to the outside where the kernel knows these rights. Does not stop
    stat() and chdir() (existence of paths shows), use of descriptors already open, chmod and chown
    (the system-call filter's task), or reads of memory.
    """
    version = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    _check(version, "landlock_create_ruleset")
    rights = (1 << _LANDLOCK_NUM_RIGHTS.get(version, _LANDLOCK_NUM_RIGHTS_NEWEST)) - 1
    attributes = struct.pack("<Q", rights)
    if version >= 4:
        attributes += struct.pack("<Q", 0b11)
    if version >= 6:
        attributes += struct.pack("<Q", 0b11)
    ruleset: int = _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    _check(ruleset, "landlock_create_ruleset")
    standard_library = os.path.dirname(os.__file__)
    _allow(ruleset, standard_library, _LANDLOCK_READ_DIR)
    for name in os.listdir(standard_library):
        # Installed packages hold benchmark data with reference solutions.
        if name not in ("site-packages", "dist-packages"):
            _allow(ruleset, os.path.join(standard_library, name), _LANDLOCK_READ_FILE | _LANDLOCK_READ_DIR)
    for path in _shared_library_paths():
        _allow(ruleset, path, _LANDLOCK_READ_FILE | _LANDLOCK_READ_DIR)
    for path in ("/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom"):
        _allow(ruleset, path, _LANDLOCK_READ_FILE | _LANDLOCK_READ_DIR)
    _allow(ruleset, "/dev/null", _LANDLOCK_READ_FILE | _LANDLOCK_WRITE_FILE)
    return ruleset


def enter_landlock(ruleset: int) -> None:
    """Put the ruleset in force for this thread and all it starts; needs no_new_privs."""
    _check(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")


def address_space_bytes() -> int:
    """Return the size of this process's address space now, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _shared_library_paths() -> list[str]:
    triplet = f"{platform.machine()}-linux-gnu"
    paths = ["/lib64", "/usr/lib64", f"/lib/{triplet}", f"/usr/lib/{triplet}"]
    library_folder = os.path.join(sys.base_prefix, "lib")
    if os.path.isdir(library_folder):
        names = [name for name in os.listdir(library_folder) if ".so" in name]
        paths += [os.path.join(library_folder, name) for name in names]
    return paths


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= ~_LANDLOCK_READ_DIR
        rule = struct.pack("<Qi", rights, descriptor)
        _check(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, 0), "landlock_add_rule")
    finally:
        os.close(descriptor)


def _check(result: int, call: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
