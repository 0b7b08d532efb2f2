"""The performance reward: CPU time against the reference solution's; off by default (weight 0).

``min(1, 1.25 * max(reference, 0.02 s) / candidate)`` for a program that passes every test, else 0. Both
are CPU times of one whole run in the same sandbox, so a busy machine and ``sleep`` change nothing. Below
20 ms a run is the harness and its noise, not the program; hence the floor, under which all programs are
equal. The quarter on top is what two runs of one program may differ by. What remains is a ratio, as in
EffiBench (arXiv:2402.02037), so that it means the same for quick and for long tasks. A measurement, not
an exact verdict: a later run of the same program may score a little differently.
"""

from __future__ import annotations

import statistics

from configs.schema import ExecutionConfig
from curriculum.judging import Executor, execution_request, has_passed
from curriculum.task import Task
from rewards.digest import task_digest
from sandbox.result import ExecutionResult, Outcome

RESOLUTION_S = 0.02
TOLERANCE = 1.25
NUM_RUNS = 3
_TOO_SLOW = (Outcome.TIMEOUT_CPU, Outcome.TIMEOUT_WALL)


class ReferenceTimes:
    """CPU seconds of the tasks' reference solutions, each measured once for the same tests and kept.

    Bounded by the number of tasks, where feedback tells of tests by that of tests. Not for several threads at
    once.
    """

    def __init__(self, sandbox: Executor, execution: ExecutionConfig) -> None:
        self._sandbox = sandbox
        self._execution = execution
        self._times: dict[tuple[bytes, str], float | None] = {}

    def cpu_s(self, task: Task) -> float | None:
        """The median of those of three runs that passed; None where the task has no reference, or it fails.

        Of one that only takes too long here it is the limit, so that the programs of all workers score alike.
        Raises ValueError where infrastructure errors are the reason; the next call measures again.
        """
        # Feedback may have told a test, which is left out of the task then. No digest has the reference.
        key = (task_digest(task), task.reference)
        if key in self._times:
            return self._times[key]
        if not task.reference:
            self._times[key] = None
            return None
        request = execution_request(task, task.reference, self._execution)
        runs = [self._sandbox.run(request) for _ in range(NUM_RUNS)]
        # One that a busy machine ended does not count: another worker's reference would not have lost it.
        if passed := [run.cpu_s for run in runs if has_passed(run)]:
            self._times[key] = statistics.median(passed)
            return self._times[key]
        if failed := [run.detail for run in runs if run.outcome is Outcome.INFRA_ERROR]:
            raise ValueError(f"its reference could not be timed: {failed[0]}")
        is_slow = any(run.outcome in _TOO_SLOW for run in runs)
        # The limit is that of each input of a whole program.
        self._times[key] = self._execution.timeout * max(1, len(task.stdio_tests)) if is_slow else None
        return self._times[key]


def performance_score(run: ExecutionResult, reference_cpu_s: float | None) -> float:
    """See the module's docstring. Without a reference every passing program scores 1: nothing is known
    against it, and all programs of that task score alike."""
    if not has_passed(run):
        return 0.0
    if reference_cpu_s is None:
        return 1.0
    allowed_s = TOLERANCE * max(reference_cpu_s, RESOLUTION_S)
    return min(1.0, allowed_s / run.cpu_s) if run.cpu_s > 0.0 else 1.0
