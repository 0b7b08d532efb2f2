"""Stages that take the time of real ones and compute nothing: Ray actors that sleep for recorded costs.

Behind the interfaces of the real ones: Generator, TrainerHandle, and for rewards a custom reward function in
the real RewardPool. Completions are numbered in the order of their draws; each has the cost of its number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray

from pipeline.messages import (
    Completion,
    GenerationRequest,
    StepResult,
    TrainBatch,
    WeightsLoaded,
    WeightUpdate,
)
from rewards.pool import RewardPool
from rewards.result import RewardResult

Order = Literal["synchronous", "on-policy overlap", "asynchronous", "two steps ahead"]
MAX_STALENESS: Mapping[Order, int] = {"asynchronous": 1, "two steps ahead": 2}  # 0 of the others
REWARD = "benchmarks.async_overlap.sleeping_stages:sleep_as_written"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Seconds that each piece of work takes. Lists are gone through in turn, and begun again at their end.

    ``completion_s``: one completion. ``reward_s``: one score in one reward worker. ``train_group_s``: forward
    and backward of one group. ``optimizer_s``: what an optimiser step costs besides, once. ``publish_s``: the
    trainer writes its weights. ``update_s``: the generator takes them, of which it stands still ``pause_s``.
    """

    completion_s: tuple[float, ...]
    reward_s: tuple[float, ...]
    train_group_s: float
    optimizer_s: float
    publish_s: float
    update_s: float
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A step's groups of ``num_generations`` completions, and how much is written and scored at once.

    Each of ``num_generators`` writes ``num_generating``.
    """

    groups_per_step: int
    num_generations: int
    num_generating: int
    num_reward_workers: int
    num_generators: int = 1

    @property
    def num_completions(self) -> int:
        """Of a step."""
        return self.groups_per_step * self.num_generations

    @property
    def num_places(self) -> int:
        """Completions that are written at once."""
        return self.num_generators * self.num_generating


@ray.remote(num_cpus=0, max_concurrency=1000)
class Engine:
    """Writes ``num_places`` completions at a time, the others wait in the order in which they came."""

    def __init__(self, num_places: int) -> None:
        self._places = asyncio.Semaphore(num_places)
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._paused_s = 0.0

    async def write(self, seconds: float) -> None:
        """Take a place for ``seconds``, and for the pauses that fall into them."""
        async with self._places:
            await self._goes_on.wait()
            while seconds > 0:
                seen_s = self._paused_s
                await asyncio.sleep(seconds)
                await self._goes_on.wait()
                seconds = self._paused_s - seen_s

    async def pause(self, seconds: float) -> None:
        """Stand still for ``seconds``."""
        started = time.perf_counter()
        self._goes_on.clear()
        await asyncio.sleep(seconds)
        self._paused_s += time.perf_counter() - started
        self._goes_on.set()


class SleepingGenerator:
    """See pipeline.generation.generator.Generator."""

    def __init__(self, costs: StageCosts, num_places: int) -> None:
        self._costs = costs
        actor_class: Any = Engine
        self._engine = actor_class.remote(num_places)
        self._version = 0

    async def warm_up(self) -> None:
        """Wait until the actor is there."""
        await self._engine.write.remote(0.0)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """The completions of a draw, as they end; their texts hold the costs of scoring them."""
        draw_id = int(request.request_id.removeprefix("draw-").partition(".")[0])
        first = (draw_id - 1) * request.num_generations
        numbers = range(first, first + request.num_generations)
        version = self._version
        writing = [asyncio.create_task(self._write(number, number - first, version)) for number in numbers]
        try:
            for done in asyncio.as_completed(writing):
                yield await done
        finally:
            for task in writing:
                task.cancel()

    async def _write(self, number: int, index: int, version: int) -> Completion:
        await self._engine.write.remote(_cost(self._costs.completion_s, number))
        reward_s = _cost(self._costs.reward_s, number)
        return Completion(
            index=index,
            token_ids=(7, 8),
            logprobs=(-0.5, -0.5),
            text=f"```python\nNUMBER, SECONDS = {number}, {reward_s!r}\n```",
            finish_reason="stop",
            min_policy_version=version,
            max_policy_version=self._version,
        )

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """Take ``update_s``, of it ``pause_s`` standing still; what is written goes on (keep)."""
        await asyncio.sleep(self._costs.update_s - self._costs.pause_s)
        await self._engine.pause.remote(self._costs.pause_s)
        self._version = update.policy_version
        return WeightsLoaded(policy_version=self._version, pause_s=self._costs.pause_s)

    async def stats(self) -> dict[str, float]:
        """Nothing is drafted."""
        return {}

    async def sleep(self) -> None:
        """It has no memory to give back."""

    async def wake(self) -> None:
        """See ``sleep``."""

    async def reset(self) -> None:
        """Nothing is kept between runs."""

    async def close(self) -> None:
        """End the actor."""
        ray.kill(self._engine)


def sleep_as_written(completions: Sequence[str], code: Sequence[str], **columns: object) -> list[float]:
    """A custom reward: sleep for the seconds that the program names; one in two passes."""
    (program,) = code
    number, _, seconds = program.partition("=")[2].partition(",")
    time.sleep(float(seconds))
    return [float(int(number) % 2)]


class SleepersTokenizer:
    """Gives every prompt the same three tokens."""

    chat_template = None

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        """As a real one's, of any ``text``."""
        return {"input_ids": [1, 2, 3]}


class SynchronousScorer:
    """A RewardPool that begins with a step's completions when all of them are written."""

    def __init__(self, pool: RewardPool, num_completions: int) -> None:
        self._pool = pool
        self._num_completions = num_completions
        self._num_seen = 0
        self._all_written: dict[int, asyncio.Event] = {}

    async def score(self, task: Any, text: str, *, priority: float = 0) -> RewardResult:
        """See RewardPool."""
        step = self._num_seen // self._num_completions
        self._num_seen += 1
        written = self._all_written.setdefault(step, asyncio.Event())
        if self._num_seen % self._num_completions == 0:
            written.set()
        await written.wait()
        return await self._pool.score(task, text, priority=priority)

    def metrics(self) -> dict[str, float]:
        """See RewardPool."""
        return self._pool.metrics()


@ray.remote(num_cpus=0)
class Ranks:
    """The processes of a trainer: one call after the other."""

    def work(self, seconds: float) -> None:
        """Be busy for ``seconds``."""
        time.sleep(seconds)


class SleepingTrainer:
    """See pipeline.training.handle.TrainerHandle."""

    def __init__(self, costs: StageCosts, num_generations: int) -> None:
        self._costs = costs
        self._num_generations = num_generations
        actor_class: Any = Ranks
        self._ranks = actor_class.remote()
        self._version = 0
        self._busy_s = 0.0
        self._num_tokens = 0

    @property
    def layout(self) -> dict[str, int]:
        """Nothing of which the work depends on."""
        return {}

    async def warm_up(self) -> None:
        """Wait until the actor is there."""
        await self._ranks.work.remote(0.0)

    async def fit_memory(self) -> str | None:
        """A sleep takes none."""
        return None

    async def release_memory(self) -> None:
        """See ``fit_memory``."""

    async def accumulate(self, batch: TrainBatch) -> None:
        """Forward and backward of the batch's groups."""
        seconds = len(batch.samples) / self._num_generations * self._costs.train_group_s
        self._busy_s += seconds
        self._num_tokens += batch.num_tokens
        await self._ranks.work.remote(seconds)

    async def step(self, batch: TrainBatch) -> StepResult:
        """The same, and the optimiser."""
        await self.accumulate(batch)
        await self._ranks.work.remote(self._costs.optimizer_s)
        self._version += 1
        result = StepResult(
            step=batch.step,
            metrics={},
            seconds=self._busy_s + self._costs.optimizer_s,
            num_tokens=self._num_tokens,
        )
        self._busy_s, self._num_tokens = 0.0, 0
        return result

    async def publish(self, directory: str) -> WeightUpdate:
        """Write a file that stands for the weights."""
        await self._ranks.work.remote(self._costs.publish_s)
        path = Path(directory) / f"policy-{self._version:06d}.safetensors"
        path.write_bytes(b"weights")
        return WeightUpdate(policy_version=self._version, path=str(path))

    async def save(self, folder: Path, step: int) -> Path:
        """Save nothing."""
        return folder

    def close(self) -> None:
        """End the actor."""
        ray.kill(self._ranks)


def _cost(costs: Sequence[float], number: int) -> float:
    return costs[number % len(costs)]
