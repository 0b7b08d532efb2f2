"""What each wall of the sandbox stops, and what usually brings a missing one back.

Words only: which walls hold is found out by ``canary.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sandbox.canary import Walls


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """One field of ``canary.Walls``, described. ``level`` is the best that a host without it can reach;
    ``remedy`` is a key of REMEDIES."""

    name: str
    stops: str
    level: str
    remedy: str


WALLS: Final = (
    Wall(
        name="rlimits",
        stops="raising its own limits: CPU, memory, file size, open files",
        level="L0",
        remedy="rlimits",
    ),
    Wall(
        name="calls",
        stops="new processes and programs, sockets, rare system calls",
        level="L0",
        remedy="seccomp",
    ),
    Wall(
        name="files",
        stops="reading your files, writing any",
        level="L0",
        remedy="landlock",
    ),
    Wall(
        name="imports",
        stops="nothing; where it is missing, late imports fail (L1)",
        level="L1",
        remedy="landlock",
    ),
    Wall(
        name="landlock",
        stops="opening files, once more, if the mounts are escaped",
        level="L2",
        remedy="landlock",
    ),
    Wall(
        name="mounts",
        stops="even seeing that your files or /proc exist",
        level="L2",
        remedy="namespaces",
    ),
    Wall(
        name="processes",
        stops="seeing other processes; children that stay behind",
        level="L2",
        remedy="namespaces",
    ),
    Wall(
        name="network",
        stops="any network, loopback too, if a socket is had after all",
        level="L2",
        remedy="namespaces",
    ),
    Wall(
        name="user",
        stops="being root of the host if all other walls fall",
        level="L3",
        remedy="user",
    ),
)
"""In the order of the fields of ``canary.Walls``."""

REMEDIES: Final[Mapping[str, tuple[str, ...]]] = {
    "rlimits": ("Every Linux has these. Something else is broken: please report it.",),
    "seccomp": (
        "A kernel with CONFIG_SECCOMP_FILTER, as all distributions build it, on x86-64 or arm64; "
        "there is no table of system calls for other machines, nor for 32-bit userlands.",
        "WSL 1 and some emulators (qemu-user) have none: use WSL 2, or a real machine.",
    ),
    "landlock": (
        "Linux 5.13 or newer with Landlock switched on: `cat /sys/kernel/security/lsm` must name it. "
        "If not, boot with lsm=landlock,... (the present list after the comma).",
        "In a container: a runtime of 2022 or newer. Older default seccomp profiles refuse the "
        "landlock_* calls; gVisor does not have them.",
    ),
    "namespaces": (
        "Debian: sysctl kernel.unprivileged_userns_clone=1. All: sysctl user.max_user_namespaces "
        "must not be 0.",
        "Ubuntu 23.10 or newer: sysctl kernel.apparmor_restrict_unprivileged_userns=0. Cost: "
        "every program on the host may make user namespaces, a way to many kernel bugs.",
        "Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined (and the line "
        "for Ubuntu, on such a host). Cost: Docker's own filters are gone for all that runs in that "
        "container; ours still hold for model code.",
        "Docker, where user namespaces stay closed: the same with --cap-add SYS_ADMIN and root inside. "
        "Cost: whoever else runs in that container is close to root on the host.",
        "The mounts need Linux 5.12 or newer. Without any of this the sandbox runs at L2.",
    ),
    "user": (
        "You are root, and an unprivileged user could not read this Python: put it outside of "
        "private folders such as /root (a virtual environment keeps using its base Python), "
        "or run as an ordinary user.",
    ),
}
"""Steps that bring back the walls which name them."""

LEVELS: Final = {
    "L3": "namespaces, Landlock, system-call filter, resource limits",
    "L2": "Landlock or a mount namespace, system-call filter, resource limits",
    "L1": "system-call filter, resource limits; no file can be opened, so no late imports",
    "L0": "a wall that all else rests on is missing: model code could get out",
}
"""What a level means, in a line; ``canary.Walls.level`` decides."""


def missing(walls: Walls, level: str = "L3") -> tuple[Wall, ...]:
    """The walls that are not in force and would be needed for ``level``; for L3 all that exist."""
    needed = (wall for wall in WALLS if level == "L3" or wall.level < level)
    return tuple(wall for wall in needed if not getattr(walls, wall.name))


def refusal(walls: Walls, unsafe_flag: str) -> str:
    """Why model code is not run with these ``walls`` and what the user can do, a few lines.

    ``unsafe_flag`` is what the user may write to run it all the same.
    """
    level = walls.level()
    lines = [
        f"the sandbox reaches level {level} on this host ({LEVELS[level]}); model code needs L2 or better"
    ]
    lines.append("`python -m sandbox selftest` says how to get more; SECURITY.md what the levels mean")
    lines += [f"missing: {wall.name}: {wall.stops}" for wall in missing(walls, "L2")]
    lines.append(f"to run model code all the same, as on a machine you can lose: {unsafe_flag}")
    return "\n".join(lines)
