"""The driver's side of the trainer: its ranks as one handle, each call with a deadline.

    TrainerHandle.step ─► rank 0, rank 1, … (pipeline.trainer_actor) ─► the first rank's answer

A step is one collective after the other, so a rank that fails or falls silent holds up all of them: the
call ends at once then, with an error that names the rank, and all ranks are ended. ``start_trainer`` is
called by pipeline.orchestrator, the handle by pipeline.training_loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import ray

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.messages import StepResult, TrainBatch, WeightUpdate
from pipeline.trainer_actor import TrainerActor

_SAVE_TIMEOUT_S = 600.0
# After the first error of a rank: a rank that died makes the others' collectives fail, sometimes sooner
# than its own death is known.
_GRACE_S = 5.0
_PROBE_TIMEOUT_S = 3.0


class TrainerError(StageError):
    """The trainer failed or did not answer in time; the message says in which call, and which rank."""


class TrainerHandle:
    """The driver's side of the ranks. Every call has a deadline and raises TrainerError past it.

    ``pids`` are the ranks' processes, in order. After an error the ranks are gone.
    """

    def __init__(self, actors: Sequence[Any], config: Config) -> None:
        self._actors = list(actors)
        self._runtime = config.runtime
        self.pids: tuple[int, ...] = ()

    async def start(self) -> None:
        """Have the ranks meet and load the model, within ``runtime.startup_timeout_s``."""
        limit = (self._runtime.startup_timeout_s, "runtime.startup_timeout_s")
        meeting_point: tuple[str, int] | None = None
        if len(self._actors) > 1:
            meeting_point = await self._one(self._actors[0].open.remote(), "start", *limit)
        self.pids = tuple(await self._all(lambda actor: actor.start.remote(meeting_point), "start", *limit))

    async def step(self, batch: TrainBatch) -> StepResult:
        """Train on ``batch``, within ``runtime.train_step_timeout_s``."""
        shared = ray.put(batch)
        results: list[StepResult] = await self._all(
            lambda actor: actor.step.remote(shared),
            f"step {batch.step}",
            self._runtime.train_step_timeout_s,
            "runtime.train_step_timeout_s",
        )
        return results[0]

    async def publish(self, directory: str) -> WeightUpdate:
        """Write the current weights into ``directory``, within ``runtime.weight_update_timeout_s``."""
        updates: list[WeightUpdate] = await self._all(
            lambda actor: actor.publish.remote(directory),
            "publish",
            self._runtime.weight_update_timeout_s,
            "runtime.weight_update_timeout_s",
        )
        return updates[0]

    async def save(self, folder: Path, step: int) -> Path:
        """Write the checkpoint of ``step`` to ``folder``."""
        what = f"save of step {step}"
        paths = await self._all(
            lambda actor: actor.save.remote(str(folder), step), what, _SAVE_TIMEOUT_S, "fixed"
        )
        return Path(paths[0])

    async def load(self, folder: Path) -> int:
        """Go on from the checkpoint in ``folder``; returns its step."""
        what = f"load of {folder}"
        steps = await self._all(lambda actor: actor.load.remote(str(folder)), what, _SAVE_TIMEOUT_S, "fixed")
        return int(steps[0])

    def close(self) -> None:
        """End the ranks' processes."""
        for actor in self._actors:
            ray.kill(actor)

    async def _one(self, call: Awaitable[Any], what: str, timeout_s: float, setting: str) -> Any:
        (result,) = await self._wait([call], what, timeout_s, setting)
        return result

    async def _all(
        self, send: Callable[[Any], Awaitable[Any]], what: str, timeout_s: float, setting: str
    ) -> Any:
        return await self._wait([send(actor) for actor in self._actors], what, timeout_s, setting)

    async def _wait(self, calls: Sequence[Awaitable[Any]], what: str, timeout_s: float, setting: str) -> Any:
        """The answers to ``calls``, the first of them to rank 0 and so on."""
        tasks = [asyncio.ensure_future(call) for call in calls]
        try:
            done, pending = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
            if any(task.exception() for task in done):
                await asyncio.wait(tasks, timeout=_GRACE_S)
                rank, error = _culprit(tasks)
                cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
                raise TrainerError(f"{self._name(rank)}: {what}: {cause}") from error
            if pending:
                late = [rank for rank, task in enumerate(tasks) if not task.done()]
                names = ", ".join([self._name(rank) for rank in await self._silent(late)])
                raise TrainerError(f"{names}: {what}: no answer within {timeout_s:.0f} s ({setting})")
        except TrainerError:
            self.close()
            raise
        finally:
            for task in tasks:
                task.cancel()
        return [task.result() for task in tasks]

    async def _silent(self, late: Sequence[int]) -> list[int]:
        """Of the ranks that are ``late`` those that are stopped or gone; the others only wait for them.

        All of them when every one still answers: then it cannot be told who holds up whom.
        """

        async def answers(rank: int) -> bool:
            with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
                return bool(await asyncio.wait_for(self._actors[rank].answer.remote(), _PROBE_TIMEOUT_S))
            return False

        answered = await asyncio.gather(*[answers(rank) for rank in late])
        return [rank for rank, is_alive in zip(late, answered, strict=True) if not is_alive] or list(late)

    def _name(self, rank: int) -> str:
        of = f"rank {rank} of {len(self._actors)}, " if len(self._actors) > 1 else ""
        return f"the trainer ({of}process {self.pids[rank]})" if self.pids else f"the trainer ({of}starting)"


async def start_trainer(config: Config, model_path: str, device: str) -> TrainerHandle:
    """Start ``runtime.trainer_ranks`` processes and load the model on ``device`` ("cpu" or "cuda").

    Raises ValueError when there are fewer GPUs than ranks; TrainerError when the start fails or takes longer
    than ``runtime.startup_timeout_s``.
    """
    num_ranks = config.runtime.trainer_ranks
    options = _options(config, device, num_ranks)
    num_threads = int(options["runtime_env"]["env_vars"]["OMP_NUM_THREADS"])
    # Ray's decorator makes a class of its own, which type checkers do not see.
    actor_class: Any = TrainerActor
    actors = [
        actor_class.options(**options).remote(config, model_path, device, num_threads, rank, num_ranks)
        for rank in range(num_ranks)
    ]
    handle = TrainerHandle(actors, config)
    try:
        await handle.start()
    except BaseException:
        handle.close()
        raise
    return handle


def gpu_share(num_ranks: int, num_gpus: int, generator_share: float) -> float:
    """The share of a GPU that each rank takes, such that no two ranks ever share one.

    ``generator_share`` is ``generation.gpu_memory_utilization``. Raises ValueError where that cannot be.
    """
    if num_ranks > num_gpus:
        raise ValueError(
            f"runtime.trainer_ranks: value {num_ranks}: there are {num_gpus} GPUs, and every rank needs one "
            f"of its own; set it to at most {num_gpus}"
        )
    if num_ranks == 1:
        return 1.0 - generator_share
    if num_ranks < num_gpus:
        return 1.0
    if generator_share >= 0.5:
        raise ValueError(
            f"generation.gpu_memory_utilization: value {generator_share}: every GPU has a trainer rank, "
            "which needs more than half of it; set it below 0.5, or runtime.trainer_ranks lower"
        )
    return 1.0 - generator_share


def _options(config: Config, device: str, num_ranks: int) -> dict[str, Any]:
    """Ray's options for a rank: its threads, and its GPU if any."""
    num_threads = config.runtime.trainer_threads or len(os.sched_getaffinity(0))
    # Ray sets OMP_NUM_THREADS to 1 for actors without CPUs, and OpenMP reads it before any code of ours.
    environment = {
        "OMP_NUM_THREADS": str(max(num_threads // num_ranks, 1)),
        "TOKENIZERS_PARALLELISM": "false",
    }
    if device == "cpu":
        # The generator shares the cores: threads that spin at a barrier would take them from it.
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        # PyTorch asks for huge pages: the step's large tensors are new at every micro-batch.
        environment["THP_MEM_ALLOC_ENABLE"] = "1"
    options: dict[str, Any] = {"runtime_env": {"env_vars": environment}}
    if device == "cuda":
        num_gpus = int(ray.cluster_resources().get("GPU", 0))
        options["num_gpus"] = gpu_share(num_ranks, num_gpus, config.generation.gpu_memory_utilization)
    return options


def _culprit(tasks: Sequence[asyncio.Future[Any]]) -> tuple[int, BaseException]:
    """The rank whose error is the cause: one that died before one whose call failed, as others' then do."""
    errors = [
        (rank, error)
        for rank, task in enumerate(tasks)
        if task.done() and (error := task.exception()) is not None
    ]
    return min(errors, key=lambda item: isinstance(item[1], ray.exceptions.RayTaskError))
