"""The sandbox as the configuration says: its start, its limits, and the deadlines that follow from them."""

from __future__ import annotations

import pytest

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.judging import (
    execution_limits,
    execution_request,
    has_passed,
    longest_run_s,
    start_sandbox,
)
from curriculum.task import Task
from rewards.deadline import scoring_deadline_s
from sandbox.result import CallTest, ExecutionRequest, Outcome, StdioTest
from sandbox.worker import SandboxError

_WEAK = frozenset({"namespaces", "landlock"})
_NUMPY = ExecutionRequest(
    solution="import numpy\ndef f(x):\n    return int(numpy.arange(x).sum())\n",
    entry_point="f",
    call_tests=(CallTest(args=(4,), expected=6),),
)


@pytest.mark.parametrize("timeout", [0.5, 2.0, 4.0, 30.0])
def test_cpu_time_decides_and_the_wall_limits_stand_well_above_it(timeout: float) -> None:
    limits = execution_limits(ExecutionConfig(timeout=timeout, max_memory=256))
    assert (limits.cpu_s, limits.memory_bytes) == (timeout, 256 * 1024**2)
    assert limits.wall_s >= 5 * limits.cpu_s
    assert limits.wall_cap_s >= 2 * limits.wall_s


@pytest.mark.parametrize("timeout", [2.0, 30.0])
def test_an_items_deadline_leaves_room_for_every_retry_of_it_and_of_the_one_before(timeout: float) -> None:
    config = ExecutionConfig(timeout=timeout)
    cap_s = execution_limits(config).wall_cap_s
    assert longest_run_s(config) > 3 * cap_s, "one try and two retries"
    assert scoring_deadline_s(None, RewardsConfig(), config) >= 2 * longest_run_s(config)
    assert scoring_deadline_s(7.0, RewardsConfig(), config) == 7.0, "what the user sets is kept"


def test_a_whole_program_may_take_the_time_of_a_run_in_each_of_its_tests() -> None:
    config = ExecutionConfig(timeout=6.0)
    cap_s = execution_limits(config).wall_cap_s
    assert longest_run_s(config, 300) > 3 * 300 * cap_s
    assert longest_run_s(config, 1) == longest_run_s(config, 0) == longest_run_s(config)
    assert scoring_deadline_s(None, RewardsConfig(), config, 300) >= 2 * longest_run_s(config, 300)
    assert scoring_deadline_s(7.0, RewardsConfig(), config, 300) == 7.0


def test_the_runs_of_a_reference_that_is_timed_are_in_the_deadline() -> None:
    config, timed = ExecutionConfig(), {"weights": {"performance": 0.1}}
    for rewards in (timed, {"per_source": {"mbpp": timed}}):
        deadline_s = scoring_deadline_s(None, RewardsConfig.model_validate(rewards), config)
        assert deadline_s >= 2 * 4 * longest_run_s(config), "an answer and three times its reference"
    assert scoring_deadline_s(None, RewardsConfig(), config) < 2 * 2 * longest_run_s(config)


def test_a_weak_host_is_refused_unless_it_is_allowed() -> None:
    with pytest.raises(SandboxError, match="L1"):
        start_sandbox(ExecutionConfig(), without=_WEAK)
    with start_sandbox(ExecutionConfig(allow_unsafe=True), 2, without=_WEAK) as sandbox:
        assert sandbox.level == "L1" and len(sandbox.worker_pids) == 2


def test_programs_may_import_the_modules_that_are_named_and_no_others() -> None:
    with start_sandbox(ExecutionConfig(modules=["numpy"])) as sandbox:
        assert sandbox.run(_NUMPY).outcome is Outcome.PASS
    with start_sandbox(ExecutionConfig()) as sandbox:
        result = sandbox.run(_NUMPY)
    assert (result.outcome, result.detail) == (Outcome.EXCEPTION, "load: ModuleNotFoundError, line 1")


def test_an_output_that_is_longer_than_the_usual_limit_can_be_passed() -> None:
    size = 1024**2 + 10
    test = StdioTest(stdin="", expected_stdout="é" * size)
    task = Task(task_id="t", prompt="?", entry_point="", stdio_tests=(test,))
    with start_sandbox(ExecutionConfig()) as sandbox:
        right, wrong = (
            sandbox.run(execution_request(task, f"print('é' * {count})", ExecutionConfig()))
            for count in (size, size + 1)
        )
    assert has_passed(right) and wrong.outcome is Outcome.WRONG
