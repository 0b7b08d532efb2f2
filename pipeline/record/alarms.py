"""What is wrong with a run, from its metrics: what, how much, and the setting to change, to what.

A fault that lasts is found in the step in which it has lasted for three, by a few rules sooner or later: one
odd step is no fault, and five minutes of a wrong run are cheap. What is a fault is the affair of
pipeline.record.alarm_rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from configs.schema import Config
from pipeline.record.alarm_rules import RULES, WINDOW, Row, Rule

# As far back as a gradient or a length is compared with what it was.
_REMEMBERED: Final = 20


class Alarms:
    """Watches one run step by step; ``shares_device``: generation and training take turns on one device.

    ``before`` are the metrics of the steps that a resumed run has: a fault that goes on is said once more.
    """

    def __init__(self, config: Config, before: Iterable[Row] = (), *, shares_device: bool) -> None:
        self._config = config
        self._rules = [rule for rule in RULES if not (rule.is_of_own_devices and shares_device)]
        self._rows: deque[Row] = deque(maxlen=_REMEMBERED)
        # Measured in few steps: two of them may lie further apart.
        self._measured: list[Row] = []
        self._ringing: set[Rule] = set()
        self._num_steps = 0
        self._num_easy_steps = _num_easy_steps(config)
        for row in before:
            self._enter(row)

    def step(self, metrics: Row) -> list[tuple[Rule, str]]:
        """What this step makes known, with a text each: when it begins, and again if it begins again."""
        self._enter(metrics)
        rows = list(self._rows)
        if len(rows) < WINDOW:
            return []
        is_easy = self._num_steps - WINDOW < self._num_easy_steps
        rules = [rule for rule in self._rules if not (is_easy and rule.is_of_all_tasks)]
        given = [(rule, self._measured if rule.is_of_measured else rows) for rule in rules]
        found = {rule: text for rule, own in given if (text := rule.find(own, self._config)) is not None}
        fresh = [(rule, text) for rule, text in found.items() if rule not in self._ringing]
        self._ringing = set(found)
        return fresh

    def _enter(self, metrics: Row) -> None:
        self._num_steps += 1
        if self._num_steps <= self._config.grpo.warm_start_steps:
            # There it says that no answer passed, and rewards may differ.
            metrics = {**metrics, "rollout/zero_signal_share": None}
        self._rows.append(metrics)
        if metrics.get("eval/pass_at_1") is not None:
            self._measured.append(metrics)


def _num_easy_steps(config: Config) -> int:
    """For so many steps of a run the curriculum leaves harder tasks out."""
    curriculum = config.acceleration.curriculum
    if not curriculum.enabled:
        return 0
    return max(curriculum.warmup_steps, *(stage.until_step or 0 for stage in curriculum.stages), 0)
