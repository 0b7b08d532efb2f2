"""The driver's side of the trainer: its ranks as one handle, each call with a deadline.

    TrainerHandle.step ─► rank 0, rank 1, … (pipeline.training.rank) ─► the first rank's answer

A step is one collective after the other, so a rank that fails or falls silent holds up all of them: the call
ends at once then, with an error that names the rank, and all ranks are ended. They can be started again, and
are then as at the start of the run, until ``load``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from configs.schema import Config
from pipeline.errors import TrainerDiedError, TrainerError, TrainerLostError
from pipeline.host.limits import num_oom_kills, why_killed
from pipeline.host.shares import cpu_threads, gpu_shares, sends_weights
from pipeline.messages import StepResult, TrainBatch, WeightUpdate
from pipeline.training.rank import TrainerActor

if TYPE_CHECKING:
    from pipeline.cluster.places import ClusterPlaces


_SAVE_TIMEOUT_S = 600.0
# After the first error of a rank: a rank that died makes the others' collectives fail, sometimes sooner
# than its own death is known.
_GRACE_S = 5.0
_PROBE_TIMEOUT_S = 3.0


class TrainerHandle:
    """The driver's side of the ranks. Every call has a deadline and raises TrainerLostError past it.

    ``pids`` are the ranks' processes, in order. After an error the ranks are gone, until ``start``.
    """

    def __init__(
        self, config: Config, model_path: str, device: str, places: ClusterPlaces | None = None
    ) -> None:
        self._config = config
        self._places = places
        self._runtime = config.runtime
        self._model_path = model_path
        self._device = device
        self._actors: list[Any] = []
        self._num_oom_kills = 0
        self._sends = False
        self.pids: tuple[int, ...] = ()

    async def start(self) -> None:
        """Start the ranks' processes, have them meet and load the model.

        All of it within ``runtime.startup_timeout_s``; when it fails nothing of it is left. Raises ValueError
        when there are fewer GPUs than ranks.
        """
        self.close()
        self.pids = ()
        self._num_oom_kills = num_oom_kills()
        num_gpus = int(ray.cluster_resources().get("GPU", 0))
        self._sends = sends_weights(self._config, self._device, num_gpus)
        self._actors = _make_actors(self._config, self._model_path, self._device, self._places)
        try:
            await self._meet_and_load()
        except BaseException:
            self.close()
            raise

    async def _meet_and_load(self) -> None:
        limit = (self._runtime.startup_timeout_s, "runtime.startup_timeout_s")
        meeting_point: tuple[str, int] | None = None
        if len(self._actors) > 1:
            meeting_point = await self._one(self._actors[0].open.remote(), "start", *limit)
        self.pids = tuple(await self._all(lambda actor: actor.start.remote(meeting_point), "start", *limit))

    async def accumulate(self, batch: TrainBatch) -> None:
        """Add the gradient of an earlier part of a step, within ``runtime.train_step_timeout_s``."""
        shared = ray.put(batch)
        await self._all(
            lambda actor: actor.accumulate.remote(shared),
            f"part {batch.part} of step {batch.step}",
            self._runtime.train_step_timeout_s,
            "runtime.train_step_timeout_s",
        )

    async def step(self, batch: TrainBatch) -> StepResult:
        """Train on ``batch``, a step or its last part, within ``runtime.train_step_timeout_s``."""
        shared = ray.put(batch)
        results: list[StepResult] = await self._all(
            lambda actor: actor.step.remote(shared),
            f"step {batch.step}",
            self._runtime.train_step_timeout_s,
            "runtime.train_step_timeout_s",
        )
        return results[0]

    async def publish(self, directory: str) -> WeightUpdate:
        """Make the current weights ready to be loaded, within ``runtime.weight_update_timeout_s``.

        They are in ``directory`` then, or the first rank sends them to whoever asks: see
        ``runtime.weight_transport``.
        """
        updates: list[WeightUpdate] = await self._all(
            lambda actor: (actor.offer if self._sends else actor.publish).remote(directory),
            "publish",
            self._runtime.weight_update_timeout_s,
            "runtime.weight_update_timeout_s",
        )
        return updates[0]

    async def save(self, folder: Path, step: int) -> Path:
        """Write the checkpoint of ``step`` to ``folder``."""
        what = f"save of step {step}"
        paths = await self._all(
            lambda actor: actor.save.remote(_path(folder), step), what, _SAVE_TIMEOUT_S, "fixed"
        )
        return Path(paths[0])

    async def save_beside(self, folder: Path, step: int) -> Path:
        """As ``save``, at once: beside a step that is being computed, which has changed no weights yet.

        With several ranks it waits for what they are doing, since they save together. Raises TrainerError
        where the weights are those of another step by then.
        """
        if len(self._actors) != 1:
            return await self.save(folder, step)
        what = f"save of step {step}"
        call = self._actors[0].save_beside.remote(_path(folder), step)
        return Path(await self._one(call, what, _SAVE_TIMEOUT_S, "fixed"))

    async def load(self, folder: Path) -> int:
        """Go on from the checkpoint in ``folder``; returns its step."""
        what = f"load of {folder}"
        steps = await self._all(
            lambda actor: actor.load.remote(_path(folder)), what, _SAVE_TIMEOUT_S, "fixed"
        )
        return int(steps[0])

    def close(self) -> None:
        """End the ranks' processes."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    async def _one(self, call: Awaitable[Any], what: str, timeout_s: float, setting: str) -> Any:
        (result,) = await self._wait([call], what, timeout_s, setting)
        return result

    async def _all(
        self, send: Callable[[Any], Awaitable[Any]], what: str, timeout_s: float, setting: str
    ) -> Any:
        return await self._wait([send(actor) for actor in self._actors], what, timeout_s, setting)

    async def _wait(self, calls: Sequence[Awaitable[Any]], what: str, timeout_s: float, setting: str) -> Any:
        """The answers to ``calls``, the first of them to rank 0 and so on."""
        if not calls:
            raise TrainerLostError(f"the trainer: {what}: its processes have ended")
        tasks = [asyncio.ensure_future(call) for call in calls]
        try:
            done, pending = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
            if any(task.exception() for task in done):
                await asyncio.wait(tasks, timeout=_GRACE_S)
                rank, error = _culprit(tasks)
                if isinstance(error, ray.exceptions.RayTaskError):
                    raise TrainerError(f"{self._name(rank)}: {what}: {error.cause}") from error
                raise TrainerDiedError(f"{self._name(rank)}: {what}: {self._obituary(error)}") from error
            if pending:
                late = [rank for rank, task in enumerate(tasks) if not task.done()]
                names = ", ".join([self._name(rank) for rank in await self._silent(late)])
                raise TrainerLostError(f"{names}: {what}: no answer within {timeout_s:.0f} s ({setting})")
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

    def _obituary(self, error: BaseException) -> str:
        """Why a rank is gone. Ray knows whether it was its own memory monitor, and little else."""
        if isinstance(error, ray.exceptions.OutOfMemoryError):
            return f"Ray has ended its process for want of memory: {str(error).splitlines()[0]}"
        return f"its process died: {why_killed(self._num_oom_kills)}"

    def _name(self, rank: int) -> str:
        of = f"rank {rank} of {len(self._actors)}, " if len(self._actors) > 1 else ""
        return f"the trainer ({of}process {self.pids[rank]})" if self.pids else f"the trainer ({of}starting)"


async def start_trainer(
    config: Config, model_path: str, device: str, places: ClusterPlaces | None = None
) -> TrainerHandle:
    """Start ``runtime.trainer_ranks`` processes and load the model on ``device`` ("cpu" or "cuda").

    With ``places`` they are there, on the nodes of a cluster.

    Raises ValueError when there are fewer GPUs than ranks; TrainerError when the start fails or takes longer
    than ``runtime.startup_timeout_s``.
    """
    handle = TrainerHandle(config, model_path, device, places)
    await handle.start()
    return handle


def _make_actors(config: Config, model_path: str, device: str, places: ClusterPlaces | None) -> list[Any]:
    num_ranks = config.runtime.trainer_ranks
    options = _options(config, device, num_ranks, shares_gpus=places is None)
    of_place = [{} if places is None else places.rank_options(rank) for rank in range(num_ranks)]
    num_threads = int(options["runtime_env"]["env_vars"]["OMP_NUM_THREADS"])
    # Ray's decorator makes a class of its own, which type checkers do not see.
    actor_class: Any = TrainerActor
    return [
        actor_class.options(**options, **of_place[rank]).remote(
            config, model_path, device, num_threads, rank, num_ranks
        )
        for rank in range(num_ranks)
    ]


def _options(config: Config, device: str, num_ranks: int, *, shares_gpus: bool) -> dict[str, Any]:
    """Ray's options for a rank: its threads, and where ``shares_gpus`` what it takes of one."""
    num_threads = cpu_threads(config, len(os.sched_getaffinity(0))).trainer
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
    if device == "cuda" and shares_gpus:
        num_gpus = int(ray.cluster_resources().get("GPU", 0))
        options["num_gpus"] = gpu_shares(config, num_gpus).rank
    return options


def _path(folder: Path) -> str:
    """``folder`` for a process that may work in another one, as those of a Ray cluster do."""
    return str(folder.absolute())


def _culprit(tasks: Sequence[asyncio.Future[Any]]) -> tuple[int, BaseException]:
    """The rank whose error is the cause: one that died before one whose call failed, as others' then do."""
    errors = [
        (rank, error)
        for rank, task in enumerate(tasks)
        if task.done() and (error := task.exception()) is not None
    ]
    return min(errors, key=lambda item: isinstance(item[1], ray.exceptions.RayTaskError))
