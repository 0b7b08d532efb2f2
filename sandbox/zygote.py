"""A warm, jailed interpreter that forks one child a role and run, watches it and reports its end.

It never sees a solution, a test or an expected value: those go straight to the children over
sockets that the owner passes in, so a child inherits nothing worth reading. It decides nothing but
when a child's time is over. Started by ``worker.py``; ends when its owner closes the control socket
or dies.

Process tree: launcher (enters the namespaces, waits) -> zygote (PID 1 of its namespace) -> children.
Control messages, one datagram each: in ``(num_children, cpu_s, wall_s, memory_bytes, output_bytes)``
with the sockets, one for a candidate and two for a judge, then ``("stop", grace_s)``; out
``("hello", level)`` once, and a list of reports for each stop.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import math
import os
import random
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, cast

from sandbox import canary, candidate, jail, judge, seccomp
from sandbox.codec import decode, encode
from sandbox.preload import PRELOADED

_MAX_MESSAGE: Final = 4096
_MAX_PROCESSES: Final = 64
_CHANNEL_FD: Final = 3
_SECOND_CHANNEL_FD: Final = 4


@dataclass(slots=True, kw_only=True)
class _Jail:
    """What the zygote prepared for its children; None where the host has no such wall."""

    workdir: str
    ruleset: int | None
    child_filter: bytes | None
    namespaces: bool
    base_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class _Child:
    pid: int
    pidfd: int
    output_fds: tuple[int, int]
    reason: str = ""
    status: int | None = None
    cpu_s: float = 0.0


def main(control_fd: int, workdir: str, without: frozenset[str]) -> None:
    """Jail this process and serve the owner at ``control_fd`` until it hangs up.

    ``workdir`` is an empty private directory, removed at the end; ``without`` names walls to leave out.
    """
    control = socket.socket(fileno=control_fd)
    owner = os.getppid()
    namespaces = "namespaces" not in without and _works(jail.unshare_namespaces)
    pid = os.fork()
    if pid > 0:
        # The owner must see EOF when the zygote ends, so no copy of the socket may stay here.
        control.close()
        _wait_for(pid, owner)
    jail.die_with_parent()
    try:
        prepared = _prepare(workdir, namespaces, without)
        level = _find_level(prepared)
    except Exception as error:
        control.send(encode(("failed", f"{type(error).__name__}: {error}"[:500])))
        return
    control.send(encode(("hello", level)))
    try:
        _serve(control, prepared)
    finally:
        os.chdir("/")
        shutil.rmtree(workdir, ignore_errors=True)


def _wait_for(pid: int, owner: int) -> NoReturn:
    """Wait for the zygote; end it when the owner is gone though some copy of its socket is open."""
    pidfd = os.pidfd_open(pid)
    while not select.select([pidfd], [], [], 1.0)[0]:
        if os.getppid() != owner:
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _prepare(workdir: str, namespaces: bool, without: frozenset[str]) -> _Jail:
    os.chdir(workdir)
    jail.set_no_new_privs()
    _works(jail.drop_capabilities)
    jail.forbid_inspection()
    os.environ.clear()
    ruleset = None
    if "landlock" not in without:
        with contextlib.suppress(OSError):
            ruleset = jail.make_landlock_ruleset()
    child_filter = None
    if "seccomp" not in without:
        with contextlib.suppress(OSError):
            seccomp.install(seccomp.zygote_filter())
            child_filter = seccomp.child_filter()
    sys.path.remove(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    assert all(module.__name__ in sys.modules for module in PRELOADED)
    gc.collect()
    gc.freeze()
    return _Jail(
        workdir=workdir,
        ruleset=ruleset,
        child_filter=child_filter,
        namespaces=namespaces,
        base_bytes=jail.address_space_bytes(),
    )


def _find_level(prepared: _Jail) -> str:
    """Fork a child, jail it, let it try the walls."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            _confine(prepared, 2, 256 * 1024**2, 4096)
            os.write(writer, canary.probe())
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 2)
    os.close(reader)
    os.waitpid(pid, 0)
    _remove_traces(prepared)
    if len(answer) != 2:
        raise OSError("the canary child died before it could report")
    isolated = prepared.namespaces and os.getpid() == 1
    return canary.Walls(files=bool(answer[0]), calls=bool(answer[1]), namespaces=isolated).level()


def _serve(control: socket.socket, prepared: _Jail) -> None:
    while True:
        message, fds, _, _ = socket.recv_fds(control, _MAX_MESSAGE, 3)
        if not message:
            return
        num_children, cpu_s, wall_s, memory_bytes, output_bytes = cast(
            "tuple[int, float, float, int, int]", decode(message)
        )
        started = time.monotonic()
        limits = (math.ceil(cpu_s) + 1, memory_bytes, output_bytes)
        children = [_fork_child(prepared, fds[:1], limits)]
        if num_children == 2:
            children.append(_fork_child(prepared, fds[1:], limits))
        for fd in fds:
            os.close(fd)
        grace_s = _watch(control, children, cpu_s, started + wall_s)
        for child in children:
            _end(child, "stop", grace_s or 0.0)
        _remove_traces(prepared)
        reports = [_report(child) for child in children]
        if grace_s is None:
            return
        control.send(encode(reports))


def _fork_child(prepared: _Jail, fds: list[int], limits: tuple[int, int, int]) -> _Child:
    """Start a candidate (one socket) or a judge (two: its control, the candidate's channel)."""
    output_fds = (os.memfd_create("out"), os.memfd_create("err"))
    pid = os.fork()
    if pid == 0:
        _run_child(prepared, fds, output_fds, limits)
    return _Child(pid=pid, pidfd=os.pidfd_open(pid), output_fds=output_fds)


def _run_child(
    prepared: _Jail, fds: list[int], output_fds: tuple[int, int], limits: tuple[int, int, int]
) -> NoReturn:
    try:
        if not prepared.namespaces:
            os.setpgid(0, 0)
        # First above all targets, so that no dup2 overwrites a source.
        sources = [os.open(os.devnull, os.O_RDONLY), *output_fds, *fds]
        if prepared.ruleset is not None:
            sources.append(prepared.ruleset)
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 32) for fd in sources]
        for target, fd in enumerate(high):
            os.dup2(fd, target, inheritable=False)
        os.closerange(len(high), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if prepared.ruleset is not None:
            prepared.ruleset = len(high) - 1
        _confine(prepared, *limits)
        # Forking reseeds it from the system; a program's verdict should be the same each time.
        random.seed(0)
        channel = socket.socket(fileno=_CHANNEL_FD)
        if len(fds) == 1:
            candidate.serve(channel)
        else:
            judge.serve(channel, socket.socket(fileno=_SECOND_CHANNEL_FD))
    except BaseException:
        os._exit(1)
    os._exit(0)


def _confine(prepared: _Jail, cpu_s: int, memory_bytes: int, output_bytes: int) -> None:
    """Close the walls around this process; the order matters: the filter forbids what comes before."""
    jail.die_with_parent()
    jail.set_rlimits(
        cpu_s=cpu_s,
        address_space_bytes=prepared.base_bytes + memory_bytes,
        file_bytes=output_bytes,
        num_processes=_MAX_PROCESSES if prepared.namespaces else 0,
    )
    if prepared.ruleset is not None:
        jail.enter_landlock(prepared.ruleset)
        os.close(prepared.ruleset)
    if prepared.child_filter is not None:
        seccomp.install(prepared.child_filter)


def _watch(control: socket.socket, children: list[_Child], cpu_s: float, deadline: float) -> float | None:
    """Wait until the owner says stop (returns its grace) or is gone (None); end what exceeds its time.

    CPU time grows no faster than wall time but for threads outside the interpreter lock, so sleeping
    for the unused rest of it is enough; RLIMIT_CPU backs this up.
    """
    poll = select.poll()
    poll.register(control, select.POLLIN)
    for child in children:
        poll.register(child.pidfd, select.POLLIN)
    while True:
        live = [child for child in children if child.status is None]
        left_s = deadline - time.monotonic() if live else math.inf
        if left_s <= 0:
            for child in live:
                _end(child, "wall")
            continue
        for child in live:
            unused_s = cpu_s - _cpu_time(child.pid)
            if unused_s <= 0:
                _end(child, "cpu")
            left_s = min(left_s, max(unused_s, 0.001))
        for fd, _ in poll.poll(None if left_s == math.inf else math.ceil(left_s * 1000)):
            if fd == control.fileno():
                message = control.recv(_MAX_MESSAGE)
                return cast("tuple[str, float]", decode(message))[1] if message else None
            for child in children:
                if child.pidfd == fd:
                    poll.unregister(fd)
                    _end(child, "")


def _cpu_time(pid: int) -> float:
    """CPU seconds of a process that is not reaped yet, all threads (the kernel's per-process clock);
    0.0 for one that has just ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _end(child: _Child, reason: str, grace_s: float = 0.0) -> None:
    """Make sure that the child is dead and reaped; the first reason stays.

    ``grace_s`` is for a child that seems to be ending by itself: its own exit code tells more.
    """
    if child.status is not None:
        return
    # A child that ended on its own before the kill keeps an empty reason: its death was its own.
    if reason and not select.select([child.pidfd], [], [], grace_s)[0]:
        child.reason = reason
        os.kill(child.pid, signal.SIGKILL)
    _, child.status, usage = os.wait4(child.pid, 0)
    child.cpu_s = usage.ru_utime + usage.ru_stime


def _remove_traces(prepared: _Jail) -> None:
    """End processes and remove files that a run may have left where a wall is missing."""
    if prepared.namespaces:
        # From PID 1 of a namespace this reaches all in it, and nobody else.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    if os.listdir(prepared.workdir):
        for entry in os.scandir(prepared.workdir):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _report(child: _Child) -> tuple[str, int, float, int, int]:
    """(reason, wait status as exit code, CPU seconds, bytes on stdout, bytes on stderr)"""
    assert child.status is not None
    num_out, num_err = (os.fstat(fd).st_size for fd in child.output_fds)
    for fd in (child.pidfd, *child.output_fds):
        os.close(fd)
    return child.reason, os.waitstatus_to_exitcode(child.status), child.cpu_s, num_out, num_err


def _works(wall: Callable[[], None]) -> bool:
    try:
        wall()
    except OSError:
        return False
    return True
