"""How long one score may take before its worker counts as stuck."""

from __future__ import annotations

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.judging import longest_run_s
from rewards.performance import NUM_RUNS
from rewards.rubric import Rubric

# One item runs and one waits in each worker: enough that a worker never idles for a message.
IN_FLIGHT_PER_WORKER = 2


def scoring_deadline_s(
    timeout_s: float | None, rewards: RewardsConfig, execution: ExecutionConfig, num_stdio_tests: int = 0
) -> float:
    """``timeout_s``, or for None twice the longest that the runs and calls for one item can honestly take.

    That is the longest run with all retries, of the answer and for ``performance`` of the reference, and the
    longest calls of custom rewards, or the one of custom feedback; twice for what else there is to do, linter
    and type checker. It begins when no other item is before it in its worker.
    """
    num_runs = 1 + (NUM_RUNS if Rubric(rewards).is_used("performance") else 0)
    customs_s = max(1, len(rewards.custom)) * rewards.custom_timeout_s
    longest_s = num_runs * longest_run_s(execution, num_stdio_tests) + customs_s
    return 2 * longest_s if timeout_s is None else timeout_s
