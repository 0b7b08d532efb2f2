"""How ladder files write a task down: a short constructor, so that the files read as data."""

from __future__ import annotations

from curriculum.task import Task
from sandbox.result import CallTest

Case = tuple[tuple[object, ...], object]


def ladder_task(
    name: str,
    *,
    family: str,
    level: int,
    prompt: str,
    reference: str,
    tests: tuple[Case, ...],
) -> Task:
    """Make one built-in task.

    ``tests`` are pairs (arguments, expected value), written out as literals: the expected values are
    not computed by the reference, so that the suite can check one against the other.
    """
    return Task(
        task_id=f"ladder/{name}",
        prompt=prompt,
        entry_point=name,
        call_tests=tuple(CallTest(args=args, expected=expected) for args, expected in tests),
        reference=reference,
        difficulty=level,
        family=family,
        source="ladder",
    )
