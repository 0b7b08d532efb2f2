"""What is known of each task's pass rate: a posterior that follows the policy.

A task's rate p has a Beta posterior. Its prior is the pooled rate of the task's level, worth two samples; its
counts halve every 20 optimiser steps, because the policy that they were of is gone. Tasks are weighed by
E[p(1 - p)], the variance of a pass ("learnability", arXiv:2502.12272). Pure; draws nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curriculum.task import Task

_HALF_LIFE_STEPS = 20.0
_PRIOR_STRENGTH = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCounts:
    """Samples of one task that passed and failed, decayed up to ``step``."""

    passed: float
    failed: float
    step: int

    def at(self, step: int) -> PassCounts:
        """The counts decayed to ``step``: what was seen 20 optimiser steps ago counts half."""
        decay = 0.5 ** (max(0, step - self.step) / _HALF_LIFE_STEPS)
        return PassCounts(passed=self.passed * decay, failed=self.failed * decay, step=max(step, self.step))


class PassRates:
    """The counts of every task, and what follows from them."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._counts: dict[str, PassCounts] = {}
        self._variances: tuple[int, dict[str, float]] | None = None  # of a step, until something is recorded

    def record(self, task_id: str, num_passed: int, num_samples: int, step: int) -> None:
        """Count a group of ``step``, which may be older than what is known already."""
        group = PassCounts(passed=float(num_passed), failed=float(num_samples - num_passed), step=step)
        old = self._counts.get(task_id, PassCounts(passed=0.0, failed=0.0, step=step))
        self._variances = None
        newest = max(step, old.step)
        old, group = old.at(newest), group.at(newest)
        self._counts[task_id] = PassCounts(
            passed=old.passed + group.passed, failed=old.failed + group.failed, step=newest
        )

    def variances(self, step: int) -> Mapping[str, float]:
        """E[p(1 - p)] of every task as of ``step``, by task_id, in [0, 0.25]: the variance of a pass."""
        if self._variances is None or self._variances[0] != step:
            self._variances = step, self._computed_variances(step)
        return self._variances[1]

    def _computed_variances(self, step: int) -> dict[str, float]:
        counts = {task_id: counts.at(step) for task_id, counts in self._counts.items()}
        mean_of_level = self._pooled(counts)
        variances = {}
        for task in self._tasks:
            prior = mean_of_level[task.difficulty]
            seen = counts.get(task.task_id)
            alpha = _PRIOR_STRENGTH * prior + (seen.passed if seen else 0.0)
            beta = _PRIOR_STRENGTH * (1 - prior) + (seen.failed if seen else 0.0)
            variances[task.task_id] = alpha * beta / ((alpha + beta) * (alpha + beta + 1))
        return variances

    def _pooled(self, counts: Mapping[str, PassCounts]) -> dict[int, float]:
        # One pass and one failure are assumed of every level: an unseen level starts at a half.
        passed: defaultdict[int, float] = defaultdict(lambda: 1.0)
        total: defaultdict[int, float] = defaultdict(lambda: 2.0)
        for task in self._tasks:
            seen = counts.get(task.task_id)
            if seen:
                passed[task.difficulty] += seen.passed
                total[task.difficulty] += seen.passed + seen.failed
        return {level: passed[level] / total[level] for level in {task.difficulty for task in self._tasks}}

    def state_dict(self) -> dict[str, list[float]]:
        """The counts in JSON's types."""
        return {
            task_id: [counts.passed, counts.failed, counts.step]
            for task_id, counts in sorted(self._counts.items())
        }

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from ``state``."""
        self._variances = None
        self._counts = {
            task_id: PassCounts(passed=passed, failed=failed, step=int(step))
            for task_id, (passed, failed, step) in state.items()
        }
