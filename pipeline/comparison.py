"""Whether two models differ on the same tasks: paired tests, where each task is its own control.

One sample a task and model (greedy): the exact McNemar test, a two-sided binomial test of the tasks that
only one of the two solved (McNemar 1947; the exact form as in Fagerland, Lydersen and Laake 2013). Several
samples: the sign-flip randomisation test of the mean difference in pass rates (Fisher 1935), 10,000 flips,
fixed seed. The interval of the difference is the paired bootstrap over tasks of pipeline.passk. Pure numbers;
called by pipeline.evaluation_command.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.passk import Estimate, TaskCount, paired_difference

_NUM_FLIPS = 10_000
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``difference`` is pass@1 of the second less that of the first, over the tasks that both judged.

    ``p_value`` is that of ``test`` (its name): how likely a difference as large is if neither is better.
    ``first_better`` and ``second_better`` are the ids of the tasks in which one has the higher pass rate.
    """

    difference: Estimate
    test: str
    p_value: float
    first_better: tuple[str, ...]
    second_better: tuple[str, ...]


def compare(first: Sequence[TaskCount], second: Sequence[TaskCount]) -> Comparison:
    """Compare two models by their counts. Raises ValueError when no task was judged for both."""
    left = {count.task_id: count for count in first}
    right = {count.task_id: count for count in second}
    common = [task_id for task_id in left if task_id in right]
    if not common:
        raise ValueError("comparison: the two have no judged task in common")
    before = {task_id: left[task_id].pass_rate for task_id in common}
    after = {task_id: right[task_id].pass_rate for task_id in common}
    lost = tuple(task_id for task_id in common if before[task_id] > after[task_id])
    won = tuple(task_id for task_id in common if before[task_id] < after[task_id])
    single = all(left[task_id].num_samples == right[task_id].num_samples == 1 for task_id in common)
    if single:
        test, p_value = "exact McNemar test", mcnemar(len(lost), len(won))
    else:
        test, p_value = "sign-flip test", sign_flip(before, after)
    return Comparison(
        difference=paired_difference(before, after),
        test=test,
        p_value=p_value,
        first_better=lost,
        second_better=won,
    )


def mcnemar(num_first_only: int, num_second_only: int) -> float:
    """The two-sided exact p-value from the numbers of tasks that only one of the two solved."""
    total, least = num_first_only + num_second_only, min(num_first_only, num_second_only)
    tail = sum(math.comb(total, k) for k in range(least + 1)) / (1 << total)
    return min(1.0, 2 * tail)


def sign_flip(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """The two-sided p-value of the mean of ``after - before``, keys the same in both."""
    differences = np.array([after[task_id] - before[task_id] for task_id in sorted(before)])
    # Tasks that differ are few: all flips of them are tried where that is less.
    differences = differences[differences != 0]
    observed = abs(float(differences.sum()))
    if differences.size <= math.log2(_NUM_FLIPS):
        patterns = np.arange(2**differences.size)[:, None] >> np.arange(differences.size) & 1
        sums = np.abs((differences * (1 - 2 * patterns)).sum(axis=1))
        return float(np.mean(sums >= observed - 1e-12))
    flips = np.random.default_rng(_SEED).integers(0, 2, size=(_NUM_FLIPS, differences.size), dtype=np.int8)
    sums = np.abs((differences * (1 - 2 * flips)).sum(axis=1))
    # The observed signs are one of the possible ones.
    return (1 + int(np.count_nonzero(sums >= observed - 1e-12))) / (1 + _NUM_FLIPS)
