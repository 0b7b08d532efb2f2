"""A warm, jailed interpreter that forks one child a role and run, watches it and reports its end.

It never sees a solution, a test or an expected value: those go straight to the children over
sockets that the owner passes in, so a child inherits nothing worth reading. It decides nothing but
when a child's time is over. It ends when its owner
closes the control socket or dies.

The messages are in ``control.py``. Roles and their descriptors: ``call`` (the candidate's channel),
``judge`` (the candidate's channel; the judge's control and its end of the candidate's), ``stdio``
(the program's channel, its stdin, its stdout).
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import contextlib
import fcntl
import gc
import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import Final

from sandbox import child, control, randomness
from sandbox.control import ChildReport
from sandbox.jail import SystemCall
from sandbox.launcher import Launcher
from sandbox.result import Limits
from sandbox.warmup import warm_up

# No busy host lets a process wait so long for a core: it was stopped.
_PAUSED_S: Final = 0.5


@dataclass(slots=True, kw_only=True)
class _Child:
    pid: int
    pidfd: int
    stdout: int | None
    stderr: int | None
    reason: str = ""
    status: int | None = None
    cpu_s: float = 0.0


class Zygote:
    """The loop of a zygote. ``null`` is a descriptor of /dev/null."""

    def __init__(self, owner: socket.socket, prepared: child.Jail, launcher: Launcher, null: int) -> None:
        self._owner = owner
        self._prepared = prepared
        self._launcher = launcher
        self._null = null
        self._roles = child.Roles()
        # What a program prints is nobody's business, unless it is its answer (role stdio).
        os.dup2(self._null, child.STDOUT, inheritable=False)
        # In its place for good: one candidate at a time writes there, and is dead when it is counted.
        self._stderr = os.memfd_create("stderr")
        os.dup2(self._stderr, child.STDERR, inheritable=False)
        # What children share with this process, and with those that come after them.
        self._flags = {fd: fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (self._null, self._stderr)}
        # Most runs ask for the same; remembering it spares pages that would be copied for the child.
        self._message = b""
        self._plan: tuple[str, Limits, list[SystemCall]]

    def serve(self) -> None:
        """Serve runs until the owner hangs up."""
        # The site module, which zygotes run without, gives programs these two.
        for name in ("exit", "quit"):
            setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
        warm_up()
        # Any text but a test source.
        randomness.seed("")
        gc.collect()
        gc.freeze()
        # A collection would touch pages that are then copied; children turn it on again.
        gc.disable()
        while True:
            message, fds, _, _ = socket.recv_fds(self._owner, control.MAX_BYTES, control.MAX_FDS)
            if not message:
                return
            role, limits, calls = self._read(message)
            children = self._fork_children(role, fds, calls)
            for fd in fds:
                os.close(fd)
            grace_s = _watch(self._owner, children, limits, self._launcher)
            for one in children:
                _end(one, "stop", grace_s or 0.0)
            remove_traces(self._prepared)
            for fd, flags in self._flags.items():
                fcntl.fcntl(fd, fcntl.F_SETFL, flags)
            reports = [self._report(one) for one in children]
            if grace_s is None:
                return
            self._owner.send(control.pack_reports(reports))

    def _read(self, message: bytes) -> tuple[str, Limits, list[SystemCall]]:
        if message != self._message:
            role, limits = control.unpack_run(message)
            calls = child.limit_calls(self._prepared, limits.cpu_s, limits.memory_bytes, limits.output_bytes)
            self._message, self._plan = message, (role, limits, calls)
        return self._plan

    def _fork_children(self, role: str, fds: list[int], calls: list[SystemCall]) -> list[_Child]:
        if role == "stdio":
            channel, stdin, stdout = fds
            os.dup2(stdin, child.STDIN, inheritable=False)
            os.dup2(stdout, child.STDOUT, inheritable=False)
            program = self._fork("stdio", calls, channel, stdout=os.dup(stdout), stderr=self._stderr)
            os.dup2(self._null, child.STDIN, inheritable=False)
            os.dup2(self._null, child.STDOUT, inheritable=False)
            return [program]
        children = [self._fork("candidate", calls, fds[0], stderr=self._stderr)]
        if role == "judge":
            os.dup2(self._null, child.STDERR, inheritable=False)
            os.dup2(fds[2], child.SECOND_CHANNEL, inheritable=False)
            children.append(self._fork("judge", calls, fds[1]))
            os.dup2(self._null, child.SECOND_CHANNEL, inheritable=False)
            os.dup2(self._stderr, child.STDERR, inheritable=False)
        return children

    def _fork(
        self,
        role: str,
        calls: list[SystemCall],
        channel: int,
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> _Child:
        """Fork with the channel in its place; what the child prints is counted on ``stdout``, ``stderr``."""
        os.dup2(channel, child.CHANNEL, inheritable=False)
        pid = child.fork()
        if pid == 0:
            child.run(calls, self._roles.play, role)
        os.dup2(self._null, child.CHANNEL, inheritable=False)
        return _Child(pid=pid, pidfd=os.pidfd_open(pid), stdout=stdout, stderr=stderr)

    def _report(self, one: _Child) -> ChildReport:
        assert one.status is not None
        os.close(one.pidfd)
        num_stdout_bytes = 0
        if one.stdout is not None:
            num_stdout_bytes = os.fstat(one.stdout).st_size
            os.close(one.stdout)
        return ChildReport(
            reason=one.reason,
            exit_code=os.waitstatus_to_exitcode(one.status),
            cpu_s=one.cpu_s,
            num_stdout_bytes=num_stdout_bytes,
            num_stderr_bytes=0 if one.stderr is None else self._emptied(one.stderr),
        )

    @staticmethod
    def _emptied(fd: int) -> int:
        """Bytes in the file, which is empty for the next run then."""
        num_bytes = os.fstat(fd).st_size
        # A program can move the offset without writing.
        os.lseek(fd, 0, os.SEEK_SET)
        if num_bytes:
            os.ftruncate(fd, 0)
        return num_bytes


def _watch(owner: socket.socket, children: list[_Child], limits: Limits, launcher: Launcher) -> float | None:
    """Wait until the owner says stop (returns its grace) or is gone (None); end what exceeds its time.

    Once the owner said finish, wait for the children's end instead.

    CPU time grows no faster than wall time but for threads outside the interpreter lock, so sleeping
    for the unused rest of it is enough; RLIMIT_CPU, far above, backs this up. At the wall limit the time
    in which the children were ready but had no core is given back, up to the cap; so is that in which this
    process and its children were stopped (a container that was paused).
    """
    started = time.monotonic()
    wall_s = limits.wall_s
    finish = False
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    for one in children:
        poll.register(one.pidfd, select.POLLIN)
    while True:
        live = [one for one in children if one.status is None]
        if finish and not live:
            return 0.0
        left_s = started + wall_s - time.monotonic() if live else math.inf
        if left_s <= 0:
            waited_s = launcher.run_queue_delay([one.pidfd for one in live])
            longer_s = min(limits.wall_s + waited_s, limits.wall_cap_s)
            # Less than this is no reason to wait again.
            if longer_s > wall_s + 0.005:
                wall_s = longer_s
                continue
            for one in live:
                _end(one, "wall")
            continue
        for one in live:
            unused_s = limits.cpu_s - _cpu_time(one.pid)
            if unused_s <= 0:
                _end(one, "cpu")
            left_s = min(left_s, max(unused_s, 0.001))
        asleep = time.monotonic()
        events = poll.poll(None if left_s == math.inf else math.ceil(left_s * 1000))
        overslept_s = time.monotonic() - asleep - left_s
        if overslept_s > _PAUSED_S:
            started += overslept_s
        for fd, _ in events:
            if fd == owner.fileno():
                message = owner.recv(control.MAX_BYTES)
                if not message:
                    return None
                finish, grace_s = control.unpack_end(message)
                if not finish:
                    return grace_s
            for one in children:
                if one.pidfd == fd:
                    poll.unregister(fd)
                    _end(one, "")


def _cpu_time(pid: int) -> float:
    """CPU seconds of a process that is not reaped yet, all threads (the kernel's per-process clock);
    0.0 for one that has just ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _end(one: _Child, reason: str, grace_s: float = 0.0) -> None:
    """Make sure that the child is dead and reaped; the first reason stays.

    ``grace_s`` is for a child that seems to be ending by itself: its own exit code tells more.
    """
    if one.status is not None:
        return
    must_kill = bool(reason) and not (grace_s > 0.0 and select.select([one.pidfd], [], [], grace_s)[0])
    if must_kill:
        signal.pidfd_send_signal(one.pidfd, signal.SIGKILL)
    _, one.status, usage = os.wait4(one.pid, 0)
    # A child that ended before the signal came keeps an empty reason: its death was its own.
    if must_kill and os.WIFSIGNALED(one.status) and os.WTERMSIG(one.status) == signal.SIGKILL:
        one.reason = reason
    one.cpu_s = usage.ru_utime + usage.ru_stime


def remove_traces(prepared: child.Jail) -> None:
    """End processes and remove files that a run may have left where a wall is missing."""
    if prepared.init:
        # From PID 1 of a namespace this reaches all in it, and nobody else.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    if prepared.workdir is not None and os.listdir(prepared.workdir):
        for entry in os.scandir(prepared.workdir):
            with contextlib.suppress(OSError):
                _remove(entry)


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        for inner in os.scandir(entry.path):
            _remove(inner)
        os.rmdir(entry.path)
    else:
        os.unlink(entry.path)
