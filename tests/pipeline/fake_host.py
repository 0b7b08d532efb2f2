"""An engine host without a model: the real host, socket and client, and an engine that counts.

python -m tests.pipeline.fake_host FD      (as pipeline.generation.host; tests start it by ``launch``)
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from pipeline.generation.host import serve_engine
from pipeline.generation.settings import EngineSettings
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from sandbox.jail import die_with_parent
from tests.pipeline.rollouts.groups import completion

COMMAND = ("-m", "tests.pipeline.fake_host")


def settings(model: str = "m", **arguments: object) -> EngineSettings:
    """Settings of a fake engine; a model called "broken" does not load. ``arguments`` are vLLM's."""
    common = {
        "dtype": "float32",
        "max_model_len": 1,
        "max_num_seqs": 1,
        "enforce_eager": True,
        "gpu_memory_utilization": 0.1,
        "enable_prefix_caching": False,
        "seed": 0,
    }
    return EngineSettings(model=model, arguments={**common, **arguments})


class FakeEngine:
    """Has a version, a child process as vLLM has, and streams that can be cut off."""

    def __init__(self, settings: EngineSettings) -> None:
        if settings.model == "broken":
            raise ValueError("no such weights")
        self._version = 0
        self._num_running = 0
        self._child = os.fork()
        if self._child == 0:
            while True:  # until the kernel ends it with its parent
                time.sleep(1)

    async def count(self, number: int, delay_s: float) -> AsyncIterator[int]:
        self._num_running += 1
        try:
            for item in range(number):
                await asyncio.sleep(delay_s)
                yield item
        finally:
            self._num_running -= 1

    async def state(self) -> tuple[int, int, int]:
        """Version, streams that run, process id of the child."""
        return self._version, self._num_running, self._child

    async def update(self, version: int) -> None:
        self._version = version

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Completions of one token, which is the version that wrote it."""
        for index in range(request.num_generations):
            await asyncio.sleep(0.05)
            written = completion(index, self._version)
            yield replace(written, token_ids=(self._version,), logprobs=(0.0,))

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        self._version = update.policy_version
        return WeightsLoaded(policy_version=self._version, pause_s=0.0)

    async def fail(self) -> None:
        raise KeyError("wrong")

    async def fail_for_good(self) -> None:
        """Lose the child, and say so before anyone has noticed."""
        os.kill(self._child, 9)
        raise RuntimeError("the engine is dead")

    async def reset(self) -> None:
        self._version = 0

    async def failure(self) -> str:
        """When the child has died."""
        while os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            await asyncio.sleep(0.02)
        return "its child died"

    async def close(self) -> None:
        os.kill(self._child, 9)
        os.waitpid(self._child, 0)


if __name__ == "__main__":
    die_with_parent(15)
    serve_engine(int(sys.argv[1]), FakeEngine)
