"""How likely a task is asked again after groups without signal: solved or hopeless for now.

The idea is GRESO's (arXiv:2506.02177): a task whose last z groups, one after the other, had rewards without
variance is likely to have none again, so it is asked with a chance that falls geometrically in z. There the
base is adapted to a target share of such groups; here it is a setting, and so is the floor under the chance,
which is what brings a task back when the policy has changed. One group with signal and the task is as any
other. Pure; draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from configs.curriculum_schema import SkipAheadConfig


class SkipAhead:
    """Counts each task's latest groups in a row without signal."""

    def __init__(self, skip_ahead: SkipAheadConfig) -> None:
        self._skip_ahead = skip_ahead
        self._num_flat: dict[str, int] = {}

    def record(self, task_id: str, has_signal: bool) -> None:
        """Count one group."""
        if has_signal:
            self._num_flat.pop(task_id, None)
        else:
            self._num_flat[task_id] = self._num_flat.get(task_id, 0) + 1

    def chance(self, task_id: str) -> float:
        """The probability that the task, having come up, is asked: max(floor, base ** z); 1 for z = 0."""
        num_flat = self._num_flat.get(task_id, 0)
        if not num_flat:
            return 1.0
        return max(self._skip_ahead.floor, self._skip_ahead.base**num_flat)

    def state_dict(self) -> dict[str, int]:
        """z of every task that has one."""
        return dict(sorted(self._num_flat.items()))

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from ``state``."""
        self._num_flat = dict(state)
