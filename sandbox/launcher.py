"""The process between the owner and the zygote: enters the namespaces, then watches over the zygote.

It stays outside of the jail, does nothing for the zygote but to read one number of /proc (how long
children waited for a core), and sees that the zygote ends with its owner and that its folder is
removed. Runs none of the model's code. The main function of a sandbox process, started by
``worker.py``.

Process tree: launcher -> zygote (PID 1 of its namespace) -> one child a role and run.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
from typing import Final, NoReturn

_QUESTION: Final = struct.Struct("<Q")  # its number
_ANSWER: Final = struct.Struct("<Qd")  # the question's number, seconds
_ANSWER_TIMEOUT_S: Final = 2.0
_MAX_FDS: Final = 2


class Launcher:
    """The zygote's end of its line to the launcher."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._line.settimeout(_ANSWER_TIMEOUT_S)
        self._num_questions = 0

    def is_gone(self) -> bool:
        """Whether it has ended; a zygote that began to die with it only afterwards would live on."""
        poll = select.poll()
        poll.register(self._line, 0)  # the end of the line is always told
        return bool(poll.poll(0))

    def run_queue_delay(self, pidfds: list[int]) -> float:
        """Seconds that these processes, taken together, were ready to run but had no core; 0.0 where
        the host does not tell."""
        self._num_questions += 1
        try:
            socket.send_fds(self._line, [_QUESTION.pack(self._num_questions)], pidfds)
            while True:
                number, delay_s = _ANSWER.unpack(self._line.recv(_ANSWER.size))
                # An earlier question's answer, that came too late for it, says nothing of these processes.
                if number == self._num_questions:
                    return float(delay_s)
        except (OSError, struct.error):
            return 0.0


def watch_over(zygote: int, owner: int, line: socket.socket, workdir: str) -> NoReturn:
    """Answer the zygote until it ends; end it when the owner is gone; remove ``workdir``.

    ``owner`` is the process id that this process had for its parent at start.
    """
    pidfd = os.pidfd_open(zygote)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(line, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll(1000)}
        if pidfd in ready:
            break
        if os.getppid() != owner:
            os.kill(zygote, signal.SIGKILL)
        if line.fileno() in ready and not _answer(line):
            poll.unregister(line)
    # Reaped, so that the CPU time of all that ran below counts as this process's children's.
    os.waitpid(zygote, 0)
    # What a run left behind, if it could write at all, the zygote or the owner removes.
    with contextlib.suppress(OSError):
        os.rmdir(workdir)
    os._exit(0)


def _answer(line: socket.socket) -> bool:
    """Read and answer one question; False at the end of the line."""
    message, pidfds, _, _ = socket.recv_fds(line, _QUESTION.size, _MAX_FDS)
    if not message:
        return False
    try:
        delay_s = sum(_run_queue_delay(pidfd) for pidfd in pidfds)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)
    with contextlib.suppress(OSError):
        line.send(_ANSWER.pack(*_QUESTION.unpack(message), delay_s))
    return True


def _run_queue_delay(pidfd: int) -> float:
    """The longest delay of one of the process's threads, in seconds (``schedstat``, second field).

    The longest and not the sum: many threads that wait side by side delay the program but once.
    """
    delays_ns = [0]
    with contextlib.suppress(OSError, ValueError):
        info = _read(f"/proc/self/fdinfo/{pidfd}")
        pid = next(int(line.split()[1]) for line in info.splitlines() if line.startswith("Pid:"))
        for thread in os.listdir(f"/proc/{pid}/task"):
            # A thread may end between the listing and the reading.
            with contextlib.suppress(OSError):
                delays_ns.append(int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[1]))
    return max(delays_ns) / 1e9


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
