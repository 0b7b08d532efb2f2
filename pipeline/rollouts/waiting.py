"""Waiting in the event loop until the buffer allows something, with a deadline that names who held it up.

The buffer calls ``changed`` after each change; who waits looks again then, in the order they came. The texts
say, from the counts of groups in each state, which stage owes what. Starts no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.errors import StageError


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
        owed.append(f"draws {_some(too_old)} came too old and were requeued: a generator has old weights")
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


class Waiting:
    """Those who wait for a state, and how it wakes them."""

    def __init__(self) -> None:
        self._change = asyncio.Event()
        self._failure: str | None = None
        self._num_renewed = 0

    def changed(self) -> None:
        """Have everyone who waits look again."""
        self._change.set()
        self._change = asyncio.Event()

    def renew(self) -> None:
        """Give everyone who waits as long again as at first, from when they look next."""
        self._num_renewed += 1

    def fail(self, reason: str) -> None:
        """Wake everyone who waits, now or later, with a StageError of ``reason``; the first reason stays."""
        self._failure = self._failure or reason
        self.changed()

    async def until(
        self, is_ready: Callable[[], bool], deadline_s: float, explain: Callable[[float], str]
    ) -> None:
        """Return when ``is_ready`` holds, looking at once and after each change.

        Raises TimeoutError with ``explain(deadline_s)`` when ``deadline_s`` seconds have passed since the
        call or the last ``renew``, StageError after ``fail``.
        """
        try:
            async with asyncio.timeout(deadline_s) as limit:
                num_renewed = self._num_renewed
                while True:
                    if self._failure is not None:
                        raise StageError(self._failure)
                    change = self._change
                    if is_ready():
                        return
                    await change.wait()
                    if self._num_renewed > num_renewed:
                        num_renewed = self._num_renewed
                        limit.reschedule(asyncio.get_running_loop().time() + deadline_s)
        except TimeoutError:
            raise TimeoutError(explain(deadline_s)) from None
