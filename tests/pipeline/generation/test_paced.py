from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from pipeline.generation.paced import ConcurrencyLimit, PacedEngine
from pipeline.messages import Completion, GenerationRequest, SamplingSettings, WeightsLoaded, WeightUpdate

ROOM, NARROW, FULL = 0.5, 0.9, 0.99


def limit_after(trace: list[tuple[float, float, int, int]], *, least: int = 8, most: int = 64) -> list[int]:
    """The limit after each entry: (usage, preemptions so far, in flight, waiting)."""
    limit = ConcurrencyLimit(least=least, most=most)
    values = []
    for usage, preemptions, num_in_flight, num_waiting in trace:
        stats = {"kv_cache_usage": usage, "preemptions": preemptions}
        limit.update(stats, num_in_flight=num_in_flight, num_waiting=num_waiting)
        values.append(limit.value)
    return values


def test_a_full_cache_lowers_the_limit_by_a_share_and_room_raises_it_by_a_group() -> None:
    trace = [
        (FULL, 0.0, 64, 8),
        (FULL, 0.0, 48, 8),
        (NARROW, 0.0, 36, 8),
        (ROOM, 0.0, 36, 8),
        (ROOM, 0.0, 44, 8),
    ]
    assert limit_after(trace) == [48, 36, 36, 44, 52]


def test_a_preemption_lowers_it_once_however_full_the_cache_looks_then() -> None:
    assert limit_after([(ROOM, 3, 40, 0), (NARROW, 3, 30, 8), (ROOM, 4, 30, 8)]) == [30, 30, 22]


def test_it_does_not_fall_again_before_the_last_fall_has_taken_effect() -> None:
    assert limit_after([(FULL, 0, 64, 8), (FULL, 5, 60, 8), (FULL, 5, 49, 8), (FULL, 5, 48, 8)]) == [
        48,
        48,
        48,
        36,
    ]


def test_without_demand_it_stays_and_it_keeps_its_bounds() -> None:
    assert limit_after([(FULL, 0, 64, 0), (ROOM, 0, 20, 0)]) == [48, 48]
    assert limit_after([(FULL, 0, 9, 0)] * 4)[-1] == 8
    assert limit_after([(ROOM, 0, 64, 64)] * 3) == [64] * 3


def test_it_settles_where_the_cache_just_holds_what_is_in_flight() -> None:
    """A cache with room for 40 completions, and always someone waiting."""
    limit = ConcurrencyLimit(least=4, most=256)
    seen = []
    for _ in range(200):
        limit.update({"kv_cache_usage": min(1.0, limit.value / 40)}, num_in_flight=limit.value, num_waiting=9)
        seen.append(limit.value)
    assert all(24 <= value <= 40 for value in seen[20:])


class FullEngine:
    """Writes a completion each time it is told to, and is as full as it is told to be."""

    def __init__(self) -> None:
        self.usage = 0.0
        self.num_writing = 0
        self.go_on = asyncio.Semaphore(0)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.num_writing += 1
        for index in range(request.num_generations):
            await self.go_on.acquire()
            yield Completion(
                index=index,
                token_ids=(),
                logprobs=(),
                text="",
                finish_reason="stop",
                min_policy_version=0,
                max_policy_version=0,
            )
        self.num_writing -= 1

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        return WeightsLoaded(policy_version=update.policy_version, pause_s=0.0)

    async def reset(self) -> None:
        pass

    async def stats(self) -> dict[str, float]:
        return {"kv_cache_usage": self.usage}

    async def close(self) -> None:
        pass

    async def kill(self) -> None:
        pass


def request(number: int) -> GenerationRequest:
    return GenerationRequest(
        request_id=str(number), prompt_ids=(1,), num_generations=4, sampling=SamplingSettings()
    )


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_true():
            await asyncio.sleep(0.002)


def test_groups_wait_while_the_cache_is_full_and_all_are_written_in_the_end() -> None:
    async def main() -> None:
        engine = FullEngine()
        paced = PacedEngine(engine, group_size=4, most=16, period_s=0.005)

        async def write(number: int) -> int:
            return len([one async for one in paced.generate(request(number))])

        engine.usage = FULL
        first = [asyncio.create_task(write(number)) for number in range(4)]
        await until(lambda: paced.limit == 12)
        later = [asyncio.create_task(write(number)) for number in range(4, 8)]
        given_up = asyncio.create_task(write(8))
        await asyncio.sleep(0.02)
        assert engine.num_writing == 4, "what is in flight goes on, nothing new begins"
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        engine.usage = ROOM
        for _ in range(32):
            engine.go_on.release()
        assert await asyncio.gather(*first, *later) == [4] * 8
        await paced.close()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("num_groups", [1, 3])
def test_a_group_larger_than_the_limit_is_written_alone(num_groups: int) -> None:
    async def main() -> None:
        engine = FullEngine()
        paced = PacedEngine(engine, group_size=4, most=2, period_s=10)

        async def write(number: int) -> None:
            assert len([one async for one in paced.generate(request(number))]) == 4

        for _ in range(4 * num_groups):
            engine.go_on.release()
        await asyncio.gather(*(write(number) for number in range(num_groups)))
        await paced.close()

    asyncio.run(asyncio.wait_for(main(), 20))
