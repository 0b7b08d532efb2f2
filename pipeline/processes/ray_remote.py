"""An object in a Ray actor: on a share of a GPU, or on another node. Needs a running Ray.

The actor takes no CPU of Ray's count: on a small machine it shares the cores with the others instead of
waiting for them for ever. Ray does not start it again: whoever owns it decides that. It dies with the driver.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from typing import Any

import ray

from pipeline.host.limits import num_oom_kills, why_killed
from pipeline.processes.connection import Asked, OutOfMemoryError, ProcessGoneError, settle, value_of
from pipeline.processes.serve import Servant
from pipeline.processes.wire import Answer, Call, Item

_MAX_CALLS = 10_000
_CAUSE_LINES, _CAUSE_LENGTH = 8, 500


class RayServant:
    """A Servant as Ray's methods; what a call raises comes back as an answer, so what Ray raises is Ray's."""

    def __init__(self, target: str, arguments: tuple[Any, ...]) -> None:
        self._servant = Servant(target, arguments)
        self._num_expected = 0
        self._came = asyncio.Condition()

    async def answer(self, call: Call) -> Answer:
        """See Servant."""
        await self._expect(call)
        # In a task of its own, which can be cancelled without Ray's knowing.
        return await asyncio.create_task(self._servant.answer(call))

    @ray.method(num_returns="streaming")  # type: ignore[untyped-decorator]
    async def answers(self, call: Call) -> AsyncIterator[Answer]:
        """See Servant."""
        await self._expect(call)
        async for answer in self._servant.answers(call):
            yield answer

    async def cancel(self, call_id: int) -> None:
        """See Servant."""
        async with self._came:
            await self._came.wait_for(lambda: call_id < self._num_expected)
        self._servant.cancel(call_id)

    async def _expect(self, call: Call) -> None:
        """Ray begins the calls of an asynchronous actor in any order; ours begin in that of their numbers."""
        async with self._came:
            await self._came.wait_for(lambda: call.call_id == self._num_expected)
            self._servant.expect(call)
            self._num_expected += 1
            self._came.notify_all()


class RayProcess:
    """See pipeline.processes.connection.Remote.

    ``target`` is MODULE:CLASS, ``arguments`` are its constructor's, ``options`` are Ray's for the actor;
    ``environment`` is added to that of Ray's workers.
    """

    def __init__(
        self,
        target: str,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        # Ray would start one of its own here, of which nobody else knows.
        assert ray.is_initialized(), f"{target}: Ray has not been started"
        # The name of the class is what Ray shows of it, in its lists and those of processes.
        named = type(target.partition(":")[2], (RayServant,), {})
        actor_class: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(named)
        settings: dict[str, Any] = {"max_concurrency": _MAX_CALLS, **(options or {})}
        if environment:
            settings["runtime_env"] = {"env_vars": dict(environment)}
        self._num_oom_kills = num_oom_kills()
        self._actor = actor_class.options(**settings).remote(target, arguments)
        self._num_sent = 0
        self._sending = threading.Lock()

    def call(self, method: str, *arguments: object, is_beside: bool = False) -> Future[Any]:
        """See Remote."""
        call_id, reference = self._send(self._actor.answer, method, arguments, is_beside=is_beside)
        answer = Asked(call_id)

        def take(done: Future[Answer]) -> None:
            error = done.exception()
            if isinstance(error, ray.exceptions.RayError):
                settle(answer, self._obituary(error))
            elif error is not None:
                answer.set_exception(error)
            else:
                settle(answer, done.result())

        reference.future().add_done_callback(take)
        return answer

    async def stream(self, method: str, *arguments: object) -> AsyncIterator[Any]:
        """See Remote."""
        call_id, references = self._send(self._actor.answers, method, arguments, is_stream=True)
        is_done = False
        try:
            async for reference in references:
                answer: Answer = await reference
                is_done = not isinstance(answer, Item)
                if is_done:
                    value_of(answer)
                    return
                yield value_of(answer)
        except ray.exceptions.RayError as error:
            is_done = True
            raise self._obituary(error) from error
        finally:
            if not is_done:
                self._actor.cancel.remote(call_id)

    def cancel(self, call: Future[Any]) -> None:
        """See Remote."""
        assert isinstance(call, Asked)
        if not call.done():
            self._actor.cancel.remote(call.call_id)

    def kill(self) -> None:
        """See Remote."""
        ray.kill(self._actor, no_restart=True)

    def _send(
        self, ray_method: Any, method: str, arguments: tuple[object, ...], **kind: bool
    ) -> tuple[int, Any]:
        """The call's number and what Ray gives for it. A call that cannot be sent takes no number."""
        with self._sending:
            call = Call(call_id=self._num_sent, method=method, arguments=arguments, **kind)
            reference = ray_method.remote(call)
            self._num_sent += 1
        return call.call_id, reference

    def _obituary(self, error: ray.exceptions.RayError) -> ProcessGoneError:
        """What happened to the actor or its node. Ray knows what its memory monitor did, and little else."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if isinstance(error, ray.exceptions.OutOfMemoryError):
            return OutOfMemoryError(f"Ray has ended its process for want of memory: {lines[0]}")
        # What follows the first lines is the log of the node.
        cause = f"{type(error).__name__}: {'; '.join(lines[:_CAUSE_LINES])}"[:_CAUSE_LENGTH]
        return ProcessGoneError(
            f"its process died: {cause}; on the driver's machine {why_killed(self._num_oom_kills)}"
        )
