"""Find out by trying which walls hold in a freshly jailed child, and name the level.

Reads no configuration: a wall counts when the canary died at it.
"""

from __future__ import annotations

import os
import resource
import socket
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """Which walls held. The fields' order is the order on the wire."""

    rlimits: bool
    """A limit cannot be raised again."""
    calls: bool
    """No new process, no socket, no program: the system-call filter."""
    files: bool
    """Nothing outside the standard library can be read, nothing written."""
    imports: bool
    """The standard library can be read (where it cannot, only preloaded modules import)."""
    landlock: bool
    """Landlock is one of the reasons why files are closed."""
    mounts: bool
    """The host's files are not there at all: a mount namespace of our own, without /proc."""
    processes: bool
    """Other processes are not there: a PID namespace of our own."""
    network: bool
    """No network, not even loopback: a network namespace of our own."""
    user: bool
    """Not uid 0 of the host."""

    def level(self) -> str:
        """Name the level.

        L3: namespaces, Landlock, system-call filter, rlimits. L2: the last two, and Landlock or a mount
        namespace. L1: system-call filter (no file can be opened) and rlimits. L0: less than that.
        """
        if not (self.rlimits and self.calls and self.files):
            return "L0"
        if not self.imports:
            return "L1"
        return "L3" if self.landlock and self.mounts and self.processes and self.network else "L2"

    def to_bytes(self) -> bytes:
        """One byte a wall, in the order of the fields."""
        return bytes(bool(getattr(self, field.name)) for field in fields(self))

    @staticmethod
    def from_bytes(data: bytes) -> Walls:
        """The inverse of ``to_bytes``. Raises ValueError for any other number of bytes."""
        names = [field.name for field in fields(Walls)]
        if len(data) != len(names):
            raise ValueError(f"{len(data)} bytes are not {len(names)} walls")
        return Walls(**{name: bool(byte) for name, byte in zip(names, data, strict=True)})


def network_is_closed() -> bool:
    """Whether not even loopback answers. To be asked before the system-call filter hides the answer."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("127.0.0.1", 9))
    except OSError:
        return True
    return False


def probe(*, network: bool) -> Walls:
    """Try the walls from inside a jailed child; ``network`` was found out before."""
    imports = _opens(os.__file__)
    return Walls(
        rlimits=_rlimits_hold(),
        calls=_calls_are_closed(),
        files=_files_are_closed(),
        imports=imports,
        # Where nothing can be opened at all the filter forbids it, and nothing else shows.
        landlock=imports and _is_landlocked(),
        mounts=not os.path.exists("/etc/passwd") and not os.path.exists("/proc/self"),
        processes=os.getppid() == 1,
        network=network,
        user=os.getuid() != 0,
    )


def _rlimits_hold() -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard + 1))
    except (OSError, ValueError):
        return True
    return False


def _files_are_closed() -> bool:
    """No reading outside the standard library, no writing in the working directory."""
    return not _opens("/etc/passwd") and not _opens("canary", os.O_CREAT | os.O_WRONLY)


def _opens(path: str, flags: int = os.O_RDONLY) -> bool:
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError:
        return False
    return True


def _is_landlocked() -> bool:
    """A folder that the user may list as far as its permissions go, and yet may not."""
    try:
        os.listdir("/")
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _calls_are_closed() -> bool:
    """No new process, no program and no socket to anywhere."""
    try:
        pid = os.fork()
    except PermissionError:
        pass
    else:
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return False
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    except PermissionError:
        pass
    else:
        return False
    try:
        os.execv("/does/not/exist", ["-"])
    except PermissionError:
        return True
    except OSError:
        return False
