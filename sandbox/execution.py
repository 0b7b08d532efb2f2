"""The trusted side of one run: ask the children, compare, decide.

Holds the expected values and the test source, runs none of the model's code and believes nothing of
it but plain values. Whether the program or the machinery failed is settled here: the latter raises
SandboxError and is never a verdict. Does not retry and owns no process.
"""

from __future__ import annotations

import signal
import socket
import time
from dataclasses import replace
from typing import Final, cast

from sandbox.answer import Answer, ForgedError, parse_answer
from sandbox.cargo import pack
from sandbox.codec import CodecError, decode, encode
from sandbox.control import EXIT_FAILED, ChildReport
from sandbox.proxy import EXIT_CANDIDATE_FORGED, EXIT_CANDIDATE_GONE
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome
from sandbox.run import DYING_S, FROM_OUTSIDE, Failure, Run, printable
from sandbox.stdio import run_stdio
from sandbox.wire import FrameError, FrameReader, frame, send_all, send_frame
from sandbox.worker import SandboxError, Worker

MAX_SOLUTION_CHARS: Final = 1_000_000
_MAX_BYTES_AHEAD: Final = 1 << 15
_BUSY_S: Final = 1.0  # that a busy host may take to load a program
_VERDICTS: Final = {
    "pass": Outcome.PASS,
    "wrong": Outcome.WRONG,
    "exception": Outcome.EXCEPTION,
    "oom": Outcome.OOM,
    "broken": Outcome.WRONG,
}


def execute(worker: Worker, request: ExecutionRequest) -> ExecutionResult:
    """Run ``request`` on an idle worker and return the verdict.

    Raises SandboxError when the worker failed (it must be replaced then), ValueError when the
    request itself cannot be run.
    """
    given = [bool(request.call_tests), request.check_source is not None, bool(request.stdio_tests)]
    if sum(given) != 1:
        raise ValueError(
            "ExecutionRequest: give exactly one of call_tests, check_source and stdio_tests, "
            f"not {sum(given)} of them"
        )
    if len(request.solution) > MAX_SOLUTION_CHARS:
        with Run(worker, request) as run:
            return run.result((Outcome.VIOLATION, f"more than {MAX_SOLUTION_CHARS} characters"), [], 0)
    if request.call_tests:
        calls = [_encode_call(index, test) for index, test in enumerate(request.call_tests)]
        with CallRun(worker, request) as call_run:
            return call_run.decide(calls)
    if request.stdio_tests:
        return run_stdio(worker, request)
    program = _encode_program(request)
    with CheckRun(worker, request) as check_run:
        return check_run.decide(program)


def _encode_call(index: int, test: CallTest) -> bytes:
    if test.expected_args is not None and len(test.expected_args) != len(test.args):
        raise ValueError(
            f"call_tests[{index}].expected_args: {len(test.expected_args)} values, "
            f"must be as many as args has: {len(test.args)}"
        )
    try:
        call = pack((test.args, {}, test.expected_args is not None))
    except CodecError as error:
        raise ValueError(f"call_tests[{index}].args: {error}") from error
    # The right answer must be able to come back, and to be equal then: a nan is not.
    right = test.expected if test.expected_args is None else (test.expected, test.expected_args, {})
    try:
        can_pass = bool(decode(encode(("ok", right))) == ("ok", right))
    except CodecError as error:
        raise ValueError(f"call_tests[{index}].expected: {error}") from error
    if not can_pass:
        raise ValueError(f"call_tests[{index}].expected: no value is equal to it")
    return call


def _encode_program(request: ExecutionRequest) -> bytes:
    """The judge's frame."""
    try:
        return pack((request.prelude, request.check_source, request.entry_point, request.copy_back))
    except CodecError as error:
        raise ValueError(f"check_source and prelude of {request.entry_point!r}: {error}") from error


class CallRun(Run):
    """Call-test mode: one frame of arguments out, one of a value back, compared here."""

    def decide(self, calls: list[bytes]) -> ExecutionResult:
        """Make all calls; the first failure names the outcome, the rest still count."""
        self.start("call")
        frames = [frame(call) for call in calls]
        # All at once saves a switch of processes a call, but must not fill both directions' buffers.
        ahead = sum(map(len, frames)) <= _MAX_BYTES_AHEAD
        num_passed = 0
        failure: Failure | None = None
        first: Failure | None = None
        values: list[tuple[object] | None] = []
        was_done = False
        try:
            failure = self.load(b"".join(frames) if ahead else b"")
            for index, test in enumerate(self.request.call_tests if failure is None else ()):
                self.place = f"test {index}: "
                if not ahead:
                    send_all(self.candidate, frames[index], deadline=self.deadline)
                answer = parse_answer(self.receive(), with_args=test.expected_args is not None)
                if self.request.keep_values:
                    values.append((answer.value,) if answer.kind == "ok" else None)
                wrong = self._compare(test, answer)
                first = first or wrong
                num_passed += wrong is None
        except EOFError:
            failure = Outcome.CRASH, f"{self.place}closed its channel"
            reports = self.worker.stop_run(DYING_S)
        except (ForgedError, CodecError, FrameError, TimeoutError) as error:
            failure = self.forged(error)
            reports = self.worker.stop_run(0.0)
        else:
            was_done = True
            reports = self.worker.stop_run(0.0)
        # Of a limit that was passed when all had answered no test is at fault.
        self.place = "" if was_done and failure is None else self.place
        failure = self.death(reports[0], was_done=was_done) or self.surplus() or failure
        if first is not None:
            # An end is told behind the first test that failed before it.
            failure = first if failure is None else (failure[0], f"{first[1]}; {failure[1]}")
        return replace(self.result(failure, reports, num_passed), values=tuple(values))

    def _compare(self, test: CallTest, answer: Answer) -> Failure | None:
        """None for what was expected. Both sides are plain data, so ``==`` runs no foreign code."""
        if answer.kind == "ready":
            raise ForgedError("ready once more")
        if answer.kind == "foreign":
            return Outcome.WRONG, self.place + printable(answer.text)
        if answer.kind == "error":
            outcome = Outcome.OOM if "MemoryError" in answer.names else Outcome.EXCEPTION
            return outcome, self.place + printable(answer.text)
        if not bool(answer.value == test.expected):
            return Outcome.WRONG, f"{self.place}wrong value"
        if test.expected_args is not None and not bool(answer.args == test.expected_args):
            return Outcome.WRONG, f"{self.place}wrong arguments after the call"
        return None


class CheckRun(Run):
    """Judge mode: load the candidate, hand its channel to the judge, wait for the verdict."""

    def __init__(self, worker: Worker, request: ExecutionRequest) -> None:
        super().__init__(worker, request)
        self._judge, self._judge_remote = socket.socketpair()
        self._verdicts = FrameReader(self._judge)
        self._num_passed = 0
        self._has_called = False
        self._is_late = False
        self._broken: str | None = None

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._judge.close()
        self._judge_remote.close()

    def decide(self, program: bytes) -> ExecutionResult:
        """Run the test program. Raises ValueError for one that fails by itself."""
        self.start("judge", self._judge_remote.fileno(), self.candidate.fileno())
        self._judge_remote.close()
        failure: Failure | None = None
        loaded, was_done, grace_s = False, False, 0.0
        began = time.monotonic()
        try:
            failure = self.load()
            loaded = True
            # The wall limit is of both: who takes most of it has passed it. A busy host takes less than this.
            self._is_late = time.monotonic() - began > max(_BUSY_S, self.limits.wall_s / 2)
            if failure is None:
                self.place = ""
                send_frame(self._judge, program, deadline=self.deadline)
                failure = self._verdict()
            was_done = True
        except EOFError:
            failure, grace_s = None, DYING_S
            if not loaded:
                failure = Outcome.CRASH, f"{self.place}closed its channel"
        except (ForgedError, CodecError, FrameError, TimeoutError) as error:
            failure = self.forged(error)
        reports = self.worker.stop_run(grace_s)
        if self._broken is not None:
            raise ValueError(f"check program of {self.request.entry_point!r} cannot run: {self._broken}")
        # The test program runs into the candidate's end and can only follow it: first cause first.
        # Without a verdict the judge left an honest answer unread, perhaps: that is no surplus.
        # One that waits for its first call lets nobody wait.
        was_done = was_done or (loaded and not self._has_called and not self._is_late)
        failure = self.death(reports[0], was_done=was_done) or (failure and self.surplus()) or failure
        failure = failure or self._judge_death(*reports)
        passed = failure[0] is Outcome.PASS
        return self.result(failure, reports, self._num_passed if passed or self.num_tests > 1 else 0)

    def _verdict(self) -> Failure:
        """Wait for the judge's verdict; keep its counts on the way, for a judge that dies later."""
        while True:
            received = decode(self._verdicts.receive(deadline=self.deadline))
            kind, *values = cast("tuple[object, ...]", received)
            if kind == "called":
                self._has_called = True
                continue
            self._num_passed, self.num_tests = cast("list[int]", values[-2:])
            if kind == "verdict":
                break
            assert kind == "progress"
        verdict, detail = str(values[0]), printable(values[1])
        self._broken = detail if verdict == "broken" else None
        return _VERDICTS[verdict], detail

    def _judge_death(self, candidate: ChildReport, report: ChildReport) -> Failure:
        timeout = self.timeout(report)
        if not self._has_called and (timeout := timeout or self.timeout(candidate)) is not None:
            # No candidate had a part in this.
            raise ValueError(
                f"check program of {self.request.entry_point!r} cannot run: it took {timeout[1]} "
                "before it made a call"
            )
        if timeout is not None:
            return timeout[0], f"the check program took {timeout[1]}"
        if report.exit_code == EXIT_CANDIDATE_FORGED:
            return Outcome.VIOLATION, "not a result"
        if report.exit_code == EXIT_CANDIDATE_GONE:
            return Outcome.CRASH, "closed its channel"
        return self._own_end(report.exit_code)

    def _own_end(self, exit_code: int) -> Failure:
        """What it means that the judge ended by itself, as by the watchdog of a test program."""
        if exit_code == EXIT_FAILED or -exit_code in FROM_OUTSIDE:
            raise SandboxError(f"the judge ended with code {exit_code}")
        how = signal.strsignal(-exit_code) if exit_code < 0 else f"exit code {exit_code}"
        if not self._has_called:
            raise ValueError(
                f"check program of {self.request.entry_point!r} cannot run: it ended itself ({how}) "
                "before it made a call"
            )
        return Outcome.WRONG, f"the check program ended itself: {how}"
