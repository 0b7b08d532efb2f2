"""The SandboxPool: a fixed number of zygotes, one run each at a time, replaced when they fail or age.

Synchronous and thread-safe; needs no event loop, no signal handlers and no main thread. Keeps no
results: caching is the rewards' task.
"""

from __future__ import annotations

import queue
import threading
from typing import Final, Protocol

from sandbox.advice import refusal
from sandbox.execution import execute
from sandbox.result import ExecutionRequest, ExecutionResult, Outcome
from sandbox.worker import SandboxError, Worker

SAFE_LEVELS: Final = frozenset({"L2", "L3"})
_FREE_WORKER_TIMEOUT_S: Final = 600.0


class Executor(Protocol):
    """What scoring needs of a sandbox; ``SandboxPool`` is the real one."""

    @property
    def level(self) -> str:
        """The isolation in force."""
        ...

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one program against its tests."""
        ...


class SandboxPool:
    """Runs programs on ``num_workers`` zygotes.

    A zygote is replaced after ``recycle_after`` runs. A run that the machinery failed is made again
    up to ``max_infra_retries`` times, then reported as INFRA_ERROR, never as a bad program.
    Programs find the standard library and the installed packages ``modules`` (numpy, say), which are
    imported beforehand. ``without`` leaves out walls ("namespaces", "landlock", "seccomp", "user"), to
    test as on weaker hosts; below level L2 a pool refuses to start unless ``allow_unsafe`` is set.
    ``walls`` are those of the weakest zygote when they were tried at start, and no later zygote may run
    below their level; ``num_failures`` counts the zygotes that
    failed or died so far, each of which was replaced.
    """

    def __init__(
        self,
        num_workers: int = 1,
        recycle_after: int = 500,
        max_infra_retries: int = 2,
        *,
        modules: tuple[str, ...] = (),
        allow_unsafe: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> None:
        """Start all zygotes and wait for them. Raises ValueError, SandboxError, OSError (no process left)."""
        for name, value, least in (
            ("num_workers", num_workers, 1),
            ("recycle_after", recycle_after, 1),
            ("max_infra_retries", max_infra_retries, 0),
        ):
            if value < least:
                raise ValueError(f"SandboxPool: {name}={value} must be at least {least}")
        self._recycle_after = recycle_after
        self._max_infra_retries = max_infra_retries
        self._without = without
        self._modules = modules
        self._closed = threading.Event()
        self.num_failures = 0
        # None is a free place whose worker could not be started or was ended: start one on use.
        self._free: queue.LifoQueue[Worker | None] = queue.LifoQueue(num_workers)
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        try:
            workers = [self._start() for _ in range(num_workers)]
            for worker in workers:
                worker.wait_ready()
        except (SandboxError, OSError):
            self.close()
            raise
        self.walls = min(workers, key=lambda worker: worker.level).walls
        if self.level not in SAFE_LEVELS and not allow_unsafe:
            self.close()
            raise SandboxError(refusal(self.walls, "execution.allow_unsafe, or --allow-unsafe of a tool"))
        for worker in workers:
            self._free.put(worker)

    @property
    def level(self) -> str:
        """The isolation in force, L3 to L0; see ``canary.Walls.level``."""
        return self.walls.level()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the zygotes' launchers, for monitoring and for tests that kill them."""
        with self._lock:
            return [worker.pid for worker in self._workers]

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one program; blocks while all workers are busy.

        Raises ValueError for a request that cannot be run (arguments that are not plain data, a
        prelude or check program that fails by itself) and RuntimeError after ``close``.
        """
        reason = ""
        for _ in range(self._max_infra_retries + 1):
            if self._closed.is_set():
                raise RuntimeError("SandboxPool: run() after close()")
            try:
                worker = self._free.get(timeout=_FREE_WORKER_TIMEOUT_S)
            except queue.Empty:
                reason = f"no sandbox worker became free within {_FREE_WORKER_TIMEOUT_S} s"
                break
            kept: Worker | None = None
            num_runs = -1
            try:
                worker = self._usable(worker)
                num_runs = worker.num_runs
                result = execute(worker, request)
                kept = worker
            except ValueError:
                # A request that was refused before anything ran leaves the worker as it was.
                if worker is not None and worker.num_runs == num_runs:
                    kept = worker
                raise
            # OSError: no process, file or memory for it just now.
            except (SandboxError, OSError) as error:
                reason = str(error)
                self._count_failure()
            else:
                return result
            finally:
                self._give_back(worker, kept)
        if self._closed.is_set():
            raise RuntimeError("SandboxPool: run() after close()")
        return ExecutionResult(
            outcome=Outcome.INFRA_ERROR,
            num_passed=0,
            num_tests=request.num_tests,
            detail=reason[:200],
            clean=False,
            cpu_s=0.0,
            wall_s=0.0,
            level=self.level,
        )

    def close(self) -> None:
        """End all zygotes, also those at work: their runs become RuntimeError."""
        self._closed.set()
        with self._lock:
            workers = list(self._workers)
            self._workers.clear()
        for worker in workers:
            worker.close()

    def __enter__(self) -> SandboxPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> Worker:
        worker = Worker(self._without, self._modules)
        with self._lock:
            if not self._closed.is_set():
                self._workers.add(worker)
                return worker
        worker.close()
        raise RuntimeError("SandboxPool: run() after close()")

    def _usable(self, worker: Worker | None) -> Worker:
        """The worker itself, or a new one for one that is dead, aged or was never started."""
        if worker is not None and worker.num_runs < self._recycle_after and worker.is_alive():
            return worker
        if worker is not None:
            if not worker.is_alive():
                self._count_failure()
            self._end(worker)
        fresh = self._start()
        try:
            fresh.wait_ready()
            if fresh.level < self.level:
                # A host short of memory, namespaces or descriptors refuses a wall that it gave before.
                raise SandboxError(
                    f"a new sandbox process has level {fresh.level} only, this pool began with {self.level}"
                )
        except SandboxError:
            self._end(fresh)
            raise
        return fresh

    def _give_back(self, used: Worker | None, kept: Worker | None) -> None:
        """Free the place; a worker that failed or was left in the middle of a run is not used again."""
        try:
            if used is not None and kept is None:
                self._end(used)
        finally:
            self._free.put(kept)

    def _count_failure(self) -> None:
        with self._lock:
            self.num_failures += 1

    def _end(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.close()
