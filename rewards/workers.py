"""The WorkerGroup: Scorers in processes, each with its own sandbox, and who gets which completion.

Gives each item to the least loaded worker that is ready, with a deadline, and replaces workers that
die or are late. Knows no cache and keeps no results: an item that cannot be scored comes back as an
infrastructure error. For one event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field
from typing import Any

from configs.rollouts_schema import RolloutsConfig
from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.task import Task
from rewards.breaker import RewardsBrokenError
from rewards.deadline import IN_FLIGHT_PER_WORKER, scoring_deadline_s
from rewards.feedback import FeedbackError
from rewards.result import RewardResult, infra_error, one_line
from rewards.worker import (
    CallCancelledError,
    Scored,
    StartWorker,
    WorkerCallError,
    WorkerInfo,
    WorkerLink,
    WorkerLostError,
)

_logger = logging.getLogger(__name__)
# A worker's death is not its item's fault, unless it dies of this item every time.
_MAX_DEATHS_PER_ITEM = 8
_MAX_STARTS = 5
_PAUSE_S = 0.5  # between them


class _Worker:
    """One worker, from its start to its end: its place among the workers, and its load."""

    def __init__(self, index: int, link: WorkerLink) -> None:
        self.index = index
        self.link = link
        self.info: WorkerInfo | None = None  # None until it is ready
        self.is_dead = False
        self.num_in_flight = 0
        # Of the items that it holds, in their order: the deadline and its seconds. It runs for the first.
        self.deadlines: list[tuple[asyncio.Timeout, float]] = []
        self.num_sandbox_failures = 0

    @property
    def has_room(self) -> bool:
        is_ready = self.info is not None and not self.is_dead
        return is_ready and self.num_in_flight < IN_FLIGHT_PER_WORKER

    def watch_first(self) -> None:
        """Begin the time of the item that is first now."""
        if self.deadlines and self.deadlines[0][0].when() is None:
            deadline, seconds = self.deadlines[0]
            deadline.reschedule(asyncio.get_running_loop().time() + seconds)


@dataclass(order=True, slots=True)
class _Turn:
    """Someone's place in the line."""

    priority: float
    number: int
    worker: asyncio.Future[_Worker] = field(compare=False)


class WorkerGroup:
    """``num_workers`` reward workers, each as ``start_worker`` starts it.

    The constructor blocks until every worker is up, at most ``startup_timeout_s``; RewardsBrokenError,
    with the reason, where one is not. ``timeout_s`` is an item's deadline, see ``scoring_deadline_s``.
    """

    def __init__(
        self,
        rewards: RewardsConfig,
        execution: ExecutionConfig,
        num_workers: int,
        *,
        start_worker: StartWorker,
        timeout_s: float | None,
        startup_timeout_s: float,
        on_restart: Callable[[str], None] | None = None,
    ) -> None:
        self._on_restart = on_restart
        self._sections = (rewards, execution)
        self._start_worker = start_worker
        self._timeout_s = timeout_s
        self._startup_timeout_s = startup_timeout_s
        self._is_closed = False
        self._broken: RewardsBrokenError | None = None
        self._waiting: list[_Turn] = []  # a heap; who was cancelled is passed over
        self._numbers = itertools.count()
        # Held here, since the event loop holds its tasks weakly.
        self._jobs: set[asyncio.Task[Any]] = set()
        self.num_restarts, self.told_s = 0, 0.0
        self._workers = [_Worker(index, self._start_worker(*self._sections)) for index in range(num_workers)]
        self._wait_until_up()

    @property
    def infos(self) -> list[WorkerInfo]:
        """What the workers that are ready now said of themselves."""
        return [worker.info for worker in self._workers if worker.info is not None and not worker.is_dead]

    @property
    def num_in_flight(self) -> int:
        """Items that workers hold now."""
        return sum(worker.num_in_flight for worker in self._workers)

    @property
    def num_waiting(self) -> int:
        """Items that wait for a place in a worker."""
        return sum(not turn.worker.done() for turn in self._waiting)

    def deadline_s(self, num_stdio_tests: int) -> float:
        """An item's deadline, from when its worker has no other before it."""
        return scoring_deadline_s(self._timeout_s, *self._sections, num_stdio_tests)

    async def score(
        self, task: Task, text: str, *, priority: float = 0, by_tests: bool = False
    ) -> RewardResult:
        """Score ``text`` as an answer to ``task`` in the least loaded worker; waits for a free place.

        Of those who wait the one with the smallest ``priority`` is first, then the one that came first. Gives
        an INFRA_ERROR when the worker raised, was late, or died of the item again and again; ``detail`` names
        worker and task. Once cancelled, an item that no worker has begun is not run; one that runs keeps its
        place until it ends. Raises RewardsBrokenError when no worker is left and none can be started.
        """
        if by_tests:
            result = await self._ask("judge", task, text, priority=priority)
        else:
            result = await self._ask("score", task, text, priority=priority)
        assert isinstance(result, RewardResult)
        return result

    async def tell(
        self, task: Task, text: str, result: RewardResult, rollouts: RolloutsConfig, *, priority: float = 0
    ) -> str:
        """Feedback as ``rollouts`` says on an answer that was scored ``result``, on the terms of ``score``.

        Raises FeedbackError where ``score`` gives an infrastructure error.
        """
        told = await self._ask("tell", task, text, result, rollouts, priority=priority)
        if isinstance(told, RewardResult):
            raise FeedbackError(told.detail)
        return told

    async def _ask(self, method: str, task: Task, *arguments: object, priority: float) -> RewardResult | str:
        """What ``method`` of a worker gives; an INFRA_ERROR where that fails, see ``score``."""
        start = time.perf_counter()
        detail = ""
        for num_deaths in range(_MAX_DEATHS_PER_ITEM):
            # What has waited before is not to wait again.
            worker = await self._acquire(-math.inf if num_deaths > 0 else priority)
            score = worker.link.call(method, task, *arguments)
            # In a task of its own: the place is taken until the worker is done, whoever still waits.
            what = "feedback" if method == "tell" else "score"
            attempt = asyncio.create_task(self._attempt(worker, score, task, what))
            self._hold(attempt)
            try:
                return await asyncio.shield(attempt)
            except asyncio.CancelledError:
                worker.link.cancel(score)
                raise
            except WorkerLostError as error:
                detail = (
                    f"reward worker {worker.index} died over {what} for {task.task_id}: {one_line(error)}"
                )
        detail = f"{_MAX_DEATHS_PER_ITEM} reward workers died with this item; the last: {detail}"
        return infra_error(detail, time.perf_counter() - start)

    def close(self) -> None:
        """End every worker, and with them their sandboxes and linters. Safe to call twice."""
        self._is_closed = True
        for worker in self._workers:
            worker.link.kill()

    def _wait_until_up(self) -> None:
        asked = [worker.link.call("describe") for worker in self._workers]
        done, late = wait(asked, self._startup_timeout_s, FIRST_EXCEPTION)
        errors = [error for one in done if (error := one.exception()) is not None]
        if errors:
            self.close()
            raise RewardsBrokenError(f"a reward worker did not start: {one_line(errors[0])}") from errors[0]
        if late:
            self.close()
            raise RewardsBrokenError(
                f"reward workers: not all {len(self._workers)} were up after {self._startup_timeout_s:g} s "
                "(runtime.startup_timeout_s)"
            )
        for worker, one in zip(self._workers, asked, strict=True):
            worker.info = one.result()
        self._configurations = {info.configuration for info in self.infos}

    async def _attempt(
        self, worker: _Worker, score: Future[Scored], task: Task, what: str
    ) -> RewardResult | str:
        """Wait for ``what``, score or feedback; the place is free when this ends. Raises WorkerLostError."""
        start = time.perf_counter()
        deadline_s = self.deadline_s(len(task.stdio_tests))
        entry = (asyncio.timeout(None), deadline_s)
        try:
            async with entry[0]:
                worker.deadlines.append(entry)
                worker.watch_first()
                scored: Scored = await asyncio.wrap_future(score)
            self._note_sandbox(worker, scored.num_sandbox_failures)
            self.told_s += scored.told_s
            return scored.result
        except CallCancelledError:
            detail = "nobody waits for it any more"
        except WorkerCallError as error:
            # A fault of the scorer, not of the answer; the worker itself is well.
            detail = f"reward worker {worker.index} failed on {task.task_id}: {one_line(error)}"
            _logger.warning("%s", detail)
        except TimeoutError:
            detail = f"reward worker {worker.index}: no {what} for {task.task_id} in {deadline_s:g} s"
            self._replace(worker, detail)
        except WorkerLostError as error:
            self._replace(worker, f"reward worker {worker.index} died: {one_line(error)}")
            raise
        finally:
            worker.num_in_flight -= 1
            worker.deadlines.remove(entry)
            worker.watch_first()
            self._serve()
        return infra_error(detail, time.perf_counter() - start)

    async def _acquire(self, priority: float) -> _Worker:
        """A worker with a place reserved in it. Every item ahead has a deadline, so the line moves."""
        self._check()
        worker = None if self._waiting else self._least_loaded()
        if worker is not None:
            worker.num_in_flight += 1
            return worker
        turn = _Turn(priority, next(self._numbers), asyncio.get_running_loop().create_future())
        heapq.heappush(self._waiting, turn)
        try:
            return await turn.worker
        except asyncio.CancelledError:
            if turn.worker.done() and not turn.worker.cancelled():
                # The place and the cancellation came in the same turn of the loop.
                turn.worker.result().num_in_flight -= 1
                self._serve()
            raise

    def _least_loaded(self) -> _Worker | None:
        ready = (worker for worker in self._workers if worker.has_room)
        return min(ready, key=lambda worker: worker.num_in_flight, default=None)

    def _serve(self) -> None:
        """Give free places to those who wait, in their order."""
        while self._waiting:
            if self._waiting[0].worker.done():
                heapq.heappop(self._waiting)
                continue
            worker = self._least_loaded()
            if worker is None:
                return
            worker.num_in_flight += 1
            heapq.heappop(self._waiting).worker.set_result(worker)

    def _replace(self, dead: _Worker, reason: str) -> None:
        """Start a new worker for ``dead``, unless another item that it held has done so already."""
        if dead.is_dead or self._is_closed:
            return
        dead.is_dead = True
        self.num_restarts += 1
        self._note(f"{reason}; the worker is replaced")
        dead.link.kill()
        self._workers[dead.index] = fresh = _Worker(dead.index, dead.link)
        self._hold(asyncio.create_task(self._bring_up(fresh)))

    def _note_sandbox(self, worker: _Worker, num_failures: int) -> None:
        if num_failures > worker.num_sandbox_failures:
            worker.num_sandbox_failures = num_failures
            self._note(f"the sandbox of reward worker {worker.index} failed; it is replaced")

    def _note(self, text: str) -> None:
        if self._on_restart is None:
            _logger.warning("%s", text)
        else:
            self._on_restart(text)

    async def _bring_up(self, worker: _Worker) -> None:
        """Start ``worker`` in the place of one that was killed, and again if it does not come up."""
        for number in range(_MAX_STARTS):
            await asyncio.sleep(_PAUSE_S if number > 0 else 0.0)
            if self._is_closed:
                return
            try:
                worker.link = self._start_worker(*self._sections)
                future = asyncio.wrap_future(worker.link.call("describe"))
                info = await asyncio.wait_for(future, self._startup_timeout_s)
                if info.configuration not in self._configurations:
                    raise WorkerLostError(f"its tools or its sandbox (level {info.level}) are not the run's")
            except TimeoutError:
                reason = f"not up after {self._startup_timeout_s:g} s (runtime.startup_timeout_s)"
            # Of any kind: nobody reads this job's error, and a worker neither up nor given up is waited for.
            # What failed (a process, a thread) may be had again when others have ended.
            except Exception as error:
                reason = one_line(error)
            else:
                worker.info = info
                self._serve()
                return
            if not self._is_closed:
                _logger.warning("reward worker %d did not start: %s", worker.index, reason)
            worker.link.kill()
        worker.is_dead = True
        _logger.error("reward worker %d is given up after %d starts", worker.index, _MAX_STARTS)
        if all(other.is_dead for other in self._workers):
            self._break(f"no reward worker is left, and none starts; the last reason: {reason}")

    def _break(self, reason: str) -> None:
        self._broken = RewardsBrokenError(f"rewards: {reason}")
        while self._waiting:
            turn = heapq.heappop(self._waiting)
            if not turn.worker.done():
                turn.worker.set_exception(self._broken)

    def _check(self) -> None:
        if self._is_closed:
            raise RuntimeError("the reward workers were closed")
        if self._broken is not None:
            raise self._broken

    def _hold(self, job: asyncio.Task[Any]) -> None:
        self._jobs.add(job)
        job.add_done_callback(self._let_go)

    def _let_go(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            # Marks the error as seen, for an attempt whose waiter has left.
            job.exception()
