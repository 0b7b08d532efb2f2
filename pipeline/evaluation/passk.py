"""pass@k with honest intervals, and whether two models differ on the same tasks. Pure numbers.

The unbiased estimator of pass@k, and its mean over tasks. All intervals are 95 % percentile bootstraps over
tasks (10,000 resamples, fixed seed): the task, with all its samples, is what is drawn, since samples of one
task are not independent.

Two models are compared in pairs, each task its own control. One sample a task and model (greedy): the exact
McNemar test, a two-sided binomial test of the tasks that only one of the two solved (McNemar 1947; the exact
form as in Fagerland, Lydersen and Laake 2013). Several samples: the sign-flip randomisation test of the mean
difference in pass rates (Fisher 1935), 10,000 flips, fixed seed. The interval of the difference is the paired
bootstrap over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_NUM_RESAMPLES = 10_000
_RESAMPLES_AT_ONCE = 500
_SEED = 0
_TAIL = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over ``num_tasks`` tasks with its 95 % interval [low, high]."""

    mean: float
    low: float
    high: float
    num_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCount:
    """How many samples of one task were judged, and how many of them passed."""

    task_id: str
    num_samples: int
    num_correct: int

    @property
    def pass_rate(self) -> float:
        """The share that passed."""
        return self.num_correct / self.num_samples


def count_by_task(judged: Iterable[tuple[str, bool]]) -> tuple[TaskCount, ...]:
    """The counts of samples given as (task_id, whether it passed), tasks in the order of their first one."""
    found: dict[str, list[bool]] = {}
    for task_id, passed in judged:
        found.setdefault(task_id, []).append(passed)
    return tuple(
        TaskCount(task_id=task_id, num_samples=len(values), num_correct=sum(values))
        for task_id, values in found.items()
    )


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The chance that at least one of ``k`` samples passes, from ``num_correct`` of ``num_samples``.

    The unbiased estimator of Chen et al. 2021 (arXiv:2107.03374): 1 - C(n - c, k) / C(n, k). Raises
    ValueError when there are fewer than ``k`` samples.
    """
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"num_correct: value {num_correct}: must be from 0 to num_samples ({num_samples})")
    if not 1 <= k <= num_samples:
        raise ValueError(f"k: value {k}: must be from 1 to the number of samples of a task ({num_samples})")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def mean_pass_at_k(counts: Sequence[TaskCount], k: int) -> Estimate:
    """pass@k averaged over tasks. Raises ValueError without tasks or with too few samples of one.

    Where no task, or every task, scores full, a bootstrap knows no spread: the open side of the interval
    is then the exact binomial bound for that many tasks (Clopper and Pearson 1934).
    """
    if not counts:
        raise ValueError("counts: value (): pass@k needs at least one judged task")
    values = [pass_at_k(count.num_samples, count.num_correct, k) for count in counts]
    num_tasks = len(values)
    spread = _spread(num_tasks)
    if not any(values):
        return Estimate(mean=0.0, low=0.0, high=spread, num_tasks=num_tasks)
    if all(value == 1 for value in values):
        return Estimate(mean=1.0, low=1 - spread, high=1.0, num_tasks=num_tasks)
    return _bootstrap(values)


def paired_difference(before: Mapping[str, float], after: Mapping[str, float]) -> Estimate:
    """The mean of ``after - before`` over tasks, pass rates by task_id.

    Each task is its own control, so the interval is narrower than that of two separate means. Where no task
    differs, a bootstrap knows no spread: the interval then reaches, on either side, to the exact binomial
    bound for the share of tasks that might differ. Raises ValueError when the two do not hold the same
    tasks, or none.
    """
    if before.keys() != after.keys() or not before:
        odd = sorted(before.keys() ^ after.keys())[:3]
        raise ValueError(f"before and after must hold the same tasks, at least one; only one has {odd}")
    differences = [after[task_id] - before[task_id] for task_id in sorted(before)]
    if not any(differences):
        spread = _spread(len(differences))
        return Estimate(mean=0.0, low=-spread, high=spread, num_tasks=len(differences))
    return _bootstrap(differences)


def share(counts: Sequence[TaskCount]) -> Estimate:
    """The share of all samples that passed, each weighing the same, however many a task has.

    The bootstrap draws tasks, and divides the sums of what it drew. Raises ValueError without tasks.
    """
    if not counts:
        raise ValueError("counts: value (): a share needs at least one judged task")
    correct = np.array([count.num_correct for count in counts], dtype=np.float64)
    total = np.array([count.num_samples for count in counts], dtype=np.float64)
    mean, spread = float(correct.sum() / total.sum()), _spread(len(counts))
    if mean in (0.0, 1.0):
        low, high = (0.0, spread) if mean == 0.0 else (1 - spread, 1.0)
        return Estimate(mean=mean, low=low, high=high, num_tasks=len(counts))
    drawn = np.random.default_rng(_SEED).integers(0, len(counts), size=(_NUM_RESAMPLES, len(counts)))
    low, high = np.quantile(correct[drawn].sum(axis=1) / total[drawn].sum(axis=1), [_TAIL, 1 - _TAIL])
    return Estimate(mean=mean, low=float(low), high=float(high), num_tasks=len(counts))


def share_difference(before: Sequence[TaskCount], after: Sequence[TaskCount]) -> Estimate:
    """The ``share`` of ``after`` less that of ``before``; a task that one of them lacks has no samples there.

    The bootstrap draws the same tasks for both. Raises ValueError where one of them has no tasks.
    """
    mean = share(after).mean - share(before).mean
    names = sorted({count.task_id for count in (*before, *after)})
    place = {name: index for index, name in enumerate(names)}
    sums = np.zeros((2, 2, len(names)))
    for who, counts in enumerate((before, after)):
        for count in counts:
            sums[who, :, place[count.task_id]] += count.num_correct, count.num_samples
    drawn = np.random.default_rng(_SEED).integers(0, len(names), size=(_NUM_RESAMPLES, len(names)))
    correct, total = (sums[:, part, :][:, drawn].sum(axis=2) for part in (0, 1))
    shares = correct / np.maximum(total, 1)
    low, high = np.quantile(shares[1] - shares[0], [_TAIL, 1 - _TAIL])
    return Estimate(mean=mean, low=float(low), high=float(high), num_tasks=len(names))


def _spread(num_tasks: int) -> float:
    """How frequent what was never seen in ``num_tasks`` tasks may be (Clopper and Pearson 1934)."""
    return 1 - math.pow(_TAIL, 1 / num_tasks)


def _bootstrap(values: Sequence[float]) -> Estimate:
    array = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(_SEED)
    means = np.concatenate(
        [
            array[rng.integers(0, array.size, size=(_RESAMPLES_AT_ONCE, array.size))].mean(axis=1)
            for _ in range(_NUM_RESAMPLES // _RESAMPLES_AT_ONCE)
        ]
    )
    low, high = np.quantile(means, [_TAIL, 1 - _TAIL])
    return Estimate(mean=float(array.mean()), low=float(low), high=float(high), num_tasks=len(values))


_NUM_FLIPS = 10_000
_BOOTSTRAP_SEED = 0


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
    flips = np.random.default_rng(_BOOTSTRAP_SEED).integers(
        0, 2, size=(_NUM_FLIPS, differences.size), dtype=np.int8
    )
    sums = np.abs((differences * (1 - 2 * flips)).sum(axis=1))
    # The observed signs are one of the possible ones.
    return (1 + int(np.count_nonzero(sums >= observed - 1e-12))) / (1 + _NUM_FLIPS)
