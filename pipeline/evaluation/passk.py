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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUM_RESAMPLES = 10_000
_RESAMPLES_AT_ONCE = 500
_NUM_FLIPS = 10_000
_SEED = 0
_TAIL = 0.025
# What rounding makes of equal means is nearer than this, and what one of a thousand samples makes is not.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over ``num_tasks`` tasks with its 95 % interval [low, high]."""

    mean: float
    low: float
    high: float
    num_tasks: int

    def in_percent(self, sign: str = "") -> tuple[str, str]:
        """Mean and interval for people, "6.8 %" and "3.9 to 9.8"; with ``sign`` "+" as a difference."""
        mean, low, high = (f"{100 * value:{sign}.1f}" for value in (self.mean, self.low, self.high))
        return f"{mean} %", f"{low} to {high}"


def table_cells(estimate: Mapping[str, Any], sign: str = "") -> tuple[str, str]:
    """Mean and interval of an Estimate as JSON has it, for two columns: "6.8 %" and "3.9 to 9.8 %"."""
    mean, interval = Estimate(**estimate).in_percent(sign)
    return mean, f"{interval} %"


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
    return _rate([pass_at_k(count.num_samples, count.num_correct, k) for count in counts], [1] * len(counts))


def paired_difference(before: Sequence[TaskCount], after: Sequence[TaskCount]) -> Estimate:
    """The mean rise in pass rates from ``before`` to ``after``, over the tasks that both judged.

    Each task is its own control, so the interval is narrower than that of two separate means. Raises
    ValueError when no task was judged for both.
    """
    rises = np.array(_rises(_paired(before, after)))
    return _bootstrap(float(rises.mean()), rises.size, lambda drawn: rises[drawn].mean(axis=1), least=-1)


def _paired(before: Sequence[TaskCount], after: Sequence[TaskCount]) -> dict[str, tuple[float, float]]:
    """The two pass rates of each task that both judged, by its id."""
    later = {count.task_id: count.pass_rate for count in after}
    pairs = {
        count.task_id: (count.pass_rate, later[count.task_id]) for count in before if count.task_id in later
    }
    if not pairs:
        raise ValueError("comparison: the two have no judged task in common")
    return pairs


def _rises(pairs: Mapping[str, tuple[float, float]]) -> list[float]:
    """In an order that does not depend on that of the samples."""
    return [after - before for _, (before, after) in sorted(pairs.items())]


def share(counts: Sequence[TaskCount]) -> Estimate:
    """The share of all samples that passed, each weighing the same, however many a task has.

    The bootstrap draws tasks, and divides the sums of what it drew. Raises ValueError without tasks.
    """
    return _rate([count.num_correct for count in counts], [count.num_samples for count in counts])


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

    def differences(drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        correct, total = (sums[:, part, :][:, drawn].sum(axis=2) for part in (0, 1))
        rises: NDArray[np.float64] = np.diff(correct / np.maximum(total, 1), axis=0)[0]
        return rises

    return _bootstrap(mean, len(names), differences, least=-1)


def _rate(correct: Sequence[float], total: Sequence[float]) -> Estimate:
    """The sum of ``correct`` over that of ``total``, each with one number a task."""
    if not total:
        raise ValueError("counts: value (): a rate needs at least one judged task")
    above, below = np.array(correct, dtype=np.float64), np.array(total, dtype=np.float64)
    mean, num_tasks = float(above.sum() / below.sum()), len(total)
    return _bootstrap(mean, num_tasks, lambda drawn: above[drawn].sum(axis=1) / below[drawn].sum(axis=1))


def _bootstrap(
    mean: float,
    num_tasks: int,
    means_of: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    *,
    least: float = 0,
) -> Estimate:
    """``mean`` with its interval; ``means_of`` maps the tasks of B resamples, (B, T), to their B means.

    Where all tasks agree, a bootstrap knows no spread. The interval then takes in, on either side, as many
    tasks as might differ (the exact binomial bound), each at the end of the range, ``least`` or 1.
    """
    rng = np.random.default_rng(_SEED)
    means = np.concatenate(
        [
            means_of(rng.integers(0, num_tasks, size=(_RESAMPLES_AT_ONCE, num_tasks)))
            for _ in range(_NUM_RESAMPLES // _RESAMPLES_AT_ONCE)
        ]
    )
    low, high = np.quantile(means, [_TAIL, 1 - _TAIL])
    if np.ptp(means) < _EQUAL:
        # How frequent what was never seen in so many tasks may be (Clopper and Pearson 1934).
        spread = 1 - math.pow(_TAIL, 1 / num_tasks)
        low, high = mean - spread * (mean - least), mean + spread * (1 - mean)
    return Estimate(mean=mean, low=float(low), high=float(high), num_tasks=num_tasks)


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
    pairs = _paired(first, second)
    lost = tuple(task_id for task_id, (before, after) in pairs.items() if before > after)
    won = tuple(task_id for task_id, (before, after) in pairs.items() if before < after)
    if all(count.num_samples == 1 for count in (*first, *second) if count.task_id in pairs):
        test, p_value = "exact McNemar test", mcnemar(len(lost), len(won))
    else:
        test, p_value = "sign-flip test", sign_flip(_rises(pairs))
    return Comparison(
        difference=paired_difference(first, second),
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


def sign_flip(rises: Sequence[float]) -> float:
    """The two-sided p-value of the mean of ``rises``, one a task."""
    differences = np.array(rises)
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
