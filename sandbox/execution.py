"""The trusted side of one run: ask the children, compare, decide.

Holds the expected values and the test source, runs none of the model's code and believes nothing of
it but plain values. Whether the program or the machinery failed is settled here: the latter raises
SandboxError and is never a verdict. Does not retry and owns no process. Called by ``pool.py``.
"""

from __future__ import annotations

import signal
import socket
import time
from typing import Final

from sandbox import judge
from sandbox.codec import CodecError, decode, encode
from sandbox.result import ExecutionRequest, ExecutionResult, Limits, Outcome
from sandbox.wire import FrameError, receive_frame, send_frame
from sandbox.worker import ChildReport, SandboxError, Worker

MAX_SOLUTION_CHARS: Final = 1_000_000
# The zygote ends children at the wall limit; beyond this the zygote itself is stuck.
_GRACE_S: Final = 5.0
# A child whose channel closed is given this long to finish dying, for its exit code's sake.
_DYING_S: Final = 0.2


class _Forged(Exception):
    """The candidate sent what no honest child sends."""


def execute(worker: Worker, request: ExecutionRequest) -> ExecutionResult:
    """Run ``request`` on an idle worker and return the verdict.

    Raises SandboxError when the worker failed (it must be replaced then), ValueError when the
    request itself cannot be run.
    """
    calls = _encode_calls(request)
    if len(request.solution) > MAX_SOLUTION_CHARS:
        run = _Run(request, worker)
        return run.result(Outcome.VIOLATION, f"more than {MAX_SOLUTION_CHARS} characters", [], 0)
    with _Run(request, worker) as run:
        return run.check() if request.check_source is not None else run.calls(calls)


def _encode_calls(request: ExecutionRequest) -> list[bytes]:
    if bool(request.call_tests) == (request.check_source is not None):
        raise ValueError("ExecutionRequest: give either call_tests or check_source, not both and not neither")
    calls = []
    for index, test in enumerate(request.call_tests):
        try:
            calls.append(encode((test.args, {})))
        except CodecError as error:
            raise ValueError(f"call_tests[{index}].args: {error}") from error
    return calls


class _Run:
    """One run and its sockets. ``candidate`` is the owner's end of the candidate's channel."""

    def __init__(self, request: ExecutionRequest, worker: Worker) -> None:
        self.request = request
        self.worker = worker
        self.limits: Limits = request.limits
        self.started = time.monotonic()
        self.deadline = self.started + self.limits.wall_s + _GRACE_S
        # Where the run is, for the detail.
        self.place = "load: "
        self.num_tests = 1 if request.check_source is not None else len(request.call_tests)
        self.candidate, self._candidate_remote = socket.socketpair()
        self.judge, self._judge_remote = socket.socketpair()

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in (self.candidate, self._candidate_remote, self.judge, self._judge_remote):
            channel.close()

    def calls(self, calls: list[bytes]) -> ExecutionResult:
        """Call-test mode: one frame of arguments out, one of a value back, compared here."""
        self._start([self._candidate_remote])
        num_passed = 0
        failure: tuple[Outcome, str] | None = None
        try:
            failure = self._load()
            for index, call in enumerate(calls if failure is None else []):
                self.place = f"test {index}: "
                send_frame(self.candidate, call, deadline=self.deadline)
                wrong = self._compare(index, self._answer(self._receive(self.candidate)))
                failure = failure or wrong
                num_passed += wrong is None
        except EOFError:
            failure = Outcome.CRASH, f"{self.place}closed its channel"
            reports = self.worker.stop_run(_DYING_S)
        except (_Forged, CodecError, FrameError, TimeoutError) as error:
            failure = self._forged(error)
            reports = self.worker.stop_run(0.0)
        else:
            reports = self.worker.stop_run(0.0)
        failure = self._death(reports[0]) or self._surplus() or failure or (Outcome.PASS, "")
        return self.result(*failure, reports, num_passed)

    def check(self) -> ExecutionResult:
        """Judge mode: load the candidate, hand its channel to the judge, wait for the verdict."""
        self._start([self._candidate_remote, self._judge_remote, self.candidate])
        failure: tuple[Outcome, str] | None = None
        loaded, grace_s = False, 0.0
        try:
            failure = self._load()
            loaded = True
            if failure is None:
                self.place = ""
                assert self.request.check_source is not None
                source = (self.request.prelude, self.request.check_source, self.request.entry_point)
                send_frame(self.judge, encode(source), deadline=self.deadline)
                failure = self._decide(*_judge_verdict(self._receive(self.judge)))
        except EOFError:
            failure, grace_s = None, _DYING_S
            if not loaded:
                failure = Outcome.CRASH, f"{self.place}closed its channel"
        except (_Forged, CodecError, FrameError, TimeoutError) as error:
            failure = self._forged(error)
        reports = self.worker.stop_run(grace_s)
        # The test program runs into the candidate's end and can only follow it: first cause first.
        # Without a verdict the judge left an honest answer unread, perhaps: that is no surplus.
        failure = self._death(reports[0]) or (failure and self._surplus()) or failure
        failure = failure or self._judge_death(reports[1])
        return self.result(*failure, reports, int(failure[0] is Outcome.PASS))

    def _decide(self, verdict: str, detail: str, num_calls: int) -> tuple[Outcome, str]:
        if verdict == "broken":
            raise ValueError(f"check program of {self.request.entry_point!r} cannot run: {detail}")
        if verdict == "pass":
            if num_calls == 0:
                return Outcome.WRONG, "the check program made no call"
            return Outcome.PASS, ""
        if verdict == "exception":
            outcome = Outcome.OOM if detail == "MemoryError" else Outcome.EXCEPTION
            return outcome, f"call {num_calls - 1}: {detail}"
        return Outcome.WRONG, f"call {num_calls - 1}: {detail}"

    def _start(self, channels: list[socket.socket]) -> None:
        self.worker.start_run(self.limits, channels)
        # Our copies must go, or the end of a child would not show as EOF.
        self._candidate_remote.close()
        self._judge_remote.close()

    def _load(self) -> tuple[Outcome, str] | None:
        """Send the program; None when it is ready for calls. A broken prelude is the task's fault."""
        request = self.request
        program = encode((request.solution, request.prelude, request.entry_point))
        send_frame(self.candidate, program, deadline=self.deadline)
        prelude = self._receive(self.candidate)
        if prelude != ("ready",):
            raise ValueError(f"prelude of {request.entry_point!r} cannot run: {prelude!r}")
        answer = self._receive(self.candidate)
        if answer == ("ready",):
            return None
        kind, payload = _pair(answer)
        if kind != "error":
            raise _Forged("no ready frame")
        name = _printable(payload)
        if name == "SyntaxError":
            return Outcome.EXCEPTION, name
        return Outcome.OOM if name == "MemoryError" else Outcome.EXCEPTION, f"load: {name}"

    def _compare(self, index: int, answer: tuple[str, object]) -> tuple[Outcome, str] | None:
        """None for the expected value. Both sides are plain data, so ``==`` runs no foreign code."""
        kind, payload = answer
        if kind == "ok":
            expected = self.request.call_tests[index].expected
            return None if bool(payload == expected) else (Outcome.WRONG, f"test {index}: wrong value")
        name = _printable(payload)
        if kind == "foreign":
            return Outcome.WRONG, f"test {index}: {name}"
        return Outcome.OOM if name == "MemoryError" else Outcome.EXCEPTION, f"test {index}: {name}"

    def _answer(self, value: object) -> tuple[str, object]:
        kind, payload = _pair(value)
        if kind not in ("ok", "error", "foreign"):
            raise _Forged("unknown kind")
        return kind, payload

    def _receive(self, channel: socket.socket) -> object:
        return decode(receive_frame(channel, deadline=self.deadline))

    def _surplus(self) -> tuple[Outcome, str] | None:
        """Whether the candidate, dead by now, had sent more than was asked for."""
        self.candidate.setblocking(False)
        try:
            more = bool(self.candidate.recv(1))
        except OSError:
            more = False
        return (Outcome.VIOLATION, "more results than calls") if more else None

    def _forged(self, error: Exception) -> tuple[Outcome, str]:
        if isinstance(error, TimeoutError):
            raise SandboxError("the sandbox process let a child pass its wall limit") from error
        return Outcome.VIOLATION, f"{self.place}not a result: {error}"[:100]

    def _death(self, report: ChildReport) -> tuple[Outcome, str] | None:
        """What a candidate's end before its time means; None when the owner ended it."""
        if max(report.num_stdout_bytes, report.num_stderr_bytes) >= self.limits.output_bytes:
            return Outcome.VIOLATION, f"more than {self.limits.output_bytes} bytes of output"
        if report.reason == "cpu" or report.cpu_s > self.limits.cpu_s:
            return Outcome.TIMEOUT_CPU, f"{self.place}more than {self.limits.cpu_s} s of CPU"
        if report.reason == "wall":
            return Outcome.TIMEOUT_WALL, f"{self.place}more than {self.limits.wall_s} s"
        return None if report.reason == "stop" else self._own_death(report.exit_code)

    def _own_death(self, exit_code: int) -> tuple[Outcome, str]:
        if exit_code >= 0:
            return Outcome.CRASH, f"{self.place}exited with code {exit_code}"
        if -exit_code == signal.SIGSYS:
            return Outcome.VIOLATION, f"{self.place}forbidden system call"
        if -exit_code == signal.SIGKILL and "L2" in self.worker.level:
            # It could not have sent this itself: the host killed it, most likely short of memory.
            raise SandboxError("a child was killed from outside")
        return Outcome.CRASH, f"{self.place}{signal.strsignal(-exit_code)}"

    def _judge_death(self, report: ChildReport) -> tuple[Outcome, str]:
        if report.reason == "cpu" or report.cpu_s > self.limits.cpu_s:
            return Outcome.TIMEOUT_CPU, f"the check program took more than {self.limits.cpu_s} s of CPU"
        if report.reason == "wall":
            return Outcome.TIMEOUT_WALL, f"more than {self.limits.wall_s} s"
        if report.exit_code == judge.EXIT_CANDIDATE_FORGED:
            return Outcome.VIOLATION, "not a result"
        if report.exit_code == judge.EXIT_CANDIDATE_GONE:
            return Outcome.CRASH, "closed its channel"
        raise SandboxError(f"the judge ended with code {report.exit_code}")

    def result(
        self, outcome: Outcome, detail: str, reports: list[ChildReport], num_passed: int
    ) -> ExecutionResult:
        """The verdict with the candidate's usage (``reports[0]``, where it ran)."""
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


def _pair(value: object) -> tuple[str, object]:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return value[0], value[1]
    raise _Forged("not a pair")


def _judge_verdict(value: object) -> tuple[str, str, int]:
    assert isinstance(value, tuple) and len(value) == 3
    verdict, detail, num_calls = value
    return str(verdict), _printable(detail), int(num_calls)


def _printable(text: object) -> str:
    """The candidate chose this text: keep it short and harmless in logs."""
    return "".join(char if char.isprintable() else "?" for char in str(text)[:80])
