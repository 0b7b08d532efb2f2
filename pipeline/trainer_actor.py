"""The trainer in a process of its own: a Ray actor, and the driver's handle to it.

``start_trainer`` is called by pipeline.orchestrator, the handle by pipeline.training_loop. The actor dies
with the driver that made it; it is not restarted, because its weights would be lost: the run resumes from a
checkpoint.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import ray
import torch

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.messages import StepResult, TrainBatch, WeightUpdate
from pipeline.trainer import Trainer
from pipeline.weights import write_weights

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
_SAVE_TIMEOUT_S = 600.0


class TrainerError(StageError):
    """The trainer failed or did not answer in time; the message says in which call."""


@ray.remote(num_cpus=0, max_restarts=0)
class TrainerActor:
    """One Trainer; calls run one after another."""

    def __init__(self, config: Config, model_path: str, device: str, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        self._dtype = _DTYPES[config.generation.dtype]
        self._trainer = Trainer(config, model_path, device)

    def ready(self) -> int:
        """Answer once the model is loaded, with the actor's process id."""
        return os.getpid()

    def step(self, batch: TrainBatch) -> StepResult:
        """See Trainer.step."""
        return self._trainer.step(batch)

    def publish(self, directory: str) -> WeightUpdate:
        """Write the current weights into ``directory``."""
        version = self._trainer.policy_version
        path = str(Path(directory) / f"policy-{version:06d}.safetensors")
        return write_weights(self._trainer.named_weights(), path, version, self._dtype)

    def save(self, folder: str, step: int) -> str:
        """See Trainer.save."""
        return str(self._trainer.save(folder, step))

    def load(self, folder: str) -> int:
        """See Trainer.load."""
        return self._trainer.load(folder)


class TrainerHandle:
    """The driver's side of a TrainerActor. Every call has a deadline and raises TrainerError past it."""

    def __init__(self, actor: Any, config: Config, pid: int) -> None:
        self._actor = actor
        self._runtime = config.runtime
        self.pid = pid

    async def step(self, batch: TrainBatch) -> StepResult:
        """Train on ``batch``, within ``runtime.train_step_timeout_s``."""
        call = self._actor.step.remote(batch)
        result: StepResult = await self._wait(
            call, f"step {batch.step}", self._runtime.train_step_timeout_s, "runtime.train_step_timeout_s"
        )
        return result

    async def publish(self, directory: str) -> WeightUpdate:
        """Write the current weights into ``directory``, within ``runtime.weight_update_timeout_s``."""
        call = self._actor.publish.remote(directory)
        update: WeightUpdate = await self._wait(
            call, "publish", self._runtime.weight_update_timeout_s, "runtime.weight_update_timeout_s"
        )
        return update

    async def save(self, folder: Path, step: int) -> Path:
        """Write the checkpoint of ``step`` to ``folder``."""
        call = self._actor.save.remote(str(folder), step)
        return Path(await self._wait(call, f"save of step {step}", _SAVE_TIMEOUT_S, "fixed"))

    async def load(self, folder: Path) -> int:
        """Go on from the checkpoint in ``folder``; returns its step."""
        call = self._actor.load.remote(str(folder))
        return int(await self._wait(call, f"load of {folder}", _SAVE_TIMEOUT_S, "fixed"))

    def close(self) -> None:
        """End the actor's process."""
        ray.kill(self._actor)

    async def _wait(self, call: Awaitable[Any], what: str, timeout_s: float, setting: str) -> Any:
        return await _answer(call, f"the trainer (process {self.pid}): {what}", timeout_s, setting)


async def start_trainer(config: Config, model_path: str, device: str) -> TrainerHandle:
    """Start an actor and load the model on ``device`` ("cpu" or "cuda").

    Raises TrainerError when that fails, or takes longer than ``runtime.startup_timeout_s``.
    """
    num_threads = config.runtime.trainer_threads or len(os.sched_getaffinity(0))
    # Ray sets OMP_NUM_THREADS to 1 for actors without CPUs, and OpenMP reads it before any code of ours.
    environment = {"OMP_NUM_THREADS": str(num_threads), "TOKENIZERS_PARALLELISM": "false"}
    if device == "cpu":
        # The generator shares the cores: threads that spin at a barrier would take them from it.
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    options: dict[str, Any] = {"runtime_env": {"env_vars": environment}}
    if device == "cuda":
        options["num_gpus"] = 1.0 - config.generation.gpu_memory_utilization
    # Ray's decorator makes a class of its own, which type checkers do not see.
    actor_class: Any = TrainerActor
    actor = actor_class.options(**options).remote(config, model_path, device, num_threads)
    try:
        timeout_s = config.runtime.startup_timeout_s
        pid = await _answer(
            actor.ready.remote(), "the trainer: start", timeout_s, "runtime.startup_timeout_s"
        )
    except BaseException:
        ray.kill(actor)
        raise
    return TrainerHandle(actor, config, int(pid))


async def _answer(call: Awaitable[Any], what: str, timeout_s: float, setting: str) -> Any:
    try:
        return await asyncio.wait_for(call, timeout_s)
    except TimeoutError as error:
        raise TrainerError(f"{what}: no answer within {timeout_s:.0f} s ({setting})") from error
    except ray.exceptions.RayTaskError as error:
        raise TrainerError(f"{what}: {error.cause}") from error
    except ray.exceptions.RayError as error:
        raise TrainerError(f"{what}: {error}") from error
