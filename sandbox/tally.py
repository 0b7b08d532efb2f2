"""The count of a test program's tests: which passed, and why the first that failed did.

A test passes when it ends without an exception, nothing is on record against the candidate, and it
called the candidate (or could use calls made when the program was loaded or a fixture set up). Tests
that skip before any call, and expected failures, say nothing about a candidate and do not count.
Runs in the judge's child.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from sandbox.codec import encode
from sandbox.proxy import CandidateProxy, Fault
from sandbox.wire import send_frame


class Tally:
    """Counts tests and reports each to the owner, so that a candidate's death loses none."""

    def __init__(self, control: socket.socket, proxy: CandidateProxy) -> None:
        self._control = control
        self._proxy = proxy
        self._calls_before = 0
        self._calls_inside = 0
        self._num_run = 0
        self._failure: Fault | None = None
        self.num_tests = 1
        self.num_passed = 0

    @property
    def num_calls(self) -> int:
        """Calls of the candidate so far."""
        return self._proxy.num_calls

    @property
    def has_called(self) -> bool:
        """Whether the test at hand, or what all tests share, has called the candidate."""
        num_shared = self._calls_before - self._calls_inside
        return num_shared > 0 or self.num_calls > self._calls_before

    def start(self, num_tests: int) -> None:
        """Announce how many tests there are, where it is not one."""
        self.num_tests = num_tests
        self._report()

    def run(self, name: str, test: Callable[[], object]) -> None:
        """Run one test; ``name`` is for the detail, empty for the only one."""
        self.begin()
        try:
            test()
        except BaseException as error:
            self.finish(name, error)
        else:
            self.finish(name, None)

    def begin(self) -> None:
        """Calls from here on belong to the next test."""
        self._calls_before = self.num_calls

    def finish(self, name: str, error: BaseException | None) -> None:
        """Count the test at hand, which ended with ``error``."""
        self._num_run += 1
        if error is None and self._proxy.fault is None and self.has_called:
            self.num_passed += 1
        else:
            self.fail(name, error)
        self._calls_inside += self.num_calls - self._calls_before
        self.begin()
        self._report()

    def leave_out(self) -> None:
        """Do not count the test at hand."""
        self.num_tests -= 1
        self._calls_inside += self.num_calls - self._calls_before
        self.begin()

    def fail(self, name: str, error: BaseException | None) -> None:
        """Note why the candidate does not pass; the first reason stays. None: no call was made."""
        fault = self._proxy.fault or self._explain(error)
        self._proxy.fault = None
        if self._failure is None:
            verdict, detail = fault
            place = name or ("" if error is None or verdict == "broken" else f"call {self.num_calls - 1}")
            self._failure = verdict, f"{place}: {detail}" if place else detail

    def verdict(self) -> Fault:
        """The verdict on all tests and its reason."""
        if self._proxy.fault is not None:
            self.fail("", None)
        if self._failure is not None:
            return self._failure
        if self._num_run == 0:
            return "wrong" if self.num_calls else "broken", "no test ran to its end"
        if self.num_passed < self.num_tests:
            return "wrong", "not all tests ran"
        return "pass", ""

    def _explain(self, error: BaseException | None) -> Fault:
        if error is None:
            return "wrong", "the check program made no call"
        if self.num_calls == 0:
            # No candidate had a part in this.
            return "broken", f"{type(error).__name__}: {error}"[:200]
        return self._proxy.explain(error)

    def _report(self) -> None:
        if self.num_tests > 1:
            send_frame(self._control, encode(("progress", self.num_passed, self.num_tests)))
