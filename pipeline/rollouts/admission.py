"""The rule that keeps samples from growing too old: how many groups may hold a slot, and who may wait.

A group takes a slot before its task is drawn and keeps it until it has been trained on. With G groups a
step, S = max_staleness, the trainer at version v and the generators at version g <= v, a slot is given only
while fewer than G * (S + 1 - (v - g)) are in use (the idea of AReaL's rollout controller,
arXiv:2505.24298). S = 0 is on-policy.

Why no group then grows too old, for any S: call due(w) the number of groups of version w or older that hold
a slot. They can all be trained on by weights of version w + S, that is by the steps that start from the
versions v, v + 1, …, w + S, if

    due(w) <= G * (w + S + 1 - v)   for every w >= v - S.

A slot of version g keeps that true: for w >= g, due(w) is at most the number of slots in use; any other
due(w) does not change. A step takes G groups, oldest first, and passes over one that is still at work only
where the bound then holds for v + 1 as well. Nothing else lets v or a due(w) rise. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """G and S of the rule."""

    groups_per_step: int
    max_staleness: int

    def __post_init__(self) -> None:
        assert self.groups_per_step > 0 and self.max_staleness >= 0

    def num_slots(self, *, trainer_version: int, policy_version: int) -> int:
        """Slots that may be in use now, never negative."""
        lag = trainer_version - policy_version
        return max(0, self.groups_per_step * (self.max_staleness + 1 - lag))

    def may_overtake(
        self,
        chosen: Sequence[int],
        staying: Sequence[int],
        at_work: Collection[int],
        *,
        trainer_version: int,
        num_left: int,
    ) -> bool:
        """Whether groups of versions ``chosen`` may go into the step in front of those of ``staying``.

        ``at_work`` are the versions of those that are not finished; ``num_left`` counts what the step takes
        after them. Where no newer group would overtake one at work, waiting would change nothing.
        """
        newest = max(chosen)
        return all(
            sum(other <= version for other in staying)
            <= num_left + self.groups_per_step * (version + self.max_staleness - trainer_version)
            for version in at_work
            if version < newest
        )

    def can_join(self, version: int, others: Sequence[int], *, trainer_version: int, num_left: int) -> bool:
        """Whether a finished group of ``version`` and all ``others`` can be trained on in time.

        ``num_left`` counts the groups that the step at hand still takes.
        """
        versions = sorted([version, *others])
        return all(
            number <= num_left + self.groups_per_step * (other + self.max_staleness - trainer_version)
            for number, other in enumerate(versions, start=1)
            if other >= version
        )
