"""From the fork to the first line of somebody's program: close the walls, hand over to the role.

What this costs a run is mostly the pages that it touches, since each must be copied for the child.
So all that can be made before the fork is made there: the descriptors are in their places, the
socket objects and the arguments of the system calls exist.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from sandbox import candidate, jail, judge, program
from sandbox.control import EXIT_FAILED

STDIN, STDOUT, STDERR, CHANNEL, SECOND_CHANNEL = range(5)
NUM_FDS: Final = 5
# One more than the zygote may have open, see jail.set_lasting_rlimits.
_END_OF_FDS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Jail:
    """What the zygote prepared for its children.

    ``child_filter`` installs the children's system-call filter, None without that wall. ``init``
    says that the zygote is PID 1 of a namespace of its own. ``workdir`` is the folder to be kept
    empty, where programs could write. ``base_bytes`` is the zygote's own address space.
    """

    child_filter: jail.SystemCall | None
    init: bool
    workdir: str | None
    base_bytes: int


class Roles:
    """The socket objects that children of any role find ready, on descriptors 3 and 4."""

    def __init__(self) -> None:
        self._channel, self._second = _sockets()

    def play(self, role: str) -> None:
        """Do what a child of this role does; returns at the end of a candidate or a judge."""
        if role == "candidate":
            candidate.serve(self._channel)
        elif role == "stdio":
            program.serve(self._channel)
        else:
            judge.serve(self._channel, self._second)


def _sockets() -> tuple[socket.socket, socket.socket]:
    """Socket objects whose descriptors the zygote fills anew for each child."""
    # Python looks whether a descriptor is a socket before it makes the object.
    first, second = socket.socketpair()
    with first, second:
        for target in (CHANNEL, SECOND_CHANNEL):
            os.dup2(first.fileno(), target, inheritable=False)
        return socket.socket(fileno=CHANNEL), socket.socket(fileno=SECOND_CHANNEL)


def limit_calls(prepared: Jail, cpu_s: float, memory_bytes: int, output_bytes: int) -> list[jail.SystemCall]:
    """The system calls that close the walls around a child with these limits, in their order."""
    # Far from the limit itself, which the zygote watches by an exact clock: a kernel that counts this by
    # ticks charges a program on a busy core for what others used. The soft limit's signal says why it died;
    # SIGKILL, which follows for a program that ignores it, would read as a fault of the host.
    backup_s = 2 * math.ceil(cpu_s) + 1
    calls = [
        jail.rlimit_call(resource.RLIMIT_CPU, backup_s, backup_s + 1),
        jail.rlimit_call(resource.RLIMIT_AS, prepared.base_bytes + memory_bytes),
        jail.rlimit_call(resource.RLIMIT_FSIZE, output_bytes),
    ]
    if not prepared.init:
        # Where PID 1 dies its namespace goes with it; elsewhere each child must see to that.
        calls.append(jail.death_signal_call())
    if prepared.child_filter is not None:
        # Last: it forbids what comes before.
        calls.append(prepared.child_filter)
    return calls


def run(calls: list[jail.SystemCall], act: Callable[[str], None], role: str) -> NoReturn:
    """Confine this fresh child, then act the role; never returns.

    A child that cannot be confined ends before it has read a program: its owner tells that from the
    frame that never came, of a judge from the exit code.
    """
    try:
        os.closerange(NUM_FDS, _END_OF_FDS)
        for call in calls:
            if call.function(*call.arguments) != 0:
                os._exit(EXIT_FAILED)
        gc.enable()
        act(role)
    except BaseException:
        os._exit(EXIT_FAILED)
    os._exit(0)


def fork() -> int:
    """``os.fork`` without Python's at-fork hooks: 0.4 ms less in each child.

    The hooks re-make locks that other threads may have held and reseed ``random``; a zygote has one
    thread, and a program's random numbers should be the same each time. Raises OSError.
    """
    pid: int = _fork()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork")
    return pid


# PyDLL keeps the interpreter lock over the call, so the child holds it as its parent did.
_fork: Final = ctypes.PyDLL(None, use_errno=True).fork
