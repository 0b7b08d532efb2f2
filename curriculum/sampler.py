"""Which task is asked next: uniform epochs, open levels, or by measured pass rate.

Pure: the same tasks, seed and calls give the same draws, and a sampler restored from its state goes on
as if it had never stopped. Knows nothing of rewards beyond pass counts and whether they differed.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from configs.schema import CurriculumConfig
from curriculum.difficulty import cold_start_order
from curriculum.pass_rates import PassRates
from curriculum.skip_ahead import SkipAhead
from curriculum.stages import open_tasks
from curriculum.task import Task

_EXPLORATION = 0.1


class _Outcome(NamedTuple):
    """What a group of ``step`` taught about its task."""

    step: int
    task_id: str
    num_passed: int
    num_samples: int
    has_signal: bool


class Sampler:
    """Draws tasks, learns from their groups, saves and restores its state.

    With the curriculum off, tasks come in epochs, each in a new random order, without replacement.
    With it on, curriculum.stages says which tasks are open, in the order of curriculum.difficulty. ``length``
    and ``complexity`` draw the open ones in epochs. ``success_rate`` draws with a weight of E[p(1 - p)]
    (curriculum.pass_rates): a task that always or never passes teaches GRPO nothing. A tenth of the draws is
    uniform so that no task is given up.

    ``skip_ahead`` makes a task rarer whose last groups had no signal (curriculum.skip_ahead): its weight is
    multiplied by its chance, or, in epochs, it is passed over in this epoch with the chance that is left.

    No task is drawn twice in one step while there are others that are open, in this epoch. What a group
    teaches counts from the next step on, so that the draws of a step do not depend on which of its groups is
    done first.

    ``last_skipped`` are the tasks that the last draw passed over for good in this epoch, in order.
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
        self._rates = PassRates(self._order)
        self._skips = SkipAhead(curriculum.skip_ahead)
        self._outcomes: list[_Outcome] = []  # that no draw knew of yet
        self._num_offered: Counter[str] = Counter()  # by level, as JSON has its keys
        self._num_visited: Counter[str] = Counter()
        self._num_draws = 0
        self._step = 0
        self._drawn_in_step: set[str] = set()
        self._drawn_in_epoch: set[str] = set()
        self.last_skipped: tuple[str, ...] = ()

    def draw(self, step: int) -> Task:
        """The next task, for optimiser step ``step`` (from 0).

        One that is meant for an earlier step than the last (others before it are drawn again) has part in
        the last one: a step's tasks differ as long as there are others.
        """
        self._begin(step)
        # A fresh generator for each draw: its state is then one number, and a resume is exact.
        rng = random.Random(f"{self._seed}/{self._num_draws}")
        pool = open_tasks(self._order, self._curriculum, step)
        self.last_skipped = ()
        if self._draws_by_pass_rate:
            task = self._draw_by_pass_rate(pool, rng)
        else:
            task = self._draw_in_epochs(pool, rng)
        self._count_draw(task.task_id)
        return task

    def repeat(self, task_id: str, step: int, skipped: Sequence[str] = ()) -> None:
        """Account for a ``draw`` that was made in this state by an earlier process.

        It gave ``task_id`` and passed over ``skipped``. Of a task that is gone the draw only counts.
        """
        self._begin(step)
        if not self._draws_by_pass_rate:
            pool = open_tasks(self._order, self._curriculum, step)
            for each in (*skipped, task_id):
                self._left_in_epoch(pool)
                self._drawn_in_epoch.add(each)
        self._count_draw(task_id)

    def release(self, task_id: str) -> None:
        """Note that a draw came to nothing: where tasks come in epochs, this one is still to come."""
        self._drawn_in_epoch.discard(task_id)

    def record(
        self,
        task_id: str,
        num_passed: int,
        num_samples: int,
        has_signal: bool | None = None,
        step: int | None = None,
    ) -> None:
        """Count the outcome of one group; groups of size 0 are ignored.

        ``has_signal`` says whether its rewards differed; if it is not given, whether some passed and some
        failed. ``step`` is the one that it was drawn for; if it is not given, that of the last draw.
        """
        assert 0 <= num_passed <= num_samples, (task_id, num_passed, num_samples)
        if task_id not in self._by_id:
            raise ValueError(f"task_id: value {task_id!r}: is none of this sampler's tasks")
        if num_samples == 0:
            return
        self._num_visited[str(self._by_id[task_id].difficulty)] += 1
        self._outcomes.append(
            _Outcome(
                step=self._step if step is None else step,
                task_id=task_id,
                num_passed=num_passed,
                num_samples=num_samples,
                has_signal=0 < num_passed < num_samples if has_signal is None else has_signal,
            )
        )

    def counts_by_level(self) -> dict[str, float]:
        """Draws and scored groups of each level so far, as metrics."""
        levels = sorted({str(task.difficulty) for task in self._order})
        return {
            f"curriculum/{name}_level_{level}": float(counts[level])
            for name, counts in (("offered", self._num_offered), ("visited", self._num_visited))
            for level in levels
        }

    def state_dict(self) -> dict[str, object]:
        """All that a resumed run needs, in JSON's types."""
        return {
            "tasks": self._fingerprint(),
            "num_draws": self._num_draws,
            "step": self._step,
            "drawn_in_step": sorted(self._drawn_in_step),
            "drawn_in_epoch": sorted(self._drawn_in_epoch),
            "counts": self._rates.state_dict(),
            "flat_in_row": self._skips.state_dict(),
            "outcomes": [list(outcome) for outcome in self._outcomes],
            "offered": dict(sorted(self._num_offered.items())),
            "visited": dict(sorted(self._num_visited.items())),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``. Raises ValueError when it was saved for other tasks or another seed."""
        if state.get("tasks") != self._fingerprint():
            raise ValueError(
                f"sampler state: value {state.get('tasks')!r}: was saved for other tasks, another curriculum "
                f"or another seed (here {self._fingerprint()!r}); a run goes on with the tasks, in their "
                "order, that it began with: put back the data set, or the setting that leaves others of it "
                "out than before (generation.max_prompt_length, dataset), or start a new run with "
                "--model CHECKPOINT"
            )
        self._num_draws, self._step = int(state["num_draws"]), int(state["step"])
        self._drawn_in_step, self._drawn_in_epoch = set(state["drawn_in_step"]), set(state["drawn_in_epoch"])
        self._rates.load_state_dict(state["counts"])
        self._skips.load_state_dict(state["flat_in_row"])
        self._outcomes = [_Outcome(*outcome) for outcome in state["outcomes"]]
        self._num_offered, self._num_visited = Counter(state["offered"]), Counter(state["visited"])

    @property
    def _draws_by_pass_rate(self) -> bool:
        return self._curriculum.enabled and self._curriculum.strategy == "success_rate"

    @property
    def _skips_ahead(self) -> bool:
        return self._curriculum.enabled and self._curriculum.skip_ahead.enabled

    def _begin(self, step: int) -> None:
        if step > self._step:
            self._step = step
            self._drawn_in_step.clear()
        # In one order, whichever group was done first.
        for outcome in sorted(outcome for outcome in self._outcomes if outcome.step < step):
            self._rates.record(outcome.task_id, outcome.num_passed, outcome.num_samples, outcome.step)
            self._skips.record(outcome.task_id, outcome.has_signal)
        self._outcomes = [outcome for outcome in self._outcomes if outcome.step >= step]

    def _count_draw(self, task_id: str) -> None:
        self._num_draws += 1
        self._drawn_in_step.add(task_id)
        if task_id in self._by_id:
            self._num_offered[str(self._by_id[task_id].difficulty)] += 1

    def _not_in_step(self, pool: Sequence[Task]) -> Sequence[Task]:
        return [task for task in pool if task.task_id not in self._drawn_in_step] or pool

    def _draw_in_epochs(self, pool: Sequence[Task], rng: random.Random) -> Task:
        skipped: list[str] = []
        while True:
            task = rng.choice(self._not_in_step(self._left_in_epoch(pool)))
            self._drawn_in_epoch.add(task.task_id)
            # At most an epoch's worth is passed over for one draw.
            is_asked = len(skipped) >= len(pool) or rng.random() < self._skips.chance(task.task_id)
            if not self._skips_ahead or is_asked:
                self.last_skipped = tuple(skipped)
                return task
            skipped.append(task.task_id)

    def _left_in_epoch(self, pool: Sequence[Task]) -> Sequence[Task]:
        """What of ``pool`` is still to come; where there is nothing, another epoch begins."""
        left = [task for task in pool if task.task_id not in self._drawn_in_epoch]
        if not left:
            self._drawn_in_epoch.clear()
        return left or list(pool)

    def _draw_by_pass_rate(self, pool: Sequence[Task], rng: random.Random) -> Task:
        candidates = self._not_in_step(pool)
        if rng.random() < _EXPLORATION:
            weights: Mapping[str, float] = dict.fromkeys((task.task_id for task in candidates), 1.0)
        else:
            weights = self._rates.variances(self._step)
        if self._skips_ahead:
            weights = {task_id: weight * self._skips.chance(task_id) for task_id, weight in weights.items()}
        return rng.choices(candidates, [weights[task.task_id] for task in candidates])[0]

    def _fingerprint(self) -> str:
        curriculum = self._curriculum.model_dump_json()
        text = "\n".join([str(self._seed), curriculum, *(task.task_id for task in self._order)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
