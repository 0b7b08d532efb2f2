"""The owner's handle on one zygote: start it, have it fork the children of a run, end the run.

Moves no program and no verdict; uses no signal handlers, so it works in any thread of any process,
Ray workers included. One run at a time: the pool sees to that.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from typing import Final

from sandbox import control
from sandbox.canary import Walls
from sandbox.control import ChildReport
from sandbox.result import Limits

_START_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 5.0
_KNOWN_WALLS: Final = frozenset({"namespaces", "landlock", "seccomp", "user"})


class SandboxError(RuntimeError):
    """The sandbox itself failed: nothing is known about the program."""


class Worker:
    """One zygote process. ``walls`` and ``level`` are known after ``wait_ready``."""

    def __init__(self, without: frozenset[str] = frozenset(), modules: tuple[str, ...] = ()) -> None:
        """Start the process without waiting; an OSError, where there is none to be had, leaves nothing.

        ``without`` leaves walls out (tests of weaker hosts); ``modules`` are installed packages that
        programs may import.
        """
        if not without <= _KNOWN_WALLS:
            raise ValueError(f"without={sorted(without)}: known walls are {sorted(_KNOWN_WALLS)}")
        self.num_runs = 0
        self._walls: Walls | None = None
        with contextlib.ExitStack() as undone:
            self._workdir = tempfile.mkdtemp(prefix="sandbox-")
            undone.callback(shutil.rmtree, self._workdir, ignore_errors=True)
            self._control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undone.callback(self._control.close)
            with remote:
                self._process = subprocess.Popen(
                    _command(remote.fileno(), self._workdir, without, modules),
                    env=_environment(),
                    pass_fds=(remote.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
            undone.pop_all()

    @property
    def pid(self) -> int:
        """The launcher's process id; its death ends the zygote and all children."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait for the jail to be built and tested. Raises SandboxError."""
        try:
            self._walls = Walls.from_bytes(control.unpack_hello(self._receive(_START_TIMEOUT_S)))
        except ValueError as error:
            raise SandboxError(f"the sandbox process could not start: {error}") from error
        if self._walls.files:
            # Of no use to programs that can write nothing, and an owner may be killed later.
            shutil.rmtree(self._workdir, ignore_errors=True)

    @property
    def walls(self) -> Walls:
        """The walls that held when they were tried."""
        assert self._walls is not None, "wait_ready() comes first"
        return self._walls

    @property
    def level(self) -> str:
        """L3 to L0, see ``canary.Walls.level``."""
        return self.walls.level()

    def start_run(self, limits: Limits, role: str, fds: list[int]) -> None:
        """Fork the children of a ``role`` on these descriptors; see ``zygote.py`` for both."""
        self.num_runs += 1
        try:
            socket.send_fds(self._control, [control.pack_run(role, limits)], fds)
        except OSError as error:
            raise SandboxError("the sandbox process is gone") from error

    def stop_run(self, grace_s: float) -> list[ChildReport]:
        """End the children and return how each ended, in the order of their descriptors.

        With ``grace_s`` above zero each has that long to finish dying by itself.
        """
        return self._reports(control.pack_end(finish=False, grace_s=grace_s), _END_TIMEOUT_S)

    def finish_run(self, wall_cap_s: float) -> list[ChildReport]:
        """Wait until the children have ended, by themselves or at a limit; return how."""
        return self._reports(control.pack_end(finish=True), wall_cap_s + _END_TIMEOUT_S)

    def _reports(self, message: bytes, timeout_s: float) -> list[ChildReport]:
        try:
            self._control.send(message)
        except OSError as error:
            raise SandboxError("the sandbox process is gone") from error
        try:
            return control.unpack_reports(self._receive(timeout_s))
        except ValueError as error:
            raise SandboxError(f"the sandbox process failed: {error}") from error

    def is_alive(self) -> bool:
        """Whether the process is there and silent, as it must be between runs."""
        if self._process.poll() is not None:
            return False
        # Not select(): a process with many descriptors has some above its limit of 1024.
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """End the zygote with all below it and reap it."""
        # A thread that waits for a run's end holds the socket open: closing alone would not tell the zygote.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        if self._process.returncode is None:
            self._process.kill()
            # One that the kernel cannot end now is reaped with this process.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_TIMEOUT_S)
        # The zygote does this itself, unless it was killed.
        shutil.rmtree(self._workdir, ignore_errors=True)

    def _receive(self, timeout_s: float) -> bytes:
        try:
            self._control.settimeout(timeout_s)
            message = self._control.recv(control.MAX_BYTES)
        except TimeoutError as error:
            raise SandboxError(f"the sandbox process did not answer within {timeout_s} s") from error
        except OSError as error:
            raise SandboxError("the sandbox process is gone") from error
        if not message:
            raise SandboxError("the sandbox process is gone")
        return message


def unusable_modules(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that no program in a sandbox could import, each with the reason."""
    faults = []
    for name in names:
        spec = importlib.util.find_spec(name.partition(".")[0])
        if spec is None:
            faults.append(f"{name} is not installed")
        elif spec.origin not in ("built-in", "frozen"):
            places = spec.submodule_search_locations or [spec.origin or ""]
            known = (*_package_folders(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
            # An editable one lies where it is written.
            if not any(place.startswith(f"{folder}{os.sep}") for place in places for folder in known):
                where = os.path.dirname(min(places))
                faults.append(f"{name} lies in {where}, where no program looks (installed with -e?)")
    return faults


def _package_folders() -> tuple[str, ...]:
    return tuple(path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))


def _command(control_fd: int, workdir: str, without: frozenset[str], modules: tuple[str, ...]) -> list[str]:
    """What -I does, but for the environment: that is ours, and sets one hash order for all runs.

    -S leaves site-packages out: a program finds the standard library, ``modules``, and nothing else.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = _package_folders() if modules else ()
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from sandbox.main import main; "
        f"main({control_fd}, {workdir!r}, frozenset({sorted(without)!r}), {modules!r}, {paths!r})"
    )
    return [sys.executable, "-s", "-S", "-P", "-B", "-c", code]


def _environment() -> dict[str, str]:
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "2"}
    # A pool of threads would not survive the fork, and would take other programs' cores.
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # An interpreter may need this to find its own shared library.
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment
