"""stdio mode: run the whole program once a test, compare what it printed, out here.

The program's stdin and stdout are files in memory that this side makes and reads; nothing but the
stdin of one test ever enters a child.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from sandbox.answer import ForgedError, is_line, parse_answer, with_line
from sandbox.cargo import pack
from sandbox.codec import CodecError, decode
from sandbox.control import ChildReport
from sandbox.result import NOT_COMPILED, ExecutionRequest, ExecutionResult, Outcome, StdioTest
from sandbox.run import Failure, Run, printable
from sandbox.wire import FrameError, send_frame
from sandbox.worker import SandboxError, Worker

# A program that ran into one of these does so on most inputs: the others would only cost time.
_HOPELESS: Final = frozenset({Outcome.TIMEOUT_CPU, Outcome.TIMEOUT_WALL, Outcome.OOM, Outcome.VIOLATION})


def run_stdio(worker: Worker, request: ExecutionRequest) -> ExecutionResult:
    """Run all tests until one is hopeless; the first failure names the outcome, but for a hopeless one.

    CPU and wall time are summed over the tests. Raises SandboxError.
    """
    attempts: list[_Attempt] = []
    for index, test in enumerate(request.stdio_tests):
        with StdioRun(worker, request) as run:
            attempts.append(run.attempt(index, test))
        failure = attempts[-1].failure
        if failure is not None and (failure[0] in _HOPELESS or failure[1] == NOT_COMPILED):
            break
    failures = [attempt.failure for attempt in attempts if attempt.failure is not None]
    outcome, detail = failures[0] if failures else (Outcome.PASS, "")
    if len(failures) > 1 and failures[-1][0] in _HOPELESS:
        # Its place is told behind that of the first test that failed.
        outcome, detail = failures[-1][0], f"{detail}; {failures[-1][1]}"
    return ExecutionResult(
        outcome=outcome,
        num_passed=len(attempts) - len(failures),
        num_tests=request.num_tests,
        detail=detail,
        clean=all(attempt.report.num_stderr_bytes == 0 for attempt in attempts),
        cpu_s=sum(attempt.report.cpu_s for attempt in attempts),
        wall_s=sum(attempt.wall_s for attempt in attempts),
        level=worker.level,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    failure: Failure | None
    report: ChildReport
    wall_s: float


class StdioRun(Run):
    """One process for one test."""

    def attempt(self, index: int, test: StdioTest) -> _Attempt:
        """Run the program on ``test.stdin`` and compare what it printed."""
        self.place = f"test {index}: "
        with contextlib.ExitStack() as files:
            stdin, stdout = (_memory_file(name, files) for name in ("stdin", "stdout"))
            _write(stdin, test.stdin.encode("utf-8", "surrogatepass"))
            self.start("stdio", stdin, stdout)
            # A program that is gone already shows in its report.
            with contextlib.suppress(EOFError):
                send_frame(self.candidate, pack(self.request.solution), deadline=self.deadline)
            report = self.worker.finish_run(self.limits.wall_cap_s)[0]
            if not self._has_begun():
                raise SandboxError("a child ended before it could read the program")
            failure = self.excess(report) or self._end(report) or self._compare(stdout, test)
        return _Attempt(failure=failure, report=report, wall_s=time.monotonic() - self.started)

    def _has_begun(self) -> bool:
        """Whether the dead child said that it was confined, which it did before it had a program."""
        try:
            return parse_answer(self._left()).kind == "ready"
        except (EOFError, TimeoutError, FrameError, CodecError, ForgedError):
            return False

    def _left(self) -> object:
        """The next value that the dead child left on its channel. Raises as ``receive`` does."""
        return decode(self.reader.receive(deadline=time.monotonic()))

    def _end(self, report: ChildReport) -> Failure | None:
        """None for a program that ended well, whatever way it took."""
        if report.exit_code == 0:
            return None
        if report.exit_code < 0:
            return self.own_death(report.exit_code)
        name, line = self._exception()
        if name == NOT_COMPILED and not line:
            return Outcome.EXCEPTION, name
        outcome = Outcome.OOM if name == "MemoryError" else Outcome.EXCEPTION
        return outcome, self.place + (with_line(name, line) or f"exit code {report.exit_code}")

    def _exception(self) -> tuple[str, int]:
        """Type and line that the program's end left on the channel; its word, good for the detail only."""
        try:
            left = self._left()
        except (EOFError, TimeoutError, FrameError, CodecError):
            return "", 0
        if isinstance(left, tuple) and len(left) == 2 and is_line(left[1]):
            return printable(left[0]), left[1]
        return printable(left), 0

    def _compare(self, stdout: int, test: StdioTest) -> Failure | None:
        os.lseek(stdout, 0, os.SEEK_SET)
        with open(stdout, "rb", closefd=False) as file:
            printed = file.read(self.limits.output_bytes)
        expected = test.expected_stdout.encode("utf-8", "surrogatepass")
        is_same = _same_decimals if test.decimals else _same_lines
        return None if is_same(printed, expected) else (Outcome.WRONG, f"{self.place}wrong output")


def _memory_file(name: str, files: contextlib.ExitStack) -> int:
    fd = os.memfd_create(name)
    files.callback(os.close, fd)
    return fd


def _write(fd: int, data: bytes) -> None:
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)


def _same_lines(printed: bytes, expected: bytes) -> bool:
    return _lines(printed) == _lines(expected)


def _same_decimals(printed: bytes, expected: bytes) -> bool:
    left = [line.strip() for line in printed.strip().split(b"\n")]
    right = [line.strip() for line in expected.strip().split(b"\n")]
    if len(left) != len(right):
        return False
    return all(
        ours == theirs or _same_numbers(ours, theirs) for ours, theirs in zip(left, right, strict=True)
    )


def _same_numbers(left: bytes, right: bytes) -> bool:
    """Whether two lines hold the same numbers. Exact: no rounding decides."""
    try:
        ours, theirs = ([Decimal(word) for word in line.decode("ascii").split()] for line in (left, right))
        # A signalling NaN raises here.
        return ours == theirs
    except (ArithmeticError, ValueError):
        return False


def _lines(text: bytes) -> list[bytes]:
    """The lines without white space at their ends, without empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().split(b"\n")]
