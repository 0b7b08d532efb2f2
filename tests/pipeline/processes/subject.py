"""Objects that test_processes calls in another process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator


class Tenant:
    """Says which GPUs Ray gave its actor."""

    def cards(self) -> list[int]:
        # Imported here: the others are called without Ray.
        import ray

        return [int(card) for card in ray.get_gpu_ids()]


class Worker:
    """Plain methods."""

    def __init__(self, name: str) -> None:
        if name == "broken":
            raise ValueError("no such worker")
        self._name = name
        self._thread = threading.get_ident()
        self.seen: list[str] = []
        self._holds, self._released = threading.Event(), threading.Event()

    def pid(self) -> int:
        return os.getpid()

    def where(self) -> str:
        return os.getcwd()

    def note(self, text: str, seconds: float = 0.0) -> list[str]:
        """All that was noted, in its order; always in the thread that made the object."""
        assert threading.get_ident() == self._thread
        time.sleep(seconds)
        self.seen.append(text)
        return [f"{self._name}: {one}" for one in self.seen]

    def hold(self, text: str) -> list[str]:
        """As ``note``, once ``release`` was called beside it."""
        self._holds.set()
        assert self._released.wait(60.0)
        self._holds.clear()
        self._released.clear()
        return self.note(text)

    def wait_for_hold(self) -> bool:
        return self._holds.wait(60.0)

    def release(self) -> None:
        self._released.set()

    def answer(self) -> bool:
        return threading.get_ident() != self._thread

    def environment(self, name: str) -> str:
        return os.environ.get(name, "")

    def output_of(self, program: str) -> str:
        """What a Python program prints, in a child of this process."""
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()

    def fail(self) -> None:
        raise KeyError("wrong")

    def leave(self, status: int) -> None:
        print("the last words", file=sys.stderr, flush=True)
        os._exit(status)


class AsyncWorker:
    """Asynchronous methods, in the loop that made the object."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._num_running = self._most_running = 0

    async def pid(self) -> int:
        return os.getpid()

    async def num_running(self) -> int:
        return self._num_running

    async def most_running(self) -> int:
        return self._most_running

    async def sleep(self, seconds: float) -> str:
        assert asyncio.get_running_loop() is self._loop
        self._num_running += 1
        self._most_running = max(self._most_running, self._num_running)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._num_running -= 1
        return "slept"

    async def count(self, number: int, delay_s: float) -> AsyncIterator[int]:
        self._num_running += 1
        try:
            for item in range(number):
                await asyncio.sleep(delay_s)
                yield item
        finally:
            self._num_running -= 1

    async def break_off(self, number: int) -> AsyncIterator[int]:
        for item in range(number):
            yield item
        raise OSError("broken off")
