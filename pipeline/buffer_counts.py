"""How many groups are where, and, when a wait was in vain, who held it up.

Pure. Called by pipeline.rollout_buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferCounts:
    """Groups in each state: slot taken, being generated, being scored, ready, being trained on."""

    reserved: int
    generating: int
    scoring: int
    ready: int
    training: int

    @property
    def in_use(self) -> int:
        """Slots in use."""
        return self.reserved + self.generating + self.scoring + self.ready + self.training


def not_delivered(
    counts: BufferCounts,
    *,
    waited_s: float,
    step: int,
    num_missing: int,
    generating: Sequence[int],
    scoring: Sequence[int],
    too_old: Sequence[int],
) -> str:
    """Why the trainer had no groups; the sequences are draws, ``too_old`` those found so in the meantime."""
    owed = [f"generation owes draws {_some(generating)}"] if generating else []
    owed += [f"rewards owe draws {_some(scoring)}"] if scoring else []
    if not owed:
        owed = [f"nothing is at work: the sampler issued none ({counts.reserved} slots reserved)"]
    if too_old:
        owed.append(f"draws {_some(too_old)} came too old and are made again: a generator has old weights")
    num_issued = counts.generating + counts.scoring + counts.ready
    return (
        f"waited {waited_s:g} s for {num_missing} more rollout groups of step {step}: "
        f"issued {num_issued}, generated {counts.scoring + counts.ready}, scored {counts.ready}; "
        + "; ".join(owed)
    )


def no_slot(
    counts: BufferCounts, *, waited_s: float, num_slots: int, policy_version: int, trainer_version: int
) -> str:
    """Why the producer had no slot."""
    if policy_version < trainer_version:
        culprit = f"generators have version {policy_version}, the trainer {trainer_version}"
    elif counts.training or counts.ready:
        culprit = f"the trainer holds {counts.training} groups and has {counts.ready} waiting"
    else:
        culprit = f"generation owes {counts.generating} groups, rewards {counts.scoring}"
    return f"waited {waited_s:g} s for a rollout slot ({counts.in_use} in use of {num_slots}): {culprit}"


def _some(draw_ids: Sequence[int]) -> str:
    shown = ", ".join(str(draw_id) for draw_id in draw_ids[:8])
    return shown if len(draw_ids) <= 8 else f"{shown} and {len(draw_ids) - 8} more"
