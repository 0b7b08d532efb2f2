"""A sandbox that runs nothing: for verdicts, and faults, that the real one does not show on demand."""

from __future__ import annotations

from sandbox.result import ExecutionRequest, ExecutionResult, Outcome


def make_run(
    outcome: Outcome,
    num_passed: int = 0,
    num_tests: int = 4,
    *,
    detail: str = "because",
    cpu_s: float = 0.0,
    level: str = "fake",
) -> ExecutionResult:
    return ExecutionResult(
        outcome=outcome,
        num_passed=num_passed,
        num_tests=num_tests,
        detail=detail,
        clean=True,
        cpu_s=cpu_s,
        wall_s=cpu_s,
        level=level,
    )


class FakeSandbox:
    """Gives one prepared verdict, and keeps what it was asked."""

    def __init__(
        self, outcome: Outcome, num_passed: int = 0, num_tests: int = 4, level: str = "fake"
    ) -> None:
        self.level = level
        self.requests: list[ExecutionRequest] = []
        self._run = make_run(outcome, num_passed, num_tests, level=level)

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        self.requests.append(request)
        if request.check_source == "broken":
            raise ValueError("check program cannot run")
        return self._run
