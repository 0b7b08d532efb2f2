"""A learner made of one number, for sampler and gate: a SIMULATION, no model, no figure of the guide's.

Tasks and learner are an item-response model (Rasch): a task of difficulty b is passed with probability
1 / (1 + exp(b - ability)), in answers that are independent. A step raises the ability by a constant times the
mean, over the groups it trains on, of the standard deviation of their passes: what a group's advantages can
move. So only groups of mixed outcome teach, and what is tested is whether sampler and gate bring such groups.
The sampler is the project's own.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from configs.curriculum_schema import CurriculumConfig
from curriculum.sampler import Sampler
from curriculum.task import Task

_SPACING = 1.5  # logits between levels


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """``pass_rates`` over all tasks, before the first step and after each; ``num_drawn`` groups in all."""

    pass_rates: tuple[float, ...]
    num_drawn: int

    def steps_to(self, target: float) -> int | None:
        """The first step after which the mean pass rate is ``target``; None where it never was."""
        return next((step for step, rate in enumerate(self.pass_rates) if rate >= target), None)


def make_tasks(num_tasks: int, seed: int) -> dict[Task, float]:
    """Tasks of levels 1 to 5, as many of each, with their difficulty in logits: by level, and by chance."""
    rng = random.Random(seed)
    tasks = {}
    for index in range(num_tasks):
        level = 1 + index % 5
        task = Task(
            task_id=f"t{index:03}",
            prompt="x" * (1 + index),
            entry_point="f",
            check_source="def check(f): pass",
            difficulty=level,
        )
        tasks[task] = _SPACING * (level - 1) + rng.gauss(0.0, 1.0)
    return tasks


def simulate(
    curriculum: CurriculumConfig,
    *,
    seed: int,
    num_steps: int = 60,
    num_tasks: int = 120,
    groups_per_step: int = 4,
    num_generations: int = 8,
    max_gated: int = 0,
    rate: float = 0.3,
) -> SimulatedRun:
    """Train the learner; at most ``max_gated`` groups of one outcome are drawn anew in each step."""
    difficulty = make_tasks(num_tasks, seed)
    sampler = Sampler(tuple(difficulty), curriculum, seed)
    rng = random.Random(f"answers {seed}")
    ability, num_drawn = 0.0, 0
    rates = [_mean_rate(ability, list(difficulty.values()))]
    for step in range(num_steps):
        spreads: list[float] = []
        num_left = max_gated
        while len(spreads) < groups_per_step:
            task = sampler.draw(step)
            num_drawn += 1
            chance = _chance(ability, difficulty[task])
            num_passed = sum(rng.random() < chance for _ in range(num_generations))
            sampler.record(task.task_id, num_passed, num_generations, step=step)
            if num_passed in (0, num_generations) and num_left:
                num_left -= 1
                continue
            share = num_passed / num_generations
            spreads.append(math.sqrt(share * (1 - share)))
        ability += rate * statistics.fmean(spreads)
        rates.append(_mean_rate(ability, list(difficulty.values())))
    return SimulatedRun(pass_rates=tuple(rates), num_drawn=num_drawn)


def _chance(ability: float, difficulty: float) -> float:
    return 1 / (1 + math.exp(difficulty - ability))


def _mean_rate(ability: float, difficulties: Sequence[float]) -> float:
    return statistics.fmean(_chance(ability, each) for each in difficulties)
