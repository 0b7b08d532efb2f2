"""Single-flight: the same work asked for several times at once is done once, and cancelling is local."""

from __future__ import annotations

import asyncio

import pytest

from rewards.flight import SingleFlight


class Work:
    """Work that ends when the test says so, and counts its starts."""

    def __init__(self) -> None:
        self.num_starts = 0
        self.num_cancelled = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.num_starts += 1
        number = self.num_starts
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        return number


async def let_others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_callers_of_one_key_share_one_piece_of_work_and_other_keys_do_not() -> None:
    async def check() -> None:
        flights: SingleFlight[int] = SingleFlight()
        work, other = Work(), Work()
        jobs = [asyncio.create_task(flights.run(b"a", work)) for _ in range(5)]
        jobs.append(asyncio.create_task(flights.run(b"b", other)))
        await let_others_run()
        assert (work.num_starts, other.num_starts) == (1, 1)
        assert b"a" in flights and b"b" in flights
        work.may_end.set()
        other.may_end.set()
        assert await asyncio.gather(*jobs) == [1] * 6
        assert b"a" not in flights and b"b" not in flights

    asyncio.run(check())


def test_what_has_landed_is_done_again_when_asked_for_again() -> None:
    async def check() -> None:
        flights: SingleFlight[int] = SingleFlight()
        work = Work()
        work.may_end.set()
        assert [await flights.run(b"a", work), await flights.run(b"a", work)] == [1, 2]

    asyncio.run(check())


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_waiter_that_is_cancelled_leaves_the_others_their_result(leaver: int) -> None:
    async def check() -> None:
        flights: SingleFlight[int] = SingleFlight()
        work = Work()
        jobs = [asyncio.create_task(flights.run(b"a", work)) for _ in range(3)]
        await let_others_run()
        jobs[leaver].cancel()
        await let_others_run()
        work.may_end.set()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert isinstance(results.pop(leaver), asyncio.CancelledError)
        assert results == [1, 1] and work.num_cancelled == 0

    asyncio.run(check())


def test_the_last_waiter_to_be_cancelled_cancels_the_work_and_who_comes_then_starts_anew() -> None:
    async def check() -> None:
        flights: SingleFlight[int] = SingleFlight()
        work = Work()
        jobs = [asyncio.create_task(flights.run(b"a", work)) for _ in range(2)]
        await let_others_run()
        for job in jobs:
            job.cancel()
        # In the very turn in which the work is being cancelled.
        late = asyncio.create_task(flights.run(b"a", work))
        await let_others_run()
        assert all(job.cancelled() for job in jobs)
        # What was cancelled has landed, and takes nothing of the new flight along.
        assert b"a" in flights
        later = asyncio.create_task(flights.run(b"a", work))
        await let_others_run()
        work.may_end.set()
        assert await late == await later in (1, 2)
        assert work.num_cancelled == work.num_starts - 1

    asyncio.run(check())


def test_cancelled_work_is_gone() -> None:
    async def check() -> None:
        flights: SingleFlight[int] = SingleFlight()
        work = Work()
        job = asyncio.create_task(flights.run(b"a", work))
        await let_others_run()
        job.cancel()
        await let_others_run()
        assert work.num_cancelled == 1 and b"a" not in flights
        work.may_end.set()
        assert await flights.run(b"a", work) == 2

    asyncio.run(check())


def test_what_the_work_raises_reaches_every_waiter_and_nothing_stays() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("broken")

    async def check() -> None:
        flights: SingleFlight[int] = SingleFlight()
        jobs = [asyncio.create_task(flights.run(b"a", fail)) for _ in range(3)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert [str(result) for result in results] == ["broken"] * 3
        assert b"a" not in flights

    asyncio.run(check())
