"""unittest's report of a test program's test cases, as a Tally counts them.

Loads no part of unittest itself, which not even half of the test programs use: every page that a
zygote holds is paid for in every run, and after the jail is closed this project's own modules cannot
be loaded any more. Runs in the judge's child.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from sandbox.tally import Tally

if TYPE_CHECKING:
    import unittest

_ErrorInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


def leave_the_run_to_the_judge() -> None:
    """Have ``unittest.main`` end the program, as it does after its run; without ``exit`` it runs as ever.

    Where it ran the cases itself, one that failed would fail all of them with the program's exit.
    """
    import unittest

    run = cast("Callable[..., object]", unittest.main)

    def main(*args: object, exit: bool = True, **kwargs: object) -> object:
        if exit:
            raise SystemExit(0)
        return run(*args, exit=False, **kwargs)

    unittest.main = cast("Any", main)


def load_suite(module: types.ModuleType) -> unittest.TestSuite:
    """All test cases of a module that has imported unittest."""
    loader = cast("unittest.TestLoader", sys.modules["unittest"].defaultTestLoader)
    return loader.loadTestsFromModule(module)


class TallyResult:
    """What unittest reports to, in place of its ``TestResult``: keeps no text, prints nothing."""

    shouldStop = False
    failfast = False
    tb_locals = False

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._error: BaseException | None = None
        self._succeeded = False
        self._skipped = False
        self._failed_as_expected = False

    def startTest(self, test: unittest.TestCase) -> None:
        """Begin one test method."""
        self._error = None
        self._succeeded = self._skipped = self._failed_as_expected = False
        self._tally.begin()

    def stopTest(self, test: unittest.TestCase) -> None:
        """Count it, by what was added since ``startTest``."""
        says_nothing = self._failed_as_expected or (self._skipped and not self._tally.has_called)
        if says_nothing and self._error is None:
            self._tally.leave_out()
        elif self._succeeded or self._skipped or self._error is not None:
            self._tally.finish(_name(test), self._error)
        else:
            self._tally.finish(_name(test), RuntimeError("the test did not end"))

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Not added for a method with a failed subtest."""
        self._succeeded = True

    def addError(self, test: unittest.TestCase, err: _ErrorInfo) -> None:
        """An exception in a test or a fixture; for a class's or module's fixture ``test`` is no test."""
        if _is_case(test):
            self._keep(err[1])
        else:
            self._tally.fail(_name(test), err[1])

    def addFailure(self, test: unittest.TestCase, err: _ErrorInfo) -> None:
        """A failed assertion."""
        self._keep(err[1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: _ErrorInfo | None) -> None:
        """The end of a subtest, which is no test of its own."""
        if err is not None:
            self._keep(err[1])

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """A skip that a candidate may have caused is a failure; so is that of a whole fixture."""
        if not _is_case(test):
            self._tally.fail(_name(test), _skip(reason))
        elif self._tally.has_called:
            self._keep(_skip(reason))
        else:
            self._skipped = True

    def addExpectedFailure(self, test: unittest.TestCase, err: _ErrorInfo) -> None:
        """It failed as it should, as it would for most candidates."""
        self._failed_as_expected = True

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """A failure, as unittest has it."""
        self._keep(AssertionError("unexpected success"))

    def addDuration(self, test: unittest.TestCase, elapsed: float) -> None:
        """How long it took (Python 3.12); of no interest."""

    def _keep(self, error: BaseException | None) -> None:
        if self._error is None:
            self._error = error or RuntimeError("unknown")


def _name(test: unittest.TestCase) -> str:
    return test.id().removeprefix("check.")


def _is_case(test: unittest.TestCase) -> bool:
    """Whether it is a test, and not what stands for a fixture of a class or a module."""
    return test.countTestCases() > 0


def _skip(reason: str) -> BaseException:
    return cast("BaseException", sys.modules["unittest"].SkipTest(reason))
