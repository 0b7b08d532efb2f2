"""Which task is asked next: uniform epochs, an opening window, or by measured pass rate.

Pure: the same tasks, seed and calls give the same draws, and a sampler restored from its state goes on
as if it had never stopped. Knows nothing of rewards beyond pass counts. Called by
pipeline.orchestrator.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from configs.schema import CurriculumConfig
from curriculum.difficulty import cold_start_order
from curriculum.task import Task

_FIRST_WINDOW = 0.25
_HALF_LIFE_STEPS = 20.0
_PRIOR_STRENGTH = 2.0
_EXPLORATION = 0.1


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


class Sampler:
    """Draws tasks, learns from their pass counts, saves and restores its state.

    With the curriculum off, tasks come in epochs, each in a new random order, without replacement.
    With it on, the first ``warmup_steps`` steps open the pool linearly from the easiest quarter to all
    tasks, in the order of curriculum.difficulty. ``length`` and ``complexity`` draw the open pool in
    epochs. ``success_rate`` draws with a weight of E[p(1 - p)], the expected variance of a pass under a
    Beta posterior of the task's pass rate p: a task that always or never passes teaches GRPO nothing.
    Its prior is the pooled pass rate of the task's level, its counts halve every 20 steps so that they
    follow the policy, and a tenth of the draws is uniform so that no task is given up.

    No task is drawn twice in one step while there are others in the pool.
    """

    def __init__(self, tasks: Sequence[Task], curriculum: CurriculumConfig, seed: int) -> None:
        """Raises ValueError when there is no task or two have one id."""
        self._by_id = {task.task_id: task for task in tasks}
        if not tasks:
            raise ValueError("tasks: value (): a sampler needs at least one task")
        if len(self._by_id) != len(tasks):
            raise ValueError("tasks: two have the same task_id; ids must be unique")
        self._curriculum = curriculum
        self._seed = seed
        self._order = cold_start_order(tasks, curriculum.strategy) if curriculum.enabled else tuple(tasks)
        self._counts: dict[str, PassCounts] = {}
        self._num_draws = 0
        self._step = 0
        self._drawn_in_step: set[str] = set()
        self._drawn_in_epoch: set[str] = set()

    def draw(self, step: int) -> Task:
        """The next task, for optimiser step ``step`` (from 0); steps never go back."""
        self._begin(step)
        # A fresh generator for each draw: its state is then one number, and a resume is exact.
        rng = random.Random(f"{self._seed}/{self._num_draws}")
        pool = self._open_pool(step)
        if self._draws_by_pass_rate:
            task = self._draw_by_pass_rate(pool, rng)
        else:
            task = self._draw_in_epochs(pool, rng)
        self._num_draws += 1
        self._drawn_in_step.add(task.task_id)
        return task

    def repeat(self, task_id: str, step: int) -> None:
        """Account for a ``draw`` that was made in this state by an earlier process, and gave ``task_id``."""
        self._begin(step)
        if not self._draws_by_pass_rate:
            self._left_in_epoch(self._open_pool(step))
            self._drawn_in_epoch.add(task_id)
        self._num_draws += 1
        self._drawn_in_step.add(task_id)

    def put_back(self, task_id: str) -> None:
        """Take a draw back that came to nothing: where tasks come in epochs, this one is still to come."""
        self._drawn_in_epoch.discard(task_id)

    def record(self, task_id: str, num_passed: int, num_samples: int) -> None:
        """Count the outcome of one group; groups of size 0 are ignored."""
        assert 0 <= num_passed <= num_samples, (task_id, num_passed, num_samples)
        if task_id not in self._by_id:
            raise ValueError(f"task_id: value {task_id!r}: is none of this sampler's tasks")
        if num_samples == 0:
            return
        old = self._counts.get(task_id, PassCounts(passed=0.0, failed=0.0, step=self._step)).at(self._step)
        self._counts[task_id] = PassCounts(
            passed=old.passed + num_passed, failed=old.failed + num_samples - num_passed, step=self._step
        )

    def state_dict(self) -> dict[str, object]:
        """All that a resumed run needs, in JSON's types."""
        return {
            "tasks": self._fingerprint(),
            "num_draws": self._num_draws,
            "step": self._step,
            "drawn_in_step": sorted(self._drawn_in_step),
            "drawn_in_epoch": sorted(self._drawn_in_epoch),
            "counts": {
                task_id: [counts.passed, counts.failed, counts.step]
                for task_id, counts in sorted(self._counts.items())
            },
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on from ``state``. Raises ValueError when it was saved for other tasks or another seed."""
        if state.get("tasks") != self._fingerprint():
            raise ValueError(
                f"sampler state: value {state.get('tasks')!r}: was saved for other tasks, another curriculum "
                f"or another seed (here {self._fingerprint()!r}); resume with the run's own configuration"
            )
        num_draws, step, counts = state["num_draws"], state["step"], state["counts"]
        in_step, in_epoch = state["drawn_in_step"], state["drawn_in_epoch"]
        assert isinstance(num_draws, int) and isinstance(step, int) and isinstance(counts, dict)
        assert isinstance(in_step, list) and isinstance(in_epoch, list)
        self._num_draws, self._step = num_draws, step
        self._drawn_in_step, self._drawn_in_epoch = set(in_step), set(in_epoch)
        self._counts = {
            task_id: PassCounts(passed=passed, failed=failed, step=at_step)
            for task_id, (passed, failed, at_step) in counts.items()
        }

    def weights(self, step: int) -> dict[str, float]:
        """E[p(1 - p)] of every task as of ``step``, by task_id, in [0, 0.25]."""
        counts = {task_id: counts.at(step) for task_id, counts in self._counts.items()}
        mean_of_level = self._pooled_pass_rates(counts)
        weights = {}
        for task in self._order:
            prior = mean_of_level[task.difficulty]
            seen = counts.get(task.task_id)
            alpha = _PRIOR_STRENGTH * prior + (seen.passed if seen else 0.0)
            beta = _PRIOR_STRENGTH * (1 - prior) + (seen.failed if seen else 0.0)
            weights[task.task_id] = alpha * beta / ((alpha + beta) * (alpha + beta + 1))
        return weights

    def _pooled_pass_rates(self, counts: Mapping[str, PassCounts]) -> dict[int, float]:
        # One pass and one failure are assumed of every level: an unseen level starts at a half.
        passed: defaultdict[int, float] = defaultdict(lambda: 1.0)
        total: defaultdict[int, float] = defaultdict(lambda: 2.0)
        for task in self._order:
            seen = counts.get(task.task_id)
            if seen:
                passed[task.difficulty] += seen.passed
                total[task.difficulty] += seen.passed + seen.failed
        return {level: passed[level] / total[level] for level in {task.difficulty for task in self._order}}

    def _open_pool(self, step: int) -> Sequence[Task]:
        if not self._curriculum.enabled or step >= self._curriculum.warmup_steps:
            return self._order
        share = _FIRST_WINDOW + (1 - _FIRST_WINDOW) * step / self._curriculum.warmup_steps
        return self._order[: math.ceil(share * len(self._order))]

    @property
    def _draws_by_pass_rate(self) -> bool:
        return self._curriculum.enabled and self._curriculum.strategy == "success_rate"

    def _begin(self, step: int) -> None:
        if step != self._step:
            self._step = step
            self._drawn_in_step.clear()

    def _not_in_step(self, pool: Sequence[Task]) -> Sequence[Task]:
        return [task for task in pool if task.task_id not in self._drawn_in_step] or pool

    def _draw_in_epochs(self, pool: Sequence[Task], rng: random.Random) -> Task:
        task = rng.choice(self._not_in_step(self._left_in_epoch(pool)))
        self._drawn_in_epoch.add(task.task_id)
        return task

    def _left_in_epoch(self, pool: Sequence[Task]) -> Sequence[Task]:
        """What of ``pool`` is still to come; where there is nothing, another epoch begins."""
        left = [task for task in pool if task.task_id not in self._drawn_in_epoch]
        if not left:
            self._drawn_in_epoch.clear()
        return left or list(pool)

    def _draw_by_pass_rate(self, pool: Sequence[Task], rng: random.Random) -> Task:
        candidates = self._not_in_step(pool)
        if rng.random() < _EXPLORATION:
            return rng.choice(candidates)
        weights = self.weights(self._step)
        return rng.choices(candidates, [weights[task.task_id] for task in candidates])[0]

    def _fingerprint(self) -> str:
        curriculum = self._curriculum.model_dump_json()
        text = "\n".join([str(self._seed), curriculum, *(task.task_id for task in self._order)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
