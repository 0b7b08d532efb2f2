"""The performance reward: slow programs lose, quick ones are alike, noise and failures gain nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from configs.schema import ExecutionConfig
from curriculum.judging import execution_request, start_sandbox
from curriculum.task import Task
from rewards.performance import RESOLUTION_S, ReferenceTimes, performance_score
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome
from tests.fake_sandbox import make_run

REFERENCE = "def f(n):\n    return n * (n + 1) // 2\n"
SLOW = "def f(n):\n    total = 0\n    for i in range(n + 1):\n        total += i\n    return total\n"


def make_task(task_id: str = "sum", reference: str = REFERENCE) -> Task:
    tests = (CallTest(args=(6_000_000,), expected=18_000_003_000_000),)
    return Task(task_id=task_id, prompt="", entry_point="f", call_tests=tests, reference=reference)


def timed_run(cpu_s: float, outcome: Outcome = Outcome.PASS) -> ExecutionResult:
    return make_run(outcome, int(outcome is Outcome.PASS), 1, cpu_s=cpu_s)


class ScriptedSandbox:
    """Answers with the given runs, one after the other: exact times and faults are not to be had else."""

    level = "L3"

    def __init__(self, *runs: ExecutionResult) -> None:
        self.runs = list(runs)

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        return self.runs.pop(0)


@pytest.mark.parametrize(
    ("cpu_s", "reference_cpu_s", "expected"),
    [
        (0.4, 0.4, 1.0),
        (0.1, 0.4, 1.0),
        (0.45, 0.4, 1.0),
        (1.0, 0.4, 0.5),
        (0.02, 0.001, 1.0),
        (0.1, 0.001, 0.25),
        (0.0, 0.4, 1.0),
        (9.0, None, 1.0),
    ],
)
def test_scores_by_example(cpu_s: float, reference_cpu_s: float | None, expected: float) -> None:
    assert performance_score(timed_run(cpu_s), reference_cpu_s) == pytest.approx(expected)


def test_below_the_resolution_noise_decides_nothing() -> None:
    scores = {performance_score(timed_run(RESOLUTION_S * part / 10), 0.003) for part in range(1, 11)}
    assert scores == {1.0}


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.PASS])
def test_a_quick_failure_earns_nothing(outcome: Outcome) -> None:
    assert performance_score(timed_run(0.001, outcome), 0.4) == 0.0


def test_the_reference_is_the_median_and_is_measured_once() -> None:
    sandbox = ScriptedSandbox(timed_run(0.9), timed_run(0.2), timed_run(0.3))
    times = ReferenceTimes(sandbox, ExecutionConfig())
    assert [times.cpu_s(make_task()) for _ in range(2)] == [0.3, 0.3]
    assert sandbox.runs == []


def test_a_task_without_the_test_that_was_told_and_one_with_another_reference_are_measured_themselves() -> (
    None
):
    sandbox = ScriptedSandbox(*[timed_run(seconds) for seconds in (0.3, 0.1, 0.2) for _ in range(3)])
    times = ReferenceTimes(sandbox, ExecutionConfig())
    told = make_task()
    whole = replace(told, call_tests=(*told.call_tests, CallTest(args=(1,), expected=1)))
    for _ in range(2):
        assert [times.cpu_s(task) for task in (whole, told, make_task(reference=SLOW))] == [0.3, 0.1, 0.2]
    assert sandbox.runs == []


def test_without_a_reference_that_passes_there_is_no_time() -> None:
    failing = ScriptedSandbox(*[timed_run(0.1, Outcome.WRONG)] * 3)
    times = ReferenceTimes(failing, ExecutionConfig())
    assert times.cpu_s(make_task(reference="")) is None
    assert len(failing.runs) == 3
    assert times.cpu_s(make_task("other")) is None
    assert times.cpu_s(make_task("other")) is None


def test_a_reference_that_a_busy_machine_ended_once_has_a_time_all_the_same() -> None:
    sandbox = ScriptedSandbox(timed_run(0.2), timed_run(0.9, Outcome.TIMEOUT_WALL), timed_run(0.2))
    times = ReferenceTimes(sandbox, ExecutionConfig())
    assert times.cpu_s(make_task()) == times.cpu_s(make_task()) == 0.2


def test_a_fault_of_the_sandbox_is_not_kept_as_a_verdict_on_the_reference() -> None:
    fault = timed_run(0.0, Outcome.INFRA_ERROR)
    sandbox = ScriptedSandbox(fault, timed_run(0.2, Outcome.TIMEOUT_WALL), fault, *[timed_run(0.2)] * 3)
    times = ReferenceTimes(sandbox, ExecutionConfig())
    with pytest.raises(ValueError, match="its reference could not be timed"):
        times.cpu_s(make_task())
    assert times.cpu_s(make_task()) == 0.2


def test_a_reference_that_is_too_slow_here_took_all_the_time_there_is() -> None:
    slow = [timed_run(2.0, Outcome.TIMEOUT_CPU), timed_run(1.0, Outcome.TIMEOUT_WALL)]
    sandbox = ScriptedSandbox(*slow, timed_run(0.1, Outcome.WRONG))
    times = ReferenceTimes(sandbox, ExecutionConfig(timeout=2.0))
    assert times.cpu_s(make_task()) == times.cpu_s(make_task()) == 2.0


def test_in_the_real_sandbox_a_loop_over_millions_earns_less_than_the_formula() -> None:
    execution = ExecutionConfig(timeout=20.0)
    task = make_task()
    with start_sandbox(execution) as sandbox:
        reference_cpu_s = ReferenceTimes(sandbox, execution).cpu_s(task)
        assert reference_cpu_s is not None and reference_cpu_s > 0.0
        slow = sandbox.run(execution_request(task, SLOW, execution))
        assert (
            performance_score(sandbox.run(execution_request(task, REFERENCE, execution)), reference_cpu_s)
            == 1.0
        )
    assert 0.0 < performance_score(slow, reference_cpu_s) < 0.5
