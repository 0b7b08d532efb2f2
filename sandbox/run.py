"""One run on a worker: its sockets, its deadline, and what a child's end means.

The common part of the modes (calls, check programs, stdio). Holds no expected value and compares
nothing.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from dataclasses import replace
from typing import Final, Self

from sandbox.answer import ForgedError, parse_answer
from sandbox.cargo import pack
from sandbox.codec import decode
from sandbox.control import ChildReport
from sandbox.result import NOT_COMPILED, ExecutionRequest, ExecutionResult, Limits, Outcome
from sandbox.wire import FrameReader, frame, send_all
from sandbox.worker import SandboxError, Worker

# The zygote ends children at the wall limits; beyond this the zygote itself is stuck.
_GRACE_S: Final = 5.0
# A child whose channel closed is given this long to finish dying, for its exit code's sake.
DYING_S: Final = 0.2
# What ends a process from outside, and no fault of its own raises.
FROM_OUTSIDE: Final = frozenset(
    {
        signal.SIGKILL,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)

Failure = tuple[Outcome, str]


class Run:
    """One run and its sockets; a context manager that closes them.

    ``candidate`` is the owner's end of the candidate's channel, which ``reader`` reads, ``candidate_remote``
    the child's.
    ``place`` says where the run is ("load: ", "test 3: "), for the detail. ``deadline`` is on
    ``time.monotonic``.
    """

    def __init__(self, worker: Worker, request: ExecutionRequest) -> None:
        self.worker = worker
        self.request = request
        self.limits: Limits = request.limits
        self.num_tests = request.num_tests
        self.place = "load: "
        self.started = time.monotonic()
        self.deadline = self.started + self.limits.wall_cap_s + _GRACE_S
        self.candidate, self.candidate_remote = socket.socketpair()
        self.reader = FrameReader(self.candidate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.candidate.close()
        self.candidate_remote.close()

    def start(self, role: str, *fds: int) -> None:
        """Fork the children of ``role`` (see ``zygote.py``): the candidate, on its end of the channel,
        and whoever gets the other descriptors."""
        self.worker.start_run(self.limits, role, [self.candidate_remote.fileno(), *fds])
        # Our copy must go, or the end of the child would not show as EOF.
        self.candidate_remote.close()

    def receive(self) -> object:
        """Return the candidate's next value. Raises CodecError, FrameError, EOFError, TimeoutError."""
        return decode(self.reader.receive(deadline=self.deadline))

    def load(self, calls: bytes = b"") -> Failure | None:
        """Send the program, with the frames of the first calls; None when it is ready for calls.

        Raises ValueError for a prelude that cannot run (the task's fault), SandboxError for a child
        that ended before anything ran, ForgedError and what ``receive`` raises.
        """
        request = self.request
        program = pack((request.solution, request.prelude, request.entry_point))
        # One that ran and ended meanwhile has said that it was ready.
        with contextlib.suppress(EOFError):
            send_all(self.candidate, frame(program) + calls, deadline=self.deadline)
        try:
            prelude = parse_answer(self.receive())
        except EOFError as error:
            raise SandboxError("a child ended before it could load the program") from error
        if prelude.kind != "ready":
            raise ValueError(f"prelude of {request.entry_point!r} cannot run: {prelude.text}")
        answer = parse_answer(self.receive())
        if answer.kind == "ready":
            return None
        if answer.kind != "error":
            raise ForgedError("no ready frame")
        # With a line of its own it was raised, not compiled.
        if answer.text == NOT_COMPILED:
            return Outcome.EXCEPTION, answer.text
        outcome = Outcome.OOM if "MemoryError" in answer.names else Outcome.EXCEPTION
        return outcome, f"load: {printable(answer.text)}"

    def surplus(self) -> Failure | None:
        """Whether the candidate, dead by now, had sent more than was asked for."""
        self.candidate.setblocking(False)
        try:
            more = self.reader.has_more or bool(self.candidate.recv(1))
        except OSError:
            more = False
        return (Outcome.VIOLATION, "more results than calls") if more else None

    def forged(self, error: Exception) -> Failure:
        """The verdict on a child that sent ``error``. Raises SandboxError for a passed deadline."""
        if isinstance(error, TimeoutError):
            raise SandboxError("the sandbox process let a child pass its wall limit") from error
        return Outcome.VIOLATION, f"{self.place}not a result: {error}"[:100]

    def death(self, report: ChildReport, *, was_done: bool = False) -> Failure | None:
        """What a candidate's end before its time means; None when the owner ended it.

        Of a candidate that ``was_done``, all asked and answered, the wall limit only says that its owner was
        late. Raises SandboxError for a child that the host killed.
        """
        if was_done and report.reason == "wall":
            report = replace(report, reason="stop")
        excess = self.excess(report)
        if excess is not None or report.reason == "stop":
            return excess
        return self.own_death(report.exit_code)

    def excess(self, report: ChildReport) -> Failure | None:
        """Which limit on output or time the child ran into, if any."""
        if max(report.num_stdout_bytes, report.num_stderr_bytes) >= self.limits.output_bytes:
            return Outcome.VIOLATION, f"more than {self.limits.output_bytes} bytes of output"
        timeout = self.timeout(report)
        return None if timeout is None else (timeout[0], f"{self.place}{timeout[1]}")

    def timeout(self, report: ChildReport) -> Failure | None:
        """Which time limit ended the child, if one did."""
        # SIGXCPU is the kernel's, whose count of a process on a busy core may be above the exact one.
        by_kernel = report.exit_code == -signal.SIGXCPU
        if report.reason == "cpu" or report.cpu_s > self.limits.cpu_s or by_kernel:
            return Outcome.TIMEOUT_CPU, f"more than {self.limits.cpu_s} s of CPU"
        if report.reason == "wall":
            return Outcome.TIMEOUT_WALL, f"more than {self.limits.wall_s} s"
        return None

    def own_death(self, exit_code: int) -> Failure:
        """What it means that the child ended by itself. Raises SandboxError if the host killed it."""
        if exit_code >= 0:
            return Outcome.CRASH, f"{self.place}exited with code {exit_code}"
        if -exit_code == signal.SIGSYS:
            return Outcome.VIOLATION, f"{self.place}forbidden system call"
        if -exit_code in FROM_OUTSIDE and self.worker.level != "L0":
            # A system-call filter kept it from sending this itself: the host killed it, most likely short of
            # memory, or whoever ends this process with all that belongs to it.
            raise SandboxError(f"a child was killed from outside ({signal.strsignal(-exit_code)})")
        return Outcome.CRASH, f"{self.place}{signal.strsignal(-exit_code)}"

    def result(self, failure: Failure | None, reports: list[ChildReport], num_passed: int) -> ExecutionResult:
        """The verdict, PASS for no failure, with the candidate's usage (``reports[0]``, where it ran)."""
        outcome, detail = failure or (Outcome.PASS, "")
        if failure is not None and outcome is not Outcome.PASS:
            # Right answers and then a forged frame or a death: no full marks by the count either.
            num_passed = min(num_passed, max(self.num_tests - 1, 0))
        return ExecutionResult(
            outcome=outcome,
            num_passed=num_passed,
            num_tests=self.num_tests,
            detail=detail,
            clean=bool(reports) and reports[0].num_stderr_bytes == 0,
            cpu_s=reports[0].cpu_s if reports else 0.0,
            wall_s=time.monotonic() - self.started,
            level=self.worker.level,
        )


def printable(text: object) -> str:
    """The candidate chose this text: keep it short and harmless in logs."""
    # Not str(text): that of a large integer raises ValueError, which would read as the task's fault.
    shown = text if isinstance(text, str) else type(text).__name__
    return "".join(char if char.isprintable() else "?" for char in shown[:80])
