"""Waiting in the event loop until the buffer allows something, with a deadline that names who held it up.

The buffer calls ``changed`` after each change; who waits looks again then, in the order they came. How long
they wait at most follows from the deadlines of the stages. Starts no task.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from configs.schema import Config
from pipeline.errors import StageError
from rewards.deadline import scoring_deadline_s


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


def group_deadline_s(config: Config, num_stdio_tests: int = 0) -> float:
    """For how many seconds at most no group comes while every stage keeps to a deadline of its own.

    ``num_stdio_tests`` is the largest number of a task. Each worker scores its share of a group one by one.
    """
    runtime, num_workers = config.runtime, config.acceleration.async_rewards.workers
    score_s = scoring_deadline_s(runtime.reward_timeout_s, config.rewards, config.execution, num_stdio_tests)
    scoring_s = math.ceil(config.grpo.num_generations / num_workers) * score_s
    # Time for a generator to fall silent, to be started again, and to write it all once more.
    writing_s = 2 * runtime.generation_timeout_s + runtime.startup_timeout_s
    return config.rollouts.max_turns * (writing_s + scoring_s)


def standstill_s(config: Config, num_stdio_tests: int = 0) -> float:
    """Likewise of groups, steps and weights, in seconds: nothing of these comes."""
    runtime = config.runtime
    # When a step's last group comes a part may be at work; the last part and the update follow it.
    step_s = 3 * runtime.train_step_timeout_s + runtime.weight_update_timeout_s
    return group_deadline_s(config, num_stdio_tests) + step_s
