from __future__ import annotations

import asyncio

import pytest

from pipeline.errors import StageError
from pipeline.rollouts.waiting import Waiting


def _explain(waited_s: float) -> str:
    return f"waited {waited_s:g} s for nobody"


async def test_who_waits_looks_at_once_and_after_each_change() -> None:
    waiting = Waiting()
    looks: list[int] = []

    def is_ready() -> bool:
        looks.append(len(looks))
        return len(looks) == 3

    task = asyncio.create_task(waiting.until(is_ready, 30, _explain))
    for expected in (1, 2, 3):
        await asyncio.sleep(0)
        assert len(looks) == expected
        waiting.changed()
        await asyncio.sleep(0)
    await task


def test_a_deadline_that_passes_is_explained() -> None:
    with pytest.raises(TimeoutError, match=r"^waited 0\.01 s for nobody$"):
        asyncio.run(Waiting().until(lambda: False, 0.01, _explain))


async def test_renewed_who_waits_has_as_long_again() -> None:
    waiting, clock = Waiting(), asyncio.get_running_loop()
    began = clock.time()
    task = asyncio.create_task(waiting.until(lambda: False, 0.4, _explain))
    await asyncio.sleep(0.2)
    waiting.renew()
    waiting.changed()
    with pytest.raises(TimeoutError):
        await task
    assert clock.time() - began >= 0.59


async def test_a_change_alone_renews_nothing() -> None:
    waiting, clock = Waiting(), asyncio.get_running_loop()
    until = clock.time() + 0.3
    task = asyncio.create_task(waiting.until(lambda: False, 0.3, _explain))
    while not task.done():
        assert clock.time() < until + 20
        waiting.changed()
        await asyncio.sleep(0.02)
    with pytest.raises(TimeoutError):
        task.result()


async def test_a_failure_reaches_who_waits_and_who_comes_later_and_the_first_reason_stays() -> None:
    waiting = Waiting()
    task = asyncio.create_task(waiting.until(lambda: False, 30, _explain))
    await asyncio.sleep(0)
    waiting.fail("the generator died")
    waiting.fail("so did the trainer")
    for late in (task, waiting.until(lambda: True, 30, _explain)):
        with pytest.raises(StageError, match=r"^the generator died$"):
            await late
